"""Time on SQLite: the host's clock, kept from running backwards by the latest moment that the database remembers."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

_AHEAD = timedelta(seconds=1)
"""The mark is written a second ahead, so that it is written once a second and not with every statement."""
_READ = "SELECT latest FROM wane_clock WHERE id = 1"
_WRITE = (
    "INSERT INTO wane_clock (id, latest) VALUES (1, :latest)"
    " ON CONFLICT (id) DO UPDATE SET latest = max(latest, excluded.latest)"
)


def steady_now(connection: sqlite3.Connection, host: datetime | None = None) -> datetime:
    """The moment. If the host's clock was set back by more than a second, the latest moment anybody can have been told."""
    now = host or datetime.now(UTC)
    cursor = connection.cursor()
    cursor.row_factory = None
    found = cursor.execute(_READ).fetchone()
    mark = None if found is None else datetime.fromisoformat(found[0])
    if mark is not None and now + _AHEAD < mark:
        return mark
    if mark is None or now > mark:
        cursor.execute(_WRITE, {"latest": (now + _AHEAD).strftime("%Y-%m-%dT%H:%M:%S.%fZ")})
    return now
