"""The application goes on while its rows move: what changed stays hot, what was copied before leaves the archive again,
and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, OLD_MS, Cold, cold_keeper, conserve, events
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._archive.pipeline.evict import Eviction
from wane._prune.sweep import Outcome
from wane.errors import TimedOut

ROWS = 130


def disturb(database: Database, first: int) -> None:
    """Do everything that an application may do to rows, beginning with the row `first`, which is divisible by three."""
    assert first % 3 == 0
    for statement in (
        f"UPDATE event SET body = 'updated' WHERE id = {first}",
        f"UPDATE event SET body = body WHERE id = {first + 1}",
        f"DELETE FROM event_read WHERE event_id = {first + 2}",
        f"DELETE FROM event WHERE id = {first + 2}",
        f"UPDATE event SET status = 'open' WHERE id = {first + 3}",
        f"INSERT INTO event_read VALUES (90001, {first + 4}, 'new')",
        f"UPDATE event_read SET who = 'changed' WHERE event_id = {first + 5}",
        f"DELETE FROM event_read WHERE event_id = {first + 7}",
        f"INSERT INTO event_guard VALUES (2, {first + 8})",
        f"UPDATE event SET at_ms = at_ms + 1 WHERE id = {first + 9}",
        f"INSERT INTO event VALUES (20001, 'done', {OLD_MS}, 'late', 1)",
    ):
        database.execute(statement)


def contents(database: Database) -> dict[str, dict[int, tuple[Any, ...]]]:
    return {
        "event": {row[0]: row for row in database.query("SELECT id, status, at_ms, body FROM event")},
        "event_read": {row[0]: row for row in database.query("SELECT id, event_id, who FROM event_read")},
    }


def frozen(cold: Cold) -> dict[str, dict[int, tuple[Any, ...]]]:
    rows = [(row["id"], row["status"], row["at_ms"], row["body"]) for row in cold.archived()]
    reads = [(row["id"], row["event_id"], row["who"]) for row in cold.archived("event_read")]
    assert len({row[0] for row in rows}) == len(rows)
    assert len({row[0] for row in reads}) == len(reads)
    return {"event": {row[0]: row for row in rows}, "event_read": {row[0]: row for row in reads}}


def test_a_cascade_that_is_created_after_the_copy_keeps_every_row_hot(database: Database, tmp_path: Path) -> None:
    events(database, 12)

    def act() -> None:
        database.execute(
            "CREATE TABLE payment (id bigint PRIMARY KEY, event_id bigint REFERENCES event (id) ON DELETE CASCADE)"
        )
        database.execute("INSERT INTO payment SELECT id, id FROM event")

    with cold_keeper(database, tmp_path) as cold:
        cold.at["committed"] = act
        before = contents(database)
        done = cold.one()
        assert (done.outcome, "uncounted" in done.message) == (Outcome.FAILED, True)
        assert contents(database) == before
        assert database.query("SELECT count(*) FROM payment") == [(len(before["event"]),)]
        database.execute("DROP TABLE payment")
        database.execute("CREATE INDEX harmless ON event (body)")
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        after = contents(database), frozen(cold)
        for table, rows in before.items():
            assert sorted([*after[0][table], *after[1][table]]) == sorted(rows)


@pytest.mark.parametrize("when", ["planned", "written", "verified", "committed", "batch"])
def test_whatever_the_application_does_every_row_exists_exactly_once(
    database: Database, tmp_path: Path, when: str
) -> None:
    events(database, ROWS)
    left: dict[str, dict[int, tuple[Any, ...]]] = {}

    def act() -> None:
        disturb(database, 111)  # None of these has left when the first batch has.
        cold.keeper.hold("event", {"id": 122}, reason="a test")
        cold.keeper.hold("event_read", {"id": 1240}, reason="a test")  # It follows row 124.
        left.update(contents(database))
        if when == "batch":
            for table, rows in frozen(cold).items():
                left[table] = {**rows, **left[table]}

    with cold_keeper(database, tmp_path) as cold:
        cold.at[when] = act
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        now_hot, now_cold = contents(database), frozen(cold)
        deleted = {"event": {113}, "event_read": {1130, 1131, 1180}}
        for table, rows in left.items():
            for number, row in rows.items():
                if number in deleted[table]:
                    continue
                copies = [tier[table][number] for tier in (now_hot, now_cold) if number in tier[table]]
                assert copies == [row], f"{table} {number}"
            # What the application deleted is nowhere, or archived as it was when it was copied.
            assert set(now_cold[table]) - set(rows) <= deleted[table]
            assert not set(now_hot[table]) - set(rows)
        stays = {114, 119, 122, 124, 20001 if when in ("written", "verified", "committed", "batch") else 119}
        assert stays <= set(now_hot["event"])
        for holding in cold.keeper.holds():
            assert holding.id is not None
            cold.keeper.release_hold(holding.id)
        repeated = cold.one()
        assert repeated.outcome is Outcome.DONE
        assert set(contents(database)["event"]) == {114, 119, 10_001, 10_002, 10_003}
        counts = [entry.counts for entry in cold.keeper.audit(kind="archive")]
        assert sum(one["event"] for one in counts) == ROWS + 1 - 1 - 2  # One came, one was deleted, two stay.


def test_a_table_that_changes_after_it_was_copied_keeps_its_rows(database: Database, tmp_path: Path) -> None:
    events(database, 50)
    ever = {"event": {number for (number,) in database.query("SELECT id FROM event")}}
    with cold_keeper(database, tmp_path) as cold:
        cold.at["committed"] = lambda: database.execute("ALTER TABLE event ADD COLUMN note text DEFAULT 'x'")
        done = cold.one()
        # What was copied lacks the column: all of it stays hot, leaves the archive, and moves with the next sweep.
        assert done.outcome is Outcome.DONE, done.message
        assert done.stale == 50
        conserve(cold, ever, done=True)
        assert len(cold.cold()) == 0
    with cold_keeper(database, tmp_path) as cold:
        assert cold.one().archived["event"] == 50
        assert {row["note"] for row in cold.archived()} == {"x"}
        conserve(cold, ever, done=True)


def test_two_writers_do_not_write_to_one_archive(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path) as cold:
        seen: list[Any] = []

        def second() -> None:
            with cold_keeper(database, tmp_path) as other:
                seen.append(other.one())

        cold.at["written"] = second
        assert cold.one().outcome is Outcome.DONE
        assert seen[0].outcome is Outcome.FAILED
        assert "is being written by" in seen[0].message
        assert len(cold.cold()) == 10


@pytest.mark.parametrize("when", ["planned", "written", "verified", "committed", "batch", "evicted"])
def test_a_writer_who_was_replaced_changes_nothing(database: Database, tmp_path: Path, when: str) -> None:
    events(database, 100)
    ever = {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}
    with cold_keeper(database, tmp_path) as cold:

        def replaced() -> None:
            lease = cold.keeper.store.dialect.own_table("lease")
            past = "'2020-01-01T00:00:00.000000Z'"
            database.execute(f"UPDATE {lease} SET until = {past}")
            with cold_keeper(database, tmp_path) as other:
                assert other.one().outcome is Outcome.DONE

        cold.at[when] = replaced
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert "lease" in done.message
        conserve(cold, ever, done=True)
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == 100
        assert [status.state for status in cold.keeper.archive.status()] == ["done"]


def test_a_replaced_writer_restores_no_stale_copy(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    database = sqlite_database
    events(database, 30)
    ever = {"event": {number for (number,) in database.query("SELECT id FROM event")}}
    with cold_keeper(database, tmp_path) as cold:

        def replaced() -> None:
            database.execute("UPDATE event SET body = 'changed', status = 'open' WHERE id = 3")
            database.execute("UPDATE wane_lease SET until = '2020-01-01T00:00:00.000000Z'")
            with cold_keeper(database, tmp_path) as other:
                assert (other.one().outcome, 3 in other.cold()) == (Outcome.DONE, False)

        cold.at["verified"] = replaced
        assert cold.one().outcome is Outcome.FAILED
        conserve(cold, ever, done=True)


@pytest.mark.parametrize("when", ["before", "committed"])
def test_a_row_that_a_live_one_follows_stays_hot(database: Database, tmp_path: Path, when: str) -> None:
    live_reads = """
