"""Space on SQLite: pages of one file.

`dbstat` lists the pages of each table, where SQLite was built with it; else a sample gives an estimate.
"""

from __future__ import annotations

from wane._db.schema import TableInfo
from wane._db.sqlite.sizes import ROW_BYTES, Read, index_names, page_sums, sampled_row_bytes
from wane._db.statement import Statement
from wane._db.store import Store
from wane.errors import Locked, StoreError, TimedOut
from wane.observe._space_model import DatabaseSpace, IndexSpace, TableSpace

_AUTO_VACUUM = {0: "none", 1: "full", 2: "incremental"}
_PRAGMAS = "SELECT * FROM pragma_page_size(), pragma_page_count(), pragma_freelist_count(), pragma_auto_vacuum()"
_READ_SECONDS = 30.0

# Statements for a user to run.
COPY = "VACUUM INTO 'compact.db';"
ALLOW_VACUUM = "PRAGMA auto_vacuum = INCREMENTAL; VACUUM;"


def read_space(read: Read, table: TableInfo, rows: int | None, seconds: float) -> TableSpace:
    """Measure a table, and how much of it is unused."""
    try:
        size, unused, payload, cells = page_sums(read, table, table.name, seconds)
        indexes = [(name, *page_sums(read, table, name, seconds)[:2]) for name in index_names(table)]
    except (TimedOut, Locked, StoreError):
        sampled = sampled_row_bytes(read, table, seconds)
        estimate = 0 if rows is None or sampled is None else round(sampled * rows)
        return TableSpace(table.schema, table.name, estimate, 0, exact=False, rows=rows, row_bytes=sampled)
    return TableSpace(
        table.schema,
        table.name,
        size,
        sum(index[1] for index in indexes),
        rows=cells if rows is None else rows,
        row_bytes=(payload / cells + ROW_BYTES) if cells else None,
        unused_bytes=unused,
        indexes=tuple(IndexSpace(table.schema, *index) for index in indexes),
    )


def read_database_space(store: Store) -> DatabaseSpace:
    """Read the size of the file and its write-ahead log, and how many of its pages are free."""
    [(page, pages, free, mode)] = store.read(Statement(_PRAGMAS, {}), _READ_SECONDS)
    assert store.url.path is not None
    log = store.url.path.with_name(f"{store.url.path.name}-wal")
    beside = log.stat().st_size if log.exists() else 0
    return DatabaseSpace(page * pages, beside, page, free, _AUTO_VACUUM[mode])
