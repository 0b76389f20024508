"""Times of archived rows, column by column: which rows lie before a cutoff, in a month.

`wane._db.timestamps` defines what a value means. Whole numbers, timestamps, days and texts in UTC are
computed as columns; encodings that need a zone's clocks, or mix several, value by value, each value once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.rows.content import whole
from wane._contract.model import Time, Unit
from wane._db.timestamps import EARLIEST, EARLIEST_DAY, EPOCH, PER_SECOND, SMALLEST, micros, month_of, read_time

_SECOND, _DAY = 1_000_000, 86_400_000_000
_LAST = micros(datetime.max.replace(tzinfo=UTC))
_SUFFIX = {True: "", False: r"(Z|\+00:00)"}


def before(column: Any, time: Time, cutoff: datetime, month: str) -> Any:
    """Decide which values mean an instant before the cutoff, and in that month; never one that means none."""
    values = whole(column)
    instants = _instants(values, time)
    if instants is None:
        return _each(values, time, cutoff, month)
    # A day means the instant at which it ends, which is the first of the next month for the last day of one.
    inside = pc.subtract(instants, 1 if time.unit is Unit.DATE else 0)
    first = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    end = (first + timedelta(days=32)).replace(day=1)
    due = pc.less(instants, micros(cutoff))
    within = pc.and_(pc.greater_equal(inside, micros(first)), pc.less(inside, micros(end)))
    return pc.and_(due, within).fill_null(pa.scalar(value=False))


def _each(values: Any, time: Time, cutoff: datetime, month: str) -> Any:
    def goes(value: object) -> bool:
        instant = read_time(value, time)
        return instant is not None and instant < cutoff and month_of(instant, time) == month

    found = pc.unique(values)
    chosen = found.filter(pa.array([goes(value) for value in found.to_pylist()], pa.bool_()))
    return pc.is_in(values, chosen)


def _instants(values: Any, time: Time) -> Any:
    """Return microseconds since 1970, NULL where a value means no instant; None if that needs more than arithmetic."""
    kind = values.type
    if time.zone is not None or time.also:
        return None
    if time.unit in PER_SECOND:
        return _numbers(values, time.unit) if pa.types.is_integer(kind) else None
    if time.unit is Unit.DATE:
        return _days(values) if pa.types.is_date32(kind) else None
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _plausible(values.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    return _texts(values, time.unit) if pa.types.is_string(kind) else None


def _numbers(values: Any, unit: Unit) -> Any:
    size = _SECOND // PER_SECOND[unit]
    numbers = values.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(numbers, SMALLEST[unit]), pc.less_equal(numbers, _LAST // size))
    return _plausible(pc.multiply(pc.if_else(fits, numbers, None), size))


def _days(values: Any) -> Any:
    days = values.cast(pa.int32()).cast(pa.int64())
    fits = pc.and_(pc.greater_equal(days, (EARLIEST_DAY - EPOCH.date()).days), pc.less(days, _LAST // _DAY))
    return pc.multiply(pc.add(pc.if_else(fits, days, None), 1), _DAY)


def _texts(values: Any, unit: Unit) -> Any:
    separator = "T" if unit is Unit.ISO else " "
    shape = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{separator}[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,9}})?"
    written = pc.match_substring_regex(values, shape + _SUFFIX[unit is Unit.NATIVE] + r"\z")
    texts = pc.if_else(written, values, None)
    format_ = f"%Y-%m-%d{separator}%H:%M:%S"
    text = pc.utf8_slice_codeunits(texts, 0, 19)
    second = pc.strptime(text, format=format_, unit="s", error_is_null=True)
    # What is no time of any day, as 30 February, would become another one.
    second = pc.if_else(pc.equal(pc.strftime(second, format=format_), text), second, None)
    digits = pc.utf8_rtrim(pc.utf8_slice_codeunits(texts, 20, 26), "Z+:0")
    fraction = pc.utf8_rpad(pc.if_else(pc.equal(pc.utf8_slice_codeunits(texts, 19, 20), "."), digits, ""), 6, "0")
    return _plausible(pc.add(pc.multiply(second.cast(pa.int64()), _SECOND), fraction.cast(pa.int64())))


def _plausible(instants: Any) -> Any:
    return pc.if_else(pc.greater_equal(instants, micros(EARLIEST)), instants, None)
