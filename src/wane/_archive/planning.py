"""What a plan shows of rules that archive: what their sweeps took, and the statements that evict rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from wane._archive.pipeline.range_take import range_take
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import ArchiveRows, bind_archive
from wane._archive.sql_costs import archive_costs
from wane._contract.model import Contract
from wane._db import Store
from wane._ledger import SweepCost
from wane._prune.preview import Preview, ShownStatement
from wane._rules.rows import rows_of
from wane._rules.selection import Selection
from wane.errors import BindError, TimedOut


@dataclass(frozen=True, slots=True)
class ArchivePlanning:
    """Reads what `_prune.build_plan` needs to know of the archive of a database."""

    store: Store
    contract: Contract

    def costs(self, table: str, rule: str, limit: int, seconds: float) -> list[SweepCost]:
        """Return what the latest sweeps of a rule took, newest first."""
        return archive_costs(self.store.dialect, self.store.reader(seconds), table, rule, limit)

    def shown(self, selection: Selection, now: datetime, limit: int, seconds: float | None) -> list[ShownStatement]:
        """Return the statements that evict rows of committed copies (`pipeline.evict`), in the order in which they run.

        None if the archive cannot store the rows: `check` reports why. Where a first batch begins and ends is read
        within `seconds`, so that the statement can be explained; without them it is shown as `…`.
        """
        walked = rows_of(self.store)
        try:
            archive = bind_archive(walked, archive_dialect(self.store), selection, self.contract.archive)
        except BindError:
            return []
        shown, when = Preview(walked, selection, now, limit), ""
        if (by_range := range_take(self.store, archive)) is not None:
            unknown = ["…"] * len(by_range.names)
            first, last = (self._position(archive, now, rows, seconds) or unknown for rows in (1, limit))
            for purpose, statement in by_range.shown((first, last), now):
                shown.add_filled(purpose, statement)
            when = "if it is not, or others hold locks"
        prefix = f"{when}: " if when else ""
        waiting = shown.close_references(when)
        shown.add(*shown.rule.lock_steps(waiting=waiting, when=when))
        shown.add_filled(f"{prefix}find the rows that exist, and their versions", archive.present(shown.keys))
        shown.add(*shown.rule.spared_steps(when))
        shown.add_filled(f"{prefix}check which of them are due", archive.due(shown.keys, now))
        for part in archive.parts:
            if part.path:
                shown.add_filled(f"{prefix}read {part.name}, and its versions", archive.following(part, shown.keys))
        shown.add(*shown.rule.take_steps(selection.table, when))
        return shown.shown

    def _position(self, archive: ArchiveRows, now: datetime, rows: int, seconds: float | None) -> Sequence[object]:
        """Read the position of the last of the oldest due rows; nothing if none is due, or that takes too long."""
        try:
            found = [] if seconds is None else self.store.read(archive.rest(now, rows, None), seconds)
        except TimedOut:
            return ()
        return found[0][1:] if found else ()
