"""What left comes back to the last bit, whatever its type: on both stores, through the whole way there and back."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from archive.cold import PACE, cold_keeper
from archive.test_types import OLD_MS, POSTGRES, SQLITE
from servers import Database, PostgresDatabase, SqliteDatabase

CONTRACT = """
[store]
url = {url}
[archive]
url = "cold"
[archive.t]
keep = "forever"
[scheduler]
night = {{ every = "1h" }}
[table.t]
scheduler = "night"
why  = "a test"
time = {{ column = "at_ms", unit = "ms" }}
[table.t.rule.cold]
keep = "90d"
then = "archive"
[spark]
range_rows = 10
"""
OWN = "id bigint {} PRIMARY KEY, at_ms bigint NOT NULL, twice {} GENERATED ALWAYS AS (at_ms * 2) STORED"
NUMBERED = OWN.format("GENERATED ALWAYS AS IDENTITY", "bigint")
PLAIN = OWN.format("", "INTEGER")
NEGATIVE_NAN = math.copysign(math.nan, -1)  # What 0.0 / 0.0 is on many processors.
NANS = tuple(
    NEGATIVE_NAN if kind in ("real", "double precision") else None
    for kind in (one.partition(" ")[2] for one in POSTGRES)
)


def rows_of(columns: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*(st.none() | one for one in columns.values())), min_size=1, max_size=most)


def there_and_back(database: Database, folder: Path, columns: dict[str, Any], rows: list[tuple[Any, ...]]) -> None:
    postgres = database.store == "postgres"
    database.reset()
    database.execute(f"CREATE TABLE t ({NUMBERED if postgres else PLAIN}, {', '.join(columns)})")
    database.execute("CREATE INDEX t_due ON t (at_ms, id)")
    names = ", ".join(one.split()[0] for one in columns)
    kinds = [one.partition(" ")[2] for one in columns]
    marks = ", ".join(f"?::{kind}" if postgres and kind != "bytea" else "?" for kind in kinds)
    values = [[str(one) if isinstance(one, Decimal) else one for one in row] for row in rows]
    insert = (
        f"INSERT INTO t (id, at_ms, {names}) {'OVERRIDING SYSTEM VALUE' if postgres else ''} VALUES (?, ?, {marks})"
    )
    database.executemany(insert, [(number, OLD_MS + number, *row) for number, row in enumerate(values)])
    before = content(database)
    with cold_keeper(database, folder, CONTRACT) as cold:
        assert cold.one().archived == {"t": len(rows)}
        assert content(database) == []
        done = cold.keeper.archive.restore("t", where="id >= 0", pace=PACE)
        assert (done.restored, done.unrestored) == ({"t": len(rows)}, 0), done.reasons
        assert content(database) == before
        assert cold.archived("t") == []


def content(database: Database) -> list[Any]:
    if database.store == "postgres":
        return database.query("SELECT t::text FROM t ORDER BY id")
    return [[_exact(one) for one in row] for row in database.query("SELECT * FROM t ORDER BY id")]


def _exact(value: object) -> object:
    return struct.pack(">d", value) if isinstance(value, float) else (type(value).__name__, value)


@pytest.fixture
def postgres_types(clusters: Any) -> Iterator[PostgresDatabase]:
    with clusters["postgres"].database() as database:
        yield database


@settings(max_examples=6)
@example(rows=[NANS])
@given(rows=rows_of(POSTGRES, 25))
def test_rows_of_postgres_come_back_as_they_were(
    rows: list[tuple[Any, ...]], postgres_types: PostgresDatabase, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there_and_back(postgres_types, tmp_path_factory.mktemp("back"), POSTGRES, rows)


@settings(max_examples=6)
@given(rows=rows_of(SQLITE, 25))
def test_rows_of_sqlite_come_back_as_they_were(
    rows: list[tuple[Any, ...]], sqlite_database: SqliteDatabase, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there_and_back(sqlite_database, tmp_path_factory.mktemp("back"), SQLITE, rows)


@pytest.mark.on_spark
@settings(max_examples=1)
@given(rows=rows_of(POSTGRES, 60).filter(lambda rows: len(rows) > 20))
def test_rows_of_postgres_come_back_as_they_were_on_spark(
    rows: list[tuple[Any, ...]], postgres_types: PostgresDatabase, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there_and_back(postgres_types, tmp_path_factory.mktemp("back"), POSTGRES, rows)


@pytest.mark.on_spark
@settings(max_examples=1)
@given(rows=rows_of(SQLITE, 60).filter(lambda rows: len(rows) > 20))
@pytest.mark.sampled
def test_rows_of_sqlite_come_back_as_they_were_on_spark(
    rows: list[tuple[Any, ...]], sqlite_database: SqliteDatabase, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there_and_back(sqlite_database, tmp_path_factory.mktemp("back"), SQLITE, rows)
