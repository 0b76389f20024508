"""What systems that are written down need on both stores: types, times and rows.

Invariant: times are minutes away from every window, so that no row becomes due between the two sweeps that are
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from servers import Database

TYPES = {
    "<time>": {"sqlite": "datetime", "postgres": "timestamptz"},
    "<naive>": {"sqlite": "datetime", "postgres": "timestamp"},
    "<serial>": {"sqlite": "integer PRIMARY KEY", "postgres": "bigserial PRIMARY KEY"},
}


def create_tables(database: Database, script: str) -> None:
    """Create tables: `<time>` has a zone, `<naive>` is in UTC without one, and `<serial>` is a key that counts up."""
    for name, types in TYPES.items():
        script = script.replace(name, types[database.store])
    database.script(script)


def before(database: Database, age: timedelta, *, naive: bool = True, digits: int = 6) -> object:
    """Return a time that long ago, as the store holds it: on SQLite a text with so many digits of a second."""
    time = datetime.now(UTC) - age
    if database.store == "postgres":
        return time.replace(tzinfo=None) if naive else time
    text = time.strftime("%Y-%m-%d %H:%M:%S.%f")
    return text[: 20 + digits] if digits else text[:19]


def insert(database: Database, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Insert rows that all have the same columns."""
    listed = [dict(row) for row in rows]
    columns = ", ".join(listed[0])
    marks = ", ".join("?" * len(listed[0]))
    statement = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
    database.executemany(statement, [tuple(row.values()) for row in listed])
