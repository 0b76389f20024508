"""Small tests, one for each guard that nothing else would miss at once: `mutations.toml` names them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from races.racing import (
    CAPPED,
    FOLLOWED,
    GUARDED,
    JOBS,
    NEW,
    OLD,
    Background,
    Paused,
    Received,
    audited,
    await_waiting,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    ms,
    sweeper,
)
from servers import Database, PostgresDatabase
from wane._contract.settings import Budget
from wane._db.postgres.transaction import LOCAL_SETTINGS, PostgresTransaction
from wane._keeper import Keeper, open_keeper
from wane._prune.apply import apply_plan
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, Sweeper
from wane._prune.take import MOST_LOST
from wane.errors import BindError, PlanError, StoreError, WrongArgument
from wane.events import BatchTaken, Event

SMALL = Pace(target_seconds=1.0, duty=1.0, first_batch=3, least_batch=3, most_batch=3)
DAY = timedelta(days=1)
EXPIRING = """
[scheduler]
night = { every = "1h" }
[table.codes]
scheduler = "night"
why = "a test"
[table.codes.rule.expired]
expires = { column = "until", unit = "ms" }
"""


def lone_jobs(database: Database, rows: int) -> None:
    create(database)
    database.execute("DROP TABLE notes")
    fill(database, rows)


# --- The trail ------------------------------------------------------------------------------------------------------

TAKES: dict[str, Callable[[Keeper], object]] = {
    "prune": lambda keeper: keeper.prune("jobs", rule="done", limit=4),
    "sweep": lambda keeper: sweeper(keeper, pace=SMALL).sweep(),
}


@pytest.mark.parametrize("take", TAKES)
def test_nothing_leaves_if_the_trail_cannot_be_written(database: Database, tmp_path: Path, take: str) -> None:
    lone_jobs(database, 4)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        trail = "wane_audit" if database.store == "sqlite" else "wane.audit"
        database.execute(f"ALTER TABLE {trail} RENAME TO {'wane_elsewhere' if database.store == 'sqlite' else 'gone'}")
        try:
            TAKES[take](keeper)
        except StoreError:
            assert take == "prune"
        assert ids(database) == [1, 2, 3, 4]


@pytest.mark.parametrize("take", TAKES)
def test_the_trail_records_the_counts_of_every_table(database: Database, tmp_path: Path, take: str) -> None:
    create(database, "REFERENCES jobs")
    fill(database, 8)
    database.execute("INSERT INTO notes SELECT id, id, 'a' FROM jobs WHERE id <> 1")
    with enabled_keeper(database, tmp_path, FOLLOWED) as keeper:
        TAKES[take](keeper)
        [entry] = keeper.audit(table="jobs")
        gone = {"jobs": 8 - len(ids(database)), "notes": 7 - len(ids(database, "notes"))}
        assert entry.counts == gone
        assert gone["jobs"] == (8 if take == "sweep" else 2)
        trail = "wane_audit" if database.store == "sqlite" else "wane.audit"
        batches = 8 if take == "sweep" else 1
        [(rows, reported)] = database.query(f"SELECT row_count, batches FROM {trail}")
        assert rows == sum(gone.values())
        assert reported >= min(batches, 2)


def test_taking_nothing_is_reported_too(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 0)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        keeper.prune("jobs", rule="done", limit=4)
        sweeper(keeper).sweep()
        assert [entry.counts for entry in keeper.audit()] == [{"jobs": 0}, {"jobs": 0}]


# --- Bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 4, 7, 100])
def test_followers_count_in_the_limit(database: Database, tmp_path: Path, limit: int) -> None:
    create(database, "REFERENCES jobs")
    fill(database, 3)
    database.executemany("INSERT INTO notes (id, job_id) VALUES (?, ?)", [(n, 1 + n // 6) for n in range(15)])
    with enabled_keeper(database, tmp_path, FOLLOWED) as keeper:
        before = 18
        while True:
            pruned = keeper.prune("jobs", rule="done", limit=limit)
            left = len(ids(database)) + len(ids(database, "notes"))
            assert pruned.rows == before - left <= limit
            before = left
            if pruned.rows == 0:
                break
        assert before == 0


def test_a_budget_bounds_a_sweep(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 20)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        [swept] = sweeper(keeper, pace=SMALL).sweep(budget=Budget(rows=7)).rules
        assert (swept.outcome, swept.rows) == (Outcome.BUDGET, 7)
        [swept] = sweeper(keeper, pace=SMALL).sweep(budget=Budget(batches=2)).rules
        assert (swept.outcome, swept.rows) == (Outcome.BUDGET, 6)
        assert len(ids(database)) == 7


def test_a_sweep_stops_between_batches(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 20)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        sweeping = sweeper(keeper, pace=SMALL)

        def stop(event: Event) -> None:
            if isinstance(event, BatchTaken):
                sweeping.stop.set()

        sweeping.listener = stop
        [swept] = sweeping.sweep().rules
        assert (swept.outcome, swept.rows) == (Outcome.STOPPED, 3)


def test_a_flag_that_closes_stops_the_sweep_at_the_next_batch(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 20)
    with (
        enabled_keeper(database, tmp_path, JOBS) as keeper,
        open_keeper(database.url, contract=keeper.contract) as operator,
    ):

        def disable(event: Event) -> None:
            if isinstance(event, BatchTaken):
                operator.disable("jobs")

        [swept] = sweeper(keeper, disable, pace=SMALL).sweep().rules
        assert (swept.outcome, swept.rows) == (Outcome.OFF, 3)
        operator.enable("jobs")
        operator.disable()
        [swept] = sweeper(keeper, pace=SMALL).sweep().rules
        assert (swept.outcome, swept.rows) == (Outcome.OFF, 0)


def test_the_fuse_stops_a_first_sweep_that_would_take_most_of_the_table(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 1_200)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        [swept] = Sweeper(keeper.store, keeper.contract).sweep().rules
        assert (swept.outcome, swept.rows) == (Outcome.FUSED, 0)
        assert len(ids(database)) == 1_200
        [swept] = Sweeper(keeper.store, keeper.contract, approved=["jobs.done"]).sweep().rules
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 1_200)


# --- What may never leave -------------------------------------------------------------------------------------------


def test_a_cap_leaves_exactly_as_many_as_it_states(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE beats (id bigint PRIMARY KEY, seen_at bigint NOT NULL)")
    database.executemany("INSERT INTO beats VALUES (?, ?)", [(n, ms(OLD) + n) for n in range(1, 53)])
    with enabled_keeper(database, tmp_path, CAPPED) as keeper:
        assert keeper.prune("beats", rule="cap", limit=10).rows == 2
        assert ids(database, "beats") == list(range(3, 53))
        assert keeper.prune("beats", rule="cap", limit=10).rows == 0


def test_a_live_state_is_refused(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 2)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        with pytest.raises(WrongArgument, match="live state"):
            keeper.prune("jobs", states=["done", "open"], older_than=NEW, limit=5)
        assert len(ids(database)) == 2


def test_a_floor_is_above_every_caller(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 2)
    with enabled_keeper(database, tmp_path, JOBS + '[floor]\njobs = "5d"\n') as keeper:
        with pytest.raises(WrongArgument, match="floor"):
            keeper.prune("jobs", states=["done"], older_than=datetime.now(UTC) - 4 * DAY, limit=5)
        assert keeper.prune("jobs", states=["done"], older_than=datetime.now(UTC) - 6 * DAY, limit=5).rows == 2


def test_a_row_without_a_key_never_leaves(database: Database, tmp_path: Path) -> None:
    key = "text PRIMARY KEY" if database.store == "sqlite" else "text UNIQUE"
    database.execute(f"CREATE TABLE jobs (id {key}, status text, done_at bigint)")
    unnamed = MOST_LOST + 1
    rows = [*((None, ms(OLD) + n) for n in range(unnamed)), ("a", ms(OLD) + unnamed)]
    database.executemany("INSERT INTO jobs VALUES (?, 'done', ?)", rows)
    with enabled_keeper(
        database, tmp_path, JOBS.replace("[table.jobs.rule", 'key = ["id"]\n[table.jobs.rule', 1)
    ) as keeper:
        assert keeper.prune("jobs", rule="done", limit=1).rows == 1, "nor does it stand in the way of others"
        assert sweeper(keeper).sweep().rules[0].rows == 0
        assert database.query("SELECT id FROM jobs") == [(None,)] * unnamed


def test_an_uncounted_cascade_is_refused(database: Database, tmp_path: Path) -> None:
    create(database, "REFERENCES jobs ON DELETE CASCADE")
    fill(database, 2)
    database.execute("INSERT INTO notes VALUES (1, 1, 'a')")
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        with pytest.raises(BindError, match="uncounted"):
            keeper.prune("jobs", rule="done", limit=5)
        assert sweeper(keeper).sweep().rules[0].outcome is Outcome.FAILED
        assert ids(database) == [1, 2]
        assert ids(database, "notes") == [1]


def test_a_trigger_that_keeps_a_row_fails_the_batch(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 4)
    if database.store == "sqlite":
        database.execute("CREATE TRIGGER keep BEFORE DELETE ON jobs WHEN old.id = 2 BEGIN SELECT RAISE(IGNORE); END")
    else:
        database.execute(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF old.id = 2 THEN RETURN NULL; END IF; RETURN old; END $$"
        )
        database.execute("CREATE TRIGGER keep BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION keep()")
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        with pytest.raises(StoreError, match="took 3"):
            keeper.prune("jobs", rule="done", limit=5)
        assert ids(database) == [1, 2, 3, 4]
        assert audited(keeper) == 0


def test_an_expired_or_held_row_is_not_consumed(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE codes (id bigint PRIMARY KEY, until bigint NOT NULL)")
    database.executemany("INSERT INTO codes VALUES (?, ?)", [(1, ms(OLD)), (2, ms(NEW + DAY)), (3, ms(NEW + DAY))])
    with enabled_keeper(database, tmp_path, EXPIRING) as keeper:
        keeper.hold("codes", {"id": 3}, reason="a test")
        assert [keeper.consume("codes", {"id": n}) is not None for n in (1, 2, 3)] == [False, True, False]
        assert keeper.consume("codes", {"id": 2}) is None
        assert ids(database, "codes") == [1, 3]


def test_a_sweep_too_waits_for_the_hold_that_is_being_placed(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOCAL_SETTINGS, "lock_timeout", "20s")
    lone_jobs(postgres_database, 4)
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper:
        with open_keeper(postgres_database.url, contract=keeper.contract) as other:
            pause = Paused(monkeypatch, PostgresTransaction, "execute", "INSERT INTO")
            holding = Background(lambda: other.hold("jobs", {"id": 2}, reason="a test"))
            pause.await_reached()
            sweeping = Background(lambda: sweeper(keeper).sweep())
            await_waiting(postgres_database, backend_of(keeper), backend_of(other))
            pause.go_on.set()
            holding.result()
            assert sweeping.result().rules[0].rows == 3
        assert ids(postgres_database) == [2]


# --- Plans ----------------------------------------------------------------------------------------------------------


def test_a_plan_is_refused_when_more_is_due_by_it(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 3)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        plan = keeper.plan()
        database.execute("INSERT INTO jobs (id, status, done_at) VALUES (50, 'done', ?)", (ms(OLD),))
        with pytest.raises(PlanError, match="at least 4 are due"):
            keeper.apply(plan)
        assert len(ids(database)) == 4


def test_a_plan_takes_nothing_that_became_due_after_it(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 3)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        plan = keeper.plan(now=datetime.now(UTC) - DAY)
        database.execute(
            "UPDATE jobs SET done_at = ? WHERE id = 2", (ms(datetime.now(UTC) - 7 * DAY - timedelta(hours=1)),)
        )
        assert apply_plan(keeper._sweeper(None, None, ()), plan, most_age=2 * DAY).rules[0].rows == 2
        assert ids(database) == [2]


def test_a_plan_of_another_contract_is_refused(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 3)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        plan = keeper.plan()
    with enabled_keeper(database, tmp_path, JOBS.replace("7d", "8d")) as keeper:
        with pytest.raises(PlanError, match="contract"):
            keeper.apply(plan)
        assert len(ids(database)) == 3


def test_a_plan_of_another_database_is_refused(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 3)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        plan = keeper.plan()
        plan = type(plan)(**{**{name: getattr(plan, name) for name in plan.__dataclass_fields__}, "database": "other"})
        with pytest.raises(PlanError, match="another database"):
            keeper.apply(plan)
        assert len(ids(database)) == 3


# --- The caller's transaction ---------------------------------------------------------------------------------------


def test_a_failing_prune_leaves_the_callers_transaction_as_it_was(database: Database, tmp_path: Path) -> None:
    lone_jobs(database, 3)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        trail = "wane_audit" if database.store == "sqlite" else "wane.audit"
        database.execute(f"ALTER TABLE {trail} RENAME TO {'wane_elsewhere' if database.store == 'sqlite' else 'gone'}")
        caller: sqlite3.Connection | psycopg.Connection[tuple[object, ...]] = database.connect()
        caller.execute("BEGIN")
        caller.execute("INSERT INTO jobs (id, status) VALUES (100, 'open')")
        with pytest.raises(StoreError):
            keeper.prune("jobs", rule="done", limit=5, connection=caller)
        caller.execute("INSERT INTO jobs (id, status) VALUES (101, 'open')")
        caller.execute("COMMIT")
        assert ids(database) == [1, 2, 3, 100, 101]


def test_a_caller_that_would_not_see_what_others_committed_is_refused(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    lone_jobs(postgres_database, 3)
    caller = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper:
        caller.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(StoreError, match="repeatable read"):
            keeper.prune("jobs", rule="done", limit=5, connection=caller)
        caller.execute("ROLLBACK")
        assert len(ids(postgres_database)) == 3


def test_a_guarded_row_stays(database: Database, tmp_path: Path) -> None:
    create(database)
    fill(database, 3)
    database.execute("INSERT INTO notes VALUES (1, 2, 'a')")
    received = Received()
    with enabled_keeper(database, tmp_path, GUARDED, received) as keeper:
        assert keeper.prune("jobs", rule="done", limit=5).rows == 2
        assert ids(database) == [2]
