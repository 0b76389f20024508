"""One reading of users' tables at one moment, with looks that were written before."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any

from wane.observe.watched import Watched
from wane.store import Store
from wane.store.kept import ANCHOR
from wane.store.looks import Look, Looks
from wane.store.selection import Selection

LOOK_SECONDS = 0.25
"""The most that one statement may take."""
READ_SECONDS = 5.0
"""The most that a whole reading may take, estimates left out."""


class Asking:
    """Asks looks at one moment. Whatever is written for it is written at `ANCHOR`."""

    written_at = ANCHOR

    def __init__(self, store: Store, watched: Watched, now: datetime, seconds: float = READ_SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self.store = store
        self.now = now
        self._kept = watched.kept
        self.looks = Looks(watched.kept.rows, store.held_tables(LOOK_SECONDS))
        """Writes looks."""

    def look(self, kind: str, about: Hashable, write: Look) -> Look:
        """A look that is written once for whatever it is about."""
        return self._kept.look((kind, about), write)

    def look_due(self, kind: str, selections: Sequence[Selection], write: Look) -> Look:
        """The same for rules; where rows may be held it is another look than where none is."""
        held = tuple(self.looks.may_be_held(one) for one in selections)
        about = tuple((one.table.qualified, one.rule.name) for one in selections)
        return self._kept.look((kind, about, held), write)

    def read(self, looks: Sequence[Look]) -> list[Any]:
        """The value of each look, or UNREAD."""
        if not looks:
            return []
        return self.store.look(looks, LOOK_SECONDS, self.left, self._kept.values(self.now))

    @property
    def left(self) -> float:
        """How many seconds are left of what the whole reading may take."""
        return max(self._end - time.monotonic(), 0.0)