[table.event_read]
scheduler = "night"
why   = "a test"
state = "who"
live  = ["busy"]
time  = {{ column = "id", unit = "ms" }}
rule.gone = {{ when = ["done"], keep = "90d" }}
"""
    events(database, 12)

    def act() -> None:
        database.execute("INSERT INTO event_read VALUES (90001, 8, 'busy')")

    with cold_keeper(database, tmp_path, CONTRACT + live_reads) as cold:
        if when == "before":
            act()
        else:
            cold.at["committed"] = act
        assert cold.one().evicted["event"] == 11
        assert 8 in cold.hot()
        assert 8 not in cold.cold()
        assert 90_001 in cold.hot("event_read")


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


def test_a_row_that_left_beside_a_locked_one_stays_archived_if_its_key_is_reused(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    database = postgres_database
    events(database, 12)
    with cold_keeper(database, tmp_path) as cold:
        with _locked(database, 7):
            cold.at["batch"] = crash
            with pytest.raises(Crash):
                cold.one()
        assert 3 not in cold.hot()
        assert 7 in cold.hot()
        database.execute("INSERT INTO event VALUES (3, 'done', ?, 'another row', 1)", (OLD_MS,))
        assert cold.one().outcome is Outcome.DONE
        assert [row["body"] for row in cold.archived() if row["id"] == 3 and row["_sweep"] == 1] == [
            "body 3 \U0001f600"
        ]
        assert not set(range(1, 13)) & set(cold.hot())
        assert cold.cold().count(7) == 1


@contextmanager
def _locked(database: Database, row: int) -> Iterator[None]:
    with closing(database.connect()) as other:
        other.execute("BEGIN")
        other.execute(f"SELECT 1 FROM event WHERE id = {row} FOR UPDATE")
        yield


def test_a_row_that_left_with_half_a_batch_stays_archived_if_its_key_is_reused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 12)
    transaction = Eviction._transaction

    def slow(self: Eviction, positions: Any, take: Any) -> Any:
        if len(positions) > 6:
            raise TimedOut("the batch takes too long")
        return transaction(self, positions, take)

    monkeypatch.setattr(Eviction, "_transaction", slow)
    with cold_keeper(database, tmp_path) as cold:
        cold.at["batch"] = crash
        with pytest.raises(Crash):
            cold.one()
        assert 3 not in cold.hot()
        assert 12 in cold.hot()
        database.execute("INSERT INTO event VALUES (3, 'open', ?, 'another row', 1)", (OLD_MS,))
        assert cold.one().outcome is Outcome.DONE
        assert [row["body"] for row in cold.archived() if row["id"] == 3] == ["body 3 \U0001f600"]
        assert set(range(1, 13)) == set(cold.cold())
