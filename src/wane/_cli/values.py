"""Times, durations and keys as people type them."""

from __future__ import annotations

from datetime import datetime, timedelta

import typer

from wane._arguments import parse_iso, require_time
from wane._contract.duration import parse_duration
from wane.errors import WrongArgument

_LEAST_UNIX_SECONDS = 100_000_000
"""A smaller number, which would be in 1973 or before, is a duration without its unit."""


def parse_time(text: str, now: datetime, option: str) -> datetime:
    """Parse an ISO 8601 time (UTC unless it has a zone), unix seconds, or a duration before now."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if 0 <= number < _LEAST_UNIX_SECONDS:
            message = f"{text} has no unit, and as unix seconds it is in {1970 + int(number // 31_557_600)}; for days write {text}d"
            raise typer.BadParameter(message, param_hint=option)
        try:
            return require_time(option, number)
        except WrongArgument as problem:
            raise typer.BadParameter(f"{text} is not a plausible time; {problem.hint}", param_hint=option) from None
    try:
        return now - parse_duration(text)
    except ValueError:
        pass
    try:
        return parse_iso(option, text)
    except WrongArgument:
        raise typer.BadParameter(
            f"{text!r} is neither an ISO 8601 time nor unix seconds nor a duration such as 7d", param_hint=option
        ) from None


def parse_end(text: str, now: datetime, option: str) -> datetime:
    """Parse a time, or a duration from now on."""
    try:
        return now + parse_duration(text)
    except ValueError:
        return parse_time(text, now, option)


def parse_length(text: str, option: str) -> timedelta:
    """Parse a duration."""
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} is no duration such as 7d: {problem}", param_hint=option) from None


def parse_key(text: str) -> tuple[str, str]:
    """Parse `COLUMN=VALUE`."""
    column, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not COLUMN=VALUE", param_hint="--key")
    return column.strip(), value
