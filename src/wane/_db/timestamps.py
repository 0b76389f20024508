"""Instants and the forms in which columns store them.

An instant is an aware UTC datetime. A column may store it as a number, as text, or natively, and with or without a
zone; a day means the instant at which it ends. This module turns an instant into the value to compare a column with,
and a column's value back into an instant. It is pure: the stores' dialects write the comparison in SQL.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from wane._contract.model import Time, Unit
from wane._contract.wall_clock import wall_of
from wane._frozen import frozen

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = EPOCH + timedelta(seconds=1)
"""No row is older than this. A value before it is a placeholder (0, 0001-01-01, -infinity) and never due."""
EARLIEST_DAY = date(1970, 1, 2)
"""No day is before this: 1 January 1970 is what a zero becomes."""
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
"""Every row is older than this. A value after it (infinity, 9999-12-31, milliseconds in a column of seconds) means
"never", and does not count towards a cap."""

PER_SECOND = {Unit.SECONDS: 1, Unit.MILLISECONDS: 1_000, Unit.MICROSECONDS: 1_000_000}
SMALLEST = {Unit.SECONDS: 1, Unit.MILLISECONDS: 100_000_000_000, Unit.MICROSECONDS: 100_000_000_000_000}
"""The smallest plausible number of each unit. Seconds in a column of milliseconds, and milliseconds in one of
microseconds, lie below it; so do placeholders. All but the first mean 3 March 1973."""

TEXT_SHAPE = re.compile(
    r"(?P<second>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?(?P<suffix>Z|\+00:00)?", re.ASCII
)
DAY_SHAPE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
DIGITS = re.compile(r"\d{1,18}", re.ASCII)
"""A number that is written as text, as a text column stores it where it mixes numbers and texts."""
_A_DAY = timedelta(days=1)
_A_DAY_AND_MORE = timedelta(hours=25)
"""Clocks go forward by a day at most (Samoa left out 30 December 2011)."""


@frozen
class TextBound:
    """The bound that a text column is compared with.

    Texts of different fraction lengths do not sort like the instants they mean (`…00.500Z` before `…00Z`), so the
    second decides, and only inside the bound's own second the fraction, padded to nine digits.
    """

    second: str
    """The bound's second: 19 characters."""
    next_second: str
    exact: str
    """The bound with nine digits of fraction and no suffix."""


def micros(instant: datetime) -> int:
    """Return the microseconds since 1970, exactly."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def from_micros(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)


def number_bound(instant: datetime, unit: Unit, *, inclusive: bool) -> int:
    """Return n such that a whole number x means an instant before the bound exactly if x < n (inclusive: x <= n)."""
    size = 1_000_000 // PER_SECOND[unit]
    count = micros(instant)
    return count // size if inclusive else -(-count // size)


def fraction_bound(instant: datetime, unit: Unit) -> Decimal:
    """Return the bound as an exact number, for columns that hold fractions."""
    return Decimal(micros(instant)) * PER_SECOND[unit] / 1_000_000


def wall_bound(instant: datetime, zone: str, *, inclusive: bool) -> datetime:
    """Return the naive wall-clock time to compare wall-clock times of a zone with. A row is due late rather than early.

    A wall-clock time that happens twice, when clocks go back, counts as the later of the two: while clocks show such an
    hour for the first time, the bound stays at its beginning. One that never happens, when clocks go forward, counts as
    if they had not gone forward yet: for as long as they skipped, the bound runs through what they skipped.
    """
    start = _repeat_start(instant, zone)
    if start is not None:
        return start - timedelta(microseconds=1 if inclusive else 0)
    return _skipped(instant, zone) or wall_of(instant, zone)


def _repeat_start(instant: datetime, zone: str) -> datetime | None:
    """Return the first wall-clock time of the interval that clocks show now and will repeat; None if they will not."""
    local = instant.astimezone(ZoneInfo(zone))
    early, late = local.utcoffset(), local.replace(fold=1).utcoffset()
    assert early is not None
    assert late is not None
    if local.fold == 1 or early == late:
        return None
    # The interval is as long as the clocks go back; search its start by bisection, in microseconds.
    low, high = -((early - late) // timedelta(microseconds=1)), 0
    while high - low > 1:
        middle = (low + high) // 2
        if _twofold(local.replace(tzinfo=None) + timedelta(microseconds=middle), zone):
            high = middle
        else:
            low = middle
    return local.replace(tzinfo=None) + timedelta(microseconds=high)


def _skipped(instant: datetime, zone: str) -> datetime | None:
    """Return what clocks would show had they not just gone forward, if no clock ever shows that; else None."""
    before = (instant - _A_DAY_AND_MORE).astimezone(ZoneInfo(zone)).utcoffset()
    assert before is not None
    wall = instant.replace(tzinfo=None) + before
    return wall if wall != wall_of(instant, zone) and _later(wall, zone) == instant else None


def _twofold(wall: datetime, zone: str) -> bool:
    """Check whether a wall-clock time is shown twice, or never."""
    local = wall.replace(tzinfo=ZoneInfo(zone), fold=0)
    return local.utcoffset() != local.replace(fold=1).utcoffset()


def text_bound(instant: datetime, time: Time, *, inclusive: bool) -> TextBound:
    """Return the bound for a column of texts. The comparison inside its second is `<`, or `<=` if inclusive."""
    zone = time.zone or "UTC"
    wall = wall_bound(instant, zone, inclusive=inclusive)
    second = wall.replace(microsecond=0)
    # Just before a repeated interval a text can be finer than a microsecond.
    finest = "999" if inclusive and _repeat_start(instant, zone) is not None else "000"
    return TextBound(
        second=_write(second, time.unit),
        next_second=_write(second + timedelta(seconds=1), time.unit),
        exact=f"{_write(second, time.unit)}.{wall.microsecond:06d}{finest}",
    )


def day_bound(instant: datetime, zone: str | None, *, inclusive: bool) -> date:
    """Return the day n such that a day x has ended before the instant exactly if x < n (inclusive: x <= n)."""
    wall = wall_bound(instant, zone or "UTC", inclusive=inclusive)
    return wall.date() - _A_DAY if inclusive else (wall - timedelta(microseconds=1)).date()


def earliest_wall(zone: str | None) -> datetime:
    """Return the first wall-clock time that is no placeholder: after 1970 began, in that zone and in UTC."""
    first = EARLIEST.replace(tzinfo=None)
    return first if zone is None else max(first, wall_of(EARLIEST, zone))


def earliest_text(time: Time) -> str:
    if time.unit is Unit.DATE:
        return EARLIEST_DAY.isoformat()
    return _write(earliest_wall(time.zone), time.unit)


def _write(wall: datetime, unit: Unit) -> str:
    return wall.isoformat("T" if unit is Unit.ISO else " ", "seconds")


def read_time(value: object, time: Time) -> datetime | None:
    """Return the instant that a column's value means; None if it means none, or one that is not plausible."""
    if time.also:
        if isinstance(value, str) and DIGITS.fullmatch(value):
            value = int(value)
        instants = (read_time(value, one) for one in time.each)
        return next((instant for instant in instants if instant is not None), None)
    instant: datetime | None
    if value is None or isinstance(value, bool):
        return None
    if time.unit in PER_SECOND:
        instant = _from_number(value, time.unit)
    elif time.unit is Unit.DATE:
        instant = _from_day(value, time.zone)
    elif isinstance(value, datetime):
        instant = _from_datetime(value, time)
    else:
        instant = _from_text(value, time)
    return instant if instant is not None and instant >= EARLIEST else None


