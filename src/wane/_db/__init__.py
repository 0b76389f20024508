"""Database access: the stores, their dialects and Wane's own tables."""

from __future__ import annotations

from wane._contract.settings import StoreSettings
from wane._db.sqlite.store import SqliteStore
from wane._db.store import Store
from wane._db.url import DatabaseUrl
from wane.errors import StoreError


def open_store(
    url: DatabaseUrl, settings: StoreSettings | None = None, *, audit: bool = False, read_only: bool = False
) -> Store:
    """Connect to a database; with `audit` the schema includes Wane's own audit trail.

    Read-only means that the database itself refuses every write on this connection.
    """
    settings = settings or StoreSettings()
    store = _opened(url, settings, read_only=read_only)
    store.audit = audit
    return store


def _opened(url: DatabaseUrl, settings: StoreSettings, *, read_only: bool) -> Store:
    if url.kind == "sqlite":
        return SqliteStore(url, read_only=read_only, attach=settings.attach)
    if settings.attach:
        raise StoreError("`attach` is for SQLite", "remove it from [store]; PostgreSQL has schemas")
    try:
        from wane._db.postgres.store import PostgresStore
    except ImportError as problem:
        raise StoreError("the PostgreSQL driver is missing", "install it: pip install 'wane[postgres]'") from problem
    return PostgresStore(url, read_only=read_only)


__all__ = ["Store", "open_store"]
