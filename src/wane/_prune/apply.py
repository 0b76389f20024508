"""Applying a plan: what was read, and no more.

The plan's cutoffs are frozen, so no row that became due later leaves with it, and no rule takes more rows than its step
holds. It is refused if the contract or the database has changed or the plan is too old, and a step is refused if more
rows are due now, under its frozen cutoff, than it lists. That holds for estimates too: no row leaves uncounted because
a plan estimated it.
"""

from __future__ import annotations

from datetime import timedelta

from wane._contract.fingerprint import fingerprint
from wane._db.counting import Exactness
from wane._findings import pasted
from wane._prune.admission import require_admin
from wane._prune.plan import Plan, Step
from wane._prune.sweep import PlannedRows, Sweep, Sweeper
from wane._rules.reads import count_due
from wane.errors import PlanError, TimedOut

MOST_AGE = timedelta(hours=24)
COUNT_SECONDS = 60.0
"""The time limit of counting what is due under one step: a user waits for it, and no process does."""


def apply_plan(sweeper: Sweeper, plan: Plan, *, most_age: timedelta = MOST_AGE) -> Sweep:
    """Sweep the plan's steps; raise PlanError if reality departs from it."""
    require_admin(sweeper.store, sweeper.contract)
    _require_current(sweeper, plan, most_age)
    steps = [step for step in plan.steps if step.swept and step.action != "archive"]
    return sweeper.sweep(planned={f"{step.table}.{step.rule}": _planned_rows(sweeper, plan, step) for step in steps})


def _planned_rows(sweeper: Sweeper, plan: Plan, step: Step) -> PlannedRows:
    """Return what may leave under one step.

    Raise PlanError if more is due by it than it lists, or if that cannot be counted.
    """
    name = f"{step.table}.{step.rule}"
    if step.due is None:
        raise PlanError(f"{name}: the plan does not state how many rows are due", _count_first(name))
    table = sweeper.bindings.table(step.table)
    selection = sweeper.bindings.selection(table, sweeper.bindings.rule(table, step.rule))
    planned = step.due.rows
    try:
        due = count_due(sweeper.store, selection, plan.made_at, COUNT_SECONDS, most=planned + 1)
    except TimedOut as problem:
        raise PlanError(
            f"{name}: counting the rows that are due by the plan did not finish in {COUNT_SECONDS:g} seconds",
            f"let the rule go by its budget instead: {pasted('sweep', name, '--approve', name)}",
        ) from problem
    if due > planned:
        how = "" if step.due.exactness is Exactness.EXACT else f" ({step.due.exactness.value})"
        hint = "rows changed since it was made; plan again" if not how else _count_first(name)
        raise PlanError(f"{name}: the plan lists {planned:,} rows{how}, and at least {due:,} are due by it now", hint)
    return PlannedRows(plan.made_at, planned)


def _count_first(name: str) -> str:
    return f"plan again with time to count them, for example {pasted('plan', name, '--seconds', 60)}"


def _require_current(sweeper: Sweeper, plan: Plan, most_age: timedelta) -> None:
    if plan.fingerprint != fingerprint(sweeper.contract):
        raise PlanError("the contract is not the one that the plan was made with", "plan again")
    if plan.database != sweeper.store.identity():
        raise PlanError(f"the plan was made for another database, {plan.url}", "plan again on this one")
    age = sweeper.store.now() - plan.made_at
    if age < timedelta(0):
        raise PlanError("the plan was made for a time that has not come yet", "plan again without --at")
    if age > most_age:
        raise PlanError(f"the plan is {age.total_seconds() / 3600:.0f} hours old", "plan again")
    if plan.problems:
        raise PlanError(
            "the plan has rules that do not fit the database", "fix them (`wane check --cover`), then plan again"
        )
