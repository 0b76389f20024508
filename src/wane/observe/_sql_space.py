"""The size of tables and of the whole database, and how much of it is unused."""

from __future__ import annotations

from collections.abc import Sequence

from wane._db.counting import measure_rows
from wane._db.schema import TableInfo
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Statement
from wane._db.store import Store
from wane.errors import StoreError
from wane.observe import _sql_space_postgres as postgres
from wane.observe import _sql_space_sqlite as sqlite
from wane.observe._space_model import DatabaseSpace, TableSpace

_READ_SECONDS = 30.0


def read_table_space(store: Store, tables: Sequence[TableInfo], seconds: float) -> list[TableSpace]:
    """Read the sizes of tables, and how much of them is unused."""
    if store.kind == "postgres":
        found = postgres.read_space(store, tables)
        return [found[table.qualified] for table in tables if table.qualified in found]
    counted = [(table, measure_rows(store, table, seconds)) for table in tables]
    return [
        sqlite.read_space(store.read, table, None if rows is None else rows.rows, seconds) for table, rows in counted
    ]


def read_database_space(store: Store) -> DatabaseSpace:
    """Read the size of the whole database."""
    if store.kind == "postgres":
        [(size,)] = store.read(Statement("SELECT pg_database_size(current_database())", {}), _READ_SECONDS)
        return DatabaseSpace(size)
    return sqlite.read_database_space(store)


def give_back(store: Store, pages: int) -> int:
    """Give free pages at the end of a SQLite file back to the disk, in one transaction; return how many."""
    if not isinstance(store, SqliteStore):
        raise StoreError(
            "PostgreSQL reclaims space with VACUUM, which Wane does not run", "`wane space` prints what to run"
        )
    before = read_database_space(store)
    if before.auto_vacuum == "full":
        raise StoreError(
            f"{store.shown} has auto_vacuum = full: every commit gives its free pages back", "nothing needs to be done"
        )
    if before.auto_vacuum != "incremental":
        raise StoreError(
            f"{store.shown} has auto_vacuum = none: its free pages cannot be given back bit by bit",
            f"once, while no one uses it: {sqlite.ALLOW_VACUUM}",
        )
    if pages < 1:
        return 0  # SQLite would read this as "all of them".
    store.incremental_vacuum(pages)
    return (before.free_pages or 0) - (read_database_space(store).free_pages or 0)
