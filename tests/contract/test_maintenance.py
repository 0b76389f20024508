"""Maintenance windows: inside, outside, over midnight, and when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wane._contract.maintenance import Within

BERLIN = "Europe/Berlin"


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def test_its_end_is_outside_and_its_beginning_inside() -> None:
    hours = Within("01:00", "05:00")
    assert hours.closes(utc(2026, 1, 1, 1)) == utc(2026, 1, 1, 5)
    assert hours.closes(utc(2026, 1, 1, 4, 59, 59)) == utc(2026, 1, 1, 5)
    assert hours.closes(utc(2026, 1, 1, 5)) is None
    assert hours.opens(utc(2026, 1, 1, 5)) == utc(2026, 1, 2, 1)
    assert hours.opens(utc(2026, 1, 1, 3)) == utc(2026, 1, 1, 3)
    assert hours.opens(utc(2026, 1, 1)) == utc(2026, 1, 1, 1)
    assert hours.closed == timedelta(hours=20)


def test_it_may_pass_midnight() -> None:
    hours = Within("22:30", "04:00", BERLIN)
    assert hours.closes(utc(2026, 7, 1, 20, 30)) == hours.closes(utc(2026, 7, 2, 1)) == utc(2026, 7, 2, 2)
    assert hours.closes(utc(2026, 7, 2, 2)) is None
    assert hours.opens(utc(2026, 7, 2, 2)) == utc(2026, 7, 2, 20, 30)
    assert hours.closed == timedelta(hours=18, minutes=30)


@pytest.mark.parametrize(
    ("begins", "ends", "opens", "closes"),
    [
        ("01:00", "05:00", utc(2026, 3, 29, 0), utc(2026, 3, 29, 3)),  # An hour shorter.
        ("02:30", "05:00", utc(2026, 3, 29, 1), utc(2026, 3, 29, 3)),  # Begins when clocks go forward.
        ("01:00", "02:30", utc(2026, 3, 29, 0), utc(2026, 3, 29, 1)),  # Ends then.
        ("02:10", "02:40", utc(2026, 3, 30, 0, 10), utc(2026, 3, 30, 0, 40)),  # Has no such hour on that day.
    ],
)
def test_hours_that_clocks_skip(begins: str, ends: str, opens: datetime, closes: datetime) -> None:
    hours = Within(begins, ends, BERLIN)
    assert hours.opens(utc(2026, 3, 28, 12)) == opens
    assert hours.closes(opens) == closes


def test_hours_that_clocks_repeat_count_the_first_time() -> None:
    hours = Within("02:15", "02:45", BERLIN)
    assert hours.opens(utc(2026, 10, 24, 12)) == utc(2026, 10, 25, 0, 15)
    assert hours.closes(utc(2026, 10, 25, 0, 15)) == utc(2026, 10, 25, 0, 45)
    assert hours.closes(utc(2026, 10, 25, 1, 20)) is None


@given(
    begins=st.sampled_from(["00:00", "01:30", "02:30", "12:00", "23:59"]),
    ends=st.sampled_from(["00:30", "02:00", "02:59", "13:00", "22:00"]),
    zone=st.sampled_from(["UTC", BERLIN, "America/Havana", "Pacific/Apia"]),
    instant=st.datetimes(datetime(2009, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
)
def test_a_sweep_may_start_when_it_opens_and_not_before(begins: str, ends: str, zone: str, instant: datetime) -> None:
    hours = Within(begins, ends, zone)
    opens = hours.opens(instant)
    closes = hours.closes(opens)
    assert closes is not None
    assert opens >= instant
    assert (opens == instant) == (hours.closes(instant) is not None)
    assert hours.closes(closes - timedelta(microseconds=1)) == closes
    if opens > instant:
        assert hours.closes(opens - timedelta(microseconds=1)) is None
