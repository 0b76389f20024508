"""Disks fill up, connections drop, servers restart: the error is clear, nothing is lost, and the same keeper goes
on."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import psycopg
import pytest

from crash.world import MOST, OLD_MS, World
from races.racing import (
    FOLLOWED,
    JOBS,
    Background,
    Paused,
    audited,
    await_true,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    sweeper,
)
from servers import PostgresDatabase, PostgresServer, SqliteDatabase, privileges, unprivileged_account
from wane._db.postgres.transaction import PostgresTransaction
from wane._keeper import Keeper, open_keeper
from wane._prune.pace import FAST, Pace
from wane._prune.sweep import Outcome, Sweeper
from wane.errors import StoreError, Unreachable
from wane.events import BatchTaken, Event

pytestmark = pytest.mark.crash

SMALL = Pace(target_seconds=1.0, duty=1.0, first_batch=50, least_batch=50, most_batch=50)
MARKED = (
    JOBS + 'then = { mark = "seen-and-kept" }\n[table.jobs.rule.seen]\nwhen = ["seen-and-kept"]\nkeep = "forever"\n'
)


def terminate(database: PostgresDatabase, keeper: Keeper) -> None:
    backend = backend_of(keeper)
    database.query("SELECT pg_terminate_backend(?)", (backend,))
    await_true(
        lambda: database.query("SELECT count(*) FROM pg_stat_activity WHERE pid = ?", (backend,)) == [(0,)],
        "the backend is gone",
    )


# --- Full disks -----------------------------------------------------------------------------------------------------
#
# Deleting needs room too: for the audit row, and on PostgreSQL for the log. Marking needs most, because every row is
# written anew, so marks are what is tried here. A small file system would need the rights to mount one; the limits
# below need none, and the database meets them where it would meet a full disk: when it asks for one more page.


def limit_files(backend: int, size: int, folder: Path) -> None:
    """Let the kernel refuse a backend to write files beyond a size. Only who runs the server may do that to it."""
    subprocess.run(
        ["true"],
        preexec_fn=lambda: resource.prlimit(backend, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)),
        check=True,
        **{**privileges(unprivileged_account(), folder), "cwd": "/"},
    )


def marked(database: SqliteDatabase | PostgresDatabase) -> int:
    [(count,)] = database.query("SELECT count(*) FROM jobs WHERE status <> 'done'")
    return int(count)


def test_a_full_disk_on_sqlite_fails_the_rule_and_loses_nothing(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    create(sqlite_database)
    fill(sqlite_database, 3_000)
    with enabled_keeper(sqlite_database, tmp_path, MARKED) as keeper:
        store = keeper.store._connection  # type: ignore[attr-defined]
        [(pages,)] = store.execute("PRAGMA page_count").fetchall()
        store.execute(f"PRAGMA max_page_count = {pages + 3}").fetchall()
        [swept] = sweeper(keeper, pace=SMALL).sweep().rules
        assert swept.outcome is Outcome.FAILED
        assert "disk is full" in swept.message
        assert "free space on the database's disk, or in the folder for temporary files" in swept.message
        assert 0 < swept.rows < 3_000
        assert marked(sqlite_database) == swept.rows == audited(keeper)
        assert sqlite_database.query("PRAGMA integrity_check") == [("ok",)]
        store.execute("PRAGMA max_page_count = 1000000").fetchall()
        [swept] = sweeper(keeper, pace=FAST).sweep().rules
        assert swept.outcome is Outcome.DONE
        assert marked(sqlite_database) == audited(keeper) == 3_000


def test_a_full_disk_on_postgres_fails_the_rule_and_loses_nothing(
    durable_database: PostgresDatabase, tmp_path: Path
) -> None:
    """The kernel refuses the sweep's backend every file larger than 17 MB, and the table is about to become one."""
    create(durable_database)
    durable_database.execute("INSERT INTO jobs SELECT n, 'done', ? + n FROM generate_series(1, 15000) AS n", (OLD_MS,))
    durable_database.execute("ALTER TABLE jobs ADD COLUMN body text")
    durable_database.execute("ALTER TABLE jobs ALTER COLUMN body SET STORAGE PLAIN")
    durable_database.execute("UPDATE jobs SET body = repeat('x', 1000)")
    durable_database.execute("VACUUM FULL jobs")
    durable_database.execute("ANALYZE jobs")
    limit = 17 * 2**20  # Larger than a segment of the log: its writer would not survive.
    [(size,)] = durable_database.query("SELECT pg_relation_size('jobs')")
    assert limit - 2**21 < size < limit, size
    with enabled_keeper(durable_database, tmp_path, MARKED) as keeper:
        limit_files(backend_of(keeper), limit, tmp_path)
        [swept] = sweeper(keeper, pace=Pace(duty=1.0)).sweep().rules
        assert swept.outcome is Outcome.FAILED, swept
        assert "could not extend file" in swept.message
        assert marked(durable_database) == swept.rows == audited(keeper) < 15_000
        limit_files(backend_of(keeper), resource.RLIM_INFINITY, tmp_path)
        [swept] = sweeper(keeper, pace=FAST).sweep().rules
        assert swept.outcome is Outcome.DONE
        assert marked(durable_database) == audited(keeper) == 15_000


