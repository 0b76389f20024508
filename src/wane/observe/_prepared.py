"""Prepared probes for repeated readings: written once, and run at another time each time.

Times in a statement are slots, so its text never changes and the database can reuse its plan.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime

from wane._db.statement import Dialect
from wane._rules.probes import Probe
from wane._rules.rows import Rows


class PreparedProbes:
    """Stores the texts of probes, each under its own key."""

    def __init__(self, dialect: Dialect) -> None:
        self.rows = Rows(dialect, holds=True)
        self._p = self.rows.parameters()
        self._texts: dict[Hashable, str] = {}

    def probe(self, key: Hashable, write: Probe) -> Probe:
        """Return the probe of a key, written only once, with times relative to `NOW`."""
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = write(self._p)
        return lambda _: text

    def values(self, now: datetime) -> dict[str, object]:
        """Return the parameters of all prepared probes at a time."""
        return self._p.statement("").at(now).parameters
