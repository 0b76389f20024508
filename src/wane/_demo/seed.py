"""Builds the demonstration's database: every table of the reference contracts, filled like a busy application's.

The same rows for the same seed and time, on both stores. This is the application's side of the demonstration, so it
uses the drivers itself; nothing here is used by the rest of Wane.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from wane._db.url import resolve_url
from wane._demo.rows import Load, World
from wane._demo.rows.claims import claims
from wane._demo.rows.statestore import statestore
from wane._demo.rows.substrate import substrate
from wane._demo.rows.webhooks import webhooks
from wane._demo.traps import TRAPS, Trap
from wane.reference import names, schema_sql

__all__ = ["ROWS", "TRAPS", "Progress", "Trap", "attached_path", "seed"]

ROWS = 300_000
"""The approximate number of rows of the demonstration."""

Progress = Callable[[str, int, int], None]
"""Called after each table with its name, the number of tables that are done, and the number of all."""


def seed(
    url: str, *, rows: int = ROWS, now: datetime, random_seed: int = 7, progress: Progress | None = None
) -> dict[str, int]:
    """Create the tables in an empty database and fill them with about `rows` rows; return how many each table got.

    `now` is truncated to the whole second, and the traps at a boundary are exact at that second. On SQLite the schema
    `iu_core` becomes the file that `attached_path` names, beside the main one.
    """
    database = resolve_url(url)
    if database.path is None:
        world = World(rows=rows, now=now, random_seed=random_seed, native=_instant)
        loaded = _load_postgres(database.raw, world)
    else:
        world = World(rows=rows, now=now, random_seed=random_seed, native=_text)
        loaded = _load_sqlite(database.path, world)
    scripts = [sql for name in names() for sql in schema_sql(name, "sqlite").values()]
    tables = sum(len(re.findall(r"CREATE TABLE (?!wane_)", sql)) for sql in scripts)
    counts: dict[str, int] = {}
    for load in loaded:
        counts[load.table] = len(load.rows)
        if progress is not None:
            progress(load.table, len(counts), tables)
    return counts


def attached_path(path: Path) -> Path:
    """Return the file that holds `iu_core` for the SQLite database at `path`."""
    return path.with_name(f"{path.stem}-iu_core.db")


def _loads(world: World) -> Iterator[Load]:
    return chain(statestore(world), claims(world), webhooks(world), substrate(world))


def _load_sqlite(path: Path, world: World) -> Iterator[Load]:
    """Fill the tables one by one; yield each when it is committed."""
    attached = attached_path(path)
    for schema, file in (("main", path), ("iu_core", attached)):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
            scripts = [schema_sql(name, "sqlite").get(schema, "") for name in names()]
            connection.executescript("\n".join(["BEGIN;", *scripts, "COMMIT;"]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = off")
        connection.execute("ATTACH ? AS iu_core", (str(attached),))
        for load in _loads(world):
            marks = ", ".join("?" * len(load.columns))
            with connection:
                connection.executemany(f"INSERT INTO {_target(load)} VALUES ({marks})", load.rows)
            yield load


def _load_postgres(url: str, world: World) -> Iterator[Load]:
    """Fill the tables one by one; yield each when it is committed."""
    import psycopg  # an extra: SQLite needs nothing besides Python

    with psycopg.connect(url) as connection:
        for name in names():
            connection.execute(schema_sql(name, "postgres")["main"].encode())
        connection.commit()
        for load in _loads(world):
            with connection.cursor() as cursor, cursor.copy(f"COPY {_target(load)} FROM STDIN".encode()) as copy:
                for row in load.rows:
                    copy.write_row(row)
            _continue_numbers(connection, load)
            connection.commit()
            yield load
        connection.execute("ANALYZE")


def _continue_numbers(connection: Any, load: Load) -> None:
    """Advance the table's sequence past the loaded rows, so that the application's next row continues after them."""
    if isinstance(load.rows[0][0], int):
        sequence = "FROM pg_get_serial_sequence(%s, %s) AS sequence WHERE sequence IS NOT NULL"
        last = f"(SELECT max({load.columns[0]}) FROM {load.table})"
        connection.execute(f"SELECT setval(sequence, {last}) {sequence}".encode(), (load.table, load.columns[0]))


def _target(load: Load) -> str:
    return f"{load.table} ({', '.join(load.columns)})"


def _text(seconds: int | None) -> str | None:
    return None if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _instant(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
