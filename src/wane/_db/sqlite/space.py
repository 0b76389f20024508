"""Space on SQLite: pages of one file.

`dbstat` lists the pages of each table, where SQLite was built with it; else a sample gives an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wane._db.schema import TableInfo
from wane._db.space_model import DatabaseSpace, IndexSpace, Size, TableSpace
from wane._db.statement import Dialect, Statement
from wane._db.store import Store
from wane.errors import Locked, StoreError, TimedOut

_SAMPLED_ROWS = 1_000
_SAMPLE_SECONDS = 0.05
_ROW_BYTES = 12
"""The approximate overhead of a cell besides its values."""
_PAGES = "SELECT sum(pgsize), sum(unused), sum(payload), sum(CASE WHEN pagetype = 'leaf' THEN ncell END) FROM dbstat WHERE schema = :schema AND name = :name"
_AUTO_VACUUM = {0: "none", 1: "full", 2: "incremental"}
_PRAGMAS = "SELECT * FROM pragma_page_size(), pragma_page_count(), pragma_freelist_count(), pragma_auto_vacuum()"
_READ_SECONDS = 30.0

Read = Callable[[Statement, float], list[tuple[Any, ...]]]


def read_size(read: Read, table: TableInfo, rows: int | None, seconds: float) -> Size | None:
    """Measure a table with its indexes, page by page.

    If that takes too long, estimate from a sample and the number of its rows; None if there is neither.
    """
    try:
        return Size(sum(_pages(read, table, name, seconds)[0] for name in (table.name, *_indexes(table))))
    except (TimedOut, Locked, StoreError):
        sampled = _sampled_row_bytes(read, table, seconds)
        return None if rows is None or sampled is None else Size(round(sampled * rows), exact=False)


def read_space(read: Read, table: TableInfo, rows: int | None, seconds: float) -> TableSpace:
    """Measure a table, and how much of it is unused."""
    try:
        size, unused, payload, cells = _pages(read, table, table.name, seconds)
        indexes = [(name, *_pages(read, table, name, seconds)[:2]) for name in _indexes(table)]
    except (TimedOut, Locked, StoreError):
        sampled = _sampled_row_bytes(read, table, seconds)
        estimate = 0 if rows is None or sampled is None else round(sampled * rows)
        return TableSpace(table.schema, table.name, estimate, 0, exact=False, rows=rows, row_bytes=sampled)
    return TableSpace(
        table.schema,
        table.name,
        size,
        sum(index[1] for index in indexes),
        rows=cells if rows is None else rows,
        row_bytes=(payload / cells + _ROW_BYTES) if cells else None,
        unused_bytes=unused,
        indexes=tuple(IndexSpace(table.schema, *index) for index in indexes),
    )


def _indexes(table: TableInfo) -> list[str]:
    return [index.name for index in table.indexes if index.name != "PRIMARY KEY"]


def _pages(read: Read, table: TableInfo, name: str, seconds: float) -> tuple[int, int, int, int]:
    [found] = read(Statement(_PAGES, {"schema": table.schema, "name": name}), seconds)
    size, unused, payload, cells = (int(one or 0) for one in found)
    return size, unused, payload, cells


def _sampled_row_bytes(read: Read, table: TableInfo, seconds: float) -> float | None:
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
    return None if average is None else float(average) + _ROW_BYTES


def read_database_space(store: Store) -> DatabaseSpace:
    """Read the size of the file and its write-ahead log, and how many of its pages are free."""
    [(page, pages, free, mode)] = store.read(Statement(_PRAGMAS, {}), _READ_SECONDS)
    assert store.url.path is not None
    log = store.url.path.with_name(f"{store.url.path.name}-wal")
    beside = log.stat().st_size if log.exists() else 0
    return DatabaseSpace(page * pages, beside, page, free, _AUTO_VACUUM[mode])
