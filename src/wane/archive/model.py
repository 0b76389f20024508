"""What the archive tells its callers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wane.prune.sweep import Outcome


@dataclass(frozen=True, slots=True)
class ArchivedRule:
    """What one run did for one rule."""

    table: str
    rule: str
    outcome: Outcome
    sweeps: tuple[int, ...]
    archived: dict[str, int]
    """Copies that were committed, by table."""
    evicted: dict[str, int]
    """Rows that left the hot tables."""
    stale: int
    """Rows that changed after they were copied: they stayed hot, and their copies left the archive again."""
    seconds: dict[str, float]
    """How long each step took."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A run over some rules."""

    rules: tuple[ArchivedRule, ...]

    @property
    def failed(self) -> bool:
        return any(rule.outcome is Outcome.FAILED for rule in self.rules)


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """One sweep, as the journal knows it."""

    id: int
    table: str
    rule: str
    state: str
    strict: bool
    planned_at: datetime
    changed_at: datetime
    archived: dict[str, int]
    evicted: dict[str, int]
    stale: int
    absent: int


@dataclass(frozen=True, slots=True)
class ColdStatus:
    """One table of the archive."""

    table: str
    place: str
    rows: int
    bytes: int
    files: int
    oldest_month: str | None
    newest_month: str | None
    version: int


@dataclass(frozen=True, slots=True)
class Proof:
    """What reading back a table of the archive found."""

    table: str
    files: int
    rows: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did, or would do."""

    table: str
    into: str | None
    """The side table; None for the hot table itself."""
    id: int | None
    """Its number in the journal; None if nothing was chosen, or for a dry run."""
    chosen: dict[str, int]
    """Archived rows that were chosen, by table, with what left with them."""
    restored: dict[str, int]
    """Rows that came back, by table; for a dry run, rows that would."""
    there: int
    """Rows that were there already, exactly as they were archived."""
    replaced: int
    """Rows that took the place of others."""
    kept: int
    """Rows that did not come back, and stay in the archive."""
    reasons: tuple[tuple[str, str], ...]
    """Why, for the first of them: (key, reason)."""
    protected_until: datetime | None
    dry_run: bool = False
