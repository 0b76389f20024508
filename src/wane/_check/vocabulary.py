"""The words in names of columns, and what they hint at.

A hint decides which columns are read first and which are preferred; what a column holds is decided by its values.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


def words(name: str) -> list[str]:
    """Split a name in snake_case or camelCase into its words, in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def last_word(name: str) -> str:
    """Return the word that names what the column is: the last one that is not a unit."""
    found = words(name)
    while len(found) > 1 and found[-1] in UNITS:
        found.pop()
    return found[-1] if found else ""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNITS = _set("ms us s sec secs seconds millis micros milliseconds microseconds utc epoch unix tz")

TIMES = _set(
    "at on ts time date datetime timestamp when until since created updated modified expires expiry expiration deadline"
    " seen"
)

EXPIRIES = _set("expires expire expiry expiration expiring lease until")

WORK = _set("lease leased claim claimed lock locked visible invisible visibility reserved")
"""A lease or claim on a row: when it ends, the row does not."""

NUMBERS = _set("id ids key uuid guid count version")
"""Numbers that are not timestamps, even if their values resemble one."""

STATES = ("status", "state", "phase", "stage")

LIFECYCLE = _set(
    "new queued pending waiting ready scheduled available active open running processing claimed locked sending started"
    " in_progress retry retrying failed error dead done finished completed complete succeeded success handled ignored sent"
    " delivered acked cancelled canceled aborted abandoned rejected expired closed resolved archived deleted cleaned"
    " skipped received published dispatched consumed acknowledged relayed forwarded"
)

DONE = _set(
    "finished completed ended closed resolved processed handled sent delivered drained done acked acknowledged published"
    " dispatched consumed relayed forwarded"
)
"""The work on a row is done: while such a time is NULL, it is not, and the row is needed."""

ROLES = (
    DONE | _set("archived cancelled canceled abandoned deleted pruned"),
    _set("updated modified changed seen last synced beat heartbeat touched read"),
    _set("created received enqueued inserted added occurred logged attempted recorded"),
)
"""The last thing that happens to a row comes first: ageing by it makes a row leave late rather than early."""
