"""Prepared probes for repeated readings: written once, and run at another time each time.

Times in a statement are slots, so its text never changes and the database can reuse its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from datetime import datetime

from wane._db.statement import Dialect
from wane._rules.probes import Probe
from wane._rules.rows import Rows


class PreparedProbes:
    """Stores probes, each under its own key."""

    def __init__(self, dialect: Dialect) -> None:
        self.rows = Rows(dialect, holds=True)
        self._p = self.rows.parameters()
        self._probes: dict[Hashable, Probe] = {}
        self._groups: dict[Hashable, tuple[tuple[str, ...], Mapping[str, Probe]]] = {}

    def probe(self, key: Hashable, write: Probe) -> Probe:
        """Return the probe of a key, written only once, with times relative to `NOW`."""
        probe = self._probes.get(key)
        if probe is None:
            text = write(self._p)
            probe = self._probes[key] = lambda _: text
        return probe

    def group(
        self, key: Hashable, choose: Callable[[], tuple[tuple[str, ...], Mapping[str, Probe]]]
    ) -> tuple[tuple[str, ...], Mapping[str, Probe]]:
        """Return the prepared probes of a key by their names, and the names of what their last one reads in one pass,
        chosen only once."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = choose()
        return group

    def values(self, now: datetime) -> dict[str, object]:
        """Return the parameters of all prepared probes at a time."""
        return self._p.statement("").at(now).parameters
