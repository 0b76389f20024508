"""Numbers as people read them, in commands and in the console."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from wane._db.counting import Count, Exactness, Figure
from wane._formats import count_text, seconds_text, share_text, size_text, time_text
from wane.web._filters import FILTERS

AT = datetime(2026, 11, 18, 9, 30, 15, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0, "0 B"), (999, "999 B"), (1_000, "1.00 kB"), (12_345, "12.3 kB"), (123_456, "123 kB"), (None, "?")],
        *[(999_999, "1.00 MB"), (5_000_000, "5.00 MB"), (2 * 10**9, "2.00 GB"), (3 * 10**18, "3000 PB")],
    ],
)
def test_sizes_are_short(value: int | None, text: str) -> None:
    assert size_text(value) == text


def test_a_size_that_was_estimated_is_marked() -> None:
    assert size_text(57_344, exact=False) == "~57.3 kB"


@pytest.mark.parametrize(
    ("exactness", "text"),
    [
        (Exactness.EXACT, "10.0%"),
        (Exactness.ESTIMATE, "~10.0%"),
        (Exactness.AT_LEAST, "≥ 9.9%"),
        (Exactness.AT_MOST, "≤ 10.0%"),
    ],
)
def test_a_bound_is_not_rounded_past_what_it_bounds(exactness: Exactness, text: str) -> None:
    assert share_text(Figure(0.0996, exactness)) == text
    assert FILTERS["share"](Figure(0.0996, exactness)) == text


def test_a_lower_bound_of_zero_is_unknown() -> None:
    assert [count_text(Count(rows, Exactness.AT_LEAST)) for rows in (0, 1)] == ["?", "≥ 1"]
    assert count_text(Count(0)) == "0"


def test_the_console_writes_a_dash_where_a_command_writes_nothing() -> None:
    assert (share_text(None), count_text(None), time_text(None), size_text(None)) == ("", "?", "", "?")
    assert [FILTERS[name](None) for name in ("time", "bytes", "span", "number")] == ["–"] * 4
    assert FILTERS["span"](0) == "0 s"


@pytest.mark.parametrize("name", ["count", "time", "bytes", "span"])
def test_the_console_writes_numbers_as_commands_do(name: str) -> None:
    write, value = {
        "count": (count_text, Count(1_234, Exactness.AT_LEAST)),
        "time": (time_text, AT),
        "bytes": (size_text, 12_345),
        "span": (seconds_text, 9_000.0),
    }[name]
    assert FILTERS[name](value) == write(value) != ""  # type: ignore[operator]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(None, "?"), (0, ""), (0.4, "less than 1 s"), (12, "12 s"), (119, "119 s"), (180, "3 min"), (9_000, "2.5 h")],
        *[(172_799, "48.0 h"), (345_600, "4.0 d")],
    ],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


def test_times_are_in_utc() -> None:
    assert [time_text(AT, one) for one in ("seconds", "minutes", "days")] == [
        "2026-11-18 08:30:15",
        "2026-11-18 08:30",
        "2026-11-18",
    ]
    assert time_text(AT.astimezone(UTC)) == time_text(AT)
    assert time_text(date(2026, 11, 18)) == "2026-11-18"
