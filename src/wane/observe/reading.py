"""One reading of users' tables at one point in time, with prepared probes."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any

from wane.db import Store
from wane.observe.prepared import ANCHOR
from wane.observe.watched import Watched
from wane.rules.probes import Probe, Probes
from wane.rules.reads import held_tables, read_probes
from wane.rules.selection import Selection

LOOK_SECONDS = 0.25
"""The most that one statement may take."""
READ_SECONDS = 5.0
"""The most that a whole reading may take, estimates left out."""


class Reading:
    """Runs probes at one point in time. All probes for it are written with `ANCHOR` as the time."""

    written_at = ANCHOR

    def __init__(self, store: Store, watched: Watched, now: datetime, seconds: float = READ_SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self.store = store
        self.now = now
        self._kept = watched.kept
        self.looks = Probes(watched.kept.rows, held_tables(store, LOOK_SECONDS))
        """Writes probes."""

    def look(self, kind: str, about: Hashable, write: Probe) -> Probe:
        """Return a prepared probe, written once for each kind and subject."""
        return self._kept.look((kind, about), write)

    def look_due(self, kind: str, selections: Sequence[Selection], write: Probe) -> Probe:
        """Return a prepared probe for rules; rules whose rows may be held have a probe of their own."""
        held = tuple(self.looks.may_be_held(one) for one in selections)
        about = tuple((one.table.qualified, one.rule.name) for one in selections)
        return self._kept.look((kind, about, held), write)

    def read(self, looks: Sequence[Probe]) -> list[Any]:
        """Run the probes; return the value of each, or UNREAD."""
        if not looks:
            return []
        return read_probes(self.store, looks, LOOK_SECONDS, self.left, self._kept.values(self.now))

    @property
    def left(self) -> float:
        """Return the seconds that are left of the reading's budget."""
        return max(self._end - time.monotonic(), 0.0)
