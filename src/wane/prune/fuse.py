"""The fuse: what would take a large share of a table unasked takes nothing, until a person has looked and approved it.

A wrong clock, a contract with a unit too small, a column that was filled with yesterday: each of them makes most of a table due at once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from wane.contract.model import SweepSettings
from wane.errors import Locked, TimedOut
from wane.store import Store
from wane.store.base import Exactness
from wane.store.own import OwnTables
from wane.store.selection import Selection

LOOK_SECONDS = 2.0
"""The longest that any look before a sweep may take."""


@dataclass(frozen=True, slots=True)
class Fuse:
    """What the look before a sweep found."""

    blown: str = ""
    """Why a person should look first; "" if the sweep may begin."""
    nothing_due: bool = False


def look(store: Store, settings: SweepSettings, selection: Selection, *, approval: str) -> Fuse:
    """Whether a rule may be swept unasked; `approval` is the command that approves it. Waits for no writer, and for no count for long."""
    now = store.now()
    with suppress(TimedOut, Locked):
        # Most sweeps find little or nothing due: one probe tells, and nothing needs to be counted.
        found = len(store.keys_due(selection, now, settings.fuse_rows, LOOK_SECONDS))
        if found < settings.fuse_rows:
            return Fuse(nothing_due=not found)
    due = store.due(selection, now, LOOK_SECONDS).count
    rows = store.count_rows(selection.table, LOOK_SECONDS)
    swept_before = _swept_before(store, selection)
    allowed = settings.fuse if swept_before else settings.first_fuse
    if due is None or rows is None or due.exactness is Exactness.AT_LEAST:
        why = "how many rows are due could not be counted in time"
    elif due.rows < settings.fuse_rows or due.rows <= allowed * rows.rows:
        return Fuse()
    else:
        why = f"{due.rows:,} of {rows.rows:,} rows are due ({due.rows / max(rows.rows, 1):.1%})"
    which = "a rule" if swept_before else "the first sweep of a rule"
    return Fuse(
        f"{why}, and {which} may take {allowed:.0%} of a table unasked: "
        f"look at `wane plan {selection.label}`, then approve it with `{approval}`"
    )


def _swept_before(store: Store, selection: Selection) -> bool:
    own = OwnTables(store.rows.dialect, store.asking(LOOK_SECONDS))
    return bool(own.trail(table=str(selection.name), rule=selection.rule.name, sweeps_only=True, limit=1))
