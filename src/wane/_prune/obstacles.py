"""What stops a sweep from taking rows that are due, whatever the row: flags, the fuse, tables that are missing.

It only reports. What a sweep may take is decided in the sweep, before each batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from wane._contract.fingerprint import fingerprint
from wane._contract.lookup import is_named
from wane._contract.model import Contract, Rule
from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.counting import Count, Exactness, share_of
from wane._findings import pasted
from wane._formats import count_text, counted, share_text
from wane._frozen import frozen
from wane._ledger import Flag, Ledger
from wane._prune.fuse import PROBE_SECONDS, allowed_share
from wane._prune.gates import closed_gate
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
    try:
        flags, states = _recorded(store) if steps else ({}, {})
        return [
            PlannedObstacle(step.table, step.rule, one.kind, one.message, one.fix)
            for step in steps
            for one in _obstacles(store, contract, made, step, flags, states.get((step.table, step.rule)), approved)
        ]
    except TimedOut:  # Nothing is known of them; the sweep finds out.
        return []


def _recorded(store: Store) -> tuple[Mapping[str, Flag], dict[tuple[str, str], FuseState]]:
    """Read the flags, and what is recorded about the fuse; nothing of either without Wane's own tables."""
    if not store.migrated:
        return {}, {}
    run = store.reader(PROBE_SECONDS)
    states = FuseStates(store.dialect, run).all()
    return Ledger(store.dialect, run).flags(), {(one.table, one.rule): one for one in states}


def _obstacles(
    store: Store,
    contract: Contract,
    made: Plan,
    step: Step,
    flags: Mapping[str, Flag],
    state: FuseState | None,
    approved: Collection[str],
) -> Iterator[Obstacle]:
    if not store.migrated:
        yield not_migrated()
    closed = closed_gate(flags, step.table, contract.sweep)
    if closed:
        yield Obstacle("flag", *closed.split(": ", 1))
    if step.action == "mark" or is_named(approved, step.table, step.rule):
        return
    if state is not None and state.approved(fingerprint(contract), made.made_at) is not None:
        return
    rule = next(rule for table, rule in contract.rules() if (str(table.name), rule.name) == (step.table, step.rule))
    blown = _blown(store, contract.sweep, step, rule)
    if blown:
        fix = f"{pasted('approve', f'{step.table}.{step.rule}')} reviews and approves it"
        by_hand = f", and {pasted('archive', 'run', f'{step.table}.{step.rule}')} needs no approval"
        yield Obstacle("fuse", blown, fix + (by_hand if step.action == "archive" else ""))


def _blown(store: Store, settings: SweepSettings, step: Step, rule: Rule) -> str:
    """Return why the fuse stops a step, or may; "" if it does not."""
    due, rows = step.due, step.table_rows
    if due is None or due.exactness is Exactness.AT_LEAST:
        return f"{counted(due, 'row')} due, not counted in time, so the fuse may stop it"
    if due.rows < settings.fuse_rows:
        return ""
    allowed, which = allowed_share(store, settings, step.table, rule)
    if rows is not None and due.rows <= allowed * rows.rows:
        return ""
    found = f"{count_text(due)} of {counted(rows, 'row')} are due"
    share = share_of(due, rows)
    if share is not None and share.exactness is Exactness.EXACT:
        return f"{found} ({share_text(share)}), and {which} may take {allowed:.0%} of a table without approval"
    return f"{found}, so the fuse may stop it: {which} may take {allowed:.0%} of a table without approval"
