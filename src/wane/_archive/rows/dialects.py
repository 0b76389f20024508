"""What the archive needs of each store to copy rows out of it."""

from __future__ import annotations

from wane._archive.rows.sql_postgres import PostgresArchive
from wane._archive.rows.sql_sqlite import SqliteArchive
from wane._archive.rows.types import ArchiveDialect
from wane._db.store import Store

_DIALECTS: dict[str, ArchiveDialect] = {"sqlite": SqliteArchive(), "postgres": PostgresArchive()}


def archive_dialect(store: Store) -> ArchiveDialect:
    """Return the dialect that copies rows out of a store."""
    return _DIALECTS[store.kind]
