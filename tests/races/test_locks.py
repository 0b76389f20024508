"""Locks of others cost a sweep time and rows, never correctness: it skips, says so, goes on, and comes back for
them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from races.racing import (
    CAPPED,
    FOLLOWED,
    GUARDED,
    JOBS,
    OLD,
    PATIENCE_SECONDS,
    Background,
    Received,
    audited,
    await_true,
    await_waiting,
    backend,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    ms,
    sweeper,
)
from servers import PostgresDatabase, SqliteDatabase
from wane._db.postgres.transaction import LOCAL_SETTINGS
from wane._prune.pace import FAST, Pace
from wane._prune.sweep import Outcome
from wane.errors import Locked
from wane.events import SlowedDown


@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_a_locked_row_is_skipped_and_taken_by_the_next_sweep(
    postgres_database: PostgresDatabase, tmp_path: Path, contract: str
) -> None:
    create(postgres_database, "REFERENCES jobs")
    if contract is JOBS:
        postgres_database.execute("DROP TABLE notes")
    fill(postgres_database, 300)
    application = postgres_database.connect()
    received = Received()
    with enabled_keeper(postgres_database, tmp_path, contract) as keeper:
        with application.transaction():
            application.execute("SELECT FROM jobs WHERE id IN (2, 200) FOR UPDATE")
            [swept] = sweeper(keeper, received, pace=Pace(first_batch=100)).sweep().rules
            assert swept.outcome is Outcome.DONE
            assert swept.rows == 298
            assert [event.cause for event in received.of(SlowedDown)] == ["lock contention"]
            assert ids(postgres_database) == [2, 200]
        [swept] = sweeper(keeper).sweep().rules
        assert swept.rows == 2
        assert ids(postgres_database) == []
        assert audited(keeper) == 300


def test_a_batch_gives_up_its_locks_long_before_an_application_would_notice(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """The batch that waits for row 3 has rows 1 and 2 locked; the application that wants those must not wait for row 3
    as well."""
    create(postgres_database)
    postgres_database.execute("DROP TABLE notes")
    fill(postgres_database, 3)
    holder, application = postgres_database.connect(), postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper, holder.transaction():
        holder.execute("SELECT FROM jobs WHERE id = 3 FOR UPDATE")
        pruning = Background(lambda: keeper.prune("jobs", rule="done", limit=10))
        await_waiting(postgres_database, backend_of(keeper), backend(holder))
        # Row 3 stays locked: only a batch that gives up lets this one pass.
        application.execute(f"SET lock_timeout = '{PATIENCE_SECONDS:.0f}s'")
        application.execute("UPDATE jobs SET beat = 1 WHERE id = 1")
        pruning.result()
    assert LOCAL_SETTINGS["lock_timeout"] == "200ms"


def test_a_locked_child_table_fails_the_rule_only_and_for_now(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """Without a foreign key the guard needs the child table for itself, and a long transaction of the application has
    it."""
    create(postgres_database)
    fill(postgres_database, 10)
    application = postgres_database.connect()
    received = Received()
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        with application.transaction():
            application.execute("INSERT INTO notes VALUES (1, 2)")
            [swept] = sweeper(keeper, received, pace=Pace(first_batch=100)).sweep().rules
            assert swept.outcome is Outcome.FAILED
            assert "lock contention" in swept.message
            assert swept.rows == 0
            assert received.of(SlowedDown)
        [swept] = sweeper(keeper).sweep().rules
        assert swept.outcome is Outcome.DONE
        assert ids(postgres_database) == [2]


@pytest.mark.usefixtures("patient")
def test_a_deadlock_costs_the_sweep_its_batch_and_the_application_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 3)
    application = postgres_database.connect()
    application.execute("SET deadlock_timeout = '15s'")  # so that it is the sweep that finds the deadlock
    received = Received()
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        with application.transaction():
            application.execute("UPDATE jobs SET beat = 1 WHERE id = 3")
            sweeping = Background(lambda: sweeper(keeper, received).sweep())
            await_waiting(postgres_database, backend_of(keeper), backend(application))
            application.execute("UPDATE jobs SET beat = 1 WHERE id = 1")
        [swept] = sweeping.result().rules
        assert swept.outcome is Outcome.DONE
        assert len(received.of(SlowedDown)) == 1
        sweeper(keeper).sweep()
        assert ids(postgres_database) == []
        assert audited(keeper) == 3


def test_the_callers_transaction_survives_our_lock_timeout(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    create(postgres_database)
    postgres_database.execute("DROP TABLE notes")
    fill(postgres_database, 4)
    holder = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper, psycopg.connect(postgres_database.url) as caller:
        caller.execute("SET lock_timeout = '7s'")
        caller.execute("INSERT INTO jobs (id, status) VALUES (100, 'open')")
        with holder.transaction():
            holder.execute("SELECT FROM jobs WHERE id = 2 FOR UPDATE")
            pruned = keeper.prune("jobs", rule="done", limit=10, connection=caller)
            assert pruned.rows == 3
            assert ids(postgres_database) == [1, 2, 3, 4], "nothing is committed but by the caller"
        assert caller.execute("SHOW lock_timeout").fetchone() == ("7s",)
        assert caller.execute("SHOW statement_timeout").fetchone() == ("0",)
        caller.commit()
        assert ids(postgres_database) == [2, 100]
        assert audited(keeper) == 3


def test_the_callers_transaction_survives_even_when_nothing_may_be_skipped(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.execute("CREATE TABLE beats (id bigint PRIMARY KEY, seen_at bigint NOT NULL)")
    postgres_database.executemany("INSERT INTO beats VALUES (?, ?)", [(n, ms(OLD) + n) for n in range(1, 53)])
    holder = postgres_database.connect()
    with (
        enabled_keeper(postgres_database, tmp_path, CAPPED) as keeper,
        psycopg.connect(postgres_database.url) as caller,
    ):
        caller.execute("INSERT INTO beats VALUES (100, 0)")
        with holder.transaction():
            holder.execute("SELECT FROM beats WHERE id = 1 FOR UPDATE")
            with pytest.raises(Locked):
                keeper.prune("beats", rule="cap", limit=10, connection=caller)
        assert caller.execute("SHOW lock_timeout").fetchone() == ("0",)
        caller.commit()
        assert len(ids(postgres_database, "beats")) == 53
        assert audited(keeper, "beats") == 0


def test_a_sweep_beside_a_busy_sqlite_application_locks_no_writer_out(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    """The promise is to applications in WAL mode that use BEGIN IMMEDIATE and a busy timeout of 5 seconds."""
    create(sqlite_database)
    fill(sqlite_database, 20_000)
    application = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("busy_application.py"), sqlite_database.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with application, enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper:
        assert application.stdout is not None
        assert application.stdout.readline() == "writing\n"
        [swept] = sweeper(keeper).sweep().rules
        answer, _ = application.communicate("stop\n", timeout=PATIENCE_SECONDS)
        assert application.returncode == 0, "it saw that the database was locked"
        written = json.loads(answer)
        assert swept.outcome is Outcome.DONE
        assert swept.rows == audited(keeper) == 20_000
        assert sqlite_database.query("SELECT count(*) FROM jobs") == [(written["transactions"],)]
        assert written["longest_seconds"] < 2
        assert written["transactions"] > swept.batches, "it wrote all the time"


def test_a_long_read_on_sqlite_sees_its_snapshot_and_blocks_no_writer(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    create(sqlite_database)
    fill(sqlite_database, 2_000)
    reader = sqlite_database.connect()
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (2_000,)
    with enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper:
        [swept] = sweeper(keeper, pace=FAST).sweep().rules
        assert swept.outcome is Outcome.DONE
        assert swept.rows == 2_000
    assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (2_000,)
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def test_a_writer_that_keeps_the_sqlite_file_slows_the_sweep_down(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    create(sqlite_database)
    fill(sqlite_database, 100)
    received = Received()
    application = sqlite_database.connect()
    with enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper:
        keeper.store._connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined]
        application.execute("BEGIN IMMEDIATE")
        application.execute("UPDATE jobs SET status = 'open' WHERE id = 7")
        sweeping = Background(lambda: sweeper(keeper, received).sweep())
        await_true(lambda: bool(received.of(SlowedDown)), "the sweep says that it is slowed down")
        application.execute("COMMIT")
        [swept] = sweeping.result().rules
        assert swept.outcome is Outcome.DONE
        assert ids(sqlite_database) == [7]
        assert audited(keeper) == 99
