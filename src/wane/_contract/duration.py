"""Durations as words: `"90d"`, `"168h"`, `"7 days"`, `"1d 12h"`, and `"forever"`.

Durations are exact and whole, in units of fixed length; a month has no fixed length, so it is not a unit. Parsing fails
closed: a bare number, zero, a negative number, a fraction or an empty text is refused, because a guessed window deletes
rows.
"""

from __future__ import annotations

import re
from datetime import timedelta

from wane._contract.refused import Refused, written
from wane._frozen import frozen


@frozen
class Forever:
    """A window of rows that stay, on purpose."""


FOREVER = Forever()

_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
_WORDS = {
    word: short
    for short, words in {
        "w": "w week weeks",
        "d": "d day days",
        "h": "h hr hour hours",
        "m": "m min minute minutes",
        "s": "s sec second seconds",
        "ms": "ms millisecond milliseconds",
        "us": "us microsecond microseconds",
    }.items()
    for word in words.split()
}
PATTERN = rf"^(?=.*[1-9])(\s*[0-9]+\s*({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?![a-z]))+\s*$"
"""The part of a duration's syntax that an editor can check by itself."""
_PART = re.compile(r"\s*(?P<number>[0-9]+)\s*(?P<unit>[a-z]+)\s*")
_EXAMPLES = 'for example "90d", "168h" or "1d 12h"'
LONGEST = timedelta(days=365 * 1000)
"""The longest duration. A longer one is a typing error; "forever" expresses the intent."""
_MOST_DIGITS = 20
"""More digits than any duration up to the longest has, in microseconds."""


def parse_duration(text: object) -> timedelta:
    """Parse a duration; raise ValueError with what to write instead."""
    if isinstance(text, bool) or not isinstance(text, str):
        if isinstance(text, int | float) and not isinstance(text, bool):
            raise Refused(f"{text!r} has no unit", f"write a number and a unit in quotes, {_EXAMPLES}")
        raise Refused(f"{written(text)} is not a duration", f"write a number and a unit in quotes, {_EXAMPLES}")
    total = timedelta()
    position = 0
    seen: set[str] = set()
    while position < len(text) or not text:
        part = _PART.match(text, position)
        if part is None:
            raise _complaint(text)
        unit = _WORDS.get(part["unit"])
        if unit is None:
            raise _unknown_unit(text, part["unit"])
        if unit in seen:
            raise Refused(f"{text!r} names the unit {unit!r} twice", "add the two up")
        seen.add(unit)
        number = part["number"].lstrip("0") or "0"
        if len(number) > _MOST_DIGITS:
            raise _too_long(text)
        try:
            total += int(number) * _UNITS[unit]
        except OverflowError:
            raise _too_long(text) from None
        position = part.end()
    if not total:
        raise Refused(f"{text!r} is zero", f"write a duration longer than zero, {_EXAMPLES}")
    if total > LONGEST:
        raise _too_long(text)
    return total


def _too_long(text: str) -> Refused:
    return Refused(f"{text!r} is longer than {LONGEST.days} days", 'write "forever" if that is meant')


def _complaint(text: str) -> Refused:
    if not text.strip():
        return Refused("empty", f"no threshold, no deletion; write {_EXAMPLES}")
    if text.strip().startswith("-"):
        return Refused(f"{text!r} is negative", f"write a duration longer than zero, {_EXAMPLES}")
    if re.fullmatch(r"\s*[0-9.]+\s*", text):
        return Refused(f"{text!r} has no unit", f"write a number and a unit, {_EXAMPLES}")
    if "." in text:
        return Refused(f"{text!r} has a fraction", 'write whole numbers, for example "1d 12h" for one and a half days')
    return Refused(f"{text!r} is not a duration", f"write a number and a unit, {_EXAMPLES}")


def _unknown_unit(text: str, unit: str) -> Refused:
    if unit.startswith(("month", "mo", "year", "y", "q")):
        return Refused(f"{text!r} counts in {unit!r}, which has no exact length", "write days, for example 30d or 365d")
    return Refused(f"{text!r} has the unknown unit {unit!r}", "use w, d, h, m, s, ms or us")


def format_duration(duration: timedelta) -> str:
    """Return the shortest text that parse_duration reads back as the same duration, with days as the largest unit."""
    micros = duration // timedelta(microseconds=1)
    if micros <= 0:
        raise ValueError("only durations longer than zero can be written")
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        size = _UNITS[unit] // timedelta(microseconds=1)
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)
