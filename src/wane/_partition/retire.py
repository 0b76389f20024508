"""Retention by partition: a month of Wane's, or a range that the application made, all of whose rows may leave is
detached, quarantined, then dropped; or moved, or archived first.

A partition with one row that must stay is not retired, and the reason is reported. Rows are checked against the rules'
own conditions before the partition is detached, again when no one can change it any more, and once more before it is
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from wane._contract.model import Retired
from wane._partition.detachment import Detachment
from wane._partition.model import Retiring
from wane._partition.quarantine import GONE, Quarantine
from wane._partition.records import MAX, MIN, Leaf
from wane._partition.retiring_table import RetiringTable
from wane._partition.sql_cover import is_cover
from wane._partition.sql_ddl import qualified_name
from wane._partition.table import PartitionTarget
from wane._partition.work import PartitionWork
from wane._prune.admission import require_admin
from wane.errors import StoreError

Archiving = Callable[[str], None]
"""Moves the due rows of a table to the archive; raises if that fails."""


@dataclass(frozen=True, slots=True)
class Retirer:
    """Retires partitions of tables of one contract."""

    work: PartitionWork
    archiving: Archiving | None
    """None: what is to be archived leaves with the table's own sweeps, and a month whose rows have not left yet
    stays."""

    def retire(self, target: PartitionTarget, *, dry_run: bool = False) -> list[Retiring]:
        """Retire what is past its time, and drop what was quarantined for long enough; with `dry_run`, only report what
        would be."""
        leaving = self._unbound(target)
        closed = leaving.closed()
        off = [Retiring(leaving.name, "", "off", {}, closed)] if closed else []
        if dry_run:
            return _DueMonths(RetiringTable.of(self.work, target, None), self.archiving).preview() + off
        if closed:
            return off
        with self.work.leased(target) as lease:
            # A follower's partition that was detached and not moved yet still has its foreign key, which the rules do
            # not name: they would be refused.
            Detachment(replace(leaving, lease=lease)).settle()
            return _DueMonths(RetiringTable.of(self.work, target, lease), self.archiving).run()

    def reattach(self, target: PartitionTarget, partition: str) -> Retiring:
        """Put a partition that is in quarantine back, with what was taken along."""
        self._unbound(target)
        with self.work.leased(target) as lease:
            return Quarantine(RetiringTable.of(self.work, target, lease)).reattach(partition)

    def reattach_all(self, target: PartitionTarget) -> list[Retiring]:
        """Put everything back that is in quarantine, the most recently detached first."""
        with self.work.steps.journaling() as journal:
            quarantined = journal.retired(target.full, "quarantined")
        return [self.reattach(target, one.partition) for one in reversed(quarantined)]

    def _unbound(self, target: PartitionTarget) -> RetiringTable:
        self.work.store.require_migrated()
        require_admin(self.work.store, self.work.contract)
        return RetiringTable.unbound(self.work, target, None)


@dataclass(frozen=True, slots=True)
class _DueMonths:
    """The months of one table that are past their time."""

    leaving: RetiringTable
    archiving: Archiving | None

    def preview(self) -> list[Retiring]:
        """Report what would be retired now, and what would stay."""
        leaving, outcomes, edge = self.leaving, [], self._edge()
        for leaf in self._due():
            hindered = leaving.hindered(leaf)
            if hindered:
                outcomes.append(Retiring(leaving.name, leaf.name, "stays", {}, hindered))
                continue
            weight = leaving.weigh(qualified_name(leaving.anatomy, leaf.name))
            if not weight.rows and leaf.range.lower not in (MIN, edge) and not leaving.anatomy.by_application:
                continue
            why = leaving.why(weight)
            outcomes.append(
                Retiring(leaving.name, leaf.name, "stays" if why else "due", {leaving.name: weight.rows}, why)
            )
            edge = edge if why else leaf.range.upper
        return outcomes

    def run(self) -> list[Retiring]:
        leaving, quarantine, detachment = self.leaving, Quarantine(self.leaving), Detachment(self.leaving)
        outcomes = self._drop_due()
        self._join_covers()
        with leaving.work.steps.journaling() as journal:
            begun = {one.partition: one for one in journal.retired(leaving.target.full, "detaching")}
        outcomes += [
            self._attempt(one.partition, partial(quarantine.resume_move, one))
            for one in quarantine.months()
            if one.drop_at is None
        ]
        outcomes += [self._attempt(one.partition, partial(detachment.go_on, one)) for one in begun.values()]
        for leaf in self._due():
            if leaving.work.stop.is_set() or leaf.name in begun or self._only_covers(leaf):
                continue
            outcomes.append(self._attempt(leaf.name, partial(self._begin, leaf)))
        self._join_covers()
        return outcomes + (self._drop_due() if leaving.then is Retired.ARCHIVE else [])

    def _attempt(self, partition: str, work: Callable[[], Retiring]) -> Retiring:
        """Run the work on one partition; report a StoreError as its outcome, so that it does not affect the others."""
        try:
            return work()
        except StoreError as problem:
            return Retiring(self.leaving.name, partition, "failed", {}, problem.message)

    def _due(self) -> list[Leaf]:
        """Return the partitions that ended before the retention window began, the oldest first."""
        leaving, target = self.leaving, self.leaving.target
        cutoff, a = leaving.cutoff, leaving.anatomy
        if cutoff is None:
            return []
        quarantined = {one.partition for one in Quarantine(leaving).months()}
        found: list[tuple[datetime, Leaf]] = []
        for leaf in leaving.work.steps.leaves(a.schema, a.name):
            ends = None if leaf.range.upper == MAX else target.calendar.timestamp(leaf.range.upper)
            if ends is not None and ends <= cutoff and not is_cover(a, leaf) and leaf.name not in quarantined:
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
        if leaving.anatomy.by_application:
            return
        for target in (leaving.target, *leaving.followers):
            a = leaving.anatomy_of(target)
            while leaving.work.steps.join_covers(a, leaving.require, target.patience):
                pass

    def _only_covers(self, leaf: Leaf) -> bool:
        """Check whether retiring an empty month between others that stay would only replace it by another empty one,
        repeatedly."""
        steps, table = self.leaving.work.steps, qualified_name(self.leaving.anatomy, leaf.name)
        if self.leaving.anatomy.by_application:
            return False
        return leaf.range.lower not in (MIN, self._edge()) and not leaf.pending and not steps.holds_rows(table)

    def _begin(self, leaf: Leaf) -> Retiring:
        leaving = self.leaving
        closed = leaving.closed()
        if closed:
            return Retiring(leaving.name, leaf.name, "off", {}, closed)
        hindered = leaving.hindered(leaf)
        if hindered:
            return Retiring(leaving.name, leaf.name, "stays", {}, hindered)
        if leaving.then is Retired.ARCHIVE and self.archiving is not None:
            self.archiving(leaving.name)
        try:
            weight = leaving.weigh(qualified_name(leaving.anatomy, leaf.name))
        except StoreError:
            if self._is_attached(leaf):
                raise
            return Retiring(leaving.name, leaf.name, "gone", {}, GONE)
        why = leaving.why(weight)
        if why:
            return Retiring(leaving.name, leaf.name, "stays", {leaving.name: weight.rows}, why)
        return Detachment(leaving).begin(leaf)

    def _is_attached(self, leaf: Leaf) -> bool:
        a = self.leaving.anatomy
        return leaf.name in [one.name for one in self.leaving.work.steps.leaves(a.schema, a.name)]

    def _drop_due(self) -> list[Retiring]:
        now, quarantine = self.leaving.now, Quarantine(self.leaving)
        return [
            self._attempt(one.partition, partial(quarantine.drop, one))
            for one in quarantine.months()
            if one.drop_at is not None and one.drop_at <= now
        ]
