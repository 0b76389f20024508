"""Settings of what watches over the tables: growth, space, roles, which events are told, and how the archive is cared for. None of them decides which
rows leave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

OUTBOX_WORDS = ("name", "domain", "event", "table", "rows", "audit", "now", "now_s", "now_ms", "uuid", "payload")
"""What a column of an outbox can be filled with."""


@dataclass(frozen=True, slots=True)
class GrowthSettings:
    """How often tables are measured, how long that is remembered, and when somebody should know."""

    every: timedelta = timedelta(hours=1)
    """How often `wane run` takes a snapshot of every table."""
    count_within: timedelta = timedelta(seconds=1)
    """How long counting one table may take; after that its rows are estimated."""
    fine: timedelta = timedelta(days=14)
    """How long all snapshots are kept; after that one a day."""
    keep: timedelta = timedelta(days=400)
    """How long the snapshots that are left are kept."""
    window: timedelta = timedelta(days=30)
    """How far back the rate looks."""
    least: timedelta = timedelta(days=1)
    """No rate from less than that."""
    thresholds: tuple[int, ...] = (1_000_000, 5_000_000)
    """Rows at which something should be done: look at it, partition it."""
    near: float = 0.8
    """The share of a threshold from which somebody should know, whatever the rate."""
    warn: timedelta = timedelta(days=30)
    """How long before the forecast reaches a threshold somebody should know."""


@dataclass(frozen=True, slots=True)
class SpaceSettings:
    """From when on room that nobody uses is worth a word, and how much may be done about it at a time."""

    share: float = 0.3
    """The share of a table, an index or a file that nobody uses."""
    bytes: int = 10_000_000
    """Less than that is never worth a word."""
    seconds: int = 10
    """SQLite: how long one incremental vacuum may take."""
    pages: int = 100_000
    """SQLite: how many pages one incremental vacuum may give back."""


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
    """Texts, with `{name}` and the like in them: see `wane.store.outbox`."""
    prunes: bool | tuple[str, ...] = False
    """Whether what ordinary prunes delete is written too: of all tables, of none, or of those that are named."""


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """How the archive is cared for."""

    every: timedelta = timedelta(days=1)
    """How often `wane run` lets a table's archive expire, and looks whether it wants compacting and tidying."""
    files: int = 20
    """From so many small files of one month on, `wane run` compacts it."""
    file_bytes: int = 128_000_000
    """How large files should be; one that is less than half of it is small."""
    tidy_after: timedelta = timedelta(days=7)
    """How long a file stays on the disk that is no longer part of the archive: whoever reads an older state of it needs it."""
    forget_after: timedelta = timedelta(days=90)
    """How long the journals keep the details of what is done: restores, ranges of sweeps, compactions."""


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Which of the events `system/<table>_…` are told: all, none, or those of the tables that are named."""

    hard_deleted: bool | tuple[str, ...] = True
    archived: bool | tuple[str, ...] = True
    outbox: OutboxSettings | None = None
    """Where those of the archive are written too, and those of prunes if it says so, in the transaction that they tell of."""

    def tells_hard_deleted(self, table: str) -> bool:
        return _tells(self.hard_deleted, table)

    def writes_pruned(self, table: str) -> bool:
        """Whether what an ordinary prune deletes of a table is written to the outbox."""
        return self.outbox is not None and _tells(self.outbox.prunes, table) and self.tells_hard_deleted(table)

    def tells_archived(self, table: str) -> bool:
        return _tells(self.archived, table)


def _tells(setting: bool | tuple[str, ...], table: str) -> bool:
    return setting if isinstance(setting, bool) else table in setting
