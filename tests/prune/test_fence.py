"""The fence of a sweep: asked in every batch, inside its transaction, so that a sweep that lost its lease takes nothing
any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prune.keeping import Keeping, ago, follower, jobs, keeping, notes, referenced_by, rule, table
from servers import Database
from wane._db.transaction import Transaction
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, Sweeper
from wane.errors import LeaseLost, StoreError
from wane.events import BatchTaken, RuleFailed, RuleSwept

SMALL = Pace(target_seconds=0.05, duty=1.0, first_batch=10, least_batch=10, most_batch=10)
"""Batches of ten rows, without pauses."""
LOST = "lost its lease to another process"
SHAPES = {
    "plain": rule(),
    "guarded": rule(unless=[referenced_by("note.job_id")]),
    "followed": rule(followers=[follower("note.job_id")]),
}


def fill(database: Database, rows: int = 45) -> None:
    jobs(database, *[(number, "done", ago(60 - number / 100)) for number in range(rows)])
    notes(database)


def fenced(opened: Keeping, fence: Callable[[Transaction], None]) -> Sweeper:
    opened.keeper.enable()
    keeper = opened.keeper
    return Sweeper(
        keeper.store, keeper.contract, "tester", opened.events.append, pace=SMALL, unattended=False, fence=fence
    )


def own_name(transaction: Transaction) -> str:
    """Return the table's full name: Wane's transactions find nothing by a bare one on PostgreSQL."""
    return "job" if transaction.dialect.own_table("hold").startswith("main.") else "public.job"


def lost_after(batches: int) -> Callable[[Transaction], None]:
    requested = 0

    def fence(transaction: Transaction) -> None:
        nonlocal requested
        requested += 1
        # What it did inside the transaction vanishes with it.
        transaction.execute(f"UPDATE {own_name(transaction)} SET tenant = 'seen' WHERE id = 44", {})
        if requested > batches:
            raise LeaseLost("another process has it")

    return fence


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batches", [0, 2])
def test_a_lost_lease_takes_nothing_more(database: Database, shape: str, batches: int) -> None:
    fill(database)
    with keeping(database, table("job", SHAPES[shape])) as opened:
        sweep = fenced(opened, lost_after(batches)).sweep()
        [swept] = sweep.rules
        assert (swept.outcome, swept.message, swept.batches) == (Outcome.STOPPED, LOST, batches)
        left = 45 - len(opened.ids())
        assert swept.counts["job"] == left
        assert (left > 0) == (batches > 0)
        assert sum(entry.rows for entry in opened.trail()) == swept.rows
        assert len(opened.trail()) == (batches > 0)
        assert database.query("SELECT count(*) FROM job WHERE tenant = 'seen'") == [(int(batches > 0),)]
        assert [event.outcome for event in opened.reported(RuleSwept)] == ["stopped"]
        assert opened.reported(RuleFailed) == []
        assert not sweep.failed


def test_later_rules_are_not_begun(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "failed", ago(30)), (3, "lost", ago(30)))
    declared = table("job", *(rule(state, when=[state]) for state in ("done", "failed", "lost")))

    def fence(transaction: Transaction) -> None:
        if transaction.execute(f"SELECT 1 FROM {own_name(transaction)} WHERE id = 1", {}) == []:
            raise LeaseLost("another process has it")

    with keeping(database, declared) as opened:
        sweep = fenced(opened, fence).sweep()
        assert [one.outcome for one in sweep.rules][-1] is Outcome.STOPPED
        assert "lost" not in [one.rule for one in sweep.rules]
        assert opened.ids() == [2, 3]


def test_it_is_checked_in_every_batch_after_the_flags_and_before_anything_is_taken(database: Database) -> None:
    fill(database)
    seen: list[int] = []

    def fence(transaction: Transaction) -> None:
        [(rows,)] = transaction.execute(f"SELECT count(*) FROM {own_name(transaction)}", {})
        seen.append(rows)

    with keeping(database) as opened:
        sweeper = fenced(opened, fence)
        [swept] = sweeper.sweep().rules
        assert swept.outcome is Outcome.DONE
        assert seen[:5] == [45, 35, 25, 15, 5]
        assert len(seen) == swept.batches == len(opened.reported(BatchTaken))
        opened.keeper.disable()
        requested = len(seen)
        assert [one.outcome for one in sweeper.sweep().rules] == [Outcome.OFF]
        assert len(seen) == requested


def test_another_error_of_a_fence_fails_the_rule(database: Database) -> None:
    fill(database)

    def fence(transaction: Transaction) -> None:
        raise StoreError("the lease cannot be read")

    with keeping(database) as opened:
        [swept] = fenced(opened, fence).sweep().rules
        assert (swept.outcome, swept.message) == (Outcome.FAILED, "the lease cannot be read")
        assert len(opened.ids()) == 45
