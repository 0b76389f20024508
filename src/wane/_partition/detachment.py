"""Detaching a month: its followers' months first, then the month itself, then rows that arrived meanwhile; its rows are
checked again once no one can reach it any more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from wane._contract.model import Retired
from wane._ledger import Ledger
from wane._partition.journal import PartitionJournal, Retirement
from wane._partition.model import Retiring
from wane._partition.quarantine import GONE, Quarantine
from wane._partition.records import MAX, Leaf
from wane._partition.retiring_table import RetiringTable
from wane._partition.sql_cover import is_cover
from wane._partition.sql_ddl import qualified_name
from wane._partition.sql_retire import Weight, is_below, own_name, paths_of, quarantine_name
from wane._partition.table import PartitionTarget
from wane._prune.pacing import Closed, Pacing, Stopped
from wane._rules.selection import BoundFollower
from wane.events import RowsPruned


@dataclass(frozen=True, slots=True)
class Detachment:
    """Detaches months of one table."""

    leaving: RetiringTable

    def begin(self, leaf: Leaf) -> Retiring:
        """Detach a month that was found to be due, and return its outcome."""
        leaving = self.leaving
        with leaving.work.store.transaction() as transaction:
            leaving.require(transaction.execute)
            begun = PartitionJournal(transaction.execute).retire(
                leaving.target.full, leaf.name, leaf.range, leaving.work.actor
            )
        return self.go_on(begun)

    def go_on(self, begun: Retirement) -> Retiring:
        """Detach followers first, then the month itself; put the month back if it is found to stay after all.

        Stopped between two batches, or by a flag, it resumes with the next call.
        """
        try:
            self.leaving.require_open()
            return self._go_on(begun)
        except Stopped:
            return Retiring(self.leaving.name, begun.partition, "stopped", {}, "on its way: run it again to resume")
        except Closed as closed:
            return Retiring(self.leaving.name, begun.partition, "off", {}, f"on its way: {closed}")

    def _go_on(self, begun: Retirement) -> Retiring:
        leaving, steps, began = self.leaving, self.leaving.work.steps, time.monotonic()
        a, source = leaving.anatomy, qualified_name(leaving.anatomy, begun.partition)
        name = quarantine_name(_leaf(leaving, begun), begun.id)
        attached = {one.name: one for one in steps.leaves(a.schema, a.name)}
        along = list(begun.along)
        location, patience = own_name(name), leaving.target.patience
        taken_off = begun.place is not None
        if not taken_off and self._is_gone(begun, attached, location):
            return Quarantine(leaving).put_back(begun, along, None, GONE)
        if not taken_off and begun.partition in attached and not attached[begun.partition].pending:
            why = leaving.why(leaving.weigh(source))
            if why:
                return Quarantine(leaving).put_back(begun, along, None, why)
        if not taken_off and begun.partition in attached:
            along = self._followers(begun, source, along)
            if not steps.detach(a, begun.partition, begun.range, patience):
                return Quarantine(leaving).put_back(begun, along, None, GONE)
        steps.quarantine(a, begun.partition, begun.range, name, leaving.noted(begun, location, along), patience)
        along = self._stragglers(begun, location, along)
        # A transaction that saw a row before the detachment may be about to refer to it: the guards must see that.
        steps.await_references(leaving.selections, patience)
        weight = leaving.weigh(location)
        standing = [one for one in along if steps.is_there(one["place"])]
        why = leaving.why(weight) or self._live_along(standing) or self._stray_along(standing, location)
        if why:
            return Quarantine(leaving).put_back(begun, along, location, why)
        drop_at = self._drop_at()
        counts = self._quarantine(begun, location, along, weight, drop_at)
        leaving.emit("quarantined", begun.partition, began)
        if leaving.then is Retired.MOVE:
            return Quarantine(leaving).move(begun, location, counts, along, began)
        return Retiring(
            leaving.name, begun.partition, "quarantined", counts, "", location, drop_at, time.monotonic() - began
        )

    def _is_gone(self, begun: Retirement, attached: dict[str, Leaf], location: str) -> bool:
        """Check whether the application dropped a partition before it was detached, or uses its name for another."""
        steps, a = self.leaving.work.steps, self.leaving.anatomy
        if begun.partition in attached:
            return attached[begun.partition].range != begun.range
        return not any(steps.is_there(table) for table in (qualified_name(a, begun.partition), location))

    def _drop_at(self) -> datetime | None:
        """Return when the quarantine ends; None if the month is moved.

        A month whose rows are all in the archive is empty: no one would put it back, so its quarantine ends at once.
        """
        leaving = self.leaving
        if leaving.then is Retired.MOVE:
            return None
        if leaving.then is Retired.ARCHIVE:
            return leaving.now
        return max(leaving.now, leaving.work.store.now()) + leaving.target.settings.quarantine

    def settle(self) -> None:
        """Move what a process that died had detached of followers to the quarantine, and cover its range."""
        leaving, steps = self.leaving, self.leaving.work.steps
        with steps.journaling() as journal:
            begun = journal.retired(leaving.target.full, "detaching")
        for one in (taken for each in begun for taken in each.along):
            # Once it is in quarantine, a partition of its name may exist again, and cover its range.
            if "leaf" in one and not steps.is_there(one["place"]):
                other, range_ = leaving.follower(one)
                a = leaving.anatomy_of(other)
                steps.detach(a, one["leaf"], range_, other.patience)
                name = one["place"].partition(".")[2].strip('"')
                steps.quarantine(a, one["leaf"], range_, name, leaving.require, other.patience)

    def _followers(self, begun: Retirement, source: str, along: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Detach whole months of followers where all of their rows belong to the month's rows; then take the remaining
        rows along one batch at a time."""
        leaving = self.leaving
        ends = leaving.target.calendar.timestamp(begun.range.upper)
        for other in leaving.followers:
            for _, path in paths_of(leaving.selections):
                if len(path) == 1 and path[0].reference.table.qualified == other.info.qualified:
                    along = self._follow(begun, other, path[0], source, ends, along)
        return self._stragglers(begun, source, along, many=True)

    def _live_along(self, along: Sequence[dict[str, Any]]) -> str:
        """Report what became live after its month was weighed and before it was taken along; "" if nothing did."""
        leaving = self.leaving
        for _, path in paths_of(leaving.selections):
            name = str(path[-1].reference.name)
            for one in along:
                if one["table"] == name and leaving.work.steps.is_live(path[-1], one["place"]):
                    return f"a row of {name} that follows its rows is live"
        return ""

    def _stray_along(self, along: Sequence[dict[str, Any]], location: str) -> str:
        """Report a row that came into a follower's partition before that was detached, and follows no row of this
        one."""
        steps, paths = self.leaving.work.steps, paths_of(self.leaving.selections)
        followers = {str(path[0].reference.name): path[0] for _, path in paths if len(path) == 1}
        for one in along:
            if "leaf" in one and steps.elsewhere(followers[one["table"]], one["place"], location):
                return f"a row of {one['table']} that was taken along follows none of its rows"
        return ""

    def _follow(
        self,
        begun: Retirement,
        other: PartitionTarget,
        follower: BoundFollower,
        source: str,
        ends: datetime | None,
        along: list[dict[str, Any]],
    ) -> list[dict[str, Any]]:
        leaving, steps = self.leaving, self.leaving.work.steps
        a = leaving.anatomy_of(other)
        for leaf in steps.leaves(a.schema, a.name):
            upper = None if leaf.range.upper == MAX else other.calendar.timestamp(leaf.range.upper)
            if upper is None or ends is None or upper > ends or is_cover(a, leaf):
                continue
            known = next(
                (one for one in along if one.get("leaf") == leaf.name and one["table"] == str(other.name)), None
            )
            if known is not None and steps.is_there(known["place"]):
                continue  # It left before an interruption: this one, of its name, covers its range.
            quarantined = quarantine_name(leaf, begun.id)
            if known is None:
                if a.by_application and steps.hindrance(a, leaf):
                    continue
                if not leaf.pending and steps.elsewhere(follower, qualified_name(a, leaf.name), source):
                    continue
                known = {
                    "table": str(other.name),
                    "leaf": leaf.name,
                    "lower": leaf.range.lower,
                    "upper": leaf.range.upper,
                    "place": own_name(quarantined),
                }
                along = [*along, known]
                leaving.note(begun, along)
            if not steps.detach(a, leaf.name, leaf.range, other.patience):
                # The application took it first: it is not Wane's to put back, to move or to drop.
                along = [one for one in along if one is not known]
                leaving.note(begun, along)
                continue
            steps.quarantine(a, leaf.name, leaf.range, quarantined, leaving.noted(begun, None, along), other.patience)
        return along

    def _stragglers(
        self, begun: Retirement, source: str, along: list[dict[str, Any]], *, many: bool = False
    ) -> list[dict[str, Any]]:
        """Move rows that follow to side tables in batches, wherever they are; with `many`, stretch by stretch.

        Return everything that was taken along so far.
        """
        leaving, work = self.leaving, self.leaving.work
        paths = paths_of(leaving.selections)
        sides = [
            own_name(quarantine_name(_leaf(leaving, begun), begun.id)[:50] + f"_with_{number}")
            for number in range(len(paths))
        ]
        for (selection, path), side in zip(paths, sides, strict=True):
            name = str(path[-1].reference.name)
            below = [
                (inner, side_table)
                for (_, inner), side_table in zip(paths, sides, strict=True)
                if is_below(inner, path)
            ]
            known = {"table": name, "place": side}
            if known not in along:
                along = [*along, known]
            note = leaving.noted(begun, None, along)
            within = (leaving.anatomy.time, begun.range)
            take = partial(work.steps.take_along, selection, path, source, side, below=below, within=within)
            pacing = work.pacing(leaving.target)
            for stretch in work.steps.stretches(leaving.anatomy, source) if many else ():
                self._all(pacing, partial(take, note=note, stretch=stretch))
            self._all(pacing, partial(take, note=note))
        return along

    def _all(self, pacing: Pacing, take: Callable[..., int]) -> None:
        """Run batch after batch until nothing is left to take; raise Closed if a flag closes meanwhile."""

        def batch(size: int) -> int:
            self.leaving.require_open()
            return take(limit=size)

        while pacing.run(batch):
            pass

    def _quarantine(
        self, begun: Retirement, location: str, along: list[dict[str, Any]], weight: Weight, drop_at: datetime | None
    ) -> dict[str, int]:
        leaving, work = self.leaving, self.leaving.work
        counts: Counter[str] = Counter({leaving.name: weight.rows})
        for one in along:
            counts[one["table"]] += work.steps.count(one["place"])
        with work.store.transaction() as transaction:
            leaving.require(transaction.execute)
            PartitionJournal(transaction.execute).move(
                begun.id, "quarantined", place=location, along=along, counts=counts, drop_at=drop_at
            )
            leaving.audit(Ledger.of(transaction), "retire", begun, dict(counts), leaving.cutoff)
        declared = leaving.target.declared
        scheduler = None if declared is None else declared.scheduler
        work.listener(RowsPruned(scheduler, leaving.name, None, leaving.name, "retire", dict(counts), committed=True))
        return dict(counts)


def _leaf(leaving: RetiringTable, begun: Retirement) -> Leaf:
    """Build the leaf of the month as the table had it."""
    return Leaf(leaving.anatomy.schema, begun.partition, begun.range, pending=False, rows_estimate=None)
