"""Plain values: what is planned for a partitioned table, and what was done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from wane._db.counting import Count, stated
from wane._partition.records import Ddl


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a conversion: its state in the journal once it is done, and its statements."""

    state: str
    statements: tuple[Ddl, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """Something that would stop working, and what to do about it."""

    code: str
    what: str
    instead: str


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What a conversion would do to one table, and to those that are partitioned along with it."""

    table: str
    state: str
    """plain, partitioned, partitioned by the application, or the progress of a conversion, a split or an undo."""
    rows: Count | None
    threshold: int
    recommended: bool
    why: str
    until: str | None
    """The month before which everything stays in one partition."""
    partitions: tuple[str, ...]
    """Those that converting would create; for a table that is partitioned, those that it has."""
    steps: tuple[PlannedStep, ...]
    breaks: tuple[Break, ...]
    notes: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    along: tuple[PartitionPlan, ...] = ()

    @property
    def all_breaks(self) -> tuple[Break, ...]:
        return (*self.breaks, *(one for plan in self.along for one in plan.all_breaks))

    @property
    def all_refused(self) -> tuple[tuple[str, str], ...]:
        return (*self.refused, *(one for plan in self.along for one in plan.all_refused))

    def as_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in asdict(self).items() if name not in ("rows", "along")}
        return {**plain, **stated("rows", self.rows), "along": [plan.as_json() for plan in self.along]}


@dataclass(frozen=True, slots=True)
class PartitionDone:
    """What one command did to one table. Run again, it resumes where it was stopped."""

    table: str
    did: str
    """converted, split, copied (splitting was stopped), undone, rolled back, maintained, or nothing."""
    partitions: tuple[str, ...] = ()
    """Partitions that were created, attached, or taken apart."""
    rows: int = 0
    """Rows that were moved to another table."""
    longest_lock_seconds: float = 0.0
    """The longest time that the strongest lock was held: the application waited no longer than that plus the lock
    timeout."""
    lock_waits: int = 0
    """How often a lock was not granted in time, and was requested again."""
    seconds: float = 0.0
    stopped: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retiring:
    """What became of one partition, or why it stays."""

    table: str
    partition: str
    outcome: str
    """quarantined, moved, dropped, attached, stays, stopped (half-way: the next call resumes), off, due (a dry run),
    gone (another process detached or dropped it), or failed."""
    counts: dict[str, int]
    why: str = ""
    location: str | None = None
    drop_at: datetime | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A row that left with its partition, and can still be put back."""

    partition: str
    table: str
    """The table that holds the partition's rows now."""
    until: datetime | None
    """When it is dropped; None: it is not known yet."""
    reattach: str
    """The command that puts the partition back."""


@dataclass(frozen=True, slots=True)
class RowPartition:
    """The partition that a row is in, and when that leaves as a whole."""

    partition: str
    ends_at: datetime | None
    """None: it has no end in time."""
    retired_after: datetime | None
    """When it is past its time; None: never."""
    summary: str
