"""Retention by the month: a partition all of whose rows may leave is taken off, kept aside for a while, then dropped; or moved, or archived first.

A partition with one row that must stay is not retired, and says why. Rows are weighed by the rules' own conditions before the partition is taken
off, again when nobody can change it any more, and once more before it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from wane.contract.model import Retired
from wane.errors import StoreError
from wane.partition.aside import Aside
from wane.partition.lease import leased
from wane.partition.leaving import Leaving
from wane.partition.model import Retiring
from wane.partition.place import Place
from wane.partition.takeoff import TakeOff
from wane.partition.work import Work
from wane.prune.admission import require_admin
from wane.store.partitions import MAX, MIN, Leaf
from wane.store.postgres.partition_cover import is_cover
from wane.store.postgres.partition_statements import place as placed

Archiving = Callable[[str], None]
"""Moves the due rows of a table to the archive; raises if that fails."""


@dataclass(frozen=True, slots=True)
class Retirer:
    """Retires partitions of tables of one contract."""

    work: Work
    archiving: Archiving | None
    """None: what is to be archived leaves by itself, and a month whose rows have not left yet stays."""

    def retire(self, place: Place, *, dry_run: bool = False) -> list[Retiring]:
        """Retire what is past its time, and drop what was aside for long enough; or only say what would be."""
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
        """Put a partition that is aside back, with what was taken along."""
        self._leaving(place)
        with leased(self.work.store, place.full) as lease:
            return Aside(Leaving.of(self.work, place, lease)).reattach(partition)

    def reattach_all(self, place: Place) -> list[Retiring]:
        """Put everything back that is aside, what left last first."""
        with self.work.steps.journaling() as journal:
            aside = journal.retired(place.full, "quarantined")
        return [self.reattach(place, one.partition) for one in reversed(aside)]

    def _leaving(self, place: Place) -> Leaving:
        self.work.store.require_migrated()
        require_admin(self.work.store, self.work.contract)
        return Leaving.of(self.work, place, None)


@dataclass(frozen=True, slots=True)
class _Months:
    """The months of one table, as they come to their end."""

    leaving: Leaving
    archiving: Archiving | None

    def look(self) -> list[Retiring]:
        """What would be retired now, and what would stay."""
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
        """A partition that fails, fails alone."""
        try:
            return work()
        except StoreError as problem:
            return Retiring(self.leaving.name, partition, "failed", {}, problem.message)

    def _due(self) -> list[Leaf]:
        """Partitions that ended before the window began, the oldest first."""
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
        """Where the partition ends that catches whatever is earlier than every month."""
        a = self.leaving.anatomy
        leaves = self.leaving.work.steps.leaves(a.schema, a.name)
        return next((leaf.range.upper for leaf in leaves if leaf.range.lower == MIN and is_cover(a, leaf)), MIN)

    def _join_covers(self) -> None:
        """What was left beside a month that was put back must not stay between others for ever once that month has gone."""
        leaving = self.leaving
        for place in (leaving.place, *leaving.work.followers(leaving.place)):
            a = leaving.anatomy_of(place)
            while leaving.work.steps.join_covers(a, leaving.require, place.patience):
                pass

    def _only_covers(self, leaf: Leaf) -> bool:
        """An empty month between others that stay would only be replaced by another empty one, again and again."""
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
