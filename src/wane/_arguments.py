"""Checking what callers pass: wrong types, and values that no store can hold or that cannot be meant.

A typing mistake must not become a deletion. Every message names the argument. A text that is refused is not repeated:
it may be a token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from wane._contract.duration import format_duration
from wane._contract.model import State
from wane.errors import WrongArgument, WrongArgumentType

MOST_ROWS = 100_000
"""The most rows that one call may take: it is one transaction."""
MOST_NAME_BYTES = 800
"""The most bytes of a name. PostgreSQL indexes three of them in one entry, which holds at most 2,700 bytes."""
LONGEST = timedelta(days=3_650)
"""The longest duration, unless an argument allows a longer one."""


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def require_text(name: str, value: object, *, most: int = 1_000, least: int = 1) -> str:
    """Return a text that every store can hold; raise otherwise."""
    if not isinstance(value, str):
        raise WrongArgumentType(f"{name} must be a text, not {type(value).__name__}")
    if _UNSTORABLE.search(value):
        raise WrongArgument(f"{name} has a character that no database stores: NUL, or half of a surrogate pair")
    if not least <= len(value) <= most:
        raise WrongArgument(f"{name} must have {least} to {most:,} characters, not {len(value):,}")
    return value


def require_name(name: str, value: object, *, most_bytes: int = MOST_NAME_BYTES) -> str:
    """Return a text that every store can index; raise otherwise."""
    # Most names are ASCII, which has a byte for each character and no half of a pair.
    if isinstance(value, str) and value.isascii() and 0 < len(value) <= most_bytes and "\0" not in value:
        return value
    text = require_text(name, value, most=most_bytes)
    if (size := len(text.encode())) > most_bytes:
        raise WrongArgument(
            f"{name} must have at most {most_bytes:,} bytes of UTF-8, not {size:,}", "use a digest of it"
        )
    return text


def require_whole(name: str, value: object) -> int:
    """Return a whole number; raise for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongArgumentType(f"{name} must be a whole number, not {value!r}")
    return value


def require_count(name: str, value: object, most: int = 1_000, *, least: int = 1, hint: str = "") -> int:
    """Return a whole number within bounds; raise otherwise."""
    count = require_whole(name, value)
    if not least <= count <= most:
        raise WrongArgument(f"{name} must be from {least:,} to {most:,}, not {count:,}", hint)
    return count


def require_at_least_one(name: str, value: int | None) -> None:
    """Raise for a number below 1; None is no limit."""
    if value is not None and value < 1:
        raise WrongArgument(f"{name} must be at least 1, not {value}")


def require_limit(limit: object, most: int = MOST_ROWS) -> int:
    """Return the most rows that a call takes; raise for what is out of bounds."""
    return require_count("limit", limit, most, hint="take more in several calls, or sweep")


def require_flag(name: str, value: object) -> bool:
    """Return True or False; raise for anything else."""
    if not isinstance(value, bool):
        raise WrongArgumentType(f"{name} must be True or False, not {value!r}")
    return value


def require_number(name: str, value: object, *, unit: str, hint: str = "") -> float:
    """Return a number; raise for anything else, booleans included. It may be infinite, or not a number (NaN)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongArgumentType(f"{name} must be a number of {unit}, not {value!r}", hint)
    return value


def require_positive(name: str, value: object, *, unit: str, hint: str = "") -> float:
    """Return a number above zero that is not infinite; raise otherwise."""
    number = require_number(name, value, unit=unit)
    if not 0 < number < float("inf"):  # Written so that NaN is refused too.
        raise WrongArgument(f"{name} must be a number of {unit} above zero, not {value!r}", hint)
    return number


def require_timeout(name: str, value: object) -> float | None:
    """Return a number of seconds, or None for no end; raise for anything else."""
    if value is None:
        return None
    seconds = require_number(name, value, unit="seconds")
    if not 0 <= seconds <= LONGEST.total_seconds():  # Written so that NaN is refused too.
        raise WrongArgument(f"{name} must be from 0 seconds to {LONGEST.days} days, not {value} seconds")
    return float(seconds)


def require_duration(
    name: str, value: object, *, least: timedelta = timedelta(0), most: timedelta = LONGEST, hint: str = ""
) -> timedelta:
    """Return a timedelta within bounds; raise otherwise."""
    if not isinstance(value, timedelta):
        raise WrongArgumentType(f"{name} must be a timedelta, not {value!r}")
    if not least <= value <= most:
        shortest = format_duration(least) if least else "0s"
        raise WrongArgument(f"{name} must be from {shortest} to {format_duration(most)}, not {value}", hint)
    return value


def require_states(states: object) -> tuple[State, ...]:
    """Return states, each once; raise for anything but a list of at least one."""
    if isinstance(states, str | bytes) or not isinstance(states, Sequence | set | frozenset):
        raise WrongArgumentType(f"states must be a list, not {states!r}", f"write [{states!r}]")
    found = tuple(states)
    if not found:
        raise WrongArgument("states is empty: name at least one")
    for state in found:
        if not isinstance(state, str | int | bool):
            raise WrongArgumentType(f"{state!r} is not a state: use texts, whole numbers or booleans")
    return tuple(dict.fromkeys(found))


def require_time(name: str, value: object) -> datetime:
    """Return an aware UTC datetime from an aware datetime or unix seconds; raise for anything else."""
    if isinstance(value, bool) or not isinstance(value, datetime | int | float):
        raise WrongArgumentType(f"{name} must be an aware datetime or unix seconds, not {value!r}")
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise WrongArgument(f"{name} has no zone: {value}", "pass an aware datetime, for example in UTC")
        return value.astimezone(UTC)
    try:
        found = datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError):
        raise WrongArgument(f"{name} is not a timestamp: {value!r}", "pass unix seconds, not milliseconds") from None
    if found.year >= 2200 or value < 0:
        raise WrongArgument(
            f"{name} is not a plausible time: {value!r}", "expected 1970 to 2200; pass unix seconds, not milliseconds"
        )
    return found


def time_before(now: datetime, seconds: float) -> datetime:
    """Return the time some seconds before now; raise WrongArgument if there is no such time."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        raise WrongArgument(f"{seconds!r} seconds before now is outside the supported range of timestamps") from None


def parse_iso(name: str, text: str, *, zoned: bool = False) -> datetime:
    """Return the UTC datetime of an ISO 8601 text: a time, or a day, which is its midnight; in UTC if it has no zone.

    Raise WrongArgument for anything else; `zoned`: also for a time without a zone.
    """
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongArgument(f"{name} is not a timestamp in ISO 8601", "write 2026-01-31T00:00:00Z") from None
    if zoned and len(text) > len("2026-01-31"):
        raise WrongArgument(f"{name} has no zone: {found}", "write it with one: 2026-01-31T00:00:00Z")
    return found.replace(tzinfo=UTC)
