"""Splitting the partition from before the conversion into months: copying → done.

The rows are copied while the application runs. Stopped or killed, it resumes where it was.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from wane._db.counting import Count, Exactness, count_rows
from wane._db.statement import Execute
from wane._leases import Lease
from wane._partition.anatomy import Anatomy, anatomy_from
from wane._partition.journal import COPYING_FACTS, Change
from wane._partition.model import PartitionDone
from wane._partition.months import Month
from wane._partition.records import MIN, Range
from wane._partition.sql_ddl import early_name, month_name, qualified_name
from wane._partition.table import PartitionTarget
from wane._partition.work import PartitionWork
from wane._prune.pacing import Stopped
from wane.errors import PartitionError
from wane.events import WorkProgressed

_MOST_MONTHS = 240
_COUNT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Splitter:
    """Splits tables of one contract."""

    work: PartitionWork

    def split(self, target: PartitionTarget) -> PartitionDone:
        """Split what a table was before it was partitioned, and what is partitioned along; resume where an earlier
        attempt ended."""
        self.work.store.require_migrated()
        began, made, rows = time.monotonic(), list[str](), 0
        for one in (target, *self.work.followers(target)):
            with self.work.leased(one) as lease:
                names, copied = self._split(one, lease, target)
            made, rows = made + names, rows + copied
            if self.work.stop.is_set():
                break
        did = "split" if made else "copied" if rows else "nothing"
        return self.work.done(target, did, began, partitions=tuple(made), rows=rows, stopped=self.work.stop.is_set())

    def _split(self, target: PartitionTarget, lease: Lease, lead: PartitionTarget) -> tuple[list[str], int]:
        work, steps, began = self.work, self.work.steps, time.monotonic()
        change = work.partitioned(target, splitting=True, lead=lead)
        a, old = anatomy_from(change.facts["anatomy"]), change.facts["old"]
        if old not in [leaf.name for leaf in steps.leaves(a.schema, a.name)]:
            return [], 0  # It was split already, or has left.
        if change.kind == "convert":
            leaves = self._months(target, a, change)
            facts = {**change.facts, "split": [[name, range_.lower, range_.upper] for name, range_ in leaves]}

            def begun(run: Execute, last: list[str] | None) -> None:
                work.noted(target, lease, "split", "copying", {**facts, "last": last})(run)

            steps.begin_split(a, old, leaves, begun, target.patience)
            change = work.partitioned(target, splitting=True, lead=lead)
        rows = self._copy(target, lease, a, change)
        if work.stop.is_set():
            return [], rows
        wrong = steps.differs(a, old)
        if wrong:
            raise PartitionError(
                f"the copy of {target.name} is not what it was copied from: {wrong}", "nothing was swapped; undo it"
            )
        names = [name for name, _, _ in change.facts["split"]]
        facts = {key: value for key, value in change.facts.items() if key not in COPYING_FACTS}
        steps.swap_split(a, old, work.noted(target, lease, "convert", "done", facts), target.patience)
        steps.analyze(a.table)
        steps.validate_keys(a)
        work.emit(target, "split", began)
        return names, rows

    def _months(self, target: PartitionTarget, a: Anatomy, change: Change) -> list[tuple[str, Range]]:
        """Return the months of the rows that exist, and the partition that catches whatever lies before."""
        calendar, until = target.calendar, Month.named(change.facts["until"])
        first, _ = self.work.steps.edges(qualified_name(a, change.facts["old"]), a.time)
        earliest = None if first is None else calendar.timestamp(first)
        month = until if earliest is None else min(calendar.month_of(earliest), until)
        month = max(month, until.later(-_MOST_MONTHS))
        leaves = [(early_name(a), Range(MIN, calendar.literal(month)))]
        while month < until:
            leaves.append((month_name(a, month.name), Range(calendar.literal(month), calendar.literal(month.later()))))
            month = month.later()
        return leaves

    def _rows(self, a: Anatomy, old: str) -> Count | None:
        """Return how many rows there are to copy, at least roughly."""
        info = self.work.store.reflect().find(a.schema, old)
        return None if info is None else count_rows(self.work.store, info, _COUNT_SECONDS)

    def _copy(self, target: PartitionTarget, lease: Lease, a: Anatomy, change: Change) -> int:
        work, facts, rows = self.work, change.facts, 0
        floor, last = facts.get("floor"), facts.get("last")
        if last is None:
            return 0
        total = self._rows(a, facts["old"]) if floor is None else None

        def note(run: Execute, end: list[str] | None) -> None:
            work.noted(target, lease, "split", "copying", {**facts, "floor": end})(run)

        def copy(size: int) -> int:
            nonlocal floor
            count, floor = work.steps.copy_some(a, facts["old"], floor, last, size, note)
            return count

        pacing = work.pacing(target)
        with suppress(Stopped):
            while count := pacing.run(copy):
                rows += count
                name, of = str(target.name), None if total is None else total.rows
                exact = total is not None and total.exactness is Exactness.EXACT
                work.listener(WorkProgressed("split", name, None, "row", rows, of, exact))
        return rows
