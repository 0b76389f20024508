"""What the archive adds to rows is made from the columns that were read, byte by byte."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archive.allocation import most_allocated
from wane._archive.rows import assembly
from wane.errors import ArchiveError

TRANSACTIONS = st.lists(st.integers(0, 2**32 - 1), max_size=50)
KINDS = [pa.binary(4), pa.binary(), pa.large_binary(), pa.opaque(pa.binary(), "xid", "PostgreSQL")]


def column(numbers: list[int | None], kind: Any) -> Any:
    stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    made = pa.array([None if one is None else one.to_bytes(4, "big") for one in numbers], stored)
    return pa.ExtensionArray.from_storage(kind, made) if kind is not stored else made


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(numbers=TRANSACTIONS, first=st.integers(0, 60), count=st.integers(0, 60))
@example(numbers=[0, 2**32 - 1, 2**31, 1], first=1, count=2)
@example(numbers=[], first=0, count=0)
def test_versions_are_the_numbers_of_transactions(numbers: list[int], first: int, count: int, kind: Any) -> None:
    made = column([*numbers], kind)
    expected = [str(one) for one in numbers]
    assert assembly.versions(made).to_pylist() == expected
    assert assembly.versions(made.slice(first, count)).to_pylist() == expected[first : first + count]
    parts = pa.chunked_array([made.slice(first), made.slice(0, first)], made.type)
    assert assembly.versions(parts).to_pylist() == [*expected[first:], *expected[:first]]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_row_without_a_version_is_refused(kind: Any) -> None:
    made = column([1, None, 3, 4], kind)
    with pytest.raises(ArchiveError, match="without the transaction"):
        assembly.versions(made)
    assert assembly.versions(made.slice(2)).to_pylist() == ["3", "4"], "a slice beside it has none"


def test_a_version_of_another_width_is_refused() -> None:
    for kind in (pa.binary(), pa.binary(8)):
        with pytest.raises(pa.ArrowInvalid, match="width"):
            assembly.versions(pa.array([bytes(8)], kind))


def test_no_object_of_python_is_made_for_a_version() -> None:
    """Or the numbers of a million rows take longer than reading them."""
    rows = 400_000
    made = pa.array([bytes(4)] * rows, pa.binary())
    found = []
    assert most_allocated(lambda: found.append(len(assembly.versions(made)))) < rows // 100
    assert found == [rows]


_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), timezones=st.just(UTC))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def month(at: date) -> str:
    return f"{at.year:04}-{at.month:02}"


@given(times=st.lists(_TIMES, min_size=1, max_size=30))
@example(times=[datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(1970, 1, 1, tzinfo=UTC)])
@example(times=[datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)])
def test_months_are_those_of_the_times(times: list[datetime]) -> None:
    expected = [month(one) for one in times]
    micros = [(one - _EPOCH) // timedelta(microseconds=1) for one in times]
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        assert assembly.months(pa.array(micros, pa.int64()).cast(kind), None).to_pylist() == expected
    days = pa.array([one.date() for one in times], pa.date32())
    assert assembly.months(days, None).to_pylist() == expected
    texts = pa.array([one.date().isoformat() for one in times])
    assert assembly.months(texts, None).to_pylist() == expected
    later = [one for one in times if one >= _EPOCH]
    if later:
        seconds = pa.array([(one - _EPOCH) // timedelta(seconds=1) for one in later], pa.int64())
        assert assembly.months(seconds, 1).to_pylist() == [month(one) for one in later]
