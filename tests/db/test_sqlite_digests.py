"""Digests that our functions compute inside SQLite."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing

import pytest

from wane._db.sqlite import digests

NUMBERS = (
    "WITH RECURSIVE some (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM some WHERE n < {count})"
    " SELECT wane_digest_sums(wane_digest('row ' || n), {halves}) FROM some"
)


@pytest.mark.parametrize("count", [1, digests._ADDED_AT_ONCE, 2 * digests._ADDED_AT_ONCE + 3])
def test_the_halves_of_all_digests_are_added_up(count: int) -> None:
    each = [hashlib.md5(f"row {number}".encode()).digest() for number in range(1, count + 1)]
    first, second = (sum(int.from_bytes(one[start : start + 8], signed=True) for one in each) for start in (0, 8))
    with closing(sqlite3.connect(":memory:")) as connection:
        digests.register(connection)
        found = [connection.execute(NUMBERS.format(count=count, halves=halves)).fetchone()[0] for halves in (1, 2)]
    assert found == [str(first), f"{first} {second}"]
