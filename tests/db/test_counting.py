"""Numbers that are made of counts are as exact as those, and no more."""

from __future__ import annotations

import pytest

from wane._db.counting import Count, Exactness, Figure, count_union, round_bound, share_of, stated, sum_counts

EXACT, ESTIMATE, AT_LEAST, AT_MOST = Exactness


@pytest.mark.parametrize(
    ("part", "rows", "expected"),
    [
        (Count(1), Count(3), Figure(0.3333)),
        (Count(2, AT_LEAST), Count(3), Figure(0.6666, AT_LEAST)),
        (Count(2, AT_LEAST), Count(3, AT_MOST), Figure(0.6666, AT_LEAST)),
        (Count(2), Count(3, AT_MOST), Figure(0.6666, AT_LEAST)),
        (Count(1), Count(3, AT_LEAST), Figure(0.3334, AT_MOST)),
        (Count(2), Count(3, ESTIMATE), Figure(0.6667, ESTIMATE)),
        (Count(2, ESTIMATE), Count(3), Figure(0.6667, ESTIMATE)),
        (Count(9, ESTIMATE), Count(3, ESTIMATE), Figure(1.0, ESTIMATE)),
        (Count(2, AT_LEAST), Count(3, ESTIMATE), None),
        (Count(2, AT_LEAST), Count(3, AT_LEAST), None),
        (Count(2, ESTIMATE), Count(3, AT_MOST), None),
        (None, Count(3), None),
        (Count(2), None, None),
        (Count(0), None, Figure(0.0)),
        (Count(0), Count(0), Figure(0.0)),
        (Count(2), Count(0), Figure(1.0)),
    ],
)
def test_a_share_is_a_number_a_bound_or_unknown(
    part: Count | None, rows: Count | None, expected: Figure | None
) -> None:
    assert share_of(part, rows) == expected


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], Count(0)),
        ([Count(1), Count(2)], Count(3)),
        ([Count(1), Count(2, ESTIMATE)], Count(3, ESTIMATE)),
        ([Count(1), Count(2, AT_LEAST)], Count(3, AT_LEAST)),
        ([Count(1), None], Count(1, AT_LEAST)),
        ([Count(1), Count(2, ESTIMATE), Count(3, AT_LEAST)], Count(4, AT_LEAST)),
    ],
)
def test_a_sum_is_as_exact_as_its_parts(counts: list[Count | None], expected: Count) -> None:
    assert sum_counts(counts) == expected


@pytest.mark.parametrize(
    ("together", "each", "expected"),
    [
        (Count(5), [Count(3), Count(4)], Count(5)),
        (Count(1, ESTIMATE), [Count(3), Count(4)], Count(4, ESTIMATE)),
        (Count(9, ESTIMATE), [Count(3), Count(4)], Count(7, ESTIMATE)),
        (Count(2, AT_LEAST), [Count(3), Count(9, ESTIMATE)], Count(3, AT_LEAST)),
        (None, [Count(3), Count(4)], None),
    ],
)
def test_rows_of_two_rules_are_between_the_larger_number_and_the_sum(
    together: Count | None, each: list[Count], expected: Count | None
) -> None:
    assert count_union(together, each) == expected


def test_a_bound_is_not_rounded_across_what_it_bounds() -> None:
    assert [round_bound(0.12345, one, 2) for one in (EXACT, ESTIMATE, AT_LEAST, AT_MOST)] == [0.12, 0.12, 0.12, 0.13]
    assert [round_bound(0.129, one, 2) for one in (EXACT, ESTIMATE, AT_LEAST, AT_MOST)] == [0.13, 0.13, 0.12, 0.13]


def test_every_number_of_a_report_states_how_exact_it_is() -> None:
    assert stated("due", Count(3, AT_LEAST)) == {"due": 3, "due_exactness": "at least"}
    assert stated("share", Figure(0.5)) == {"share": 0.5, "share_exactness": "exact"}
    assert stated("due", None) == {"due": None, "due_exactness": None}
