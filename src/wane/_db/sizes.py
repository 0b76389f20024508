"""The sizes of tables, in bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from wane._db.postgres import sizes as postgres
from wane._db.schema import TableInfo
from wane._db.sqlite import sizes as sqlite
from wane._db.statement import Parameters
from wane._db.store import Store


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a table, its indexes included."""

    bytes: int
    exact: bool = True
    """False if it was estimated from a sample."""


def read_sizes(
    store: Store, tables: Sequence[tuple[TableInfo, int | None]], seconds: float
) -> dict[tuple[str, str], Size]:
    """Read the sizes of tables with their indexes, by their full names; `tables` has row counts where known."""
    if store.kind == "postgres":
        found = postgres.read_sizes(store, [table for table, _ in tables])
        return {name: Size(bytes_) for name, bytes_ in found.items()}
    sizes = {table.qualified: sqlite.read_size(store.read, table, rows, seconds) for table, rows in tables}
    return {name: Size(*size) for name, size in sizes.items() if size is not None}


def size_probe(store: Store, table: TableInfo) -> Callable[[Parameters], str] | None:
    """Return a function that writes the query for a table's bytes, indexes and partitions included.

    None where only a walk over all pages could answer it.
    """
    return partial(postgres.table_size, table=table) if store.kind == "postgres" else None
