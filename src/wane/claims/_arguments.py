"""Checking the arguments of work claims: see `wane._arguments`."""

from __future__ import annotations

from datetime import timedelta

from wane._arguments import (
    require_duration,
    require_name,
    require_number,
    require_positive,
    require_text,
    require_whole,
)
from wane._findings import did_you_mean
from wane.claims._model import Holding, WorkState
from wane.errors import WrongArgument, WrongArgumentType

MOST_LISTED = 10_000
_MOST_BYTES = 1_000
"""The most bytes of a task's id or an owner's name: they are parts of indexes, which have a limit."""
_MOST_REASON = 10_000
_SHORTEST_TTL, _LONGEST_TTL = timedelta(milliseconds=1), timedelta(days=366)
_CENTURY = timedelta(days=36_525)


def require_id(name: str, value: object) -> str:
    """Return the id of a task, or the name of an owner; raise otherwise."""
    text = require_name(name, value, most_bytes=_MOST_BYTES)
    if not text.strip():
        raise WrongArgument(f"{name} is blank")
    return text


def require_reason(value: object) -> str | None:
    """Return a reason, or None for none; raise for anything else."""
    return None if value is None else require_text("reason", value, most=_MOST_REASON, least=0)


def require_ttl(value: object) -> timedelta:
    """Return how long a claim lasts, from a timedelta or seconds; raise for anything else."""
    if not isinstance(value, timedelta):
        seconds = require_number("ttl", value, unit="seconds, or a timedelta")
        try:
            value = timedelta(seconds=seconds)
        except (OverflowError, ValueError):
            raise WrongArgument(f"ttl is no duration: {value!r}") from None
    return require_duration("ttl", value, least=_SHORTEST_TTL, most=_LONGEST_TTL, hint="extend the claim")


def require_window(name: str, value: object) -> timedelta:
    """Return how long finished work is remembered; raise otherwise."""
    return require_duration(name, value, least=timedelta.resolution, most=_CENTURY)


def require_hours(name: str, value: object) -> timedelta:
    """Return the age from which rows of a state may be vacuumed, from hours; raise otherwise."""
    hours = require_positive(name, value, unit="hours", hint="168 is a week")
    if hours > _CENTURY / timedelta(hours=1):
        raise WrongArgument(f"{name} is more than a century")
    return timedelta(hours=hours)


def require_holding(value: object) -> Holding:
    """Return what identifies a claim, if every part of it is possible; raise otherwise."""
    if not isinstance(value, Holding):
        raise WrongArgumentType(
            f"a claim is needed, not {value!r}", "pass what claim() returned, or a Holding(task_id, owner, fence)"
        )
    require_id("task_id", value.task_id)
    require_id("owner", value.owner)
    if not 0 < require_whole("fence", value.fence) < 2**63:
        raise WrongArgument(f"{value.fence} is not a valid fence")
    return value


def require_state(value: object) -> WorkState:
    """Return a state of work by its name; raise with the nearest name otherwise."""
    if not isinstance(value, str):
        raise WrongArgumentType(f"state must be a text, not {value!r}")
    names = [state.value for state in WorkState]
    if value not in names:
        raise WrongArgument(f"there is no state {value!r}", did_you_mean(value, names) or f"states: {', '.join(names)}")
    return WorkState(value)
