"""What the archive returns to its callers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from wane._prune.sweep import Outcome

if TYPE_CHECKING:
    from wane._archive.delta.files import ColdFile, NewFile

DIFFERENT = "another row has its key"
OLDER = "a newer version of it is chosen too, and only that one is restored"
"""Reasons why rows stay in the archive."""


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
    """Rows that changed after they were copied: they stayed hot, and their copies were removed from the archive."""
    seconds: dict[str, float]
    """How long each step took."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class DueRule:
    """What a run would move by one rule."""

    table: str
    rule: str
    due: int | None
    """Counted exactly; None: could not be counted in the time allowed."""
    unfinished: str
    """The state of the table's unfinished sweep, which a run ends first; empty if there is none."""
    transform: dict[str, Any] | None = None
    """What happens to columns on the way; None if nothing does."""
    closed: str = ""
    """Why a run would move nothing now: a flag that is off, and what turns it on; empty if it would."""
    waits: str = ""
    """Why a run that waits leaves the rows: fewer than `least_rows` are due; empty if it would move them."""
    followers: tuple[str, ...] = ()
    """Tables whose rows leave with them: `due` does not count those."""


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A run over some rules."""

    rules: tuple[ArchivedRule, ...]

    @property
    def failed(self) -> bool:
        return any(rule.outcome is Outcome.FAILED for rule in self.rules)


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """One sweep, as recorded in the journal."""

    id: int
    table: str
    rule: str
    state: str
    strict: bool
    planned_at: datetime
    changed_at: datetime
    archived: dict[str, int]
    """Copies that were committed, by table; none before that."""
    evicted: dict[str, int]
    stale: int
    absent: int
    copied: dict[str, int] = field(default_factory=dict)
    """Copies that were written, by table, committed or not."""


@dataclass(frozen=True, slots=True)
class ArchivedColumnChange:
    """A column that was added, dropped, renamed, or given another type, between two sweeps of its table."""

    column: str
    was: str | None
    """Its type in the archive before; None if it was added."""
    now: str | None
    """Its type in the archive since; None if it was dropped, and later rows have NULL."""
    sweep: int | None
    """The first sweep with the change; None in the same database, where months have tables of their own."""
    at: datetime | None
    month: str | None = None
    """In the same database: the first month whose table has the change."""
    renamed_from: str | None = None
    """Its name in the table before, if the contract states that it was renamed."""


@dataclass(frozen=True, slots=True)
class ColdStatus:
    """One table of the archive."""

    table: str
    location: str
    rows: int
    bytes: int
    files: int
    oldest_month: str | None
    newest_month: str | None
    version: int
    transform: dict[str, Any] | None = None
    """What happens to columns of its rows on the way, by the contract; None: they are archived as they are."""
    changes: tuple[ArchivedColumnChange, ...] = ()
    """How its columns changed since its first sweep, in order."""


VERIFIED = "archive verify"
"""The action in the audit trail that records that all files of a table were read back."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What reading back a table of the archive found."""

    table: str
    files: int
    rows: int
    problems: tuple[str, ...]

    @property
    def has_log(self) -> bool:
        """Return whether the table's log could be used: without it, no file is read."""
        return bool(self.files) or not self.problems


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
    existing: int
    """Rows that existed already, exactly as they were archived."""
    replaced: int
    """Rows that replaced others."""
    unrestored: int
    """Rows that did not come back, and stay in the archive."""
    reasons: tuple[tuple[str, str], ...]
    """The reasons, for the first of them: (key, reason)."""
    protected_until: datetime | None
    dry_run: bool = False
    left_out: dict[str, int] = field(default_factory=dict)
    """Chosen rows with values in columns that their tables no longer have, by `table.column`. These values do not come
    back, so the copies of their rows stay in the archive."""
    stopped: bool = False
    """Whether a stop was requested before its end: the same call finishes it."""


