"""Every event that Wane emits. Plain values: listeners turn them into metrics, log lines or progress bars.

Events carry signals, never the contents of rows; the database is the truth. An event about rows is emitted after their
commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchTaken:
    """A batch of a sweep was committed."""

    scheduler: str | None
    table: str
    rule: str
    label: str
    """The `table` label of metrics."""
    action: str
    counts: dict[str, int]
    seconds: float
    next_batch: int
    """How many rows the next batch may take."""


@dataclass(frozen=True, slots=True)
class WorkProgressed:
    """Long work begins, or has come further: `done` units `of` how many."""

    work: str
    """"sweep", "restore", "compact", "split", "convert" …"""
    table: str
    rule: str | None
    unit: str
    """"row", "piece", "month", "step" or "member"."""
    done: int
    of: int | None
    """None: unknown."""
    exact: bool = True
    """Whether `of` was counted; otherwise it is an estimate."""


@dataclass(frozen=True, slots=True)
class SlowedDown:
    """A sweep is throttled, and why."""

    table: str
    rule: str
    cause: str


@dataclass(frozen=True, slots=True)
class RuleSwept:
    """A sweep of one rule ended."""

    scheduler: str | None
    table: str
    rule: str
    label: str
    action: str
    counts: dict[str, int]
    batches: int
    seconds: float
    outcome: str


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """A sweep of one rule ended before everything due was gone."""

    scheduler: str | None
    table: str
    rule: str
    label: str
    spent: str
    """"rows", "seconds" or "batches"."""


@dataclass(frozen=True, slots=True)
class RuleFailed:
    """A sweep of one rule failed; other rules continue."""

    scheduler: str | None
    table: str
    rule: str
    label: str
    error: str


@dataclass(frozen=True, slots=True)
class RowsPruned:
    """An explicit prune was committed; inside a caller's transaction, it was run and commits with it."""

    scheduler: str | None
    table: str
    rule: str | None
    label: str
    kind: str
    counts: dict[str, int]
    committed: bool
    """Whether its transaction was Wane's own."""


@dataclass(frozen=True, slots=True)
class RowConsumed:
    """The application consumed a one-time row, or deleted one whose work is done."""

    table: str
    kind: str


@dataclass(frozen=True, slots=True)
class RetentionPassFailed:
    """A pass of the webhooks' retention loop failed and changed nothing; the loop continues."""

    table: str
    error: str


@dataclass(frozen=True, slots=True)
class MessageDead:
    """A message of the cleanup queue reached its maximum number of deliveries, and is a dead letter."""

    pool: str
    message_id: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class TickFailed:
    """A scheduler's tick failed; it retries."""

    scheduler: str
    error: str
    repeated: bool = False
    """Whether the database is unreachable, and an earlier event of this outage reported it."""


@dataclass(frozen=True, slots=True)
class SweepsEnqueued:
    """A scheduler's window began, and its sweeps were enqueued."""

    scheduler: str
    window: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """A worker failed to run a sweep, or lost its lease; the message is redelivered."""

    scheduler: str | None
    kind: str
    error: str
    repeated: bool = False
    """Whether the database is unreachable, and an earlier event of this outage reported it."""


@dataclass(frozen=True, slots=True)
class OutageEnded:
    """The database can be reached again."""

    seconds: float
    attempts: int
    """The attempts to reach it that failed, in all threads."""


@dataclass(frozen=True, slots=True)
class HeartbeatWritten:
    """A heartbeat of a worker or a scheduler."""

    executor: str
    role: str
    doing: str


@dataclass(frozen=True, slots=True)
class ArchiveStep:
    """A sweep of the archive reached a step: planned, written, verified, committed, evicted, done."""

    table: str
    rule: str
    sweep: int
    state: str
    archived: dict[str, int]
    evicted: dict[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class ArchiveColumnChanged:
    """A column of an archived table is not what it was in the sweep before; the archive has both kinds of rows."""

    table: str
    column: str
    change: str
    """"added", "dropped", "renamed" or "type"."""
    was: str | None
    """Its type in the archive before; None if it was added."""
    now: str | None
    """Its type in the archive since; None if it was dropped."""
    sweep: int


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """Tasks of the step that follows a state are done: `done` of `of`."""

    table: str
    rule: str
    sweep: int
    state: str
    done: int
    of: int


@dataclass(frozen=True, slots=True)
class RowsArchived:
    """A sweep of the archive is done: its rows are only in the archive, except those that changed meanwhile."""

    table: str
    rule: str
    sweep: int
    archived: dict[str, int]
    evicted: dict[str, int]
    stale: int


@dataclass(frozen=True, slots=True)
class RowsRestored:
    """A restore is done: its rows are back, and those of the hot table are gone from the archive."""

    table: str
    restore: int
    into: str | None
    restored: dict[str, int]
    existing: int
    """Rows that existed already, exactly as they were archived."""
    replaced: int
    unrestored: int


@dataclass(frozen=True, slots=True)
class ArchiveMaintained:
    """The archive of a table was maintained: rows expired, small files were compacted, or files were deleted."""

    action: str
    """"expire", "compact" or "tidy"."""
    table: str
    rows: dict[str, int]
    """Rows that left the archive for good, by table."""
    files: int
    """Files that are no longer part of the archive, or, with "tidy", no longer on the disk."""
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """Every table was measured."""

    tables: int
    counted: int
    """How many of them were counted; the others were estimated."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TableNearThreshold:
    """A table is larger than it should be, or soon will be."""

    table: str
    rows: int
    threshold: int
    reason: str
    """"reached", "near" or "forecast"."""
    days: float | None
    """Until the threshold is reached, if that is known."""


@dataclass(frozen=True, slots=True)
class HardDeleted:
    """Rows of a table were deleted for good, and committed. `name` is `system/<table>_hard_deleted`."""

    name: str
    table: str
    rule: str | None
    rows: int
    audit: int | None
    """The number of the audit row that records it."""


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """A table reached a step of (un)partitioning; or a partition was created, detached, re-attached or dropped."""

    table: str
    step: str
    partition: str | None
    seconds: float


Event = (
    BatchTaken
    | WorkProgressed
    | SlowedDown
    | RuleSwept
    | BudgetExhausted
    | RuleFailed
    | RowsPruned
    | RowConsumed
    | RetentionPassFailed
    | MessageDead
    | TickFailed
    | SweepsEnqueued
    | WorkFailed
    | OutageEnded
    | HeartbeatWritten
    | ArchiveStep
    | ArchiveColumnChanged
    | ArchiveProgress
    | RowsArchived
    | RowsRestored
    | ArchiveMaintained
    | SnapshotTaken
    | TableNearThreshold
    | HardDeleted
    | PartitionStep
)
Listener = Callable[[Event], None]


def hard_deleted(table: str, rule: str | None, rows: int, audit: int | None) -> HardDeleted:
    """Build the event for rows of a table that were deleted for good."""
    return HardDeleted(hard_deleted_name(table), table, rule, rows, audit)


def hard_deleted_name(table: str) -> str:
    """Return the name of the event for rows of a table that were deleted for good."""
    return f"system/{table}_hard_deleted"


def archived_name(table: str) -> str:
    """Return the name of the event for a table's archived rows."""
    return f"system/{table}_archived"


def ignore_event(event: Event) -> None:
    """Ignore the event: the default listener."""
