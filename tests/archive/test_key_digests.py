"""Digests of keys that are whole numbers: the same from both stores and from Arrow, and sums that differ for other
keys."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from archive.copying import bound, copied, workers
from servers import Database, PostgresDatabase
from wane._archive.rows import content
from wane._archive.rows.sql import WRITTEN_BY
from wane._archive.rows.types import SAMPLED_EVERY, SqlNumber, key_digest, version_digest
from wane._db import open_store
from wane._db.url import resolve_url

EDGES = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63)]
NUMBERS = [*EDGES, *(n * 1_000_003 * (-1) ** n for n in range(200)), *range(200)]


def digests(numbers: list[int]) -> list[int]:
    return [int(one) for one in key_digest(np.array(numbers, np.int64))]


def test_a_database_computes_what_arrow_computes(database: Database) -> None:
    column = "x::bigint" if database.store == "postgres" else "x"
    database.execute("CREATE TABLE number (x bigint)")
    database.executemany("INSERT INTO number VALUES (?)", [(one,) for one in NUMBERS])
    found = database.query(f"SELECT x, {key_digest(SqlNumber(column)).text} FROM number")
    assert sorted(found) == sorted(zip(NUMBERS, digests(NUMBERS), strict=True))


def test_a_database_computes_the_digests_of_versions_that_arrow_computes(database: Database) -> None:
    column = "x::bigint" if database.store == "postgres" else "x"
    versions = [0, 3, 2**31 - 1, 2**31, 2**32 - 1]
    pairs = [(key, version) for key in digests(NUMBERS) for version in versions]
    database.execute("CREATE TABLE number (x bigint, v bigint)")
    database.executemany("INSERT INTO number VALUES (?, ?)", pairs)
    found = database.query(f"SELECT x, v, {version_digest(SqlNumber(column), SqlNumber('v')).text} FROM number")
    made = version_digest(*np.array(pairs, np.int64).T)
    assert sorted(found) == sorted((*pair, int(one)) for pair, one in zip(pairs, made, strict=True))


@pytest.mark.parametrize("writing", [False, True], ids=["reading", "writing"])
def test_the_number_of_a_transaction_needs_no_text(postgres_database: PostgresDatabase, writing: bool) -> None:
    """Rows that were there before the first transaction (of catalogs here, of old servers elsewhere) have one, too."""
    postgres_database.execute("CREATE TABLE number (x bigint)")
    for number in range(3):
        postgres_database.execute("INSERT INTO number VALUES (?)", (number,))
    read = f"SELECT t.xmin::text::bigint & {2**31 - 1}, ({WRITTEN_BY}) & {2**31 - 1} FROM {{}} AS t"
    with postgres_database.connect() as connection:
        if writing:  # A transaction that writes has a number itself.
            connection.execute("INSERT INTO number VALUES (3)")
        found = [connection.execute(read.format(table)).fetchall() for table in ("number", "pg_proc")]
    assert all(one == other for rows in found for one, other in rows)
    assert len(set(found[0])) == 3 + writing
    assert 1 in dict(found[1])


def test_one_transaction_for_two_changes_the_sum_of_digests() -> None:
    keys = key_digest(np.arange(1, 20_001))
    before = version_digest(keys, np.tile([856, 858], 10_000)).reshape(-1, 2).sum(axis=1)
    assert not (before == version_digest(keys, np.full(20_000, 857)).reshape(-1, 2).sum(axis=1)).any()


def test_digests_are_short_enough_to_be_summed() -> None:
    assert all(0 <= one < 2**36 for one in digests(NUMBERS))


def test_keys_with_the_same_sum_have_other_sums_of_digests() -> None:
    found: dict[int, set[int]] = {}
    for one, two in combinations(range(1, 80), 2):
        found.setdefault(one + two, set()).add(sum(digests([one, two])))
    assert all(len(sums) == (total - 1) // 2 for total, sums in found.items() if total <= 80)


def test_about_one_key_in_256_is_proven_in_full() -> None:
    sampled = sum(one % SAMPLED_EVERY == 0 for one in digests(list(range(100_000))))
    assert 300 < sampled < 500


@pytest.mark.parametrize("strict", [True, False])
def test_the_database_and_the_files_agree_on_every_key(database: Database, tmp_path: Path, strict: bool) -> None:
    database.execute("CREATE TABLE t (id bigint PRIMARY KEY, at_ms bigint NOT NULL, body text)")
    database.executemany("INSERT INTO t VALUES (?, 1577836800000, ?)", [(one, f"b {one}") for one in set(NUMBERS)])
    with workers() as pool:
        table, reported, read = copied(pool, database, tmp_path, strict=strict)
    assert reported == read
    assert reported.keys == sum(digests(sorted(set(NUMBERS))))
    assert (reported.proven == reported.rows) is strict
    assert reported.proven > 0
    keys = table["_key"].to_pylist()
    other = table.set_column(table.column_names.index("_key"), "_key", pa.array(['["77777"]', *keys[1:]]))
    shape = [["id", "long"], ["at_ms", "long"], ["body", "string"]]
    assert content.check(other, shape, strict=strict, whole_keys=True).keys != reported.keys


KEYS = ["plain", "it's", '"quoted" \\ and [bracketed]', "line\n\ttab\x01\x1f\x7f", "\U0001f600 é", "", "a', 'b"]


def test_keys_are_made_from_columns_as_the_database_writes_them(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (tenant text NOT NULL, id bigint NOT NULL, at_ms bigint NOT NULL, PRIMARY KEY (tenant, id))"
    )
    pairs = [(key, one) for key in KEYS for one in (0, -1, 2**63 - 1, -(2**63))]
    database.executemany("INSERT INTO t VALUES (?, ?, 1577836800000)", pairs)
    with open_store(resolve_url(database.url)) as store:
        rows = bound(store)
        assert rows.key_texts(rows.parts[0]) is not None
        written = [text for (text,) in database.query(f"SELECT {rows.dialect.key(rows.selection.key, 't')} FROM t")]
    with workers() as pool:
        table, reported, read = copied(pool, database, tmp_path)
    assert sorted(table["_key"].to_pylist()) == sorted(written)
    assert reported == read
    assert [rows.dialect.read_key(one) for one in sorted(written)] == [
        rows.dialect.read_key(one) for one in sorted(table["_key"].to_pylist())
    ]


def test_keys_that_are_not_one_whole_number_are_digested_as_texts(database: Database) -> None:
    database.execute("CREATE TABLE t (id text PRIMARY KEY, at_ms bigint NOT NULL)")
    with open_store(resolve_url(database.url)) as store:
        rows = bound(store)
        assert rows.whole_key(rows.parts[0]) is None


def test_a_key_that_is_cast_may_be_anything(sqlite_database: Database) -> None:
    sqlite_database.execute(
        "CREATE TABLE t (id integer NOT NULL, at_ms integer NOT NULL, PRIMARY KEY (id)) WITHOUT ROWID"
    )
    with open_store(resolve_url(sqlite_database.url)) as store:
        rows = bound(store, {"id": "text"})
        assert rows.whole_key(rows.parts[0]) is None
        rows = bound(store)
        assert rows.whole_key(rows.parts[0]) is not None
