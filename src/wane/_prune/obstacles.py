"""What stops a sweep from taking rows that are due, whatever the row: flags, the fuse, tables that are missing.

It only reports. What a sweep may take is decided in the sweep, before each batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from wane._contract.fingerprint import fingerprint
from wane._contract.lookup import is_named
from wane._contract.model import Contract
from wane._db import Store
from wane._db.counting import Count, Exactness, share_of
from wane._findings import pasted
from wane._formats import count_text, counted, share_text
from wane._frozen import frozen
from wane._ledger import Flag, Ledger
from wane._prune.fuse import PROBE_SECONDS, allowed_share
from wane._prune.gates import closed_flag
from wane._prune.plan import Plan, Step
from wane._prune.sql_fuse import FuseState, FuseStates
from wane.errors import TimedOut


@frozen
class Obstacle:
    """What stops a rule from taking rows that are due, whatever the row."""

    kind: str
    """"flag", "fuse", "budget", "append_only", "NotMigrated", or the code of a finding."""
    message: str
    fix: str = ""


@frozen
class PlannedObstacle:
    """What stops sweeps of one rule of a plan."""

    table: str
    rule: str
    kind: str
    """"NotMigrated", "flag" or "fuse"."""
    message: str
    fix: str


def not_migrated() -> Obstacle:
    return Obstacle(
        "NotMigrated", "the database does not have Wane's own tables yet", f"{pasted('migrate')} creates them"
    )


def obstacles_of(
    store: Store, contract: Contract, made: Plan, *, approved: Collection[str] = ()
) -> list[PlannedObstacle]:
    """Find what stops sweeps from taking what a plan lists, but for `approved` rules the fuse. Reads no user's table.

    Counts are the plan's: where they are not exact, the fuse may or may not stop the sweep, and the message says "may".
    """
    steps = [step for step in made.steps if step.swept and step.due != Count(0)]
    if not steps:
        return []
    try:
        finder = _ObstacleFinder(store, contract, made, approved)
        return [
            PlannedObstacle(step.table, step.rule, one.kind, one.message, one.fix)
            for step in steps
            for one in finder.obstacles(step)
        ]
    except TimedOut:  # Nothing is known of them; the sweep finds out.
        return []


class _ObstacleFinder:
    """Reads once what is recorded, and finds what stops each step of a plan."""

    def __init__(self, store: Store, contract: Contract, made: Plan, approved: Collection[str]) -> None:
        self._store = store
        self._settings = contract.sweep
        self._made_at = made.made_at
        self._approved = approved
        self._fingerprint = fingerprint(contract)
        self._rules = {(str(table.name), rule.name): rule for table, rule in contract.rules()}
        self._flags: Mapping[str, Flag] = {}
        self._states: dict[tuple[str, str], FuseState] = {}
        if store.migrated:
            run = store.reader(PROBE_SECONDS)
            self._flags = Ledger(store.dialect, run).flags()
            self._states = {(one.table, one.rule): one for one in FuseStates(store.dialect, run).all()}

    def obstacles(self, step: Step) -> Iterator[Obstacle]:
        """Yield what stops a step, from the most general on."""
        if not self._store.migrated:
            yield not_migrated()
        closed = closed_flag(self._flags, step.table, self._settings)
        if closed is not None:
            yield Obstacle("flag", *closed)
        if step.action == "mark" or is_named(self._approved, step.table, step.rule):
            return
        state = self._states.get((step.table, step.rule))
        if state is not None and state.approved(self._fingerprint, self._made_at) is not None:
            return
        blown = self._blown(step)
        if blown:
            fix = f"{pasted('approve', f'{step.table}.{step.rule}')} reviews and approves it"
            by_hand = f", and {pasted('archive', 'run', f'{step.table}.{step.rule}')} needs no approval"
            yield Obstacle("fuse", blown, fix + (by_hand if step.action == "archive" else ""))

    def _blown(self, step: Step) -> str:
        """Return why the fuse stops a step, or may; "" if it does not."""
        due, rows = step.due, step.table_rows
        if due is None or due.exactness is Exactness.AT_LEAST:
            return f"{counted(due, 'row')} due, not counted in time, so the fuse may stop it"
        if due.rows < self._settings.fuse_rows:
            return ""
        allowed = allowed_share(self._store, self._settings, step.table, self._rules[step.table, step.rule])
        if rows is not None and due.rows <= allowed.share * rows.rows:
            return ""
        found = f"{count_text(due)} of {counted(rows, 'row')} are due"
        share = share_of(due, rows)
        if share is not None and share.exactness is Exactness.EXACT:
            return f"{found} ({share_text(share)}), and {allowed.text}"
        return f"{found}, so the fuse may stop it: {allowed.text}"
