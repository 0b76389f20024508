"""What a plan shows of rules that archive: what their sweeps took."""

from __future__ import annotations

from dataclasses import dataclass

from wane._archive.sql_costs import archive_costs
from wane._db import Store
from wane._ledger import SweepCost


@dataclass(frozen=True, slots=True)
class ArchivePlanning:
    """Reads what `_prune.planning` needs to know of the archive of a database."""

    store: Store

    def costs(self, table: str, rule: str, limit: int, seconds: float) -> list[SweepCost]:
        """Return what the latest sweeps of a rule took, newest first."""
        return archive_costs(self.store.dialect, self.store.reader(seconds), table, rule, limit)
