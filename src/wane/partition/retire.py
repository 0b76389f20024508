"""Retention by month: a partition all of whose rows may leave is detached, quarantined, then dropped; or moved, or
archived first.

A partition with one row that must stay is not retired, and the reason is reported. Rows are checked against the rules'
own conditions before the partition is detached, again when no one can change it any more, and once more before it is
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from wane.contract.model import Retired
from wane.errors import StoreError
from wane.partition.detachment import TakeOff
from wane.partition.lease import leased
from wane.partition.model import Retiring
from wane.partition.quarantine import Aside
from wane.partition.records import MAX, MIN, Leaf
from wane.partition.retirement import Leaving
from wane.partition.sql_cover import is_cover
from wane.partition.statements import place as placed
from wane.partition.table import Place
from wane.partition.work import PartitionWork
from wane.prune.admission import require_admin

Archiving = Callable[[str], None]
"""Moves the due rows of a table to the archive; raises if that fails."""


@dataclass(frozen=True, slots=True)
class Retirer:
    """Retires partitions of tables of one contract."""

    work: PartitionWork
    archiving: Archiving | None
    """None: what is to be archived leaves with the table's own sweeps, and a month whose rows have not left yet
    stays."""

    def retire(self, place: Place, *, dry_run: bool = False) -> list[Retiring]:
        """Retire what is past its time, and drop what was quarantined for long enough; with `dry_run`, only report what
        would be."""
        leaving = self._leaving(place)
        closed = leaving.closed()
        off = [Retiring(leaving.name, "", "off", {}, closed)] if closed else []
        if dry_run:
            return _Months(leaving, self.archiving).look() + off
        if closed:
            return off
        with leased(self.work.store, place.full) as lease:
            return _Months(Leaving.of(self.work, place, lease), self.archiving).run()

    def reattach(self, place: Place, partition: str) -> Retiring:
        """Put a partition that is set aside back, with what was taken along."""
        self._leaving(place)
        with leased(self.work.store, place.full) as lease:
            return Aside(Leaving.of(self.work, place, lease)).reattach(partition)

    def reattach_all(self, place: Place) -> list[Retiring]:
        """Put everything back that is set aside, the most recently detached first."""
        with self.work.steps.journaling() as journal:
            aside = journal.retired(place.full, "quarantined")
        return [self.reattach(place, one.partition) for one in reversed(aside)]

    def _leaving(self, place: Place) -> Leaving:
        self.work.store.require_migrated()
        require_admin(self.work.store, self.work.contract)
        return Leaving.of(self.work, place, None)


@dataclass(frozen=True, slots=True)
class _Months:
    """The months of one table that are past their time."""

    leaving: Leaving
    archiving: Archiving | None

    def look(self) -> list[Retiring]:
        """Report what would be retired now, and what would stay."""
        leaving, told, edge = self.leaving, [], self._edge()
        for leaf in self._due():
            weight = leaving.weigh(placed(leaving.anatomy, leaf.name))
            if not weight.rows and leaf.range.lower not in (MIN, edge):
                continue
            why = leaving.why(weight)
            told.append(Retiring(leaving.name, leaf.name, "stays" if why else "due", {leaving.name: weight.rows}, why))
            edge = edge if why else leaf.range.upper
        return told

    def run(self) -> list[Retiring]:
        leaving, aside, take_off = self.leaving, Aside(self.leaving), TakeOff(self.leaving)
        told = self._drop_due()
        self._join_covers()
        with leaving.work.steps.journaling() as journal:
            begun = {one.partition: one for one in journal.retired(leaving.place.full, "detaching")}
        told += [
            self._alone(one.partition, partial(aside.move_again, one))
            for one in aside.quarantined()
            if one.drop_at is None
        ]
        told += [self._alone(one.partition, partial(take_off.go_on, one)) for one in begun.values()]
        for leaf in self._due():
            if leaving.work.stop.is_set() or leaf.name in begun or self._only_covers(leaf):
                continue
            told.append(self._alone(leaf.name, partial(self._begin, leaf)))
        self._join_covers()
        return told + (self._drop_due() if leaving.then is Retired.ARCHIVE else [])

    def _alone(self, partition: str, work: Callable[[], Retiring]) -> Retiring:
        """Run the work on one partition; report a StoreError as its outcome, so that it does not affect the others."""
        try:
            return work()
        except StoreError as problem:
            return Retiring(self.leaving.name, partition, "failed", {}, problem.message)

    def _due(self) -> list[Leaf]:
        """Return the partitions that ended before the retention window began, the oldest first."""
        leaving, place = self.leaving, self.leaving.place
        cutoff, a = leaving.cutoff, leaving.anatomy
        if cutoff is None:
            return []
        aside = {one.partition for one in Aside(leaving).quarantined()}
        found: list[tuple[datetime, Leaf]] = []
        for leaf in leaving.work.steps.leaves(a.schema, a.name):
            ends = None if leaf.range.upper == MAX else place.calendar.moment(leaf.range.upper)
            if ends is not None and ends <= cutoff and not is_cover(a, leaf) and leaf.name not in aside:
                found.append((ends, leaf))
        return [leaf for _, leaf in sorted(found, key=lambda one: one[0])]

    def _edge(self) -> str:
        """Return the end of the partition that catches whatever is earlier than every month."""
        a = self.leaving.anatomy
        leaves = self.leaving.work.steps.leaves(a.schema, a.name)
        return next((leaf.range.upper for leaf in leaves if leaf.range.lower == MIN and is_cover(a, leaf)), MIN)

    def _join_covers(self) -> None:
        """Join the gaps left beside months that were put back, which must not stay once those months have gone."""
        leaving = self.leaving
        for place in (leaving.place, *leaving.work.followers(leaving.place)):
            a = leaving.anatomy_of(place)
            while leaving.work.steps.join_covers(a, leaving.require, place.patience):
                pass

    def _only_covers(self, leaf: Leaf) -> bool:
        """Check whether retiring an empty month between others that stay would only replace it by another empty one,
        repeatedly."""
        steps, table = self.leaving.work.steps, placed(self.leaving.anatomy, leaf.name)
        return leaf.range.lower not in (MIN, self._edge()) and not leaf.pending and not steps.holds_rows(table)

    def _begin(self, leaf: Leaf) -> Retiring:
        leaving = self.leaving
        closed = leaving.closed()
        if closed:
            return Retiring(leaving.name, leaf.name, "off", {}, closed)
        if leaving.then is Retired.ARCHIVE and self.archiving is not None:
            self.archiving(leaving.name)
        weight = leaving.weigh(placed(leaving.anatomy, leaf.name))
        why = leaving.why(weight)
        if why:
            return Retiring(leaving.name, leaf.name, "stays", {leaving.name: weight.rows}, why)
        return TakeOff(leaving).begin(leaf)

    def _drop_due(self) -> list[Retiring]:
        now, aside = self.leaving.now, Aside(self.leaving)
        return [
            self._alone(one.partition, partial(aside.drop, one))
            for one in aside.quarantined()
            if one.drop_at is not None and one.drop_at <= now
        ]
