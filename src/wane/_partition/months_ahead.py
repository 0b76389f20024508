"""Creating partitions ahead, so that every row has its month; a row outside all of them is caught, never refused and
never lost."""

from __future__ import annotations

import time
from dataclasses import dataclass

from wane._db.statement import Execute
from wane._leases import Lease
from wane._partition.anatomy import Anatomy, anatomy_from
from wane._partition.model import PartitionDone
from wane._partition.months import Month
from wane._partition.records import MAX, MIN, Leaf, Range
from wane._partition.sql_ddl import early_name, month_name, rest_name
from wane._partition.table import PartitionTarget
from wane._partition.work import PartitionWork
from wane.errors import PartitionError

_MOST_MOVED = 10_000
"""The most rows beyond every month that are moved into a new one while the table is locked."""
_MOST_MONTHS = 120
"""The most months created at once; a table not maintained for longer than that should not be partitioned by month."""


@dataclass(frozen=True, slots=True)
class MonthsAhead:
    """The partitions of months to come, for tables of one contract."""

    work: PartitionWork

    def create(self, target: PartitionTarget) -> PartitionDone:
        """Create what is missing for a table, and for those that are partitioned along with it."""
        work, began = self.work, time.monotonic()
        made, moved = list[str](), 0
        for one in (target, *work.followers(target)):
            # Splitting may take weeks, and new months do not wait for it.
            change = work.partitioned(one, splitting=True, lead=target)
            with work.leased(one) as lease:
                names, rows = self._create(one, anatomy_from(change.facts["anatomy"]), lease)
            made += names
            moved += rows
        return work.done(target, "maintained" if made else "nothing", began, partitions=tuple(made), rows=moved)

    def _create(self, target: PartitionTarget, a: Anatomy, lease: Lease) -> tuple[list[str], int]:
        steps = self.work.steps
        steps.partition_key(a.schema, a.name)
        made, moved = [], 0

        def note(run: Execute) -> None:
            self.work.require(lease, run)

        leaves = steps.leaves(a.schema, a.name)
        for name, range_ in self._gaps(a, leaves):
            steps.add_leaf(a, name, range_, note, target.patience)
            made.append(name)
        rest = _rest(steps.leaves(a.schema, a.name))
        assert rest is not None
        for month in self._months(target, rest):
            began = time.monotonic()
            range_ = Range(target.calendar.literal(month), target.calendar.literal(month.later()))
            name = month_name(a, month.name)
            moved += steps.add_month(a, name, range_, rest, _MOST_MOVED, note, target.patience)
            made.append(name)
            self.work.emit(target, "made", began, name)
        return made, moved

    def _gaps(self, a: Anatomy, leaves: list[Leaf]) -> list[tuple[str, Range]]:
        """Return the ranges at both ends that no partition covers.

        They arise when a process dies after detaching a month, or when a user drops a partition.
        """
        gaps = []
        lowest = min((leaf for leaf in leaves if leaf.range.lower != MIN), key=_lower, default=None)
        if not any(leaf.range.lower == MIN for leaf in leaves) and lowest is not None:
            gaps.append((early_name(a), Range(MIN, lowest.range.lower)))
        if _rest(leaves) is None and leaves:
            highest = max(leaves, key=_upper)
            gaps.append((rest_name(a), Range(highest.range.upper, MAX)))
        return gaps

    def _months(self, target: PartitionTarget, rest: Leaf) -> list[Month]:
        """Return the months that should exist and are still part of the rest."""
        calendar = target.calendar
        begins = calendar.timestamp(rest.range.lower)
        if begins is None:
            raise PartitionError(f"{rest.name} begins at {rest.range.lower}, which is no timestamp", "check its range")
        first, end = (
            calendar.month_of(begins),
            calendar.month_of(self.work.store.now()).later(target.settings.ahead + 1),
        )
        months: list[Month] = []
        while first < end and len(months) < _MOST_MONTHS:
            months.append(first)
            first = first.later()
        return months


def _rest(leaves: list[Leaf]) -> Leaf | None:
    return next((leaf for leaf in leaves if leaf.range.upper == MAX and not leaf.pending), None)


def _lower(leaf: Leaf) -> tuple[int, str]:
    return len(leaf.range.lower), leaf.range.lower


def _upper(leaf: Leaf) -> tuple[int, str]:
    return len(leaf.range.upper), leaf.range.upper
