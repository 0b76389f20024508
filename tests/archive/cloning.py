"""A clone of a database: everything that it has, in another one."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from races.racing import await_true
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
        await_true(lambda: _copied(admin, name, address.path[1:]), "no session uses the template")
        copy = PostgresDatabase(urlunsplit(address._replace(path=f"/{name}")))
        try:
            yield copy
        finally:
            copy.close()
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _copied(admin: psycopg.Connection, name: str, template: str) -> bool:
    try:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    except psycopg.errors.ObjectInUse:  # Such as a session that is closed, and of which a busy server knows only soon.
        return False
    return True


def reopened(database: Database) -> Database:
    """Return the same database, over a connection of its own."""
    return SqliteDatabase(database.path) if isinstance(database, SqliteDatabase) else PostgresDatabase(database.url)
