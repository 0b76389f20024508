"""What waits for the disk: everything that a caller may have been promised. Batches of a sweep do not; lost, they are
simply due again."""

from __future__ import annotations

from typing import Any

import pytest

from prune.keeping import ago, jobs, keeping
from servers import Database
from wane._db.transaction import Transaction
from wane._prune.pace import FAST, Pace
from wane._prune.sweep import Outcome, Sweeper
from wane.events import BatchTaken, Event

FULL = {"sqlite": 2, "postgres": "on"}
TENS = Pace(target_seconds=0.05, duty=1.0, first_batch=10, least_batch=10, most_batch=10)
LAZY = {"sqlite": 1, "postgres": "off"}


def waits(database: Database, transaction: Transaction) -> Any:
    text = "PRAGMA main.synchronous" if database.store == "sqlite" else "SHOW synchronous_commit"
    [(setting,)] = transaction.execute(text, {})
    return setting


@pytest.fixture
def waiting(database: Database) -> Database:
    """Return a database that waits for the disk, which other tests do not."""
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
    with keeping(waiting) as opened:
        store = opened.keeper.store
        opened.keeper.enable()

        def fence(transaction: Transaction) -> None:
            seen.append(waits(waiting, transaction))

        sweeper = Sweeper(store, opened.keeper.contract, pace=FAST, unattended=False, fence=fence)
        assert [one.outcome for one in sweeper.sweep().rules] == [Outcome.DONE]
        assert set(seen) == {LAZY[waiting.store]}
        with store.transaction() as transaction:
            assert waits(waiting, transaction) == FULL[waiting.store]


def test_a_sweep_that_lost_a_batch_to_a_crash_ends(database: Database) -> None:
    """It believes in a batch that the server forgot. Going on, it would audit rows that never left."""
    rows = [(number, "done", ago(60 - number / 100)) for number in range(40)]
    jobs(database, *rows)
    audit = "wane_audit" if database.store == "sqlite" else "wane.audit"
    reported: list[BatchTaken] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            reported.append(event)
            if len(reported) == 2:
                # As after a crash between two batches: the second one is undone as a whole.
                jobs(database, *rows[10:20], create=False)
                database.execute(f"UPDATE {audit} SET row_count = 10, batches = 1, counts = '{{\"job\": 10}}'")

    with keeping(database) as opened:
        opened.keeper.enable()
        store, contract = opened.keeper.store, opened.keeper.contract
        [swept] = Sweeper(store, contract, listener=listen, pace=TENS, unattended=False).sweep().rules
        assert swept.outcome is Outcome.FAILED
        assert "is missing or behind" in swept.message
        assert opened.ids() == list(range(10, 40))
        assert [(entry.rows, entry.counts) for entry in opened.trail()] == [(10, {"job": 10})]
        [swept] = Sweeper(store, contract, unattended=False).sweep().rules
        assert swept.outcome is Outcome.DONE
        assert sum(entry.rows for entry in opened.trail()) == 40


def test_a_rollback_journal_is_always_waited_for(sqlite_database: Database) -> None:
    """There, a commit that did not reach the disk may leave half of itself."""
    sqlite_database.execute("PRAGMA journal_mode = delete")
    jobs(sqlite_database, (1, "done", ago(30)))
    with keeping(sqlite_database) as opened, opened.keeper.store.transaction(durable=False) as transaction:
        assert waits(sqlite_database, transaction) == FULL["sqlite"]


def test_the_setting_comes_back_after_a_failure(waiting: Database) -> None:
    jobs(waiting)
    with keeping(waiting) as opened:
        store = opened.keeper.store
        with pytest.raises(ZeroDivisionError), store.transaction(durable=False):
            raise ZeroDivisionError
        with store.transaction() as transaction:
            assert waits(waiting, transaction) == FULL[waiting.store]
