"""Settings of monitoring and upkeep: growth, space, roles, emitted events, and the maintenance of the archive.

None of them decides which rows leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

OUTBOX_WORDS = ("name", "domain", "event", "table", "rows", "audit", "now", "now_s", "now_ms", "uuid", "payload")
"""What a column of an outbox can be filled with."""


@dataclass(frozen=True, slots=True)
class GrowthSettings:
    """How often tables are measured, how long snapshots are retained, and when to warn."""

    every: timedelta = timedelta(hours=1)
    """How often `wane run` takes a snapshot of every table."""
    count_within: timedelta = timedelta(seconds=1)
    """How long counting one table may take; after that its rows are estimated."""
    fine: timedelta = timedelta(days=14)
    """How long all snapshots are retained; after that one a day."""
    keep: timedelta = timedelta(days=400)
    """How long the remaining snapshots are retained."""
    window: timedelta = timedelta(days=30)
    """The period before now that the rate is computed over."""
    least: timedelta = timedelta(days=1)
    """The shortest span of snapshots that gives a rate."""
    thresholds: tuple[int, ...] = (1_000_000, 5_000_000)
    """Numbers of rows at which action is due: inspect the table, partition it."""
    near: float = 0.8
    """The share of a threshold from which to warn, whatever the rate."""
    warn: timedelta = timedelta(days=30)
    """How long before the forecast reaches a threshold to warn."""


@dataclass(frozen=True, slots=True)
class SpaceSettings:
    """When unused space is reported, and how much of it may be reclaimed at a time."""

    share: float = 0.3
    """The unused share of a table, an index or a file from which advice is given."""
    bytes: int = 10_000_000
    """Less unused space is never reported."""
    seconds: int = 10
    """SQLite: how long one incremental vacuum may take."""
    pages: int = 100_000
    """SQLite: how many pages one incremental vacuum may free."""


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """Who may delete, who may read the archive (PostgreSQL)."""

    enabled: bool = False
    """Whether sweeps need membership in the admin role."""
    admin: str = "workflow_admin"
    reader: str = "analytics_reader"
    application: str | None = None
    """The application's own role, if it prunes inline."""
    archive_schema: str = "archive"


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """The application's own table of events, and what Wane writes into which of its columns."""

    table: str
    columns: tuple[tuple[str, str], ...]
    """Columns and their templates, with placeholders such as `{name}`: see `wane.prune.sql_outbox`."""
    prunes: bool | tuple[str, ...] = False
    """Whether rows that ordinary prunes delete are recorded, too: of all tables, of none, or of the named ones."""


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """How the archive is maintained."""

    every: timedelta = timedelta(days=1)
    """How often `wane run` expires a table's archive, and checks whether it needs compacting and tidying."""
    files: int = 20
    """The number of small files of one month from which `wane run` compacts it."""
    file_bytes: int = 128_000_000
    """The target size of files; one below half of it is small."""
    tidy_after: timedelta = timedelta(days=7)
    """How long a file that is no longer part of the archive stays on disk: readers of an older snapshot need it."""
    forget_after: timedelta = timedelta(days=90)
    """How long the journals retain the details of finished work: restores, ranges of sweeps, compactions."""


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Which of the events `system/<table>_…` are emitted: all, none, or those of the named tables."""

    hard_deleted: bool | tuple[str, ...] = True
    archived: bool | tuple[str, ...] = True
    outbox: OutboxSettings | None = None
    """Where archive events are also written, and prune events if enabled, in the same transaction as the change."""

    def tells_hard_deleted(self, table: str) -> bool:
        return _tells(self.hard_deleted, table)

    def writes_pruned(self, table: str) -> bool:
        """Return whether rows of a table that an ordinary prune deletes are recorded in the outbox."""
        return self.outbox is not None and _tells(self.outbox.prunes, table) and self.tells_hard_deleted(table)

    def tells_archived(self, table: str) -> bool:
        return _tells(self.archived, table)


def _tells(setting: bool | tuple[str, ...], table: str) -> bool:
    return setting if isinstance(setting, bool) else table in setting
