"""How long a sweep takes: learned from earlier sweeps of the rule, with the pauses of its pace, and up to its
budget."""

from __future__ import annotations

import pytest

from prune.keeping import ago, jobs, keeping, rule, table
from servers import Database
from wane._contract.settings import Budget
from wane._db.counting import Exactness
from wane._ledger import AuditEntry, Ledger, SweepCost
from wane._prune.pace import FAST, Costs, Pace, foresee, learn_costs
from wane._prune.plan import BudgetStop

ENDLESS = Budget(rows=10**9, seconds=10**6, batches=10**6)


def costs(fixed: float, row: float, *sweeps: tuple[int, int]) -> list[SweepCost]:
    """Return what sweeps of (rows, batches) cost at these costs."""
    return [SweepCost(rows, batches, fixed * batches + row * rows) for rows, batches in sweeps]


def test_fixed_and_row_costs_are_separated_by_batches_of_different_sizes() -> None:
    learned = learn_costs(costs(0.015, 0.000_01, (500, 10), (10_000, 5), (3_000, 1)))
    assert learned is not None
    for one in learned:
        assert one.fixed_seconds == pytest.approx(0.015)
        assert one.row_seconds == pytest.approx(0.000_01)


@pytest.mark.parametrize(("fixed", "row"), [(0.0, 0.000_02), (0.02, 0.0)], ids=["by row", "by batch"])
def test_no_cost_is_below_zero(fixed: float, row: float) -> None:
    noisy = [*costs(fixed, row, (500, 10), (10_000, 5)), SweepCost(4_000, 40, 0.5 * (40 * fixed + 4_000 * row))]
    learned = learn_costs(noisy)
    assert learned is not None
    low, high = learned
    assert 0 <= low.of(1_000) <= high.of(1_000)
    assert min(low.fixed_seconds, low.row_seconds) >= 0


def test_from_batches_of_one_size_a_range_is_learned() -> None:
    learned = learn_costs(costs(0.01, 0.000_02, (5_000, 10), (10_000, 20)))
    assert learned is not None
    low, high = learned
    assert (high.fixed_seconds, round(high.row_seconds, 6)) == (0.0, 0.000_04)
    assert (round(low.fixed_seconds, 6), round(low.row_seconds, 6)) == (0.01, 0.000_02)
    assert learn_costs([]) is None


def test_pauses_are_part_of_what_a_sweep_takes() -> None:
    one_tenth = foresee(Pace(duty=0.1), Costs(0.001, 0.000_01), 50_000, ENDLESS)
    always = foresee(Pace(duty=1.0), Costs(0.001, 0.000_01), 50_000, ENDLESS)
    assert (one_tenth.rows, one_tenth.spent) == (always.rows, always.spent) == (50_000, "")
    assert one_tenth.seconds == pytest.approx(10 * always.seconds, rel=0.2)


@pytest.mark.parametrize(
    ("budget", "spent", "rows"),
    [
        (Budget(rows=7_000), "rows", 7_000),
        (Budget(batches=3), "batches", 500 + 1_000 + 2_000),
        (Budget(seconds=1, batches=10**6), "seconds", None),
        (Budget(rows=10_000), "", 10_000),
    ],
    ids=["rows", "batches", "seconds", "just enough"],
)
def test_the_budget_that_ends_a_sweep_is_foreseen(budget: Budget, spent: str, rows: int | None) -> None:
    pace = Pace(target_seconds=1.0) if spent != "seconds" else Pace()
    found = foresee(pace, Costs(0.001, 0.000_001), 10_000 if not spent else 10**6, budget)
    assert found.spent == spent
    assert rows in (None, found.rows)
    assert spent != "seconds" or 1 <= found.seconds < 2


def test_a_very_long_sweep_is_foreseen_at_once() -> None:
    found = foresee(Pace(), Costs(0.01, 0.0001), 10**9, ENDLESS)
    assert (found.rows, found.spent) == (10**9, "")
    assert found.seconds > 10**5


def test_before_its_first_sweep_it_is_unknown_and_the_budget_of_rows_is_not(database: Database) -> None:
    jobs(database, *((n, "done", ago(9)) for n in range(30)))
    with keeping(database, table("job", rule(budget=Budget(rows=20)))) as opened:
        [step] = opened.keeper.plan().steps
        assert step.takes is None
        assert step.stop == BudgetStop("rows", 20, 20, 2, "table.job.rule.old.budget.rows")


def test_it_is_learned_from_the_latest_sweeps_of_the_rule(database: Database) -> None:
    jobs(database, *((n, "done", ago(9)) for n in range(1_200)))
    with keeping(database) as opened:
        opened.keeper.enable()
        opened.keeper.sweep(approve=["job.old"], budget=Budget(rows=200), pace=FAST)
        [step] = opened.keeper.plan().steps
        assert step.takes is not None
        assert (step.takes.exactness, step.takes.sweeps, step.stop) == (Exactness.ESTIMATE, 1, None)
        assert 0 < step.takes.low_seconds <= step.takes.high_seconds < 600
        with opened.keeper.store.transaction() as transaction:
            slow = AuditEntry(
                "prune", "job", "tester", {}, {"job": 200}, opened.keeper.store.now(), "old", "r", seconds=100
            )
            Ledger.of(transaction).record(slow)
        [step] = opened.keeper.plan().steps
        assert step.takes is not None
        assert (step.takes.sweeps, step.takes.high_seconds > 60) == (2, True)
        assert step.stop is not None
        assert (step.stop.budget, step.stop.limit, step.stop.setting) == (
            *("seconds", 60),
            "table.job.rule.old.budget.seconds",
        )
        opened.keeper.sweep(approve=["job.old"], pace=FAST)
        [step] = opened.keeper.plan().steps
        assert (step.takes, step.stop) == (None, None)
