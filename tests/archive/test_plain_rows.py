"""Rows that nothing follows and no other row saves leave in one statement a batch; what is not as it was copied stays
all the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from archive.cold import CONTRACT, OLD_MS, Cold, cold_keeper
from servers import Database
from wane._archive.pipeline import evict
from wane._archive.pipeline.evict import Eviction
from wane._prune.sweep import Outcome

PLAIN = CONTRACT.replace('with = ["event_read.event_id"]\n', "").replace(
    'unless = [{{ referenced_by = "event_guard.event_id" }}]\n', ""
)
ROWS = 100


def fill(
    database: Database,
    columns: str = "id bigint",
    make: Callable[[int], Any] = lambda n: n,
    key: str = "id",
) -> None:
    database.execute(
        f"CREATE TABLE event ({columns}, status text NOT NULL, at_ms bigint NOT NULL, body text, PRIMARY KEY ({key}))"
    )
    database.execute("CREATE INDEX event_due ON event (status, at_ms, id)")
    database.executemany(
        "INSERT INTO event (id, status, at_ms, body) VALUES (?, ?, ?, ?)",
        [(make(n), "done", OLD_MS + n * 3_600_000, f"body {n}") for n in range(1, ROWS + 1)],
    )


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many rows were checked on their own."""
    checked: list[int] = []
    before = Eviction._one_by_one

    def check(self: Eviction, batch: list[Any], *, skip_locked: bool) -> None:
        checked.append(len(batch))
        before(self, batch, skip_locked=skip_locked)

    monkeypatch.setattr(Eviction, "_one_by_one", check)
    return checked


