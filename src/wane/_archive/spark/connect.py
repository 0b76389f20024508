"""How tasks in other processes reach the database: what they are passed, and opening it there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wane._archive.spark.reader import Source
from wane._db import Store, open_store
from wane._db.sqlite.store import SqliteStore
from wane._db.url import DatabaseUrl


def source_of(store: Store) -> Source:
    """Return how tasks in other processes reach a database; its secret is fetched, never sent along."""
    if store.url.path is not None:
        return Source("sqlite", path=str(store.url.path.resolve()))
    return Source("postgres", secret=store.url.raw)


def opened(source: Source, *, read_only: bool = False) -> Store:
    """Open the database that a task reads, and some write."""
    address = source.address()
    if source.kind == "sqlite":
        return open_store(DatabaseUrl("sqlite", f"sqlite:///{address}", Path(address)), read_only=read_only)
    return open_store(DatabaseUrl("postgres", address), read_only=read_only)


@contextmanager
def exported_snapshot(store: Store) -> Iterator[str | None]:
    """Hold one snapshot for readers on other connections, and yield its name; None if it cannot be shared (SQLite)."""
    if isinstance(store, SqliteStore):
        yield None
        return
    from wane._db.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    with store.exported_snapshot() as name:
        yield name
