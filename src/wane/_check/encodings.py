"""Recognising how a column encodes timestamps, from its values.

Recognition is safe: an encoding is named only if every value read is a timestamp in it, between 1990 and fifty years
from now, so that seconds, milliseconds and microseconds cannot be confused. Anything else is reported as mixed or
unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from wane._contract.model import Time, Unit
from wane._db.timestamps import DAY_SHAPE, TEXT_SHAPE, read_time

_FIRST = datetime(1990, 1, 1, tzinfo=UTC)
_AHEAD = timedelta(days=50 * 365)

NOT_A_TIME = "no timestamp"


def encodings(values: Iterable[object], now: datetime) -> Counter[str]:
    """Count the values by encoding: a unit, "iso without zone", …, or "no timestamp".

    NULL and 0 are left out: neither shows the encoding.
    """
    return Counter(encoding(value, now) for value in values if value is not None and value != 0)


def encoding(value: object, now: datetime) -> str:
    """Return the one encoding in which this value is a timestamp near the present, or "no timestamp"."""
    if isinstance(value, datetime):
        return Unit.NATIVE.value
    if isinstance(value, date) or (isinstance(value, str) and DAY_SHAPE.fullmatch(value)):
        return Unit.DATE.value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        for unit in (Unit.SECONDS, Unit.MILLISECONDS, Unit.MICROSECONDS):
            time = read_time(value, Time("", unit))
            if time is not None and _FIRST <= time <= now + _AHEAD:
                return unit.value
        return NOT_A_TIME
    match = TEXT_SHAPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return NOT_A_TIME
    unit = Unit.ISO if match["second"][10] == "T" else Unit.TEXT
    return unit.value if match["suffix"] else f"{unit.value} without zone"


def declared_encodings(time: Time, store: str) -> list[str]:
    """Return the names that `encoding` gives to values written as declared."""
    return [_declared(one, store) for one in time.each]


def _declared(time: Time, store: str) -> str:
    if time.unit is Unit.NATIVE:
        return Unit.NATIVE.value if store == "postgres" else "text without zone"
    if time.unit in (Unit.ISO, Unit.TEXT) and time.zone is not None:
        return f"{time.unit.value} without zone"
    return time.unit.value


def how_to_declare(found: str) -> str:
    """Return what to write in the contract for values of this encoding."""
    unit, _, naive = found.partition(" ")
    if found == Unit.NATIVE.value:
        return "leave `unit` out"
    return f'unit = "{unit}", zone = "…" (the zone they mean)' if naive else f'unit = "{unit}"'


def unsortable(values: Sequence[object]) -> bool:
    """Check whether texts ending in Z have fractions of different lengths: `…00.500Z` sorts before `…00Z`."""
    lengths = {
        len(match["fraction"] or "")
        for value in values
        if isinstance(value, str) and (match := TEXT_SHAPE.fullmatch(value)) and match["suffix"] == "Z"
    }
    return len(lengths) > 1
