"""Time on SQLite: the host's clock, kept from running backwards by a mark that the database remembers.

A host whose clock was set back is behind the mark: then time goes on from there at half its speed until the host has caught up. It
neither stands still, which would let no lease end, nor runs backwards, which would give one back its life.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

_STEP = timedelta(seconds=1)
"""The mark is written once in so long, not with every statement: nobody was told more than this beyond it."""
_READ = "SELECT latest, host FROM wane_clock WHERE id = 1"
_BEGIN = "INSERT INTO wane_clock (id, latest, host) VALUES (1, :latest, :host) ON CONFLICT DO NOTHING"
_MOVE = (
    "UPDATE wane_clock SET latest = :latest, host = :host WHERE id = 1 AND latest = :was_latest AND host = :was_host"
)


def steady_now(connection: sqlite3.Connection, host: datetime | None = None) -> datetime:
    """The moment, never before one that anybody was told, unless the host was set back by less than a second.

    `host` is what the host's clock shows, for tests.
    """
    cursor = connection.cursor()
    cursor.row_factory = None
    while True:
        found = cursor.execute(_READ).fetchone()
        # After the mark was read: what others wrote there lies in the past, unless the clock was set back.
        now = host or datetime.now(UTC)
        moment = now
        seen = {"was_latest": None, "was_host": None}
        if found is not None:
            seen = {"was_latest": found[0], "was_host": found[1]}
            latest, marked = (datetime.fromisoformat(one) for one in found)
            moment = latest + _STEP if now < marked else max(now, latest + (now - marked) / 2)
            if marked <= now < marked + _STEP:
                return moment
        mark = {"latest": _text(moment), "host": _text(now)}
        if cursor.execute(_BEGIN if found is None else _MOVE, {**seen, **mark}).rowcount:
            return moment


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
