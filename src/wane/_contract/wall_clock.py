"""The instants at which the clocks of a zone show a time.

Clocks go forward and back. A time that they skip counts as the first one that they show afterwards, and a time that
they show twice as the first of the two, so every time of a day happens exactly once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_SECOND = timedelta(seconds=1)


def wall_of(instant: datetime, zone: str) -> datetime:
    """Return what the clocks of a zone show, without a zone."""
    return instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def instant_of(wall: datetime, zone: str) -> datetime:
    """Return when the clocks of a zone show a whole second, in UTC."""
    local = wall.replace(tzinfo=ZoneInfo(zone), fold=0)
    instant = local.astimezone(UTC)
    if wall_of(instant, zone) == wall:
        return instant
    # Skipped: as the clocks before and after the change count, it lies on either side of the change.
    return _change(local.replace(fold=1).astimezone(UTC), instant, zone)


def _change(before: datetime, after: datetime, zone: str) -> datetime:
    """Find the second at which the clocks of a zone change, between two instants, by bisection."""
    offset = before.astimezone(ZoneInfo(zone)).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(ZoneInfo(zone)).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
