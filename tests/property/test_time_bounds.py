"""The bounds that timestamps become agree with comparing the timestamps themselves, in every unit and in zones with odd
clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from wane._contract.model import Time, Unit
from wane._db.timestamps import (
    fraction_bound,
    from_micros,
    micros,
    number_bound,
    read_time,
    text_bound,
    wall_bound,
)

US = timedelta(microseconds=1)
SIZES = {Unit.SECONDS: 1_000_000, Unit.MILLISECONDS: 1_000, Unit.MICROSECONDS: 1}

# Where and when clocks jump: an hour, half an hour, a whole day, by odd offsets, in winter, and never.
JUMPS = {
    "Europe/Vienna": [datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 1)],
    "America/St_Johns": [datetime(2024, 3, 10, 5, 30), datetime(2024, 11, 3, 4, 30), datetime(2006, 4, 2, 3, 31)],
    "Australia/Lord_Howe": [datetime(2024, 4, 6, 15), datetime(2024, 10, 5, 15, 30)],
    "Africa/Casablanca": [datetime(2024, 3, 10, 2), datetime(2024, 4, 14, 2)],
    "Asia/Kathmandu": [datetime(1985, 12, 31, 18, 30), datetime(2024, 1, 1)],
    "Pacific/Apia": [datetime(2011, 12, 30, 10), datetime(2021, 4, 3, 14)],
    "Africa/Monrovia": [datetime(1972, 1, 7, 0, 44, 30)],
    "UTC": [datetime(2024, 1, 1)],
}
NEARBY = st.one_of(
    st.sampled_from([timedelta(0), US, -US, timedelta(seconds=1), timedelta(hours=1), timedelta(minutes=30)]),
    st.timedeltas(timedelta(hours=-3), timedelta(hours=3)),
    st.timedeltas(timedelta(hours=-30), timedelta(hours=30)),
)


@st.composite
def local_times(draw: st.DrawFn) -> tuple[str, datetime, datetime]:
    """Return a zone, a timestamp near one of its jumps, and a wall-clock time near that timestamp."""
    zone = draw(st.sampled_from(list(JUMPS)))
    jump = draw(st.sampled_from(JUMPS[zone])).replace(tzinfo=UTC)
    timestamp = jump + draw(NEARBY)
    # What clocks show right before the jump and right after it lies at both ends of what is skipped or repeated.
    edge = draw(st.sampled_from([jump, jump - US])).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    wall = edge + draw(NEARBY)
    return (
        zone,
        timestamp,
        draw(st.sampled_from([wall, edge, timestamp.astimezone(ZoneInfo(zone)).replace(tzinfo=None)])),
    )


def shown(wall: datetime, zone: str) -> list[datetime]:
    """Return the timestamps at which clocks show a wall-clock time."""
    zone_info = ZoneInfo(zone)
    candidates = {wall.replace(tzinfo=zone_info, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(one for one in candidates if one.astimezone(zone_info).replace(tzinfo=None) == wall)


def latest(wall: datetime, zone: str) -> datetime:
    """Return the latest timestamp that a wall-clock time can mean, by whatever offset is in force around it."""
    zone_info = ZoneInfo(zone)
    return max(wall.replace(tzinfo=zone_info, fold=fold).astimezone(UTC) for fold in (0, 1))


@given(local_times(), st.booleans())
def test_a_wall_clock_time_is_never_before_a_timestamp_too_early(
    drawn: tuple[str, datetime, datetime], inclusive: bool
) -> None:
    zone, timestamp, wall = drawn
    bound = wall_bound(timestamp, zone, inclusive=inclusive)
    if wall <= bound if inclusive else wall < bound:
        assert latest(wall, zone) <= timestamp if inclusive else latest(wall, zone) < timestamp


@given(local_times(), st.booleans())
def test_a_wall_clock_time_is_before_a_timestamp_unless_it_stands_behind_what_was_skipped(
    drawn: tuple[str, datetime, datetime], inclusive: bool
) -> None:
    zone, timestamp, wall = drawn
    bound = wall_bound(timestamp, zone, inclusive=inclusive)
    # Wall-clock times are compared in their order, so one waits for all that are less. Steps this small meet every
    # jump.
    if any(not shown(wall - timedelta(minutes=15 * step), zone) for step in range(97)):
        return
    if latest(wall, zone) <= timestamp if inclusive else latest(wall, zone) < timestamp:
        assert wall <= bound if inclusive else wall < bound


@given(local_times(), st.booleans())
def test_a_wall_clock_time_waits_no_longer_than_clocks_skipped(
    drawn: tuple[str, datetime, datetime], inclusive: bool
) -> None:
    zone, timestamp, wall = drawn
    day = timedelta(hours=24 if zone == "Pacific/Apia" else 1, microseconds=1)
    bound = wall_bound(timestamp, zone, inclusive=inclusive)
    if latest(wall, zone) + day < timestamp:
        assert wall <= bound if inclusive else wall < bound


@given(local_times(), local_times(), st.booleans())
def test_the_wall_bound_never_goes_back(
    one: tuple[str, datetime, datetime], other: tuple[str, datetime, datetime], inclusive: bool
) -> None:
    zone, first, _ = one
    second = max(first, other[1])
    assert wall_bound(first, zone, inclusive=inclusive) <= wall_bound(second, zone, inclusive=inclusive)


WALLS = {"T": Unit.ISO, " ": Unit.TEXT}


@given(local_times(), st.sampled_from(["T", " "]), st.integers(0, 9), st.integers(0, 999), st.booleans())
def test_a_text_is_before_a_text_bound_exactly_if_its_wall_clock_time_is(
    drawn: tuple[str, datetime, datetime], between: str, digits: int, nanos: int, inclusive: bool
) -> None:
    zone, timestamp, wall = drawn
    bound = text_bound(timestamp, Time("at", WALLS[between], zone), inclusive=inclusive)
    written = f"{wall.microsecond:06d}{nanos:03d}"[:digits]
    text = wall.replace(microsecond=0).isoformat(between) + (f".{written}" if digits else "")
    padded = f"{text[:19]}.{written:0<9}"
    within = padded <= bound.exact if inclusive else padded < bound.exact
    before = text < bound.next_second and (text < bound.second or within)

    stored = wall.replace(microsecond=int(f"{written:0<9}"[:6]))
    finer = bool(int(f"{written:0<9}"[6:]))
    edge = wall_bound(timestamp, zone, inclusive=False)
    stands_still = inclusive and wall_bound(timestamp, zone, inclusive=True) < edge
    if inclusive and not stands_still:
        assert before == ((stored, finer) <= (edge, False))
    else:
        assert before == (stored < edge)


TIMESTAMPS = st.datetimes(datetime(1973, 6, 1), datetime(2200, 1, 1)).map(
    lambda timestamp: timestamp.replace(tzinfo=UTC)
)


@given(TIMESTAMPS)
def test_microseconds_round_trip(timestamp: datetime) -> None:
    assert from_micros(micros(timestamp)) == timestamp


@given(TIMESTAMPS, st.sampled_from(list(SIZES)), st.integers(-3, 3), st.booleans())
def test_a_whole_number_is_before_a_bound_exactly_if_its_timestamp_is(
    timestamp: datetime, unit: Unit, distance: int, inclusive: bool
) -> None:
    number = micros(timestamp) // SIZES[unit] + distance
    bound = number_bound(timestamp, unit, inclusive=inclusive)
    meant = from_micros(number * SIZES[unit])
    assert (number <= bound if inclusive else number < bound) == (
        meant <= timestamp if inclusive else meant < timestamp
    )


@given(TIMESTAMPS, st.sampled_from(list(SIZES)), st.decimals(-3, 3, places=6), st.booleans())
def test_a_number_with_a_fraction_is_before_a_bound_exactly_if_its_timestamp_is(
    timestamp: datetime, unit: Unit, distance: Decimal, inclusive: bool
) -> None:
    number = Decimal(micros(timestamp)) / SIZES[unit] + distance
    bound = fraction_bound(timestamp, unit)
    exact = number * SIZES[unit]
    assert (number <= bound if inclusive else number < bound) == (
        exact <= micros(timestamp) if inclusive else exact < micros(timestamp)
    )


@given(TIMESTAMPS, st.sampled_from(list(SIZES)))
def test_numbers_are_read_as_written(timestamp: datetime, unit: Unit) -> None:
    whole = micros(timestamp) // SIZES[unit]
    assert read_time(whole, Time("at", unit)) == from_micros(whole * SIZES[unit])
    assert read_time(fraction_bound(timestamp, unit), Time("at", unit)) == timestamp
    assert read_time(float(fraction_bound(timestamp, unit)), Time("at", unit)) == timestamp


@given(TIMESTAMPS, st.sampled_from(["Z", "+00:00"]), st.integers(6, 9))
def test_texts_are_read_as_written(timestamp: datetime, suffix: str, digits: int) -> None:
    fraction = f".{timestamp.microsecond:06d}".ljust(digits + 1, "0")
    wall = timestamp.replace(microsecond=0, tzinfo=None)
    assert read_time(wall.isoformat() + fraction + suffix, Time("at", Unit.ISO)) == timestamp
    assert read_time(wall.isoformat(" ") + fraction + suffix, Time("at", Unit.TEXT)) == timestamp
    assert read_time(wall.isoformat(" ") + fraction, Time("at")) == timestamp
    assert read_time(timestamp, Time("at")) == timestamp


@given(local_times())
def test_wall_clock_times_are_read_as_the_latest_timestamp_they_mean(drawn: tuple[str, datetime, datetime]) -> None:
    zone, _, wall = drawn
    expected = latest(wall, zone)
    assert read_time(wall, Time("at", Unit.NATIVE, zone)) == expected
    assert read_time(wall.isoformat(timespec="microseconds"), Time("at", Unit.ISO, zone)) == expected
    timestamps = shown(wall, zone)
    assert not timestamps or timestamps[-1] == expected
