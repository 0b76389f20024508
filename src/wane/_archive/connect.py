"""Opening the database inside a task."""

from __future__ import annotations

from pathlib import Path

from wane._archive.reader import Source
from wane._db import Store, open_store
from wane._db.url import DatabaseUrl


def opened(source: Source, *, read_only: bool = False) -> Store:
    """Open the database that a task reads, and some write."""
    address = source.address()
    if source.kind == "sqlite":
        return open_store(DatabaseUrl("sqlite", f"sqlite:///{address}", Path(address)), read_only=read_only)
    return open_store(DatabaseUrl("postgres", address), read_only=read_only)
