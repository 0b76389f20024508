"""What the archive needs of each store."""

from __future__ import annotations

from wane._archive.reader import Source
from wane._archive.sql_postgres import PostgresArchive
from wane._archive.sql_restore import RestoreDialect
from wane._archive.sql_restore_postgres import PostgresRestore
from wane._archive.sql_restore_sqlite import SqliteRestore
from wane._archive.sql_sqlite import SqliteArchive
from wane._archive.types import ArchiveDialect
from wane._db.store import Store

_ARCHIVE: dict[str, ArchiveDialect] = {"sqlite": SqliteArchive(), "postgres": PostgresArchive()}
_RESTORE: dict[str, RestoreDialect] = {"sqlite": SqliteRestore(), "postgres": PostgresRestore()}


def archive_dialect(store: Store) -> ArchiveDialect:
    """Return the dialect that copies rows out of a store."""
    return _ARCHIVE[store.kind]


def restore_dialect(store: Store) -> RestoreDialect:
    """Return the dialect that puts rows back into a store."""
    return _RESTORE[store.kind]


def source_of(store: Store) -> Source:
    """Return how tasks in other processes reach a database; its secret is fetched, never sent along."""
    if store.url.path is not None:
        return Source("sqlite", path=str(store.url.path.resolve()))
    return Source("postgres", secret=store.url.raw)
