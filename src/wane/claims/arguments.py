"""Validating arguments: values that no database could store, and values that cannot be meant, are refused at once."""

from __future__ import annotations

from datetime import timedelta

from wane.claims.model import Holding, WorkState
from wane.errors import WrongArgument, WrongArgumentType
from wane.findings import did_you_mean

MOST_BYTES = 1_000
"""The most bytes of a task's id or an owner's name: they are parts of indexes, which have a limit."""
MOST_REASON = 10_000
LONGEST_TTL = timedelta(days=366)
SHORTEST_TTL = timedelta(milliseconds=1)
LONGEST_WINDOW = timedelta(days=36_525)
MOST_LISTED = 10_000


def require_name(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise WrongArgumentType(f"{name} must be a text, not {value!r}")
    if not value.strip():
        raise WrongArgument(f"{name} is empty")
    _require_storable(value, name)
    size = len(value.encode())
    if size > MOST_BYTES:
        raise WrongArgument(f"{name} has {size:,} bytes, and {MOST_BYTES:,} are the most", "use a digest of it")
    return value


def require_reason(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise WrongArgumentType(f"reason must be a text, not {value!r}")
    _require_storable(value, "reason")
    if len(value) > MOST_REASON:
        raise WrongArgument(f"reason has {len(value):,} characters, and {MOST_REASON:,} are the most")
    return value


def _require_storable(value: str, name: str) -> None:
    if "\x00" in value:
        raise WrongArgument(f"{name} has a NUL character in it, which no database keeps")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongArgument(f"{name} has half a character in it (a surrogate)") from None


def require_ttl(value: object) -> timedelta:
    """Validate how long a claim lasts: a timedelta, or seconds."""
    ttl = _duration(value, "ttl")
    if ttl < SHORTEST_TTL:
        raise WrongArgument(f"ttl must be a millisecond or longer, not {value!r}")
    if ttl > LONGEST_TTL:
        raise WrongArgument(f"ttl must not be longer than {LONGEST_TTL.days} days, not {value!r}", "extend the claim")
    return ttl


def require_window(value: object, name: str) -> timedelta:
    if not isinstance(value, timedelta):
        raise WrongArgumentType(f"{name} must be a timedelta, not {value!r}")
    if value <= timedelta(0):
        raise WrongArgument(f"{name} must be longer than nothing, not {value!r}")
    if value > LONGEST_WINDOW:
        raise WrongArgument(f"{name} is longer than a century: {value!r}")
    return value


def require_hours(value: object, name: str) -> timedelta:
    """Validate the age in hours from which rows of a state may be vacuumed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongArgumentType(f"{name} must be a number of hours, not {value!r}")
    if not value > 0:  # This refuses NaN, too.
        raise WrongArgument(f"{name} must be more than 0 hours, not {value!r}", "168 is a week")
    if value > LONGEST_WINDOW / timedelta(hours=1):
        raise WrongArgument(f"{name} is more than a century")
    return timedelta(hours=value)


def require_holding(value: object) -> Holding:
    if not isinstance(value, Holding):
        raise WrongArgumentType(
            f"a claim is needed, not {value!r}", "pass what claim() returned, or a Holding(task_id, owner, fence)"
        )
    require_name(value.task_id, "task_id")
    require_name(value.owner, "owner")
    if isinstance(value.fence, bool) or not isinstance(value.fence, int):
        raise WrongArgumentType(f"fence must be a whole number, not {value.fence!r}")
    if not 0 < value.fence < 2**63:
        raise WrongArgument(f"{value.fence} was never a fence")
    return value


def require_state(value: object) -> WorkState:
    if not isinstance(value, str):
        raise WrongArgumentType(f"state must be a text, not {value!r}")
    names = [state.value for state in WorkState]
    if value not in names:
        raise WrongArgument(f"there is no state {value!r}", did_you_mean(value, names) or f"states: {', '.join(names)}")
    return WorkState(value)


def _duration(value: object, name: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongArgumentType(f"{name} must be a timedelta or seconds, not {value!r}")
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise WrongArgument(f"{name} is no duration: {value!r}") from None
