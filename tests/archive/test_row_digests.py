"""Digests and canonical texts of rows, computed column by column: the same as value by value."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archive.allocation import most_allocated
from wane._archive.rows import assembly, content, md5
from wane._archive.rows.types import KeyTexts

TEXTS = st.lists(st.one_of(st.text(max_size=80), st.integers(0, 700).map("x".__mul__)), max_size=40)
ROWS = 20_000


@pytest.fixture(params=[1, 10**9], ids=["in arrays", "one by one"], autouse=True)
def fewest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the number of texts from which on digests are computed in arrays."""
    monkeypatch.setattr(md5, "_FEWEST", request.param)
    monkeypatch.setattr(md5, "_AT_ONCE", 7)


@given(texts=TEXTS, first=st.integers(0, 50), count=st.integers(0, 50))
@example(texts=["x" * length for length in range(200)], first=3, count=190)
def test_every_text_has_its_digest(texts: list[str], first: int, count: int) -> None:
    expected = [hashlib.md5(one.encode()).digest() for one in texts]
    column = pa.array(texts, pa.string())
    assert [bytes(one) for one in md5.md5(column)] == expected
    assert [bytes(one) for one in md5.md5(column.slice(first, count))] == expected[first : first + count]


@given(values=st.lists(st.one_of(st.none(), st.binary(max_size=20))), first=st.integers(0, 5))
def test_binary_values_have_their_hex_digits(values: list[bytes | None], first: int) -> None:
    expected = [None if one is None else one.hex() for one in values]
    assert content.texts(pa.array(values, pa.binary()).slice(first), "binary").to_pylist() == expected[first:]


@pytest.mark.parametrize(("digits", "scale"), [(38, 38), (38, 12), (12, 2), (5, 5), (18, 0)])
@given(data=st.data())
def test_decimals_have_all_of_their_digits(digits: int, scale: int, data: st.DataObject) -> None:
    """Also small ones, which would be written with an exponent."""
    most = 10**digits - 1
    drawn = data.draw(st.lists(st.one_of(st.none(), st.integers(-most, most), st.integers(-20, 20)), max_size=20))
    values = [None if one is None else Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -scale)) for one in drawn]
    column = pa.array(values, pa.decimal128(digits, scale))
    expected = [None if one is None else format(one, "f") for one in values]
    assert content.texts(column, f"decimal({digits},{scale})").to_pylist() == expected
    assert content.texts(column.slice(1), f"decimal({digits},{scale})").to_pylist() == expected[1:]


@given(values=st.lists(st.one_of(st.none(), st.floats()), max_size=20))
@example(values=[0.0, -0.0, math.nan, -math.nan, math.inf, 5e-324])
def test_floats_have_the_digits_of_their_bits(values: list[float | None]) -> None:
    """All but those of what is no number: to the database, all of these are equal."""
    normal = [math.nan if one is not None and math.isnan(one) else one for one in values]
    expected = [None if one is None else struct.pack(">d", one).hex() for one in normal]
    assert content.texts(pa.array(values, pa.float64()), "double").to_pylist() == expected


@given(texts=st.lists(st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cs"]), max_size=10), min_size=1))
@example(texts=['"', "\\", '\\"', "'", "\x7f", "".join(map(chr, range(40)))])
def test_keys_are_escaped_as_json_is(texts: list[str]) -> None:
    table = pa.table({"name": texts})
    for quoted in (False, True):
        made = assembly.key_texts(table, KeyTexts(("name",), ",", quoted=quoted)).to_pylist()
        each = ["'" + one.replace("'", "''") + "'" if quoted else one for one in texts]
        assert made == [json.dumps([one], ensure_ascii=False) for one in each]


def test_large_rows_are_digested_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"body": ["x" * number for number in range(50)], "id": pa.array(range(50), pa.int64())})
    shape = [["id", "long"], ["body", "string"]]
    whole = content.row_digests(table, shape)
    monkeypatch.setattr(content, "_DIGESTED_AT_ONCE", 100)
    assert content.row_digests(table, shape).equals(whole)


def test_no_object_of_python_is_made_for_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the digests of a million rows take longer than reading them."""
    monkeypatch.undo()
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "body": pa.array(range(ROWS)).cast(pa.string()),
            "data": pa.array(range(ROWS)).cast(pa.string()).cast(pa.binary()),
            "amount": pa.array(range(ROWS), pa.int64()).cast(pa.decimal128(22, 2)),
            "share": pa.array(range(ROWS), pa.float64()),
            "_key": pa.array(range(ROWS)).cast(pa.string()),
        }
    )
    shape = [["id", "long"], ["body", "string"], ["data", "binary"], ["amount", "decimal(22,2)"], ["share", "double"]]
    content.check(table, shape, strict=True)
    found = []

    def digest() -> None:
        found.extend([content.check(table, shape, strict=True).rows, len(content.row_digests(table, shape))])

    assert most_allocated(digest) < ROWS // 10
    assert found == [ROWS, ROWS]
