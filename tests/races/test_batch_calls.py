"""Batches that are one call, from the second of a sweep on (PostgreSQL): no race takes a row that is not due, or one
uncounted.

The call refuses what it did not expect, and nothing of it is committed; the same batch is then taken statement by
statement. Behind a pooler, where every call is refused, the same races have the same outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from races.racing import (
    FOLLOWED,
    GUARDED,
    JOBS,
    Background,
    audited,
    await_true,
    await_waiting,
    backend,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    sweeper,
)
from races.test_recheck import CHANGES, LIVE_NOTES
from sampling import POOLED
from servers import PostgresDatabase
from wane._contract.settings import Budget
from wane._db.postgres.gate import GATE
from wane._db.postgres.store import PostgresStore
from wane._keeper import Keeper
from wane._leases import Fence, Leases
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, PlannedRows, Sweeper, SweptRule
from wane.events import BatchTaken, Event, SlowedDown

pytestmark = pytest.mark.usefixtures("patient")

BY_TIME = "DROP INDEX jobs_due; CREATE INDEX jobs_due ON jobs (status, done_at)"
"""No index has the keys in order, so batches end at a time."""
SMALL = Pace(target_seconds=10.0, duty=1.0, first_batch=4, least_batch=4, most_batch=4)
ACTIONS = ["NO ACTION", "RESTRICT", "CASCADE", "SET NULL"]


class Calls(list[bool]):
    """Whether each call took a batch. Behind a pooler none does: no session there has the function."""

    def __init__(self, *, pooled: bool) -> None:
        super().__init__()
        self._pooled = pooled

    def refused(self, count: int) -> bool:
        """Check that so many calls took nothing, and that there were others."""
        return not any(self) if self._pooled else self.count(False) == count and any(self)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, server_id: str) -> Calls:
    """Record the calls. Nothing is replaced: calls go through as they are."""
    taken = Calls(pooled=server_id == POOLED)
    original = PostgresStore.call

    def call(this: PostgresStore, *arguments: Any, **options: Any) -> tuple[Any, ...] | None:
        found = original(this, *arguments, **options)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(PostgresStore, "call", call)
    return taken


def after_batch(action: Callable[[], object], number: int = 1) -> Callable[[Event], None]:
    """Do something between two batches of a sweep."""
    seen = 0

    def listen(event: Event) -> None:
        nonlocal seen
        if isinstance(event, BatchTaken):
            seen += 1
            if seen == number:
                action()

    return listen


def small(keeper: Keeper, between: Callable[[], object], **options: Any) -> Sweeper:
    return sweeper(keeper, after_batch(between), pace=SMALL, **options)


def overlap(database: PostgresDatabase, keeper: Keeper, *statements: str) -> SweptRule:
    """Change rows in a transaction that is open when the second batch begins; commit it when the batch waits for it."""
    application = database.connect()
    opened: list[bool] = []

    def change() -> None:
        application.execute("BEGIN")
        for statement in statements:
            application.execute(statement.encode())
        opened.append(True)

    taking = Background(lambda: small(keeper, change).sweep().rules[0])
    await_true(lambda: bool(opened), "the first batch is committed")
    await_waiting(database, backend_of(keeper), backend(application))
    application.execute("COMMIT")
    return taking.result()


@contextmanager
def world(database: PostgresDatabase, folder: Path, contract: str, references: str, rows: int = 12) -> Iterator[Keeper]:
    create(database, references)
    fill(database, rows)
    if contract is JOBS:
        database.execute("DROP TABLE notes")
    with enabled_keeper(database, folder, contract) as keeper:
        yield keeper


@pytest.mark.own_session
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_every_batch_but_the_first_is_one_call(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, contract: str
) -> None:
    with world(postgres_database, tmp_path, contract, "REFERENCES jobs") as keeper:
        if contract is not JOBS:
            postgres_database.execute("INSERT INTO notes SELECT n, n FROM generate_series(1, 12, 3) AS n")
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert swept.outcome is Outcome.DONE
        assert 1 < len(calls) < swept.batches
        assert all(calls)
        stay = [1, 4, 7, 10] if contract is GUARDED else []
        assert ids(postgres_database) == stay
        assert swept.counts["jobs"] == audited(keeper) == 12 - len(stay)
        assert swept.counts.get("notes", 0) == audited(keeper, "notes") == (4 if contract is FOLLOWED else 0)
        [entry] = keeper.audit()
        assert (entry.batches, entry.rows, entry.counts) == (swept.batches, swept.rows, swept.counts)


@pytest.mark.pooled("plain-revived")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_a_changed_row_survives(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, contract: str, change: str
) -> None:
    with world(postgres_database, tmp_path, contract, "REFERENCES jobs") as keeper:
        statement, values = CHANGES[change]
        text = statement.replace("id = 2", "id = 5") % values
        swept = overlap(postgres_database, keeper, text)
        assert ids(postgres_database) == [99 if change == "another key" else 5]
        assert swept.counts["jobs"] == audited(keeper) == 11
        assert calls.refused(0)


@pytest.mark.pooled("CASCADE")
@pytest.mark.parametrize("action", ACTIONS)
def test_a_reference_that_appears_saves_its_row(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, action: str
) -> None:
    with world(postgres_database, tmp_path, GUARDED, f"REFERENCES jobs ON DELETE {action}") as keeper:
        swept = overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 6)")
        assert ids(postgres_database) == [6]
        assert postgres_database.query("SELECT id, job_id FROM notes") == [(1, 6)]
        assert swept.counts == {"jobs": 11}
        assert audited(keeper) == 11
        assert (calls[0], calls.refused(1)) == (False, True)


@pytest.mark.pooled
def test_a_reference_without_a_key_that_appears_saves_its_row(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, GUARDED, "") as keeper:
        swept = overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 6)")
        assert ids(postgres_database) == [6]
        assert postgres_database.query("SELECT id, job_id FROM notes") == [(1, 6)]
        assert swept.counts["jobs"] == audited(keeper) == 11
        assert calls == []


def test_a_reference_that_a_trigger_would_clear_saves_its_row(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, GUARDED, "REFERENCES jobs") as keeper:
        postgres_database.script(
            "CREATE FUNCTION clear_notes() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS"
            " $$ BEGIN UPDATE notes SET job_id = NULL WHERE job_id = OLD.id; RETURN OLD; END $$;"
            " CREATE TRIGGER clears BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION clear_notes()"
        )
        overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 6)")
        assert ids(postgres_database) == [6]
        assert postgres_database.query("SELECT id, job_id FROM notes") == [(1, 6)]
        assert audited(keeper) == 11
        assert (calls[0], calls.refused(1)) == (False, True)


@pytest.mark.pooled("CASCADE")
@pytest.mark.parametrize("action", ACTIONS)
def test_a_follower_that_appears_leaves_counted(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, action: str
) -> None:
    with world(postgres_database, tmp_path, FOLLOWED, f"REFERENCES jobs ON DELETE {action}") as keeper:
        # By those of the first batch, a call takes few enough rows for what is new to fit.
        postgres_database.execute("INSERT INTO notes VALUES (6, 1), (7, 2), (8, 5), (9, 12)")
        swept = overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 5)")
        assert ids(postgres_database) == ids(postgres_database, "notes") == []
        assert swept.counts == {"jobs": 12, "notes": 5}
        assert (audited(keeper), audited(keeper, "notes")) == (12, 5)
        assert calls.refused(1)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "change",
    ["INSERT INTO notes VALUES (1, 5, 'open')", "UPDATE notes SET body = 'open' WHERE id = 7"],
    ids=["new", "updated"],
)
def test_a_follower_that_becomes_live_keeps_its_row(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, change: str, action: str
) -> None:
    with world(postgres_database, tmp_path, FOLLOWED + LIVE_NOTES, f"REFERENCES jobs ON DELETE {action}") as keeper:
        postgres_database.execute("INSERT INTO notes VALUES (5, 1, 'shut'), (6, 2, 'shut'), (7, 5, 'shut')")
        overlap(postgres_database, keeper, change)
        assert ids(postgres_database) == [5]
        assert (5, "open") in postgres_database.query("SELECT job_id, body FROM notes")
        assert (audited(keeper), audited(keeper, "notes")) == (11, 2)
        assert calls.refused(1)


def test_a_row_below_a_follower_that_appears_leaves_counted(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    nested = JOBS + 'with = [{ table = "notes", columns = ["job_id"], with = ["words.note_id"] }]\n'
    create(postgres_database, "REFERENCES jobs ON DELETE CASCADE")
    fill(postgres_database, 12)
    postgres_database.script(
        "CREATE TABLE words (id bigint PRIMARY KEY, note_id bigint REFERENCES notes ON DELETE CASCADE);"
        " CREATE INDEX ON words (note_id); INSERT INTO notes SELECT n, n FROM generate_series(1, 12) AS n;"
        " INSERT INTO words SELECT n, n FROM generate_series(1, 12, 2) AS n"
    )
    with enabled_keeper(postgres_database, tmp_path, nested) as keeper:
        # The first batch takes job 1 with what follows it.
        overlap(postgres_database, keeper, "INSERT INTO words VALUES (100, 2)")
        assert [ids(postgres_database, name) for name in ("jobs", "notes", "words")] == [[], [], []]
        assert [audited(keeper, name) for name in ("jobs", "notes", "words")] == [12, 12, 7]
        assert (calls[0], calls.refused(calls.count(False))) == (False, True)


@pytest.mark.pooled("a row-guarded")
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
@pytest.mark.parametrize("key", ["NULL", """'["5"]'"""], ids=["the table", "a row"])
def test_a_call_waits_for_the_hold_that_is_being_placed(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, contract: str, key: str
) -> None:
    with world(postgres_database, tmp_path, contract, "REFERENCES jobs") as keeper:
        swept = overlap(
            postgres_database,
            keeper,
            f"SELECT pg_advisory_xact_lock({GATE}, hashtext('public.jobs'))",
            "INSERT INTO wane.hold (table_name, key, reason, author, created_at)"
            f" VALUES ('public.jobs', {key}, 'a test', 'race', now())",
        )
        assert ids(postgres_database) == ([5] if key != "NULL" else [5, 6, 7, 8, 9, 10, 11, 12])
        assert swept.counts["jobs"] == audited(keeper) == 12 - len(ids(postgres_database))
        assert calls.refused(0)


@pytest.mark.own_session
@pytest.mark.parametrize(
    "sizes",
    [[1] * 11, [2, 9, 1, 3, 4], [3, 1, 1], [12], [4, 4, 4, 4], [5, 5, 5]],
    ids=["none", "many in the middle", "a few", "all", "full batches", "more than fit"],
)
def test_rows_of_one_time_leave_in_calls(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, sizes: list[int]
) -> None:
    with world(postgres_database, tmp_path, JOBS, "", rows=sum(sizes)) as keeper:
        for time, size in enumerate(sizes):
            moved = f"id > {sum(sizes[:time])} AND id <= {sum(sizes[:time]) + size}"
            postgres_database.execute(
                f"UPDATE jobs SET done_at = (SELECT min(done_at) FROM jobs) + {time} WHERE {moved}"
            )
        postgres_database.script(BY_TIME)
        events: list[Event] = []
        swept = sweeper(keeper, events.append, pace=SMALL).sweep().rules[0]
        batches = [event.counts["jobs"] for event in events if isinstance(event, BatchTaken)]
        assert ids(postgres_database) == []
        assert max(batches) <= 4
        assert sum(batches) == swept.counts["jobs"] == audited(keeper) == sum(sizes)
        assert calls
        assert all(calls)


@pytest.mark.parametrize("rows", [12, 7], ids=["a full batch", "the last batch"])
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_a_row_that_changes_in_a_batch_that_ends_at_a_time_stays(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, contract: str, rows: int
) -> None:
    with world(postgres_database, tmp_path, contract, "REFERENCES jobs", rows) as keeper:
        postgres_database.script(BY_TIME)
        swept = overlap(postgres_database, keeper, "UPDATE jobs SET status = 'queued' WHERE id = 6")
        assert ids(postgres_database) == [6]
        assert swept.counts["jobs"] == audited(keeper) == rows - 1
        assert calls.refused(0)


@pytest.mark.own_session
def test_the_last_batch_that_ends_at_a_time_is_found_in_one_read(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    pace = Pace(target_seconds=10.0, duty=1.0, first_batch=100, least_batch=100, most_batch=100)
    with world(postgres_database, tmp_path, JOBS, "", rows=190) as keeper:
        postgres_database.script(BY_TIME)
        assert sweeper(keeper, pace=pace).sweep().rules[0].batches == 2
        assert calls == [True]
    read = "SELECT n_tup_del, idx_tup_read FROM pg_stat_user_indexes JOIN pg_stat_user_tables USING (relid, relname)"
    statistics = f"{read} WHERE indexrelname = 'jobs_due'"
    await_true(lambda: postgres_database.query(statistics)[0][0] == 190, "the session has reported what it did")
    [(_, entries)] = postgres_database.query(statistics)
    assert 2 * 190 <= entries < 2 * 190 + 20, "each row is read once to find the end of its batch, and once to take it"


@pytest.mark.parametrize("action", ACTIONS)
def test_a_reference_that_appears_saves_its_row_from_the_last_batch(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, action: str
) -> None:
    with world(postgres_database, tmp_path, GUARDED, f"REFERENCES jobs ON DELETE {action}", rows=7) as keeper:
        swept = overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 6)")
        assert ids(postgres_database) == [6]
        assert postgres_database.query("SELECT id, job_id FROM notes") == [(1, 6)]
        assert swept.counts == {"jobs": 6}
        assert audited(keeper) == 6
        assert calls == [False]


def test_the_last_batch_waits_for_the_hold_that_is_being_placed(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, JOBS, "", rows=7) as keeper:
        swept = overlap(
            postgres_database,
            keeper,
            f"SELECT pg_advisory_xact_lock({GATE}, hashtext('public.jobs'))",
            "INSERT INTO wane.hold (table_name, key, reason, author, created_at)"
            """ VALUES ('public.jobs', '["6"]', 'a test', 'race', now())""",
        )
        assert ids(postgres_database) == [6]
        assert swept.counts["jobs"] == audited(keeper) == 6
        assert calls.refused(0)


@pytest.mark.own_session
def test_the_last_batch_is_not_larger_than_it_may_be(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, FOLLOWED, "REFERENCES jobs", rows=7) as keeper:
        postgres_database.execute("INSERT INTO notes SELECT n, 5 + n % 3 FROM generate_series(1, 15) AS n")
        events: list[Event] = []
        swept = sweeper(keeper, events.append, pace=SMALL).sweep().rules[0]
        assert max(sum(event.counts.values()) for event in events if isinstance(event, BatchTaken)) <= 4
        assert (swept.outcome, swept.counts) == (Outcome.DONE, {"jobs": 7, "notes": 15})
        assert calls[0] is False


@pytest.mark.own_session
def test_a_call_in_a_session_that_lost_its_settings_takes_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        store = keeper.store
        assert isinstance(store, PostgresStore)
        swept = (
            sweeper(keeper, after_batch(lambda: store._connection.execute("RESET ALL"), 2), pace=SMALL).sweep().rules[0]
        )
        assert (swept.outcome, swept.counts["jobs"]) == (Outcome.DONE, 12)
        assert calls == [True, False, True]


@pytest.mark.pooled("another")
@pytest.mark.parametrize("lost", ["another's", "ended"])
def test_a_call_under_a_lost_lease_takes_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, lost: str
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        store = keeper.store
        with store.write() as (run, now):
            _, lease = Leases(store.dialect).take(run, "sweep:jobs", "race", store.now() + timedelta(hours=1), now)
        change = "fence = fence + 1" if lost == "another's" else "until = now()"
        fence = Fence(lease, None, 20.0, "it is another's")

        def lose() -> None:
            postgres_database.execute(f"UPDATE wane.lease SET {change}")

        swept = sweeper(keeper, after_batch(lose, 2), pace=SMALL, fence=fence).sweep().rules[0]
        assert (swept.outcome, swept.batches, calls.refused(1)) == (Outcome.STOPPED, 2, True)
        assert ids(postgres_database) == [9, 10, 11, 12]
        assert audited(keeper) == 8


def test_a_call_after_a_gate_closed_takes_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        swept = small(keeper, lambda: keeper.disable("jobs")).sweep().rules[0]
        assert (swept.outcome, calls) == (Outcome.OFF, [False])
        assert ids(postgres_database) == list(range(5, 13))


def test_a_call_whose_audit_row_is_gone_takes_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        swept = small(keeper, lambda: postgres_database.execute("DELETE FROM wane.audit")).sweep().rules[0]
        assert (swept.outcome, calls) == (Outcome.FAILED, [False])
        assert "audit row is missing" in swept.message
        assert ids(postgres_database) == list(range(5, 13))


def test_a_schema_that_changed_is_rebound(postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        change = "CREATE TABLE notes (id int, job_id bigint REFERENCES jobs ON DELETE CASCADE)"
        swept = small(keeper, lambda: postgres_database.execute(change)).sweep().rules[0]
        assert (swept.outcome, calls) == (Outcome.FAILED, [False]), "it would delete rows uncounted"
        assert ids(postgres_database) == list(range(5, 13))


def test_a_key_that_protects_no_longer_is_not_relied_upon(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, GUARDED, "REFERENCES jobs") as keeper:
        disable = "ALTER TABLE notes DISABLE TRIGGER ALL"
        swept = small(keeper, lambda: postgres_database.execute(disable)).sweep().rules[0]
        assert (swept.outcome, any(calls)) == (Outcome.DONE, False)
        assert ids(postgres_database) == []


def test_a_trigger_that_retains_rows_fails_the_batch(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        postgres_database.script(
            "CREATE FUNCTION retain() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF OLD.id = 6 THEN RETURN NULL; END IF; RETURN OLD; END $$;"
            " CREATE TRIGGER retains BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION retain()"
        )
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert (swept.outcome, calls) == (Outcome.FAILED, [False])
        assert ids(postgres_database) == list(range(5, 13))
        assert audited(keeper) == 4


@pytest.mark.own_session
def test_rows_with_more_followers_than_fit_leave_in_several_batches(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, FOLLOWED, "REFERENCES jobs ON DELETE CASCADE") as keeper:
        postgres_database.execute("INSERT INTO notes SELECT n, 6 FROM generate_series(1, 21) AS n")
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert ids(postgres_database) == ids(postgres_database, "notes") == []
        assert swept.counts == {"jobs": 12, "notes": 21}
        assert (audited(keeper), audited(keeper, "notes")) == (12, 21)
        assert False in calls


@pytest.mark.own_session
def test_where_most_rows_stay_the_rest_is_found_without_calls(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, GUARDED, "REFERENCES jobs", rows=60) as keeper:
        postgres_database.execute("INSERT INTO notes SELECT n, n FROM generate_series(5, 54) AS n")
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert swept.counts["jobs"] == 10
        assert ids(postgres_database) == list(range(5, 55))
        assert (len(calls), swept.batches) == (1, 4)


@pytest.mark.own_session
@pytest.mark.parametrize("how", ["discarded", "not permitted"])
def test_a_session_without_the_function_takes_its_batches_statement_by_statement(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, how: str
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        session: psycopg.Connection[Any] = keeper.store._connection  # type: ignore[attr-defined]

        def lose() -> None:
            if how == "discarded":
                session.execute("DISCARD TEMP")

        if how == "not permitted":
            [(name,)] = postgres_database.query("SELECT current_database()")
            role = f"sweeping_{name}"
            postgres_database.script(
                f'CREATE ROLE "{role}"; REVOKE TEMPORARY ON DATABASE "{name}" FROM PUBLIC; GRANT USAGE ON SCHEMA wane, public'
                f' TO "{role}"; GRANT ALL ON ALL TABLES IN SCHEMA wane, public TO "{role}";'
                f' GRANT ALL ON ALL SEQUENCES IN SCHEMA wane TO "{role}"'
            )
            session.execute(f'SET ROLE "{role}"'.encode())
        swept = sweeper(keeper, after_batch(lose, 2), pace=SMALL).sweep().rules[0]
        assert (swept.outcome, swept.counts) == (Outcome.DONE, {"jobs": 12})
        assert calls == ([True, False, False] if how == "discarded" else [False, False])
        assert ids(postgres_database) == []
        assert audited(keeper) == 12


@pytest.mark.own_session
@pytest.mark.parametrize("contract", [JOBS, GUARDED], ids=["plain", "guarded"])
def test_the_first_batch_of_a_large_table_is_a_call(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, contract: str
) -> None:
    with world(postgres_database, tmp_path, contract, "REFERENCES jobs") as keeper:
        first = small(keeper, lambda: None).sweep(budget={"batches": 1}, run="statement by statement").rules[0]
        assert calls == []
        postgres_database.execute("ANALYZE jobs")
        second = small(keeper, lambda: None).sweep(budget={"batches": 1}, run="in a call").rules[0]
        assert calls == [True]
        assert [first.outcome, second.outcome] == [Outcome.BUDGET] * 2
        entries = keeper.audit()
        assert [entry.run for entry in entries] == ["in a call", "statement by statement"]
        assert [entry.counts for entry in entries] == [second.counts, first.counts]
        assert ids(postgres_database) == list(range(1 + audited(keeper), 13))
        same = ("kind", "table", "actor", "rule", "inputs", "batches")
        called, other = ([getattr(entry, name) for name in same] for entry in entries)
        assert called == other
        for entry in entries:
            assert entry.cutoff is not None
            assert timedelta() <= entry.executed_at - entry.cutoff - timedelta(days=7) < timedelta(minutes=1)
            assert entry.seconds > 0


@pytest.mark.parametrize("change", ["UPDATE jobs SET status = 'queued' WHERE id = 2", "DELETE FROM jobs WHERE id = 2"])
def test_a_row_that_changes_in_a_first_batch_that_is_a_call_stays(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, change: str
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        postgres_database.execute("ANALYZE jobs")
        application = postgres_database.connect()
        application.execute("BEGIN")
        application.execute(change.encode())
        taking = Background(lambda: small(keeper, lambda: None).sweep().rules[0])
        await_waiting(postgres_database, backend_of(keeper), backend(application))
        application.execute("COMMIT")
        assert taking.result().counts == {"jobs": 11}
        assert ids(postgres_database) == ([2] if "UPDATE" in change else [])
        assert audited(keeper) == 11
        assert calls.refused(0)


@pytest.mark.own_session
def test_followers_without_a_key_leave_in_calls(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, FOLLOWED, "") as keeper:
        postgres_database.execute("INSERT INTO notes SELECT n, n FROM generate_series(1, 12, 3) AS n")
        postgres_database.execute("INSERT INTO notes VALUES (100, NULL), (101, 1000)")
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert swept.counts == {"jobs": 12, "notes": 4}
        assert (audited(keeper), audited(keeper, "notes")) == (12, 4)
        assert ids(postgres_database) == []
        assert ids(postgres_database, "notes") == [100, 101]
        assert calls
        assert all(calls)


@pytest.mark.pooled("inserted")
@pytest.mark.parametrize(
    "change",
    ["INSERT INTO notes VALUES (100, 5)", "UPDATE notes SET job_id = 5 WHERE id = 101"],
    ids=["inserted", "moved"],
)
def test_a_follower_without_a_key_that_appears_while_a_call_waits_leaves_counted(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, change: str
) -> None:
    with world(postgres_database, tmp_path, FOLLOWED, "") as keeper:
        postgres_database.execute("INSERT INTO notes VALUES (1, 1), (2, 2), (6, 6), (101, 1000)")
        swept = overlap(postgres_database, keeper, "UPDATE jobs SET beat = 1 WHERE id = 5", change)
        left = [101] if "INSERT" in change else []
        assert ids(postgres_database) == []
        assert ids(postgres_database, "notes") == left
        assert swept.counts == {"jobs": 12, "notes": 4}
        assert (audited(keeper), audited(keeper, "notes")) == (12, 4)
        assert calls.refused(0)


@pytest.mark.parametrize("contract", [FOLLOWED + LIVE_NOTES, FOLLOWED], ids=["live", "of a child"])
def test_followers_without_a_key_that_must_not_change_are_not_taken_in_calls(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, contract: str
) -> None:
    with world(postgres_database, tmp_path, contract, "") as keeper:
        if contract is FOLLOWED:
            postgres_database.execute("CREATE TABLE more_notes () INHERITS (notes)")
            postgres_database.execute("INSERT INTO more_notes VALUES (1, 7, 'shut')")
        postgres_database.execute("INSERT INTO notes VALUES (2, 8, 'shut')")
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert swept.counts == {"jobs": 12, "notes": 2 if contract is FOLLOWED else 1}
        assert calls == []


@pytest.mark.own_session
def test_rows_leave_in_calls_along_an_index_on_only_the_time(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        postgres_database.execute("UPDATE jobs SET status = 'open' WHERE id % 3 = 0")
        postgres_database.script("DROP INDEX jobs_due; CREATE INDEX jobs_due ON jobs (done_at DESC)")
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert ids(postgres_database) == [3, 6, 9, 12]
        assert swept.counts["jobs"] == audited(keeper) == 8
        assert calls
        assert all(calls)


@pytest.mark.own_session
@pytest.mark.parametrize("others", [1, 5])
def test_texts_that_are_no_timestamps_stay_and_count_only_where_a_batch_ends(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, others: int
) -> None:
    contract = JOBS.replace('{ column = "done_at", unit = "ms" }', '{ column = "done_iso", unit = "iso" }')
    create(postgres_database)
    postgres_database.script(
        "DROP TABLE notes; ALTER TABLE jobs ADD done_iso text;"
        'CREATE INDEX jobs_iso ON jobs (status, done_iso COLLATE "C", id)'
    )
    fill(postgres_database, 24)
    postgres_database.execute(
        "UPDATE jobs SET done_iso = CASE WHEN id % 12 < ? THEN format('2020-01-%sT99', lpad(id::text, 2, '0'))"
        " ELSE format('2020-01-%sT00:00:00Z', lpad(id::text, 2, '0')) END",
        (others,),
    )
    due = 24 - 2 * others
    with enabled_keeper(postgres_database, tmp_path, contract) as keeper:
        swept = small(keeper, lambda: None).sweep().rules[0]
        assert (swept.outcome, swept.rows, audited(keeper)) == (Outcome.DONE, due, due)
        assert ids(postgres_database) == [n for n in range(1, 25) if n % 12 < others]
        assert calls


@pytest.mark.own_session
def test_without_a_key_there_are_no_calls(postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls) -> None:
    with world(postgres_database, tmp_path, GUARDED, "") as keeper:
        assert small(keeper, lambda: None).sweep().rules[0].counts == {"jobs": 12}
        assert calls == []


@pytest.mark.own_session
@pytest.mark.parametrize("default", ["isolation = 'repeatable read'", "read_only = on"], ids=["isolation", "access"])
def test_a_session_of_other_transactions_makes_no_calls(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, default: str
) -> None:
    [(name,)] = postgres_database.query("SELECT current_database()")
    postgres_database.execute(f"ALTER DATABASE {name} SET default_transaction_{default}")
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        assert small(keeper, lambda: None).sweep().rules[0].counts == {"jobs": 12}
        assert calls == [False, False]


@pytest.mark.own_session
def test_the_limit_of_calls_does_not_outlast_them(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        small(keeper, lambda: None).sweep()
        assert all(calls)
        assert keeper.store.run("SHOW statement_timeout", {}) == [("0",)]
        assert keeper.store.run("SHOW enable_sort", {}) == [("on",)]


def test_a_call_that_takes_too_long_is_ended(postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls) -> None:
    with world(postgres_database, tmp_path, JOBS, "") as keeper:
        store, application = keeper.store, postgres_database.connect()
        with store.write() as (run, now):
            _, lease = Leases(store.dialect).take(run, "sweep:jobs", "race", store.now() + timedelta(hours=1), now)
        fence = Fence(lease, None, 0.3, "it is another's")

        def lock() -> None:
            application.execute("BEGIN")
            application.execute("SELECT 1 FROM jobs WHERE id = 6 FOR UPDATE")

        slowed: list[SlowedDown] = []
        lock_after_batch = after_batch(lock)

        def listen(event: Event) -> None:
            lock_after_batch(event)
            if isinstance(event, SlowedDown):
                slowed.append(event)
                application.execute("ROLLBACK")

        swept = sweeper(keeper, listen, pace=SMALL, fence=fence).sweep().rules[0]
        assert (swept.outcome, swept.counts["jobs"], len(slowed)) == (Outcome.DONE, 12, 1)
        assert slowed[0].cause == "a batch took too long"


# --- Several batches in one call -------------------------------------------------------------------------------------


@contextmanager
def many(database: PostgresDatabase, folder: Path, contract: str = JOBS, rows: int = 80) -> Iterator[Keeper]:
    """Yield a keeper with twenty batches due: one by statements, some calls of one batch each, then a call that takes
    many."""
    with world(database, folder, contract, "REFERENCES jobs", rows) as keeper:
        yield keeper


def wait_inside(
    database: PostgresDatabase, keeper: Keeper, lock: str, then: Callable[[], object], **options: Any
) -> tuple[SweptRule, list[int]]:
    """Lock a row far behind; do something when the sweep waits for it; return what was swept, and what was left
    then."""
    application, session = database.connect(), backend_of(keeper)
    application.execute("BEGIN")
    application.execute(lock.encode())
    taking = Background(lambda: sweeper(keeper, pace=SMALL, **options).sweep().rules[0])
    await_waiting(database, session, backend(application))
    left = ids(database)
    then()
    application.execute("COMMIT")
    return taking.result(), left


LOCK_60 = "SELECT 1 FROM jobs WHERE id = 60 FOR UPDATE"


@pytest.mark.own_session
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_a_call_takes_many_batches_each_with_its_event_and_all_in_the_audit_row(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls, contract: str
) -> None:
    events: list[Event] = []
    with many(postgres_database, tmp_path, contract) as keeper:
        if contract is not JOBS:
            postgres_database.execute("INSERT INTO notes SELECT n, n FROM generate_series(41, 80, 10) AS n")
        swept = sweeper(keeper, events.append, pace=SMALL).sweep().rules[0]
        taken = [event for event in events if isinstance(event, BatchTaken)]
        assert len(calls) < swept.batches - 4, "one of them took several"
        assert all(calls) or contract is FOLLOWED, "a row with more followers than those before did not fit"
        assert len(taken) == swept.batches
        assert all(event.seconds > 0 and sum(event.counts.values()) <= 4 for event in taken)
        assert sum(event.counts["jobs"] for event in taken) == swept.counts["jobs"] == audited(keeper)
        assert swept.counts["jobs"] == 80 - len(ids(postgres_database)) == (76 if contract is GUARDED else 80)
        [entry] = keeper.audit()
        assert (entry.batches, entry.counts) == (swept.batches, swept.counts)


def test_each_batch_of_a_call_is_a_transaction_of_its_own(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    with many(postgres_database, tmp_path) as keeper:
        swept, left = wait_inside(postgres_database, keeper, LOCK_60, lambda: None)
        assert left == list(range(57, 81))
        assert swept.counts["jobs"] == audited(keeper) == 80


@pytest.mark.pooled("followed")
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_two_sweepers_take_each_row_once(postgres_database: PostgresDatabase, tmp_path: Path, contract: str) -> None:
    both_wait = (
        "SELECT count(*) = 2 FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND pg_blocking_pids(pid) <> '{}'"
    )
    with (
        many(postgres_database, tmp_path, contract) as keeper,
        enabled_keeper(postgres_database, tmp_path, contract) as other,
    ):
        if contract is not JOBS:
            postgres_database.execute("INSERT INTO notes SELECT n, n FROM generate_series(41, 80, 10) AS n")
        second: list[Background[SweptRule]] = []

        def sweep_beside() -> None:
            second.append(Background(lambda: sweeper(other, pace=SMALL).sweep().rules[0]))
            await_true(lambda: postgres_database.query(both_wait) == [(True,)], "both sweepers wait")

        swept, _ = wait_inside(postgres_database, keeper, LOCK_60, sweep_beside)
        beside = second[0].result()
        assert (swept.outcome, beside.outcome) == (Outcome.DONE, Outcome.DONE)
        stay = [41, 51, 61, 71] if contract is GUARDED else []
        assert ids(postgres_database) == stay
        assert swept.counts["jobs"] + beside.counts["jobs"] == audited(keeper) == 80 - len(stay)
        notes = swept.counts.get("notes", 0) + beside.counts.get("notes", 0)
        assert notes == audited(keeper, "notes") == (4 if contract is FOLLOWED else 0)


def test_a_row_that_changes_while_a_call_waits_for_it_stays(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        revive = "UPDATE jobs SET status = 'open' WHERE id = 60"
        swept, _ = wait_inside(postgres_database, keeper, revive, lambda: None)
        assert ids(postgres_database) == [60]
        assert swept.counts["jobs"] == audited(keeper) == 79


def test_a_gate_that_closes_stops_a_call_at_the_next_batch(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    with many(postgres_database, tmp_path) as keeper:
        name = "retention.jobs.enabled"
        close = f"INSERT INTO wane.flag (name, enabled, changed_by, changed_at) VALUES ('{name}', false, 'race', now())"
        swept, _ = wait_inside(postgres_database, keeper, LOCK_60, lambda: postgres_database.execute(close))
        assert swept.outcome is Outcome.OFF
        assert ids(postgres_database) == list(range(61, 81))
        assert swept.counts["jobs"] == audited(keeper) == 60


def test_a_contract_that_is_no_longer_in_force_stops_a_call_at_the_next_batch(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        store = keeper.store
        with store.write() as (run, now):
            _, lease = Leases(store.dialect).take(run, "sweep:jobs", "race", store.now() + timedelta(hours=1), now)
        postgres_database.execute("INSERT INTO wane.contract VALUES (1, 'ours', now(), 'race')")
        fence = Fence(lease, "ours", 90.0, "another contract is in force")
        another = "UPDATE wane.contract SET fingerprint = 'theirs'"
        swept, _ = wait_inside(
            postgres_database, keeper, LOCK_60, lambda: postgres_database.execute(another), fence=fence
        )
        assert swept.outcome is Outcome.STOPPED
        assert ids(postgres_database) == list(range(61, 81))
        assert swept.counts["jobs"] == audited(keeper) == 60


def test_a_hold_is_placed_between_two_batches_of_a_call(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    with many(postgres_database, tmp_path) as keeper:
        application = postgres_database.connect()
        inserting: list[Background[object]] = []

        def insert_hold() -> None:
            hold = (
                f"BEGIN; SELECT pg_advisory_xact_lock({GATE}, hashtext('public.jobs'));"
                "INSERT INTO wane.hold (table_name, reason, author, created_at)"
                " VALUES ('public.jobs', 'a test', 'race', now()); COMMIT"
            )
            inserting.append(Background(lambda: application.execute(hold.encode())))
            await_waiting(postgres_database, backend(application), backend_of(keeper))

        swept, _ = wait_inside(postgres_database, keeper, LOCK_60, insert_hold)
        inserting[0].result()
        assert ids(postgres_database) == list(range(61, 81))
        assert (swept.outcome, swept.counts["jobs"], audited(keeper)) == (Outcome.DONE, 60, 60)


def test_a_batch_that_fails_inside_a_call_loses_nothing_of_those_before(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with many(postgres_database, tmp_path, GUARDED) as keeper:
        reply = "INSERT INTO notes VALUES (1, 60, 'it arrived meanwhile')"
        swept, left = wait_inside(postgres_database, keeper, reply, lambda: None)
        assert left == list(range(57, 81))
        assert (swept.outcome, ids(postgres_database)) == (Outcome.DONE, [60])
        assert swept.counts["jobs"] == audited(keeper) == 79


@pytest.mark.parametrize("code", ["P0001", "0A000"], ids=["raised", "as if it could be prepared anew"])
def test_a_batch_that_a_deferred_trigger_refuses_loses_nothing_of_those_before(
    postgres_database: PostgresDatabase, tmp_path: Path, code: str
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        postgres_database.script(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN IF OLD.id = 60 THEN RAISE 'not this one' USING ERRCODE = '{code}'; END IF; RETURN NULL; END $$;"
            " CREATE CONSTRAINT TRIGGER refuses AFTER DELETE ON jobs DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        swept = sweeper(keeper, pace=SMALL).sweep().rules[0]
        assert (swept.outcome, swept.message.count("not this one")) == (Outcome.FAILED, 1)
        assert ids(postgres_database) == list(range(57, 81))
        assert swept.counts["jobs"] == audited(keeper) == 56


@pytest.mark.own_session
def test_a_call_that_is_cancelled_reports_what_it_has_committed(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        session = backend_of(keeper)

        def cancel() -> None:
            # Not through the keeper, whose connection the sweep uses.
            gone = "SELECT sum((counts ->> 'jobs')::bigint) FROM wane.audit"
            assert postgres_database.query(gone) == [(56,)]
            waits = f"SELECT query_start FROM pg_stat_activity WHERE pid = {session}"
            began = postgres_database.query(waits)
            postgres_database.execute(f"SELECT pg_cancel_backend({session})")
            await_true(lambda: postgres_database.query(waits) != began, "the batch was cancelled")
            assert postgres_database.query(gone) == [(56,)]

        swept, left = wait_inside(postgres_database, keeper, LOCK_60, cancel)
        assert left == list(range(57, 81))
        assert (swept.outcome, swept.counts["jobs"], audited(keeper)) == (Outcome.DONE, 80, 80)


@pytest.mark.own_session
def test_a_server_that_ends_a_call_has_audited_what_it_committed(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        ended = f"SELECT pg_terminate_backend({backend_of(keeper)})"
        swept, _ = wait_inside(postgres_database, keeper, LOCK_60, lambda: postgres_database.execute(ended))
        assert swept.outcome is Outcome.FAILED
        assert audited(keeper) == 80 - len(ids(postgres_database)) == 56


@pytest.mark.own_session
@pytest.mark.parametrize(
    ("budget", "planned", "rows"),
    [
        (Budget(rows=50, seconds=3600, batches=10**6), None, 50),
        (Budget(rows=10**6, seconds=3600, batches=11), None, 44),
        (Budget(rows=10**6, seconds=3600, batches=10**6), 50, 50),
    ],
    ids=["rows", "batches", "plan"],
)
def test_calls_stay_within_the_budget(
    postgres_database: PostgresDatabase, tmp_path: Path, budget: Budget, planned: int | None, rows: int
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        plan = None if planned is None else {"jobs.done": PlannedRows(keeper.store.now(), planned)}
        [swept] = sweeper(keeper, pace=SMALL).sweep(budget=budget, planned=plan).rules
        assert swept.counts["jobs"] == audited(keeper) == 80 - len(ids(postgres_database)) == rows


@pytest.mark.own_session
def test_calls_find_no_operator_that_others_have_created(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        hostile = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'an operator of others was called'; END $$"
        postgres_database.script(
            f"CREATE FUNCTION adds(float8[], float8) RETURNS float8[] {hostile};"
            f"CREATE FUNCTION same(float8[], float8[]) RETURNS boolean {hostile};"
            "CREATE OPERATOR || (LEFTARG = float8[], RIGHTARG = float8, FUNCTION = adds);"
            "CREATE OPERATOR = (LEFTARG = float8[], RIGHTARG = float8[], FUNCTION = same)"
        )
        swept = sweeper(keeper, pace=SMALL).sweep().rules[0]
        assert (swept.outcome, swept.counts["jobs"]) == (Outcome.DONE, 80)
        assert all(calls)
        assert len(calls) < swept.batches - 4


@pytest.mark.own_session
def test_a_pace_that_pauses_takes_one_batch_in_a_call(
    postgres_database: PostgresDatabase, tmp_path: Path, calls: Calls
) -> None:
    with many(postgres_database, tmp_path) as keeper:
        swept = sweeper(keeper, pace=replace(SMALL, duty=0.99)).sweep().rules[0]
        assert len(calls) == swept.batches - 1
