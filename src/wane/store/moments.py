"""Moments and the ways that columns write them.

A moment is an aware UTC datetime. A column may write it as a number, as text, or natively, and with or without a zone. This
module turns a moment into the value to compare a column with, and a column's value back into a moment. It is pure: what the
comparison looks like in SQL is the stores' business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from wane.contract.model import Time, Unit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = EPOCH + timedelta(seconds=1)
"""No row is older than this. What claims to be is a placeholder (0, 0001-01-01, -infinity) and never due."""

PER_SECOND = {Unit.SECONDS: 1, Unit.MILLISECONDS: 1_000, Unit.MICROSECONDS: 1_000_000}
SMALLEST = {Unit.SECONDS: 1, Unit.MILLISECONDS: 100_000_000_000, Unit.MICROSECONDS: 100_000_000_000_000}
"""The smallest plausible number of each unit. Seconds in a column of milliseconds, and milliseconds in one of microseconds, lie
below it; so do placeholders. All but the first mean 3 March 1973."""

TEXT_SHAPE = re.compile(
    r"(?P<second>\d{4}-[01]\d-[0-3]\d[T ][0-2]\d:[0-5]\d:[0-6]\d)(?:\.(?P<fraction>\d{1,9}))?(?P<suffix>Z|\+00:00)?"
)


@dataclass(frozen=True, slots=True)
class TextBound:
    """What a text column is compared with.

    Texts of different fraction lengths do not sort like the moments they mean (`…00.500Z` before `…00Z`), so the second decides, and
    only inside the bound's own second the fraction, padded to nine digits.
    """

    second: str
    """The bound's second: 19 characters."""
    next_second: str
    exact: str
    """The bound with nine digits of fraction and no suffix."""


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_micros(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)


def number_bound(moment: datetime, unit: Unit, *, inclusive: bool) -> int:
    """The whole number n so that a whole number x means a moment before the bound exactly if x < n (inclusive: x <= n)."""
    size = 1_000_000 // PER_SECOND[unit]
    count = micros(moment)
    return count // size if inclusive else -(-count // size)


def fraction_bound(moment: datetime, unit: Unit) -> Decimal:
    """The bound as an exact number, for columns that hold fractions."""
    return Decimal(micros(moment)) * PER_SECOND[unit] / 1_000_000


def wall_bound(moment: datetime, zone: str, *, inclusive: bool) -> datetime:
    """The naive wall-clock time to compare wall-clock times of a zone with.

    A wall-clock time that happens twice, when clocks go back, counts as the later of the two: a row leaves late rather than early.
    While clocks show such an hour for the first time, the bound stands still at its beginning.
    """
    place = ZoneInfo(zone)
    local = moment.astimezone(place)
    wall = local.replace(tzinfo=None, fold=0)
    later = local.replace(fold=1)
    ambiguous = local.fold == 0 and later.utcoffset() != local.utcoffset() and _exists(local)
    if not ambiguous:
        return wall
    return _start_of_repeat(local) - timedelta(microseconds=1 if inclusive else 0)


def _exists(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo) == local


def _start_of_repeat(local: datetime) -> datetime:
    """The first wall-clock time of the repeated stretch that `local` is in for the first time."""
    early, late = local.utcoffset(), local.replace(fold=1).utcoffset()
    assert early is not None
    assert late is not None
    # The stretch is as long as the clocks go back; search its start by halving, in microseconds.
    length = (early - late) // timedelta(microseconds=1)
    low, high = -length, 0
    while high - low > 1:
        middle = (low + high) // 2
        if _repeated(local, middle):
            high = middle
        else:
            low = middle
    return (local.replace(tzinfo=None) + timedelta(microseconds=high)).replace(fold=0)


def _repeated(local: datetime, offset_us: int) -> bool:
    wall = local.replace(tzinfo=None) + timedelta(microseconds=offset_us)
    first = wall.replace(tzinfo=local.tzinfo, fold=0)
    return first.utcoffset() != first.replace(fold=1).utcoffset()


def text_bound(moment: datetime, time: Time, *, inclusive: bool) -> TextBound:
    """The bound for a column of texts. The comparison inside its second is `<`, or `<=` if inclusive."""
    wall = wall_bound(moment, time.zone or "UTC", inclusive=inclusive)
    second = wall.replace(microsecond=0)
    return TextBound(
        second=_write(second, time.unit),
        next_second=_write(second + timedelta(seconds=1), time.unit),
        exact=f"{_write(second, time.unit)}.{wall.microsecond:06d}000",
    )


def earliest_text(time: Time) -> str:
    return _write(EARLIEST.replace(tzinfo=None), time.unit)


def _write(wall: datetime, unit: Unit) -> str:
    return wall.isoformat("T" if unit is Unit.ISO else " ", "seconds")


def read_moment(value: object, time: Time) -> datetime | None:
    """The moment that a column's value means; None if it means none, or one that is not plausible."""
    moment: datetime | None
    if value is None or isinstance(value, bool):
        return None
    if time.unit in PER_SECOND:
        moment = _from_number(value, time.unit)
    elif isinstance(value, datetime):
        moment = _from_datetime(value, time)
    else:
        moment = _from_text(value, time)
    return moment if moment is not None and moment >= EARLIEST else None


def _from_number(value: object, unit: Unit) -> datetime | None:
    if not isinstance(value, int | float | Decimal) or value != value or value < SMALLEST[unit]:
        return None
    try:
        return from_micros(int(value * (1_000_000 // PER_SECOND[unit])))
    except (OverflowError, ValueError):
        return None


def _from_datetime(value: datetime, time: Time) -> datetime | None:
    if value.tzinfo is not None:
        return value.astimezone(UTC)
    return None if time.zone is None else _later(value, time.zone)


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
    return _later(wall, time.zone or "UTC")


def _later(wall: datetime, zone: str) -> datetime:
    return wall.replace(tzinfo=ZoneInfo(zone), fold=1).astimezone(UTC)