# --- Lost connections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["DELETE FROM", "audit"])
def test_a_connection_that_drops_in_the_middle_of_a_batch_undoes_the_batch(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 200)
    postgres_database.execute("INSERT INTO notes SELECT id, id FROM jobs")
    with enabled_keeper(postgres_database, tmp_path, FOLLOWED) as keeper:
        assert sweeper(keeper, pace=SMALL).sweep().rules[0].outcome is Outcome.DONE
        refilled = [(n, "done", OLD_MS + n) for n in range(1_001, 1_201)]
        postgres_database.executemany("INSERT INTO jobs (id, status, done_at) VALUES (?, ?, ?)", refilled)
        method = "change" if before == "DELETE FROM" else "execute"
        pause = Paused(monkeypatch, PostgresTransaction, method, before)
        sweeping = Background(lambda: sweeper(keeper, pace=SMALL).sweep())
        pause.await_reached()
        terminate(postgres_database, keeper)
        pause.go_on.set()
        [swept] = sweeping.result().rules
        assert swept.outcome is Outcome.FAILED
        assert "terminating connection" in swept.message or "closed" in swept.message
        assert "connects again" in swept.message
        assert ids(postgres_database) == [n for n, _, _ in refilled]
        assert audited(keeper) == 200, "the same keeper reads its trail over a new connection"
        [swept] = sweeper(keeper, pace=SMALL).sweep().rules
        assert swept.outcome is Outcome.DONE
        assert ids(postgres_database) == []
        assert audited(keeper) == 400


def test_a_connection_that_dropped_while_idle_is_replaced_unnoticed(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    create(postgres_database)
    postgres_database.execute("DROP TABLE notes")
    fill(postgres_database, 10)
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper:
        for call in (
            lambda: keeper.prune("jobs", rule="done", limit=5).rows,
            lambda: keeper.plan().steps[0].due,
            lambda: keeper.audit(),
            lambda: keeper.hold("jobs", {"id": 10}, reason="a test"),
            lambda: keeper.store.identity(),
            lambda: sweeper(keeper).sweep().rules[0].outcome,
        ):
            gone = backend_of(keeper)
            terminate(postgres_database, keeper)
            call()
            assert backend_of(keeper) != gone
        assert ids(postgres_database) == [10]
        assert audited(keeper) == 9
        [(settings,)] = postgres_database.query(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'wane' AND datname = current_database()"
        )
        assert settings == 1, "the broken ones are gone"


def test_no_connection_is_replaced_inside_a_transaction(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    create(postgres_database)
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper:
        store = keeper.store

        def work() -> None:
            with store.transaction() as transaction:
                transaction.execute("INSERT INTO public.jobs (id, status) VALUES (1, 'open')", {})
                terminate(postgres_database, keeper)
                with store.transaction() as inner:
                    inner.execute("INSERT INTO public.jobs (id, status) VALUES (2, 'open')", {})

        with pytest.raises(Unreachable):
            work()
        assert ids(postgres_database) == []
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO public.jobs (id, status) VALUES (3, 'open')", {})
        assert ids(postgres_database) == [3]


def test_a_closed_keeper_stays_closed(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    create(postgres_database)
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper:
        pass
    with pytest.raises(StoreError):
        keeper.prune("jobs", rule="done", limit=1)


def test_a_callers_connection_that_drops_is_the_callers_loss_only(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    create(postgres_database)
    postgres_database.execute("DROP TABLE notes")
    fill(postgres_database, 3)
    with enabled_keeper(postgres_database, tmp_path, JOBS) as keeper:
        caller = psycopg.connect(postgres_database.url)
        assert keeper.prune("jobs", rule="done", limit=1, connection=caller).rows == 1
        postgres_database.query("SELECT pg_terminate_backend(?)", (caller.info.backend_pid,))
        with pytest.raises(Unreachable):
            keeper.prune("jobs", rule="done", limit=1, connection=caller)
        caller.close()
        assert ids(postgres_database) == [1, 2, 3]
        assert keeper.prune("jobs", rule="done", limit=10).rows == 3


# --- Servers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["crash", "restart"])
def test_a_server_that_goes_away_during_a_sweep_loses_nothing(
    durable_server: PostgresServer, durable_database: PostgresDatabase, tmp_path: Path, how: str
) -> None:
    world = World(durable_database, tmp_path)
    world.fill(3_000)
    batches: list[Event] = []

    def received(event: Event) -> None:
        if isinstance(event, BatchTaken):
            batches.append(event)

    with open_keeper(durable_server.url, contract=tmp_path / "wane.toml", listener=received) as keeper:
        keeper.store.migrate()
        keeper.enable()

        def all_rules() -> list[Outcome]:
            slowly = Pace(target_seconds=1.0, duty=0.2, first_batch=20, least_batch=20, most_batch=20)
            swept = Sweeper(keeper.store, keeper.contract, listener=received, pace=slowly, unattended=False).sweep()
            return [rule.outcome for rule in swept.rules]

        sweeping = Background(all_rules)
        await_true(lambda: len(batches) >= 10, "the sweep is under way")
        durable_database.close()
        durable_server.crash() if how == "crash" else durable_server.stop()
        assert Outcome.FAILED in sweeping.result()
        [down, *_] = keeper.sweep().rules
        assert down.outcome is Outcome.FAILED
        assert "cannot be reached" in down.message
        durable_server.start()
        world.database = PostgresDatabase(durable_server.url)
        world.balance()
        # The same keeper, which was open all the time.
        swept = Sweeper(keeper.store, keeper.contract, pace=FAST, unattended=False).sweep()
        assert {rule.outcome for rule in swept.rules} == {Outcome.DONE}
        world.balance()
        assert not any(world.due().values())
        assert len(world.there("capped")) == MOST
        world.database.close()
