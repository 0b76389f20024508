"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from wane.contract.duration import parse_duration
from wane.errors import WrongArgument
from wane.prune.arguments import require_time


def parse_time(text: str, now: datetime, option: str) -> datetime:
    """Parse an ISO 8601 time (UTC unless it says otherwise), unix seconds, or a duration before now."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        try:
            return require_time(number, option)
        except WrongArgument as problem:
            raise typer.BadParameter(f"{text} is not a plausible time; {problem.hint}", param_hint=option) from None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except ValueError:
        pass
    try:
        return now - parse_duration(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither an ISO 8601 moment nor unix seconds nor a duration such as 7d", param_hint=option
        ) from None