KEYS: dict[str, tuple[str, Callable[[int], Any], str]] = {
    "integer": ("id integer", lambda n: n, "id"),
    "several": (
        "id bigint, tenant text NOT NULL DEFAULT 'a, \"b\"', shard smallint NOT NULL DEFAULT -7",
        lambda n: n,
        "tenant, id, shard",
    ),
    "text": ("id text", lambda n: f"'k''{n * 7919 % 1000}\"\\\n% 😀é", "id"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_unchanged_rows_need_no_read_of_their_own(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fill(database, *KEYS[kind])
    checked = one_by_one(monkeypatch)
    with cold_keeper(database, tmp_path, PLAIN) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted, done.stale) == (Outcome.DONE, {"event": ROWS}, 0)
        assert database.query("SELECT count(*) FROM event") == [(0,)]
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS
    assert checked == []


CHANGES = {
    "updated": "UPDATE event SET body = 'updated' WHERE id = 70",
    "revived": "UPDATE event SET status = 'open' WHERE id = 70",
    "younger": "UPDATE event SET at_ms = 32503680000000 WHERE id = 70",
}


@pytest.mark.parametrize("when", ["written", "committed", "batch"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_row_that_changed_stays_hot_and_its_copy_leaves(
    database: Database, tmp_path: Path, change: str, when: str
) -> None:
    fill(database)
    with cold_keeper(database, tmp_path, PLAIN) as cold:
        cold.at[when] = lambda: database.execute(CHANGES[change])
        _stays(cold)


def test_an_earlier_transaction_that_writes_later_changes_what_leaves(
    postgres_database: Database, tmp_path: Path
) -> None:
    """The one between two that wrote rows of a batch may write both: the sum of their numbers stays the same."""
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, PLAIN) as cold, ExitStack() as stack:
        three = [stack.enter_context(closing(psycopg.connect(postgres_database.url))) for _ in range(3)]

        def begin(connection: psycopg.Connection[Any]) -> int:
            connection.rollback()
            [(number,)] = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
            return int(number)

        def update(connection: psycopg.Connection[Any], ids: list[int]) -> None:
            connection.execute("UPDATE event SET body = body || ' updated' WHERE id = ANY (%s)", (ids,))
            connection.commit()

        numbers = [0, 0, 1]
        while numbers[0] + numbers[2] != 2 * numbers[1]:  # Other databases of the server have transactions too.
            numbers = [begin(connection) for connection in three]
        update(three[0], [30])
        update(three[2], [31])
        cold.at["committed"] = lambda: update(three[1], [30, 31])
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 2)
        bodies = postgres_database.query("SELECT id, body FROM event ORDER BY id")
        assert bodies == [(one, f"body {one} updated updated") for one in (30, 31)]


@pytest.mark.parametrize("change", ["added", "exchanged"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_row_that_was_not_copied_stays_in_the_range_of_those_that_were(
    database: Database, tmp_path: Path, kind: str, change: str
) -> None:
    fill(database, *KEYS[kind])
    make = KEYS[kind][1]
    with cold_keeper(database, tmp_path, PLAIN) as cold:

        def add() -> None:
            if change == "exchanged":
                database.execute("DELETE FROM event WHERE id = ?", (make(70),))
            values = (make(170), "done", OLD_MS + 70 * 3_600_000, "new")
            database.execute("INSERT INTO event (id, status, at_ms, body) VALUES (?, ?, ?, ?)", values)

        cold.at["committed"] = add
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 0)
        assert cold.hot() == [make(170)]
        assert cold.cold() == sorted(make(n) for n in range(1, ROWS + 1))
        gone = ROWS - (change == "exchanged")
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == gone


def test_a_batch_with_one_other_row_leaves_in_pieces(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database)
    monkeypatch.setattr(evict, "_LEAST_PIECE", 3)
    checked = one_by_one(monkeypatch)
    with cold_keeper(database, tmp_path, PLAIN) as cold:
        cold.at["committed"] = lambda: database.execute(CHANGES["updated"])
        _stays(cold)
    assert sum(checked) <= 3, "only its own piece was checked row by row"


@pytest.mark.parametrize("key", [{"id": 70}, None])
def test_a_row_that_is_held_stays_hot_and_its_copy_leaves(
    database: Database, tmp_path: Path, key: dict[str, int] | None
) -> None:
    fill(database)
    with cold_keeper(database, tmp_path, PLAIN) as cold:
        cold.at["committed"] = lambda: cold.keeper.hold("event", key, reason="a test")
        if key is None:
            done = cold.one()
            assert (done.evicted, done.stale) == ({"event": 0}, ROWS)
            assert (len(cold.hot()), cold.cold()) == (ROWS, [])
        else:
            _stays(cold)


def _stays(cold: Cold) -> None:
    done = cold.run().rules[0]
    assert done.outcome is Outcome.DONE, done.message
    assert (cold.hot(), done.stale) == ([70], 1)
    assert cold.cold() == [n for n in range(1, ROWS + 1) if n != 70]
    assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS - 1


def test_a_row_that_the_application_deleted_is_not_counted(database: Database, tmp_path: Path) -> None:
    fill(database)
    with cold_keeper(database, tmp_path, PLAIN) as cold:
        cold.at["committed"] = lambda: database.execute("DELETE FROM event WHERE id = 70")
        done = cold.one()
        assert (done.evicted, done.stale) == ({"event": ROWS - 1}, 0)
        assert len(cold.cold()) == ROWS, "what was copied before it was deleted stays archived"


def test_a_row_whose_key_differs_by_case_only_is_another_row(sqlite_database: Database, tmp_path: Path) -> None:
    """The table calls both equal, so the statement that lets go one of them must not find the other."""
    fill(sqlite_database, "id text COLLATE NOCASE", lambda n: f"key {n}")
    with cold_keeper(sqlite_database, tmp_path, PLAIN) as cold:

        def replace() -> None:
            sqlite_database.execute("UPDATE event SET id = 'KEY 70' WHERE id = 'key 70'")

        cold.at["committed"] = replace
        assert cold.one().outcome is Outcome.DONE
        assert cold.hot() == ["KEY 70"]


def test_a_locked_row_is_waited_for_and_its_neighbours_are_not(postgres_database: Database, tmp_path: Path) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, PLAIN) as cold, closing(postgres_database.connect()) as other:

        def lock() -> None:
            other.execute("BEGIN")
            other.execute("SELECT 1 FROM event WHERE id = 70 FOR UPDATE")
            cold.at["batch"] = check

        def check() -> None:
            if cold.hot() == [70]:
                other.execute("ROLLBACK")
            else:
                cold.at["batch"] = check

        cold.at["committed"] = lock
        assert cold.one().outcome is Outcome.DONE
        assert cold.at == {}, "everything but the locked row had left while it was locked"
        assert cold.hot() == []
        assert cold.cold() == list(range(1, ROWS + 1))


def test_a_trigger_that_keeps_a_row_is_an_error_and_nothing_is_lost(database: Database, tmp_path: Path) -> None:
    fill(database)
    if database.store == "sqlite":
        database.execute("CREATE TRIGGER keep BEFORE DELETE ON event WHEN old.id = 70 BEGIN SELECT RAISE(IGNORE); END")
    else:
        database.execute(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF old.id = 70 THEN RETURN NULL; END IF; RETURN old; END $$"
        )
        database.execute("CREATE TRIGGER keep BEFORE DELETE ON event FOR EACH ROW EXECUTE FUNCTION keep()")
    with cold_keeper(database, tmp_path, PLAIN) as cold:
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert "trigger" in done.message
        assert 70 in cold.hot()
        assert set(cold.hot()) | set(cold.cold()) == set(range(1, ROWS + 1))
