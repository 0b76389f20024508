"""Conditions without Spark: what SQLite says of the same text, and never more files skipped than are free of such
rows."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archive.test_query import HOSTILE
from wane._archive.query.plain_condition import parse
from wane._archive.query.skipping import footer_edges
from wane.errors import WrongArgument

KINDS = {"id": "long", "number": "long", "label": "string"}
NUMBERS = st.integers(-3, 3)
LABELS = st.text("aB%_' \n", max_size=3)
NAMES = st.sampled_from(["number", "NUMBER", "`number`"]), st.sampled_from(["label", "Label", "`label`"])
SIGNS = st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">="])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def predicates() -> st.SearchStrategy[str]:
    number, label = NUMBERS.map(str), LABELS.map(quoted)
    negation = st.sampled_from(["", "NOT "])
    found = []
    for name, value in zip(NAMES, (number, label), strict=True):
        found += [
            st.tuples(name, SIGNS, value).map(" ".join),
            st.tuples(value, SIGNS, name).map(" ".join),
            st.tuples(name, negation, st.lists(value, min_size=1, max_size=3)).map(
                lambda one: f"{one[0]} {one[1]}IN ({', '.join(one[2])})"
            ),
            st.tuples(name, negation, value, value).map(lambda one: f"{one[0]} {one[1]}between {one[2]} and {one[3]}"),
            st.tuples(name, negation).map(lambda one: f"{one[0]} is {one[1]}null"),
        ]
    found.append(st.tuples(NAMES[1], negation, label).map(lambda one: f"{one[0]} {one[1]}LIKE {one[2]}"))
    return st.one_of(found)


CONDITIONS = st.recursive(
    predicates(),
    lambda part: st.one_of(
        part.map(lambda one: f"NOT {one}"),
        part.map(lambda one: f"({one})"),
        st.tuples(part, st.sampled_from([" AND ", "\nor "]), part).map("".join),
    ),
    max_leaves=6,
)
ROWS = st.lists(st.tuples(st.none() | NUMBERS, st.none() | LABELS), max_size=8)


@pytest.fixture(scope="module")
def oracle() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA case_sensitive_like = ON")
        connection.execute("CREATE TABLE t (id integer, number integer, label text)")
        yield connection


@settings(max_examples=100)
@given(where=CONDITIONS, rows=ROWS)
def test_a_condition_means_what_it_means_in_sql(
    where: str, rows: list[tuple[int | None, str | None]], oracle: sqlite3.Connection
) -> None:
    numbered = [(number, *row) for number, row in enumerate(rows)]
    oracle.execute("DELETE FROM t")
    oracle.executemany("INSERT INTO t VALUES (?, ?, ?)", numbered)
    expected = [one for (one,) in oracle.execute(f"SELECT id FROM t WHERE {where} ORDER BY id")]
    condition = parse(where, KINDS)
    assert condition is not None
    schema = pa.schema([("id", pa.int64()), ("number", pa.int64()), ("label", pa.string())])
    table = pa.Table.from_pylist([dict(zip(KINDS, row, strict=True)) for row in numbered], schema)
    assert table.filter(condition.mask(table))["id"].to_pylist() == expected
    assert set(condition.names()) <= {"number", "label"}
    known = {name: [one for one in table[name].to_pylist() if one is not None] for name in ("number", "label")}
    edges = {name: (min(values), max(values)) for name, values in known.items() if values}
    if condition.excludes(edges):
        assert expected == []


def test_what_does_more_than_compare_is_left_to_spark() -> None:
    kinds = {"id": "long", "body": "string"}
    more = [
        "id + 1 = 2",
        "id = 1.5",
        "id = '1'",
        "body = 1",
        "body = 'a\\n'",
        'body = "a"',
        "id = 1 -- x",
        "now > 1",
        "id",
        "id IS TRUE",
        "id = NULL",
        "body RLIKE 'a'",
        "body LIKE 'a' ESCAPE '!'",
        "id = 1 /* x */",
        "id = 9e1",
        "id = 9223372036854775808",
        "body = 'a' 'b'",
        "(" * 60 + "id = 1" + ")" * 60,
        "body = '\udc80'",
        "id = 1 = 1",
    ]
    hostile = [one for name, one in HOSTILE.items() if name != "too much of it"]
    for where in (*more, *hostile):
        with suppress(WrongArgument):
            assert parse(where, kinds) is None, where


def test_columns_that_differ_in_case_only_are_left_to_spark() -> None:
    assert parse("a = 1", {"a": "long", "A": "long"}) is None


@pytest.mark.parametrize(("values", "statistics"), [([1.0, math.nan], True), ([7], False)], ids=["NaN", "unknown"])
def test_a_file_that_may_hold_such_a_row_is_read(values: list[Any], statistics: bool, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": values}), file, write_statistics=statistics)
    condition = parse("x > 5", {"x": "double" if math.nan in values else "long"})
    assert condition is not None
    assert not condition.excludes(footer_edges(file, {"x"}))
