"""A clone of a database: everything that it has, in another one."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from servers import Database, PostgresDatabase, SqliteDatabase


@contextmanager
def cloned(database: Database, folder: Path, name: str = "clone") -> Iterator[Database]:
    """Yield another database with everything that the first one has: a copied file, a database made from a template."""
    database.close()
    if isinstance(database, SqliteDatabase):
        shutil.copy(database.path, folder / f"{name}.db")
        copy: Database = SqliteDatabase(folder / f"{name}.db")
        try:
            yield copy
        finally:
            copy.close()
        return
    address, name = urlsplit(database.url), f"wane_{name}_{secrets.token_hex(4)}"
    with psycopg.connect(urlunsplit(address._replace(path="/postgres")), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {address.path[1:]}".encode())
        copy = PostgresDatabase(urlunsplit(address._replace(path=f"/{name}")))
        try:
            yield copy
        finally:
            copy.close()
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def reopened(database: Database) -> Database:
    """Return the same database, over a connection of its own."""
    return SqliteDatabase(database.path) if isinstance(database, SqliteDatabase) else PostgresDatabase(database.url)
