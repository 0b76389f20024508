"""What a restore needs of each store to put rows back into it."""

from __future__ import annotations

from wane._archive.restore.sql import RestoreDialect
from wane._archive.restore.sql_postgres import PostgresRestore
from wane._archive.restore.sql_sqlite import SqliteRestore
from wane._db.store import Store

_DIALECTS: dict[str, RestoreDialect] = {"sqlite": SqliteRestore(), "postgres": PostgresRestore()}


def restore_dialect(store: Store) -> RestoreDialect:
    """Return the dialect that puts rows back into a store."""
    return _DIALECTS[store.kind]
