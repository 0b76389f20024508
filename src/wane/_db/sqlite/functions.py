"""Functions on a caller's connection: registering them, and checking when they may run.

A function runs in the middle of a statement of the caller's. While that statement only reads, a transaction or a
savepoint can begin and end inside it. While it writes, none can; and a `BEGIN` in the middle of `CREATE TABLE … AS
SELECT` would even leave half a table behind for the caller to commit. So a call inside a statement that writes is
refused before anything begins.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wane._db.schema import PRESSURE_COLUMNS, PRESSURE_VIEW
from wane.errors import StoreError

Connection = sqlite3.Connection


def database_file(connection: Connection) -> Path:
    """Return the file of the main database."""
    if not isinstance(connection, Connection):
        raise StoreError(f"a {type(connection).__name__} is not a connection of the sqlite3 module", "pass one")
    # The connection may read texts as bytes.
    files = {os.fsdecode(name): file for _, name, file in connection.execute("PRAGMA database_list")}
    if not files.get("main"):
        raise StoreError("a database in memory, or a temporary one, has no file", "use a database in a file")
    return Path(os.fsdecode(files["main"]))


def add_functions(connection: Connection, functions: Mapping[str, tuple[int, Callable[..., Any]]]) -> None:
    """Register functions by name, each with the number of its arguments."""
    for name, (arguments, function) in functions.items():
        connection.create_function(name, arguments, function)


def require_reading(connection: Connection) -> None:
    """Raise if the statement that calls this function writes: SQLite opens no savepoint inside such a statement."""
    cursor = connection.cursor()
    try:
        cursor.execute("SAVEPOINT wane_probe")
    except sqlite3.OperationalError as problem:
        raise StoreError(
            "pruning inside a statement that writes is refused: it could not be undone alone",
            "call it in a SELECT of its own",
        ) from problem
    cursor.execute("RELEASE wane_probe")


def add_view(connection: Connection, name: str, query: str) -> None:
    """Create a view on this connection: nothing is created in the database itself."""
    connection.execute(f"DROP VIEW IF EXISTS temp.{name}")
    connection.execute(f"CREATE TEMP VIEW {name} AS {query}")


def add_pressure_view(connection: Connection) -> None:
    """Create the pressure view on this connection."""
    outputs = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in PRESSURE_COLUMNS)
    add_view(connection, PRESSURE_VIEW, f"SELECT {outputs} FROM json_each(wane_pressure())")
