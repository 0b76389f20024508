"""Timestamps in the ways that columns write them, at the edges that people know by name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from wane._contract.model import Time, Unit
from wane._db.timestamps import (
    day_bound,
    earliest_text,
    earliest_wall,
    month_of,
    number_bound,
    read_time,
    text_bound,
    wall_bound,
)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


VIENNA = "Europe/Vienna"


def test_a_whole_number_bound_rounds_to_the_side_that_keeps_the_row() -> None:
    half = utc(2024, 1, 1, 0, 0, 0, 500_000)
    assert number_bound(half, Unit.SECONDS, inclusive=False) == 1_704_067_201  # ...200 is before it, ...201 is not
    assert number_bound(half, Unit.SECONDS, inclusive=True) == 1_704_067_200
    assert number_bound(half, Unit.MILLISECONDS, inclusive=False) == 1_704_067_200_500
    assert number_bound(half + timedelta(microseconds=1), Unit.MILLISECONDS, inclusive=False) == 1_704_067_200_501
    assert number_bound(half + timedelta(microseconds=1), Unit.MILLISECONDS, inclusive=True) == 1_704_067_200_500


@pytest.mark.parametrize(
    ("timestamp", "bound"),
    [
        (utc(2024, 10, 26, 23, 59, 59), datetime(2024, 10, 27, 1, 59, 59)),
        (utc(2024, 10, 27, 0), datetime(2024, 10, 27, 2)),  # 2:00 for the first time: stands still
        (utc(2024, 10, 27, 0, 59, 59), datetime(2024, 10, 27, 2)),
        (utc(2024, 10, 27, 1), datetime(2024, 10, 27, 2)),  # 2:00 for the second time: goes on
        (utc(2024, 10, 27, 1, 30), datetime(2024, 10, 27, 2, 30)),
        (utc(2024, 3, 31, 0, 59, 59), datetime(2024, 3, 31, 1, 59, 59)),
        (utc(2024, 3, 31, 1), datetime(2024, 3, 31, 2)),  # clocks show 3:00
        (utc(2024, 3, 31, 1, 59, 59), datetime(2024, 3, 31, 2, 59, 59)),
        (utc(2024, 3, 31, 2), datetime(2024, 3, 31, 4)),
    ],
)
def test_the_bound_waits_where_clocks_go_back_and_forward(timestamp: datetime, bound: datetime) -> None:
    assert wall_bound(timestamp, VIENNA, inclusive=False) == bound


def test_an_inclusive_bound_stands_still_before_the_repeated_hour() -> None:
    timestamp = utc(2024, 10, 27, 0, 30)
    assert wall_bound(timestamp, VIENNA, inclusive=True) == datetime(2024, 10, 27, 1, 59, 59, 999_999)
    text = text_bound(timestamp, Time("at", Unit.ISO, VIENNA), inclusive=True)
    assert (text.second, text.next_second) == ("2024-10-27T01:59:59", "2024-10-27T02:00:00")
    assert text.exact == "2024-10-27T01:59:59.999999999"


def test_a_day_that_samoa_never_had_is_waited_for() -> None:
    assert wall_bound(utc(2011, 12, 30, 9, 59), "Pacific/Apia", inclusive=False) == datetime(2011, 12, 29, 23, 59)
    assert wall_bound(utc(2011, 12, 31, 9), "Pacific/Apia", inclusive=False) == datetime(2011, 12, 30, 23)
    assert wall_bound(utc(2011, 12, 31, 10), "Pacific/Apia", inclusive=False) == datetime(2012, 1, 1)


def test_a_text_bound_returns_the_second_and_the_fraction() -> None:
    bound = text_bound(utc(2024, 1, 1, 0, 0, 0, 1), Time("at", Unit.TEXT), inclusive=False)
    assert bound.second == "2024-01-01 00:00:00"
    assert bound.next_second == "2024-01-01 00:00:01"
    assert bound.exact == "2024-01-01 00:00:00.000001000"


@pytest.mark.parametrize(
    ("zone", "wall"),
    [
        (None, datetime(1970, 1, 1, 0, 0, 1)),
        ("UTC", datetime(1970, 1, 1, 0, 0, 1)),
        ("Asia/Tokyo", datetime(1970, 1, 1, 9, 0, 1)),  # what fromtimestamp(0) writes there is a placeholder too
        ("America/New_York", datetime(1970, 1, 1, 0, 0, 1)),  # a bare 1970-01-01 00:00:00 is one everywhere
    ],
)
def test_placeholders_end_where_1970_has_begun_in_the_zone_and_in_utc(zone: str | None, wall: datetime) -> None:
    assert earliest_wall(zone) == wall
    assert earliest_text(Time("at", Unit.ISO, zone)) == wall.isoformat()
    if zone is not None:
        assert read_time(wall, Time("at", Unit.NATIVE, zone)) is not None
        assert read_time(wall - timedelta(seconds=1), Time("at", Unit.NATIVE, zone)) is None


@pytest.mark.parametrize(
    ("zone", "midnight"),
    [
        (None, utc(2024, 6, 2)),
        ("UTC", utc(2024, 6, 2)),
        (VIENNA, utc(2024, 6, 1, 22)),
        ("Pacific/Kiritimati", utc(2024, 6, 1, 10)),
        ("Pacific/Pago_Pago", utc(2024, 6, 2, 11)),
    ],
)
def test_a_day_ends_when_the_next_one_begins_in_its_zone(zone: str | None, midnight: datetime) -> None:
    day, time = date(2024, 6, 1), Time("at", Unit.DATE, zone)
    assert read_time(day, time) == read_time("2024-06-01", time) == midnight
    for late in (-1, 0, 1):
        at = midnight + timedelta(microseconds=late)
        assert (day < day_bound(at, zone, inclusive=False)) == (late > 0)
        assert (day <= day_bound(at, zone, inclusive=True)) == (late >= 0)


def test_a_day_whose_midnight_is_skipped_or_repeated_ends_as_late_as_possible() -> None:
    # Clocks of Havana go forward at 0:00 and back at 1:00, so the midnight of 10 March is skipped, and 0:00 to 0:59 of
    # 3 November happens twice.
    for day, end in ((date(2024, 3, 9), utc(2024, 3, 10, 5)), (date(2024, 11, 2), utc(2024, 11, 3, 5))):
        assert read_time(day, Time("at", Unit.DATE, "America/Havana")) == end
        assert day_bound(end, "America/Havana", inclusive=True) == day
        assert day_bound(end - timedelta(microseconds=1), "America/Havana", inclusive=True) == day - timedelta(days=1)


def test_a_day_is_in_its_own_month() -> None:
    for zone in (None, VIENNA, "Pacific/Kiritimati"):
        time = Time("at", Unit.DATE, zone)
        end = read_time(date(2024, 1, 31), time)
        assert end is not None
        assert month_of(end, time) == "2024-01"
    assert month_of(utc(2024, 1, 31, 23), Time("at", Unit.NATIVE, VIENNA)) == "2024-02"


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (None, Time("at", Unit.SECONDS)),
        (True, Time("at", Unit.SECONDS)),
        ("1704067200", Time("at", Unit.SECONDS)),
        (b"1704067200", Time("at", Unit.SECONDS)),
        (0, Time("at", Unit.SECONDS)),
        (-1, Time("at", Unit.SECONDS)),
        (float("nan"), Time("at", Unit.SECONDS)),
        (float("inf"), Time("at", Unit.SECONDS)),
        (Decimal("NaN"), Time("at", Unit.SECONDS)),
        (Decimal("Infinity"), Time("at", Unit.SECONDS)),
        (1_704_067_200_000, Time("at", Unit.SECONDS)),
        (1_704_067_200, Time("at", Unit.MILLISECONDS)),
        (1_704_067_200_000, Time("at", Unit.MICROSECONDS)),
        ("2024-01-01T00:00:00", Time("at", Unit.ISO)),
        ("2024-01-01 00:00:00Z", Time("at", Unit.ISO)),
        ("2024-01-01T00:00:00Z", Time("at", Unit.TEXT)),
        ("2024-01-01T00:00:00Z", Time("at", Unit.ISO, VIENNA)),
        ("2024-01-01 00:00:00Z", Time("at")),
        ("2024-01-01T00:00:00+01:00", Time("at", Unit.ISO)),
        ("2024-01-01T00:00:00.1234567890Z", Time("at", Unit.ISO)),
        ("2023-02-29T00:00:00Z", Time("at", Unit.ISO)),
        ("2023-01-01T24:00:00Z", Time("at", Unit.ISO)),
        ("2024-01-01T00:00:00Z\n", Time("at", Unit.ISO)),
        ("٢٠٢٤-01-01T00:00:00Z", Time("at", Unit.ISO)),
        ("0001-01-01T00:00:00Z", Time("at", Unit.ISO)),
        ("2024-01-01", Time("at", Unit.ISO)),
        ("2024-01-01T00:00:00Z", Time("at", Unit.DATE)),
        ("2023-02-29", Time("at", Unit.DATE)),
        ("2024-1-1", Time("at", Unit.DATE)),
        (20240101, Time("at", Unit.DATE)),
        (datetime(2024, 1, 1), Time("at", Unit.DATE)),
        (date(1970, 1, 1), Time("at", Unit.DATE)),
        (date.max, Time("at", Unit.DATE)),
        (datetime(2024, 1, 1), Time("at")),
        (utc(1, 1, 1), Time("at")),
    ],
)
def test_what_is_no_timestamp_reads_as_none(value: object, time: Time) -> None:
    assert read_time(value, time) is None


def test_an_aware_value_is_read_in_utc() -> None:
    value = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert read_time(value, Time("at")) == utc(2024, 1, 1)


def test_skipped_and_repeated_wall_clock_times_are_read_as_late_as_possible() -> None:
    time = Time("at", Unit.TEXT, VIENNA)
    assert read_time("2024-10-27 02:30:00", time) == utc(2024, 10, 27, 1, 30)
    assert read_time("2024-03-31 02:30:00", time) == utc(2024, 3, 31, 1, 30)
    assert read_time("2024-03-31 03:30:00", time) == utc(2024, 3, 31, 1, 30)
