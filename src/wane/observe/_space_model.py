"""The size of tables, as both stores describe it. Sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class IndexSpace:
    """The size of an index. `schema` and `name` are its own: an index of a partition is listed by itself."""

    schema: str
    name: str
    bytes: int
    unused_bytes: int | None = None
    """About how much of it a fresh one would not need; None where that is unknown."""


@dataclass(frozen=True, slots=True)
class TableSpace:
    """The size of a table, and how much of it is unused."""

    schema: str
    name: str
    table_bytes: int
    index_bytes: int
    exact: bool = True
    rows: int | None = None
    """The approximate number."""
    dead_rows: int | None = None
    """Rows that were deleted or replaced, and still take space; None on a store that has none."""
    row_bytes: float | None = None
    """The average size of a row, without indexes."""
    unused_bytes: int | None = None
    """About how much of the table itself a fresh one would not need; None where that is unknown."""
    vacuumed_at: datetime | None = None
    indexes: tuple[IndexSpace, ...] = ()

    @property
    def bytes(self) -> int:
        return self.table_bytes + self.index_bytes


@dataclass(frozen=True, slots=True)
class DatabaseSpace:
    """The size of the whole database."""

    bytes: int
    log_bytes: int = 0
    """SQLite: the size of its write-ahead log."""
    page_bytes: int | None = None
    free_pages: int | None = None
    """SQLite: pages of the file that hold nothing; new rows use them first. PostgreSQL reports free space by table
    only."""
    auto_vacuum: str | None = None
    """SQLite: "none", "full" or "incremental"."""

    @property
    def free_bytes(self) -> int:
        return (self.free_pages or 0) * (self.page_bytes or 0)
