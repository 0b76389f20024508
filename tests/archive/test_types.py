"""Every type of both stores goes to the archive and back without loss, or is refused by name."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archive.copying import bound, copied, workers
from servers import Database, PostgresDatabase, SqliteDatabase
from texts import ANY_TEXT
from wane._db import open_store
from wane._db.url import resolve_url
from wane.errors import ArchiveError, BindError

OLD_MS = 1_600_000_000_000

NASTY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.sampled_from(
        ["", "~", "1:a", "é", "e\u0301", "\U0001f600", "'", '"', "\\", "%s {} $1 :a", "\u2028", "a\nb\tc", " x "]
    ),
)
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1e22]))


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as made:
        yield made


POSTGRES = {
    "small smallint": st.integers(-(2**15), 2**15 - 1),
    "whole integer": st.integers(-(2**31), 2**31 - 1),
    "big bigint": st.integers(-(2**63), 2**63 - 1),
    "truth boolean": st.booleans(),
    "single real": st.floats(width=32),
    "fraction double precision": FLOATS,
    "body text": NASTY_TEXT,
    "short varchar(7)": st.text("aé\U0001f600 ", max_size=7),
    "padded char(5)": st.text("ab", max_size=5),
    "bytes bytea": st.binary(max_size=20),
    "money numeric(20,6)": st.decimals(-(10**13), 10**13, places=6),
    "free numeric": st.one_of(
        st.sampled_from([Decimal("NaN"), Decimal("Infinity"), Decimal("1.500"), Decimal("-0.0000001")]),
        st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40, places=9),
    ),
    "day date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp timestamptz": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda m: f"{m}+00"),
    "wall timestamp": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    "clock time": st.times(),
    "span interval": st.sampled_from(["1 mon -2 days 03:04:05.678901", "-1 years", "0", "10000 days"]),
    "who uuid": st.uuids().map(str),
    "doc json": st.sampled_from(['{"a": 1, "a": 2}', " [1,\n2.50] ", '"\\u00e9"', "null"]),
    "tree jsonb": st.sampled_from(['{"b": [1, {"a": "\U0001f600"}]}', "1e400", '"x"']),
    "flat integer[]": st.sampled_from(["{1,NULL,3}", "{}", "[0:1]={5,6}"]),
    "square text[]": st.sampled_from(['{{a,"b c"},{NULL,"NULL"}}', '{"{","\\"",","}']),
    "numbers numeric[]": st.sampled_from(["{1.50,NaN}", "{}"]),
    "net inet": st.sampled_from(["10.0.0.1/8", "::1"]),
    "spanning int4range": st.sampled_from(["[1,5)", "empty", "(,3]"]),
    "bits bit varying(9)": st.text("01", max_size=9),
    "place point": st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)).map(str),
    "number oid": st.integers(0, 2**32 - 1),
}


def rows_of(columns: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*(st.none() | one for one in columns.values())), min_size=1, max_size=6)


@settings(max_examples=30)
@given(rows=rows_of(POSTGRES))
def test_postgres_values_come_back_as_they_were(
    rows: list[tuple[Any, ...]],
    types_database: PostgresDatabase,
    tmp_path_factory: pytest.TempPathFactory,
    pool: ProcessPoolExecutor,
) -> None:
    database = types_database
    database.execute("TRUNCATE t, back")
    names = [one.split()[0] for one in POSTGRES]
    kinds = [one.partition(" ")[2] for one in POSTGRES]
    marks = ", ".join(f"?::{kind}" if kind != "bytea" else "?" for kind in kinds)
    database.executemany(
        f"INSERT INTO t VALUES (?, {OLD_MS}, {marks})",
        [(number, *(str(one) if isinstance(one, Decimal) else one for one in row)) for number, row in enumerate(rows)],
    )
    table, reported, found = copied(pool, database, tmp_path_factory.mktemp("cold"))
    assert reported == found
    assert reported.rows == reported.proven == len(rows)
    # A writer that has the archive can write the same row again.
    casts = ", ".join(
        f"?::text::{kind}" if kind not in ("bytea", "real", "double precision") else f"?::{kind}" for kind in kinds
    )
    database.executemany(
        f"INSERT INTO back VALUES (?, ?, {casts})",
        [(row["id"], row["at_ms"], *(_written(row[name]) for name in names)) for row in table.to_pylist()],
    )
    assert database.query("SELECT t::text FROM t ORDER BY id") == database.query(
        "SELECT t::text FROM back AS t ORDER BY id"
    )


def _written(value: object) -> object:
    return value if value is None or isinstance(value, bytes | float) else str(value)


@pytest.fixture
def types_database(clusters: Any) -> Iterator[PostgresDatabase]:
    with clusters["postgres"].database() as database:
        for name in ("t", "back"):
            columns = ", ".join(POSTGRES)
            database.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, at_ms bigint NOT NULL, {columns})")
        yield database


SQLITE = {
    "whole INTEGER": st.integers(-(2**63), 2**63 - 1),
    "flag BOOLEAN": st.integers(0, 1),
    "body TEXT": NASTY_TEXT | ANY_TEXT,
    "name VARCHAR(3)": NASTY_TEXT,
    "bytes BLOB": st.binary(max_size=20),
    "fraction REAL": FLOATS.filter(lambda x: not math.isnan(x)),
    "price NUMERIC(10,2)": st.one_of(
        st.integers(-(2**53), 2**53), st.floats(allow_nan=False).filter(lambda x: math.isinf(x) or abs(x) < 2**53)
    ),
    "day DATE": st.dates().map(str),
    "timestamp DATETIME": st.datetimes().map(str),
    "doc JSON": st.sampled_from(['{"a": 1, "a": 2}', "[1, 2.50]", '"\U0001f600"']),
}


@settings(max_examples=30)
@given(rows=rows_of(SQLITE))
def test_sqlite_values_come_back_as_they_were(
    rows: list[tuple[Any, ...]],
    sqlite_database: SqliteDatabase,
    tmp_path_factory: pytest.TempPathFactory,
    pool: ProcessPoolExecutor,
) -> None:
    database = sqlite_database
    database.reset()
    columns = ", ".join(SQLITE)
    for name in ("t", "back"):
        database.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, at_ms bigint NOT NULL, {columns})")
    marks = ", ".join("?" * len(SQLITE))
    database.executemany(
        f"INSERT INTO t VALUES (?, {OLD_MS}, {marks})", [(number, *row) for number, row in enumerate(rows)]
    )
    table, reported, found = copied(pool, database, tmp_path_factory.mktemp("cold"))
    assert reported == found
    assert reported.rows == reported.proven == len(rows)
    names = ["id", "at_ms", *(one.split()[0] for one in SQLITE)]
    database.executemany(
        f"INSERT INTO back VALUES (?, ?, {marks})", [tuple(row[name] for name in names) for row in table.to_pylist()]
    )
    exact = [[_exact(one) for one in row] for row in database.query("SELECT * FROM t ORDER BY id")]
    assert [[_exact(one) for one in row] for row in database.query("SELECT * FROM back ORDER BY id")] == exact


def _exact(value: object) -> object:
    return struct.pack(">d", value) if isinstance(value, float) else (type(value).__name__, value)


def test_wide_tables_are_proven_too(database: Database, tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    columns = [f"c{number} text" for number in range(230)]
    database.execute(f"CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, {', '.join(columns)})")
    database.execute(f"INSERT INTO t (id, at_ms, c0, c101, c229) VALUES (1, {OLD_MS}, 'a', 'b', 'c')")
    _, reported, found = copied(pool, database, tmp_path)
    assert reported == found
    assert reported.proven == 1


def test_thousands_of_rows_are_proven_by_samples(database: Database, tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, body text)")
    database.executemany(
        f"INSERT INTO t VALUES (?, {OLD_MS}, ?)", [(n, None if n < 9_000 else f"b{n}") for n in range(20_000)]
    )
    table, reported, found = copied(pool, database, tmp_path, strict=False)
    assert reported == found
    assert reported.rows == len(table) == 20_000
    assert 0 < reported.proven < 400


@pytest.mark.parametrize("strict", [True, False])
def test_a_value_changed_before_it_was_written_is_noticed(
    database: Database, tmp_path: Path, pool: ProcessPoolExecutor, strict: bool
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, body text)")
    database.executemany(f"INSERT INTO t VALUES (?, {OLD_MS}, 'x')", [(n,) for n in range(10)])
    _, reported, found = copied(pool, database, tmp_path, tamper=True, strict=strict)
    assert (reported == found) is (
        not strict
    )  # Only the strict proof sees what the driver decoded wrongly, but for samples.


REFUSED = {
    "postgres": {
        "money": "price money",
        "composite": "pair pair",
        "domain": "short short_text",
        "regclass": "what regclass",
        "arrays of it": "prices money[]",
        "catalog": "id_of xid",
    },
    "sqlite": {"nothing": "anything", "unknown": "thing GEOMETRY", "any": "whatever ANY"},
}


@pytest.mark.parametrize(
    ("store", "declared"), [(store, one) for store, all_of in REFUSED.items() for one in all_of.values()]
)
def test_a_type_that_would_lose_something_is_refused_by_name(
    request: pytest.FixtureRequest, store: str, declared: str
) -> None:
    database: Database
    if store == "sqlite":
        database = request.getfixturevalue("sqlite_database")
    else:
        database = request.getfixturevalue("types_database")
        database.execute("DROP TABLE t")
        database.execute("CREATE TYPE pair AS (a integer, b text)")
        database.execute("CREATE DOMAIN short_text AS text CHECK (length(value) < 9)")
    database.execute(f"CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, {declared})")
    name = declared.split()[0]
    with open_store(resolve_url(database.url)) as store_:
        with pytest.raises(BindError) as problem:
            bound(store_)
        assert f"t.{name} is declared" in str(problem.value)
        assert "cast" in str(problem.value)
        assert bound(store_, {name: "text"}).parts[0].shape[-1] == [name, "string"]


def test_names_that_differ_by_case_only_are_refused(types_database: PostgresDatabase) -> None:
    types_database.execute("DROP TABLE t")
    types_database.execute('CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, a text, "A" text)')
    with open_store(resolve_url(types_database.url)) as store, pytest.raises(BindError, match="by case only"):
        bound(store)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("timestamp timestamptz", "infinity"),
        ("timestamp timestamptz", "-infinity"),
        ("timestamp timestamptz", "20000-01-01"),
        ("wall timestamp", "0044-03-15 BC"),
        ("day date", "infinity"),
        ("price numeric(10,2)", "NaN"),
    ],
)
def test_a_value_that_the_archive_cannot_store_is_refused_by_name(
    types_database: PostgresDatabase, tmp_path: Path, pool: ProcessPoolExecutor, column: str, value: str
) -> None:
    name, kind = column.split()
    types_database.execute("DROP TABLE t")
    types_database.execute(f"CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, {column})")
    types_database.execute(f"INSERT INTO t VALUES (1, {OLD_MS}, NULL), (7, {OLD_MS}, ?::{kind})", (value,))
    with pytest.raises(ArchiveError, match=rf'the row \["7"\] has a value in {name} that'):
        copied(pool, types_database, tmp_path)
    table, reported, found = copied(pool, types_database, tmp_path, cast={name: "text"})
    assert reported == found
    assert [row[name] for row in table.to_pylist()] != [None, None]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("whole INTEGER", "'a text'"),
        ("whole INTEGER", "1.5"),
        ("body TEXT", "x'00'"),
        ("bytes BLOB", "'a text'"),
        ("fraction REAL", "'a text'"),
        ("price NUMERIC", "9007199254740993"),
        ("day DATE", "20200101"),
    ],
)
def test_a_value_of_another_type_than_its_column_states_is_refused_by_name(
    sqlite_database: SqliteDatabase, tmp_path: Path, pool: ProcessPoolExecutor, declared: str, value: str
) -> None:
    name = declared.split()[0]
    sqlite_database.execute(f"CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, {declared})")
    sqlite_database.execute(f"INSERT INTO t VALUES (1, {OLD_MS}, NULL), (7, {OLD_MS}, {value})")
    with pytest.raises(ArchiveError, match=rf'the row \["7"\] has a value in {name} that'):
        copied(pool, sqlite_database, tmp_path)


def test_a_text_that_is_no_text_is_refused(
    sqlite_database: SqliteDatabase, tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    sqlite_database.execute("CREATE TABLE t (id integer PRIMARY KEY, at_ms bigint NOT NULL, body TEXT)")
    sqlite_database.execute(f"INSERT INTO t VALUES (1, {OLD_MS}, CAST(x'ff41' AS TEXT))")
    with pytest.raises(ArchiveError, match=r"(?i)utf"):
        copied(pool, sqlite_database, tmp_path)
