"""Vacuuming finished work: the prune primitive, with an age for each state.

Without a threshold nothing is deleted; available and claimed work stays.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from wane._arguments import require_limit, time_before
from wane._contract.load import load_contract
from wane._contract.lookup import find_unqualified
from wane._contract.model import Contract
from wane._contract.names import TableName
from wane._db.counting import READ_SECONDS
from wane._prune.plan import Step
from wane._prune.primitive import Pruner
from wane.claims._arguments import require_hours
from wane.claims._model import Vacuumed, VacuumedState, WorkState
from wane.claims._sql import CLAIMS
from wane.errors import WrongArgument
from wane.reference import contract_path

KIND = "vacuum"
"""Its kind in the audit trail."""
MOST_VACUUMED = 1_000_000
_BATCH = 1_000
"""The most rows of one transaction."""


class Vacuum:
    """One vacuum, with validated thresholds."""

    def __init__(self, pruner: Pruner, completed_age_hours: object, abandoned_age_hours: object) -> None:
        given = {
            WorkState.COMPLETED: ("completed_age_hours", completed_age_hours),
            WorkState.ABANDONED: ("abandoned_age_hours", abandoned_age_hours),
        }
        self.ages = {state: require_hours(name, age) for state, (name, age) in given.items() if age is not None}
        if not self.ages:
            raise WrongArgument(
                "a vacuum needs to know how old: no threshold, no deletion",
                "give completed_age_hours (168 is a week), abandoned_age_hours, or both",
            )
        self.pruner = pruner
        self.table = str(_declared(pruner.contract))

    def take(self, limit: object, connection: object | None) -> Vacuumed:
        rows_left = most = require_limit(limit, MOST_VACUUMED)
        now = self.pruner.store.now()
        states: dict[WorkState, VacuumedState] = {}
        more = False
        for state, age in self.ages.items():
            taken = self._take(state, age, now, rows_left, most, connection)
            states[state] = taken
            rows_left -= taken.rows
            more = more or rows_left <= 0
        return Vacuumed(states, more)

    def _take(
        self, state: WorkState, age: timedelta, now: datetime, rows_left: int, most: int, connection: object | None
    ) -> VacuumedState:
        cutoff = time_before(now, age.total_seconds())
        hours = age / timedelta(hours=1)
        order = self.pruner.order(self.table, None, [state.value], cutoff)
        requested = {"states": [state.value], f"{state.value}_age_hours": hours, "limit": most}
        rows, audits = 0, []
        while rows_left - rows > 0:
            batch = min(_BATCH, rows_left - rows)
            pruned = self.pruner.take(
                replace(order, kind=KIND, limit=batch, most=batch, requested=requested), None, connection
            )
            rows += pruned.rows
            audits.append(pruned.audit_id)
            if pruned.rows < batch:
                break
        return VacuumedState(hours, cutoff, rows, tuple(audits))

    def preview(self) -> dict[WorkState, Step]:
        now = self.pruner.store.now()
        return {
            state: self.pruner.preview(
                self.table,
                rule=None,
                states=[state.value],
                older_than=time_before(now, age.total_seconds()),
                orphans=False,
                seconds=READ_SECONDS,
            )
            for state, age in self.ages.items()
        }


def claims_pruner(pruner: Pruner) -> Pruner:
    """Return a pruner whose contract covers work claims: the caller's, or one of the reference contract.

    A contract that excuses the table covers it, too: nothing may be vacuumed then.
    """
    if _declared(pruner.contract) is not None:
        return pruner
    contract = load_contract(contract_path("claims"))
    return Pruner(pruner.store, contract, actor=pruner.actor, listener=pruner.listener)


def claims_schema_name(contract: Contract) -> str | None:
    """Return the schema of the tables that the contract names; None if it names none."""
    return name.schema if (name := _declared(contract)) is not None else None


def _declared(contract: Contract) -> TableName | None:
    return find_unqualified(
        [*(table.name for table in contract.tables), *(name for name, _ in contract.excused)], CLAIMS
    )
