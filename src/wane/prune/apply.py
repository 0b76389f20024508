"""Applying a plan: what was read, and no more.

The plan's cutoffs are frozen, so no row that became due later leaves with it, and no rule takes more rows than its step says. It is refused if the contract, the database or the plan's
age is not what it was, and a step is refused if more rows are due now, under its frozen cutoff, than it says.
"""

from __future__ import annotations

from datetime import timedelta

from wane.contract.fingerprint import fingerprint
from wane.errors import PlanError
from wane.plan.model import Plan
from wane.prune.admission import require_admin
from wane.prune.sweep import Frozen, Sweep, Sweeper
from wane.store.base import Exactness

MOST_AGE = timedelta(hours=24)
_LOOK_SECONDS = 5.0


def apply_plan(sweeper: Sweeper, plan: Plan, *, most_age: timedelta = MOST_AGE) -> Sweep:
    """Sweep the plan's steps; raise PlanError if reality departs from it."""
    require_admin(sweeper.store, sweeper.contract)
    _require_current(sweeper, plan, most_age)
    frozen = {}
    for step in plan.steps:
        if not step.swept or step.action == "archive":
            continue
        if step.due is None or step.due.exactness is not Exactness.EXACT:
            frozen[f"{step.table}.{step.rule}"] = Frozen(plan.made_at, None)
            continue
        table = sweeper.bindings.table(step.table)
        selection = sweeper.bindings.selection(table, sweeper.bindings.rule(table, step.rule))
        due = sweeper.store.due(selection, plan.made_at, _LOOK_SECONDS).count
        if due is not None and due.rows > step.due.rows:
            raise PlanError(
                f"{step.table}.{step.rule}: the plan says {step.due.rows:,} rows, and now {due.rows:,} are due by it",
                "rows changed since it was made; plan again",
            )
        frozen[f"{step.table}.{step.rule}"] = Frozen(plan.made_at, step.due.rows)
    return sweeper.sweep(frozen=frozen)


def _require_current(sweeper: Sweeper, plan: Plan, most_age: timedelta) -> None:
    if plan.fingerprint != fingerprint(sweeper.contract):
        raise PlanError("the contract is not the one that the plan was made with", "plan again")
    if plan.database != sweeper.store.identity():
        raise PlanError(f"the plan was made for another database, {plan.url}", "plan again on this one")
    age = sweeper.store.now() - plan.made_at
    if age < timedelta(0):
        raise PlanError("the plan was made for a moment that has not come yet", "plan again without --at")
    if age > most_age:
        raise PlanError(f"the plan is {age.total_seconds() / 3600:.0f} hours old", "plan again")
    if plan.problems:
        raise PlanError(
            "the plan has rules that do not fit the database", "mend them (`wane check --cover`), then plan again"
        )
