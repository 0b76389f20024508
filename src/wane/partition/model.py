"""What is planned for a partitioned table, and what was done. Plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from wane.store.base import Count
from wane.store.partitions import Ddl


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a conversion: what the journal calls it once it is done, and its statements."""

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
    """plain, partitioned, or how far a conversion, a split or the way back has come."""
    rows: Count | None
    threshold: int
    recommended: bool
    why: str
    until: str | None
    """The month before which everything stays in one partition."""
    partitions: tuple[str, ...]
    """Those that converting would make; of a table that is partitioned, those that it has."""
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
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PartitionDone:
    """What one command did to one table. Run again, it goes on where it was stopped."""

    table: str
    did: str
    """converted, split, copied (splitting was stopped), undone, rolled back, maintained, or nothing."""
    partitions: tuple[str, ...] = ()
    """Partitions that were made, put in place, or taken apart."""
    rows: int = 0
    """Rows that changed their place."""
    longest_lock_seconds: float = 0.0
    """How long the strongest lock was held, at the most: the application waited no longer than that, and the time that a lock is asked for."""
    lock_waits: int = 0
    """How often a lock was not to be had in time, and was asked for again."""
    seconds: float = 0.0
    stopped: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retiring:
    """What became of one partition, or why it stays."""

    table: str
    partition: str
    outcome: str
    """quarantined, moved, dropped, attached, stays, stopped (half-way: the next call goes on), off, due (a dry run), or failed."""
    counts: dict[str, int]
    why: str = ""
    place: str | None = None
    drop_at: datetime | None = None
    seconds: float = 0.0
