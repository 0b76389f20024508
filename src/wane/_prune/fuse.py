"""The fuse: a sweep that would take a large share of a table takes nothing until a user has reviewed and approved it.

A wrong clock, a contract with a unit too small, a column that was filled with yesterday: each of them makes most of a
table due at once. The planner's statistics are from before such a mistake, so no estimate is used here: rows are
counted, and a count that does not finish in time counts as too many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.counting import count_some_rows
from wane._ledger import Ledger
from wane._rules.reads import count_due, keys_due
from wane._rules.selection import Selection
from wane.errors import TimedOut

PROBE_SECONDS = 2.0
"""The time limit of any read before a sweep."""
COUNT_SECONDS = 10.0
"""The time limit of each of the fuse's counts."""


@dataclass(frozen=True, slots=True)
class Fuse:
    """The result of the check before a sweep."""

    blown: str = ""
    """Why a user should review it first; "" if the sweep may begin."""
    nothing_due: bool = False


def probe(store: Store, settings: SweepSettings, selection: Selection, now: datetime, *, approval: str) -> Fuse:
    """Decide whether a rule may be swept unattended as of `now`; wait for no writer.

    `approval` is the command that approves it.
    """
    try:
        # Most sweeps find little or nothing due: one probe decides, and nothing needs to be counted.
        found = len(keys_due(store, selection, now, settings.fuse_rows, COUNT_SECONDS))
        if found < settings.fuse_rows:
            return Fuse(nothing_due=not found)
        swept_before = _swept_before(store, selection)
        allowed = settings.fuse if swept_before else settings.first_fuse
        due = count_due(store, selection, now, COUNT_SECONDS)
        # The share is small enough as soon as the table has this many rows; the others need not be counted.
        rows = count_some_rows(store, selection.table, math.ceil(due / allowed), COUNT_SECONDS)
    except TimedOut:
        why = f"counting the due rows did not finish in {COUNT_SECONDS:g} seconds, so they count as too many to take unattended"
        return Fuse(f"{why}: {_approve(selection, approval)}")
    if due < settings.fuse_rows or due <= allowed * rows:
        return Fuse()
    which = "a rule" if swept_before else "the first sweep of a rule"
    share = f"{due:,} of {rows:,} rows are due ({due / max(rows, 1):.1%}), and {which} may take {allowed:.0%} of a table unasked"
    return Fuse(f"{share}: {_approve(selection, approval)}")


def _approve(selection: Selection, approval: str) -> str:
    return f"review `wane plan {selection.label}`, then approve it with `{approval}`"


def _swept_before(store: Store, selection: Selection) -> bool:
    own = Ledger(store.dialect, store.reader(PROBE_SECONDS))
    return bool(own.trail(table=str(selection.name), rule=selection.rule.name, sweeps_only=True, limit=1))
