"""Checking what callers pass: a typing mistake must not become a deletion."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from wane.contract.model import State
from wane.errors import WrongArgument, WrongArgumentType

MOST_ROWS = 100_000
"""The most rows that one call may take: it is one transaction."""


def require_limit(limit: object, most: int = MOST_ROWS) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise WrongArgumentType(f"limit must be a whole number, not {limit!r}")
    if not 1 <= limit <= most:
        raise WrongArgument(f"limit must be from 1 to {most:,}, not {limit}", "take more in several calls, or sweep")
    return limit


def require_states(states: object) -> tuple[State, ...]:
    if isinstance(states, str | bytes) or not isinstance(states, Sequence | set | frozenset):
        raise WrongArgumentType(f"states must be a list, not {states!r}", f"write [{states!r}]")
    found = tuple(states)
    if not found:
        raise WrongArgument("states is empty: name at least one")
    for state in found:
        if not isinstance(state, str | int | bool):
            raise WrongArgumentType(f"{state!r} is not a state: use texts, whole numbers or booleans")
    return tuple(dict.fromkeys(found))


def require_time(moment: object, name: str = "older_than") -> datetime:
    """Return an aware UTC datetime from an aware datetime or unix seconds; raise for anything else."""
    if isinstance(moment, bool) or not isinstance(moment, datetime | int | float):
        raise WrongArgumentType(f"{name} must be an aware datetime or unix seconds, not {moment!r}")
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise WrongArgument(f"{name} has no zone: {moment}", "pass an aware datetime, for example in UTC")
        return moment.astimezone(UTC)
    try:
        found = datetime.fromtimestamp(moment, UTC)
    except (OverflowError, ValueError, OSError):
        raise WrongArgument(f"{name} is not a moment: {moment!r}", "pass unix seconds, not milliseconds") from None
    if found.year >= 2200 or moment < 0:
        raise WrongArgument(
            f"{name} is not a plausible time: {moment!r}", "expected 1970 to 2200; pass unix seconds, not milliseconds"
        )
    return found
