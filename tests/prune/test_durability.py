"""What waits for the disk: everything that somebody may have been promised. Batches of a sweep do not; lost, they are simply due again."""

from __future__ import annotations

from typing import Any

import pytest

from prune.keeping import ago, jobs, keeping
from servers import Database
from wane.prune.pace import FAST
from wane.prune.sweep import Outcome, Sweeper
from wane.store.transaction import Transaction

FULL = {"sqlite": 2, "postgres": "on"}
LAZY = {"sqlite": 1, "postgres": "off"}


def waits(database: Database, transaction: Transaction) -> Any:
    text = "PRAGMA main.synchronous" if database.store == "sqlite" else "SHOW synchronous_commit"
    [(setting,)] = transaction.execute(text, {})
    return setting


@pytest.fixture
def waiting(database: Database) -> Database:
    """Tests run without waiting for the disk anywhere; these ask for it."""
    if database.store == "sqlite":
        database.execute("PRAGMA journal_mode = wal")
    else:
        database.execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = on', current_database()); END $$"
        )
    return database


def test_batches_of_a_sweep_do_not_wait_and_everything_else_does(waiting: Database) -> None:
    jobs(waiting, (1, "done", ago(30)))
    seen: list[Any] = []
    with keeping(waiting) as kept:
        store = kept.keeper.store
        kept.keeper.enable()

        def fence(transaction: Transaction) -> None:
            seen.append(waits(waiting, transaction))

        sweeper = Sweeper(store, kept.keeper.contract, pace=FAST, unattended=False, fence=fence)
        assert [one.outcome for one in sweeper.sweep().rules] == [Outcome.DONE]
        assert set(seen) == {LAZY[waiting.store]}
        with store.transaction() as transaction:
            assert waits(waiting, transaction) == FULL[waiting.store]


def test_a_rollback_journal_is_always_waited_for(sqlite_database: Database) -> None:
    """There, a commit that did not reach the disk may leave half of itself."""
    sqlite_database.execute("PRAGMA journal_mode = delete")
    jobs(sqlite_database, (1, "done", ago(30)))
    with keeping(sqlite_database) as kept, kept.keeper.store.transaction(durable=False) as transaction:
        assert waits(sqlite_database, transaction) == FULL["sqlite"]


def test_the_setting_comes_back_after_a_failure(waiting: Database) -> None:
    jobs(waiting)
    with keeping(waiting) as kept:
        store = kept.keeper.store
        with pytest.raises(ZeroDivisionError), store.transaction(durable=False):
            raise ZeroDivisionError
        with store.transaction() as transaction:
            assert waits(waiting, transaction) == FULL[waiting.store]
