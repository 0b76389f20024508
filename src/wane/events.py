"""Every event that Wane can tell. Plain values: whoever listens makes metrics, log lines or progress bars of them.

Events carry signals, never the contents of rows; the database is the truth. An event about rows is told after their commit.
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
class SlowedDown:
    """A sweep goes slower than it could, and why."""

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
    """A sweep of one rule failed; other rules go on."""

    scheduler: str | None
    table: str
    rule: str
    label: str
    error: str


@dataclass(frozen=True, slots=True)
class RowsPruned:
    """An explicit prune was committed. Inside a caller's transaction: was done, and commits with it."""

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
    """A pass of the webhooks' retention loop failed and changed nothing; the loop goes on."""

    table: str
    error: str


@dataclass(frozen=True, slots=True)
class MessageDead:
    """A message of the cleanup queue was delivered as often as it may be, and is a dead letter."""

    pool: str
    message_id: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class TickFailed:
    """A scheduler could not do its tick; it tries again."""

    scheduler: str
    error: str


@dataclass(frozen=True, slots=True)
class SweepsEnqueued:
    """A scheduler's window began, and its sweeps were enqueued."""

    scheduler: str
    window: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """A worker could not do a sweep, or lost the right to; the message is delivered again."""

    scheduler: str | None
    kind: str
    error: str


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker or a scheduler is alive."""

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
class ArchiveProgress:
    """Tasks of the step that follows a state are done, so many of so many."""

    table: str
    rule: str
    sweep: int
    state: str
    done: int
    of: int


@dataclass(frozen=True, slots=True)
class RowsArchived:
    """A sweep of the archive is done: its rows are in the archive and nowhere else, but those that changed meanwhile."""

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
    there: int
    replaced: int
    kept: int


@dataclass(frozen=True, slots=True)
class ArchiveTended:
    """The archive of a table was looked after: rows expired, small files were compacted, or files were tidied away."""

    action: str
    """"expire", "compact" or "tidy"."""
    table: str
    rows: dict[str, int]
    """Rows that left the archive for good, by table."""
    files: int
    """Files that are no longer part of the archive, or, tidied, no longer on the disk."""
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
    """Until the threshold is reached, if that can be said."""


@dataclass(frozen=True, slots=True)
class HardDeleted:
    """Rows of a table were deleted for good, and committed. `name` is `system/<table>_hard_deleted`."""

    name: str
    table: str
    rule: str | None
    rows: int
    audit: int | None
    """The number of the audit row that says so."""


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """A table on its way to partitions, or back, reached a step; or a partition was made, taken off, put back or dropped."""

    table: str
    step: str
    partition: str | None
    seconds: float


Event = (
    BatchTaken
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
    | Beat
    | ArchiveStep
    | ArchiveProgress
    | RowsArchived
    | RowsRestored
    | ArchiveTended
    | SnapshotTaken
    | TableNearThreshold
    | HardDeleted
    | PartitionStep
)
Listener = Callable[[Event], None]


def hard_deleted(table: str, rule: str | None, rows: int, audit: int | None) -> HardDeleted:
    """The event of a table's rows that are gone for good."""
    return HardDeleted(hard_deleted_name(table), table, rule, rows, audit)


def hard_deleted_name(table: str) -> str:
    """What the event of a table's rows that are gone for good is called."""
    return f"system/{table}_hard_deleted"


def archived_name(table: str) -> str:
    """What the event of a table's archived rows is called."""
    return f"system/{table}_archived"


def nobody(event: Event) -> None:
    """Listens to nothing."""
