"""The answer to why a row is still there, or no longer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from wane._ledger import AuditEntry, Hold
from wane._partition.model import QuarantinedRow, RowPartition
from wane._prune.obstacles import Obstacle
from wane._rules.row_parts import RowCondition


class RowVerdict(StrEnum):
    """What happens to a row, by one rule or by all of them."""

    DUE = "due"
    """The next sweep takes it."""
    BLOCKED = "blocked"
    """It is due, and something else than the row stops the sweep: a flag, the fuse, the budget, a finding."""
    WAITING = "waiting"
    """A rule takes it at a known time, if nothing changes."""
    RETAINED = "retained"
    """No rule takes it as it is."""
    GONE = "gone"
    """The table has no such row."""


@dataclass(frozen=True, slots=True)
class WhyRule:
    """What one rule does with a row."""

    rule: str
    action: str
    """"prune", "archive", "shelve" or "mark"."""
    verdict: RowVerdict
    summary: str
    conditions: tuple[RowCondition, ...]
    cutoff: datetime | None
    """Rows are due strictly before it; for an expiry, at or before it. A cap has none."""
    time: datetime | None
    """The time that the rule ages the row by; None if the row has none."""
    due_at: datetime | None
    """When the row becomes due, or became it, by its time; None for a cap, or without a time."""
    obstacles: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivedCopy:
    """Where the archive has a row."""

    file: str
    month: str
    sweep: int | None
    """The number of the sweep that moved it; None if the archive does not record it."""
    rule: str | None
    moved_at: datetime | None
    restore: str
    """The command that brings it back; "" if nothing does, because it was transformed on the way."""
    transformed: str = ""
    """What happened to its columns on the way; "" if nothing did."""


@dataclass(frozen=True, slots=True)
class GoneRow:
    """What is known of a row that its table does not have."""

    archived: ArchivedCopy | None
    departures: tuple[AuditEntry, ...]
    """The latest entries of the audit trail with rows of the table that left, newest first: one of them may have taken
    the row."""
    unknown: tuple[str, ...]
    """What cannot be known, and why."""
    quarantined: QuarantinedRow | None = None
    """The partition in quarantine that has the row."""


@dataclass(frozen=True, slots=True)
class WhyRow:
    """Why a row is still there, or no longer."""

    table: str
    key: dict[str, object]
    answered_at: datetime
    """The database's time, by which everything was decided."""
    verdict: RowVerdict
    summary: str
    rules: tuple[WhyRule, ...] = ()
    """What each rule of the table does with it, in the order in which they are swept."""
    holds: tuple[Hold, ...] = ()
    """Holds in force on the row or on its whole table."""
    scheduler: str | None = None
    next_sweep_at: datetime | None = None
    """When the table's scheduler opens its next window; None if that is as soon as it runs, or nothing schedules it."""
    gone: GoneRow | None = None
    partition: RowPartition | None = None
    """The partition that it may leave with as a whole; None: its table has none that are retired."""