def read_time_number(number: int | None, time: Time) -> int | datetime | None:
    """Return the value that a column has whose time was written as a whole number: of timestamps, microseconds."""
    if number is None or time.unit in PER_SECOND:
        return number
    instant = from_micros(number)
    return instant if time.zone is None else instant.replace(tzinfo=None)


def _from_number(value: object, unit: Unit) -> datetime | None:
    if not isinstance(value, int | float | Decimal) or value != value or value < SMALLEST[unit]:
        return None
    exact = value if isinstance(value, int) else Decimal(value)
    try:
        return from_micros(round(exact * (1_000_000 // PER_SECOND[unit])))
    except (OverflowError, ValueError):
        return None


def _from_datetime(value: datetime, time: Time) -> datetime | None:
    if value.tzinfo is not None:
        return value.astimezone(UTC)
    return None if time.zone is None else _from_wall(value, time.zone)


def _from_wall(wall: datetime, zone: str | None) -> datetime | None:
    return None if wall < earliest_wall(zone) else _later(wall, zone or "UTC")


def _from_day(value: object, zone: str | None) -> datetime | None:
    """Return the instant at which a day ends: when the next one begins."""
    try:
        if isinstance(value, str) and DAY_SHAPE.fullmatch(value):
            value = date.fromisoformat(value)
        if not isinstance(value, date) or isinstance(value, datetime) or value < EARLIEST_DAY:
            return None
        return _later(datetime.combine(value + _A_DAY, datetime.min.time()), zone or "UTC")
    except (ValueError, OverflowError):
        return None


def month_of(instant: datetime, time: Time) -> str:
    """Return the month of a row with this time, in the time's zone: `2026-01`. A day is in its own month."""
    inside = instant - timedelta(microseconds=1) if time.unit is Unit.DATE else instant
    return f"{inside.astimezone(ZoneInfo(time.zone or 'UTC')):%Y-%m}"


def shown_time(instant: datetime | None, time: Time | None) -> datetime | date | None:
    """Return a row's time as it is shown: of a column of dates the day, whose end is the instant that decides."""
    if instant is None or time is None or time.unit is not Unit.DATE:
        return instant
    return (instant - timedelta(microseconds=1)).astimezone(ZoneInfo(time.zone or "UTC")).date()


def _from_text(value: object, time: Time) -> datetime | None:
    if not isinstance(value, str):
        return None
    match = TEXT_SHAPE.fullmatch(value)
    if match is None or value[10] != ("T" if time.unit is Unit.ISO else " "):
        return None
    naive = time.zone is not None or time.unit is Unit.NATIVE
    if naive == (match["suffix"] is not None):
        return None
    try:
        wall = datetime.fromisoformat(match["second"])
    except ValueError:
        return None
    wall = wall.replace(microsecond=int((match["fraction"] or "0").ljust(9, "0")[:6]))
    return _from_wall(wall, time.zone)


def _later(wall: datetime, zone: str) -> datetime:
    """Return the instant that a wall-clock time means; of two, the later one."""
    local = wall.replace(tzinfo=ZoneInfo(zone))
    return max(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
