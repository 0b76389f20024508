"""What the archive adds to rows is made from the columns that were read, byte by byte."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
    began = sys.getallocatedblocks()
    most = began

    def traced(*_: Any) -> Any:
        nonlocal most
        most = max(most, sys.getallocatedblocks())
        return traced

    sys.setprofile(traced)
    try:
        assert len(assembly.versions(made)) == rows
    finally:
        sys.setprofile(None)
    assert most - began < rows // 100