@dataclass(frozen=True, slots=True)
class RestoreStatus:
    """One restore, as recorded in the journal."""

    id: int
    table: str
    into: str | None
    state: str
    inputs: dict[str, Any]
    """What the operator requested."""
    actor: str
    planned_at: datetime
    changed_at: datetime
    protected_until: datetime | None
    chosen: int
    """Rows of the table itself."""
    restored: dict[str, int]
    """Rows that came back, by table."""
    existing: int
    """Rows that existed already."""
    replaced: int
    unrestored: int
    """Rows that stay in the archive."""


@dataclass(frozen=True, slots=True)
class AbsentRow:
    """A row that the application deleted after it was copied, and whose copy is archived."""

    table: str
    key: str
    """Its key, as the archive writes it (`_key`)."""
    sweep: int
    rule: str
    month: str
    at: datetime
    """When the sweep found that the row was gone."""


@dataclass(slots=True)
class ExpiredTable:
    """What one run deleted for good of one table's archive."""

    table: str
    outcome: Outcome
    cutoff: datetime | None
    """Rows strictly older than this were deleted; None: they are retained forever."""
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    """By table (what left with its rows too) and month."""
    held: str | None = None
    """Why nothing was deleted although it was due."""
    more_absent: bool = False
    """Whether more rows that the application deleted are left than one call erases: the next one continues."""
    message: str = ""
    busy: bool = False
    """Another process writes to it."""
    dry_run: bool = False
    """Whether nothing was changed: these rows would go."""

    def add(self, table: str, month: str, rows: int) -> None:
        if rows:
            months = self.rows.setdefault(table, {})
            months[month] = months.get(month, 0) + rows


@dataclass(slots=True)
class CompactedTable:
    """What one run compacted of one table of the archive."""

    table: str
    outcome: Outcome
    files: int = 0
    """The number of files that were replaced by others."""
    into: int = 0
    rows: int = 0
    bytes: int = 0
    """The size of the replaced files."""
    into_bytes: int = 0
    message: str = ""
    busy: bool = False
    dry_run: bool = False
    """Whether nothing was changed: these files would be replaced, by a number that only doing it shows."""

    def add(self, files: Sequence[ColdFile], into: Sequence[NewFile]) -> None:
        self.files += len(files)
        self.into += len(into)
        self.rows += sum(file.rows for file in files)
        self.bytes += sum(file.bytes for file in files)
        self.into_bytes += sum(file.bytes for file in into)


@dataclass(slots=True)
class TidiedTable:
    """What one run removed from the folder of one table of the archive."""

    table: str
    outcome: Outcome
    files: int = 0
    bytes: int = 0
    waiting: int = 0
    """Files that are part of nothing any more and are still too young, or of a sweep or a job that is not finished."""
    erased: tuple[int, ...] = ()
    """Expiries (their audit entries) whose rows are in no file any more."""
    message: str = ""
    busy: bool = False
    dry_run: bool = False
    """Whether nothing was changed: these files would be removed."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What the survey found of one table, hot or archived."""

    table: str
    tier: str
    """"hot" or "archive"."""
    rows: int | None
    rows_exactness: str | None
    """"exact", "estimate" or "at least"."""
    bytes: int | None
    bytes_exactness: str | None
    oldest: datetime | date | None
    """The day, where the column has days."""
    newest: datetime | date | None
    rows_per_day: float | None
    """What arrives; None if the parts of the last weeks were not similar, or it is unknown."""
    tends_to: int | None
    """The number of rows that its window or cap bounds it to, at that rate; None: nothing does, or it is unknown."""
    days_to: dict[int, float | str]
    """Days until a number of rows is reached, `"never"` or `"n/a"`."""
    due: dict[int, int]
    """The number of rows due in a number of days, if nothing happens until then."""
    due_exactness: dict[int, str]
    """The same for each number of days: "exact" or "at least"."""
    months: dict[str, int]
    """Rows by month."""
