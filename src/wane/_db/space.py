"""The size of tables and of the whole database, and how much of it is unused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from wane._db.counting import measure_rows
from wane._db.postgres import space as postgres
from wane._db.schema import TableInfo
from wane._db.space_model import DatabaseSpace, Size, TableSpace
from wane._db.sqlite import space as sqlite
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Parameters, Statement
from wane._db.store import Store
from wane.errors import StoreError

_READ_SECONDS = 30.0


def read_sizes(
    store: Store, tables: Sequence[tuple[TableInfo, int | None]], seconds: float
) -> dict[tuple[str, str], Size]:
    """Read the sizes of tables with their indexes, by their full names; `tables` has row counts where known."""
    if store.kind == "postgres":
        return postgres.read_sizes(store, [table for table, _ in tables])
    sizes = {table.qualified: sqlite.read_size(store.read, table, rows, seconds) for table, rows in tables}
    return {name: size for name, size in sizes.items() if size is not None}


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
        raise StoreError(f"{store.shown} has auto_vacuum = full: every commit gives its free pages back")
    if before.auto_vacuum != "incremental":
        raise StoreError(
            f"{store.shown} has auto_vacuum = none: its free pages cannot be given back bit by bit",
            "once, while no one uses it: PRAGMA auto_vacuum = INCREMENTAL; VACUUM;",
        )
    if pages < 1:
        return 0  # SQLite would read this as "all of them".
    store.incremental_vacuum(pages)
    return (before.free_pages or 0) - (read_database_space(store).free_pages or 0)


def size_probe(store: Store, table: TableInfo) -> Callable[[Parameters], str] | None:
    """Return a function that writes the query for a table's bytes, indexes and partitions included.

    None where only a walk over all pages could answer it.
    """
    return partial(postgres.table_size, table=table) if store.kind == "postgres" else None
