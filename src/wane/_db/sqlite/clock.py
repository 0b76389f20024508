"""Time on SQLite: the host's clock, prevented from running backwards by a mark stored in the database.

A host whose clock was set back is behind the mark: then time goes on from there at half its speed until the host has
caught up. It neither stops, which would let no lease end, nor runs backwards, which would revive an ended one.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

from wane._frozen import frozen

_STEP = timedelta(seconds=1)
"""The mark is written once per step, not with every statement: no time further than this beyond it was ever
returned."""
_READ = "SELECT latest, host FROM wane_clock WHERE id = 1"
_BEGIN = "INSERT INTO wane_clock (id, latest, host) VALUES (1, :latest, :host) ON CONFLICT DO NOTHING"
_MOVE = (
    "UPDATE wane_clock SET latest = :latest, host = :host WHERE id = 1 AND latest = :was_latest AND host = :was_host"
)


UNMARKED: dict[str, object] = {"mark_latest": None, "mark_host": None}
"""What a statement with `SAME_MARK` binds inside a transaction, where no other connection moves the mark."""
SAME_MARK = (
    "(:mark_latest IS NULL OR EXISTS (SELECT 1 FROM wane_clock WHERE id = 1 AND latest = :mark_latest"
    " AND host = :mark_host))"
)
"""The condition that the mark is still the one by which a statement's time was computed."""


@frozen
class ClockMark:
    """The mark as it was read: for as long as no connection moves it, it makes a time of the host's clock."""

    latest: datetime
    host: datetime
    bound: dict[str, object]
    """What `SAME_MARK` binds."""

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> ClockMark | None:
        """Read the mark; None if there is none yet."""
        found = connection.execute(_READ).fetchone()
        if found is None:
            return None
        latest, host = (datetime.fromisoformat(one) for one in found)
        return cls(latest, host, {"mark_latest": found[0], "mark_host": found[1]})

    def now(self) -> datetime | None:
        """Return the time, as `steady_now` does; None if the mark must be moved first."""
        host = datetime.now(UTC)
        return max(host, self.latest + (host - self.host) / 2) if self.host <= host < self.host + _STEP else None


def steady_now(connection: sqlite3.Connection, host: datetime | None = None, *, mark: bool = True) -> datetime:
    """Return the time, never before one returned earlier, unless the host was set back by less than a second.

    Without `mark` it writes nothing, so that reading the time needs no write lock. `host` is the time of the host's
    clock, for tests.
    """
    cursor = connection.cursor()
    cursor.row_factory = None
    while True:
        found = cursor.execute(_READ).fetchone()
        # After the mark was read: what others wrote there is in the past, unless the clock was set back.
        now = host or datetime.now(UTC)
        adjusted = now
        seen = {"was_latest": None, "was_host": None}
        if found is not None:
            seen = {"was_latest": found[0], "was_host": found[1]}
            latest, marked = (datetime.fromisoformat(one) for one in found)
            adjusted = latest + _STEP if now < marked else max(now, latest + (now - marked) / 2)
            if marked <= now < marked + _STEP:
                return adjusted
        if not mark:
            return adjusted
        values = {**seen, "latest": _text(adjusted), "host": _text(now)}
        if cursor.execute(_BEGIN if found is None else _MOVE, values).rowcount:
            return adjusted


def _text(adjusted: datetime) -> str:
    return adjusted.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
