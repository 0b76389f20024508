"""The sizes of tables on SQLite.

`dbstat` lists the pages of each table, where SQLite was built with it; else a sample gives an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wane._db.schema import TableInfo
from wane._db.statement import Dialect, Statement
from wane.errors import Locked, StoreError, TimedOut

_SAMPLED_ROWS = 1_000
_SAMPLE_SECONDS = 0.05
ROW_BYTES = 12
"""The approximate overhead of a cell besides its values."""
_PAGES = "SELECT sum(pgsize), sum(unused), sum(payload), sum(CASE WHEN pagetype = 'leaf' THEN ncell END) FROM dbstat WHERE schema = :schema AND name = :name"

Read = Callable[[Statement, float], list[tuple[Any, ...]]]


def read_size(read: Read, table: TableInfo, rows: int | None, seconds: float) -> tuple[int, bool] | None:
    """Measure the bytes of a table with its indexes, page by page; True: exactly.

    If that takes too long, estimate from a sample and the number of its rows; None if there is neither.
    """
    try:
        return sum(page_sums(read, table, name, seconds)[0] for name in (table.name, *index_names(table))), True
    except (TimedOut, Locked, StoreError):
        sampled = sampled_row_bytes(read, table, seconds)
        return None if rows is None or sampled is None else (round(sampled * rows), False)


def index_names(table: TableInfo) -> list[str]:
    """Return the names of the indexes that have pages of their own."""
    return [index.name for index in table.indexes if index.name != "PRIMARY KEY"]


def page_sums(read: Read, table: TableInfo, name: str, seconds: float) -> tuple[int, int, int, int]:
    """Read how many bytes the pages of a table or index have, how many are unused, its payload and its rows."""
    [found] = read(Statement(_PAGES, {"schema": table.schema, "name": name}), seconds)
    size, unused, payload, cells = (int(one or 0) for one in found)
    return size, unused, payload, cells


def sampled_row_bytes(read: Read, table: TableInfo, seconds: float) -> float | None:
    """Estimate the bytes of a row from a sample; None if there is no row, or no time."""
    quote = Dialect.quote
    columns: Sequence[str] = [quote(column.name) for column in table.columns if not column.generated]
    if not columns:
        return None
    widths = " + ".join(f"coalesce(length(CAST({column} AS BLOB)), 0)" for column in columns)
    source = f"{quote(table.schema)}.{quote(table.name)}"
    text = f"SELECT avg(width) FROM (SELECT {widths} AS width FROM {source} LIMIT {_SAMPLED_ROWS})"
    try:
        [(average,)] = read(Statement(text, {}), max(seconds, _SAMPLE_SECONDS))
    except (TimedOut, Locked, StoreError):
        return None
    return None if average is None else float(average) + ROW_BYTES
