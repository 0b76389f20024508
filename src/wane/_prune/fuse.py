"""The fuse: a sweep that would take a large share of a table takes nothing until a user has reviewed and approved it.

A wrong clock, a contract with too small a unit, a column that was backfilled with yesterday's date: each of them makes
most of a table due at once. The planner's statistics are from before such a mistake, so no estimate is used here: rows
are counted, and a count that does not finish in time counts as too many.
"""

from __future__ import annotations

import math
from datetime import datetime

from wane._contract.fingerprint import rule_fingerprint
from wane._contract.model import Rule
from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.counting import count_some_rows
from wane._frozen import frozen
from wane._ledger import Ledger
from wane._rules.reads import count_due, keys_due
from wane._rules.selection import Selection
from wane.errors import TimedOut

PROBE_SECONDS = 2.0
"""The time limit of any read before a sweep."""
COUNT_SECONDS = 10.0
"""The time limit of each of the fuse's counts."""


@frozen
class Fuse:
    """The result of the check before a sweep."""

    blown: str = ""
    """Why a user should review it first; "" if the sweep may begin."""
    nothing_due: bool = False
    due: int | None = None
    """The due rows; None if they were not counted in time."""
    rows: int | None = None
    """Of a rule that is stopped: the rows of its table."""


def probe(
    store: Store, settings: SweepSettings, selection: Selection, now: datetime, seconds: float | None = None
) -> Fuse:
    """Decide whether a rule may be swept unattended as of `now`; wait for no writer.

    `seconds` is the time limit of each count; by default the one of sweeps.
    """
    seconds = COUNT_SECONDS if seconds is None else seconds
    try:
        # Most sweeps find little or nothing due: one probe decides, and nothing needs to be counted.
        found = len(keys_due(store, selection, now, settings.fuse_rows, seconds))
        if found < settings.fuse_rows:
            return Fuse(nothing_due=not found, due=found)
        due = count_due(store, selection, now, seconds)
        allowed = allowed_share(store, settings, str(selection.name), selection.rule)
        # The share is small enough as soon as the table has this many rows; the others need not be counted.
        rows = count_some_rows(store, selection.table, math.ceil(due / allowed.share), seconds)
    except TimedOut:
        why = (
            f"counting the due rows did not finish in {seconds:g} seconds, so they count as too many to take unattended"
        )
        return Fuse(why)
    if due < settings.fuse_rows or due <= allowed.share * rows:
        return Fuse(due=due)
    share = f"{due:,} of {rows:,} rows are due ({due / max(rows, 1):.1%}), and {allowed.text}"
    return Fuse(share, due=due, rows=rows)


@frozen
class AllowedShare:
    """The share of its table that a rule may take without approval."""

    share: float
    whose: str

    @property
    def text(self) -> str:
        return f"{self.whose} may take {self.share:.0%} of a table without approval"


def allowed_share(store: Store, settings: SweepSettings, table: str, rule: Rule) -> AllowedShare:
    """Return the share of its table that a rule may take without approval.

    A sweep that found nothing is no proof of a rule, and neither is what it took before it was changed.
    """
    own = Ledger(store.dialect, store.reader(PROBE_SECONDS))
    last = own.last_sweep_inputs(table, rule.name) if store.migrated else {}
    if last.get("promise") == rule_fingerprint(rule):
        return AllowedShare(settings.fuse, "a rule")
    whose = "the first sweep of a changed rule" if last else "the first sweep of a rule"
    return AllowedShare(settings.first_fuse, whose)
