"""How much room tables take, as both stores describe it. Sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Size:
    """What a table takes, its indexes included."""

    bytes: int
    exact: bool = True
    """Else it was worked out from a sample."""


@dataclass(frozen=True, slots=True)
class IndexSpace:
    """What an index takes. `schema` and `name` are its own: an index of a partition is told by itself."""

    schema: str
    name: str
    bytes: int
    unused_bytes: int | None = None
    """About how much of it a fresh one would not need; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class TableSpace:
    """What a table takes, and how much of it nobody uses."""

    schema: str
    name: str
    table_bytes: int
    index_bytes: int
    exact: bool = True
    rows: int | None = None
    """About how many."""
    dead_rows: int | None = None
    """Rows that were deleted or replaced, and still take room; None on a store that has none."""
    row_bytes: float | None = None
    """What a row takes on average, without indexes."""
    unused_bytes: int | None = None
    """About how much of the table itself a fresh one would not need; None where nobody knows."""
    vacuumed_at: datetime | None = None
    indexes: tuple[IndexSpace, ...] = ()

    @property
    def bytes(self) -> int:
        return self.table_bytes + self.index_bytes


@dataclass(frozen=True, slots=True)
class DatabaseSpace:
    """What the whole database takes."""

    bytes: int
    log_bytes: int = 0
    """SQLite: of the write-ahead log beside it."""
    page_bytes: int | None = None
    free_pages: int | None = None
    """SQLite: pages of the file that hold nothing; new rows use them first. PostgreSQL knows free room by table only."""
    auto_vacuum: str | None = None
    """SQLite: "none", "full" or "incremental"."""

    @property
    def free_bytes(self) -> int:
        return (self.free_pages or 0) * (self.page_bytes or 0)
