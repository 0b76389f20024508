"""What follows rows is added up column by column: the same sums for the same rows, in any order and division."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wane._archive.pipeline.followers import Following, each, following

PARENTS = ["a", "b", "c d"]
ROW = st.tuples(st.sampled_from(PARENTS), st.text("12 ", max_size=3), st.text("12 ", max_size=2))
Rows = list[tuple[str, str, str]]


def sums(parts: list[tuple[int, Rows]], keys: list[str]) -> list[Following]:
    found = [(part, *(pa.array([row[n] for row in rows], pa.string()) for n in range(3))) for part, rows in parts]
    return each(following(found, pa.array(keys, pa.string())))


@given(rows=st.lists(ROW, max_size=20), cut=st.integers(0, 20))
def test_neither_order_nor_pages_matter(rows: Rows, cut: int) -> None:
    whole = sums([(1, rows)], PARENTS)
    assert sums([(1, rows[cut:][::-1]), (1, rows[:cut])], PARENTS) == whole
    assert [one.rows for one in whole] == [sum(row[0] == parent for row in rows) for parent in PARENTS]


@given(
    one=st.lists(ROW, max_size=4),
    other=st.lists(ROW, max_size=4),
    parts=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_other_rows_have_other_sums(one: Rows, other: Rows, parts: tuple[int, int]) -> None:
    """Also where a space is in a key or a version, and of the same rows of another table."""
    for parent in PARENTS:
        mine, theirs = (sorted(row for row in rows if row[0] == parent) for rows in (one, other))
        same = mine == theirs and (parts[0] == parts[1] or not mine)
        assert (sums([(parts[0], mine)], [parent]) == sums([(parts[1], theirs)], [parent])) is same


def test_a_row_that_nothing_follows_has_no_sums() -> None:
    assert sums([], ["a", "b"]) == [Following(), Following()]
    assert sums([(1, [("b", "1", "2")])], []) == []
