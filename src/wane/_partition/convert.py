"""Conversion from a plain table to a partitioned one, step by step: planned → indexed → rooted → bounded → validated →
swapped → done.

What a step did is in the journal, and every step can be repeated. A process that dies at any point leaves a table that
works, and the next run resumes where the journal ends, or takes back what was prepared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wane._db import Store
from wane._leases import Lease
from wane._partition.anatomy import Anatomy, anatomy_from
from wane._partition.journal import Change, PartitionJournal
from wane._partition.model import PartitionDone, PartitionPlan
from wane._partition.months import Month
from wane._partition.plan import MARGIN, PartitionPlanner
from wane._partition.sql_ddl import index_statements, old_name
from wane._partition.sql_steps import Note
from wane._partition.table import PartitionTarget
from wane._partition.work import PartitionWork
from wane.errors import PartitionError
from wane.events import WorkProgressed

_PREPARED = ("rooted", "bounded", "validated")


@dataclass(frozen=True, slots=True)
class Converter:
    """Converts tables of one contract."""

    work: PartitionWork

    @property
    def _planner(self) -> PartitionPlanner:
        return PartitionPlanner(self.work.store, self.work.contract, self.work.steps)

    def convert(self, target: PartitionTarget, *, accept: bool) -> PartitionDone:
        """Convert a table, then those that are partitioned along with it; resume where an earlier attempt ended."""
        work, planner = self.work, self._planner
        work.store.require_migrated()
        work.require_own(target)
        _require(planner.plan(target), accept=accept)
        began = time.monotonic()
        made: list[str] = []
        problems: list[str] = []
        for one in (target, *work.followers(target)):
            with work.leased(one) as lease:
                run = _Conversion(work, planner, one, lease)
                made += run.run()
                problems += run.problems
        did = "converted" if made else "nothing"
        return work.done(target, did, began, partitions=tuple(made), problems=tuple(problems))

    def unbind(self, target: PartitionTarget) -> None:
        """Take back the bound of a conversion that was left half-way, if its month begins soon.

        Otherwise it would reject the application's rows once that month has begun.
        """
        change = self.work.change(target)
        if change is None or change.kind != "convert" or not _too_near(target, change, self.work.store):
            return
        with self.work.leased(target) as lease:
            _Conversion(self.work, self._planner, target, lease).refresh()


def _too_near(target: PartitionTarget, change: Change, store: Store) -> bool:
    """Check whether the month at which a conversion was to end begins soon."""
    if change.state not in _PREPARED:
        return False
    return target.calendar.begins(Month.named(change.facts["until"])) - store.now() < MARGIN / 2


def _require(plan: PartitionPlan, *, accept: bool) -> None:
    """Raise unless a plan can be carried out and everything that it would break was accepted."""
    for one in (plan, *plan.along):
        if one.state.startswith("undo"):
            raise PartitionError(f"the undo of {one.table} is unfinished", "finish it first: `wane partition undo`")
    if plan.all_refused:
        what, fix = plan.all_refused[0]
        more = len(plan.all_refused) - 1
        problem = f"{plan.table} cannot be partitioned: {what}" + (f", and {more} more" if more else "")
        raise PartitionError(problem, fix or "`wane partition plan` shows everything")
    if plan.all_breaks and not accept:
        codes = ", ".join(dict.fromkeys(one.code for one in plan.all_breaks))
        raise PartitionError(
            f"converting {plan.table} would break statements of the application: {codes}",
            f"read `wane partition plan {plan.table}`, fix the application, then add --accept",
        )


class _Conversion:
    """One table, under a lease."""

    def __init__(self, work: PartitionWork, planner: PartitionPlanner, target: PartitionTarget, lease: Lease) -> None:
        self.work = work
        self.store = work.store
        self.steps = work.steps
        self.planner = planner
        self.target = target
        self.lease = lease
        self.problems: list[str] = []

    def run(self) -> list[str]:
        """Run the conversion to its end and return the partitions that were created."""
        change = self.work.change(self.target)
        if change is not None and (change.kind == "split" or (change.kind, change.state) == ("convert", "done")):
            return []  # A table that is being split was converted before.
        if change is not None and change.kind != "convert":
            raise PartitionError(
                f"the undo of {self.target.name} is unfinished", "finish it first: `wane partition undo`"
            )
        change = self._fresh(change) if change is not None else self._begin()
        steps: dict[str, Callable[[Anatomy, dict[str, Any]], None]] = {
            "planned": self._index,
            "indexed": self._root,
            "rooted": self._bound,
            "bounded": self._validate,
            "validated": self._swap,
            "swapped": self._finish,
        }
        while change.state != "done":
            began = time.monotonic()
            steps[change.state](anatomy_from(change.facts["anatomy"]), change.facts)
            found = self.work.change(self.target)
            assert found is not None
            change = found
            self.work.emit(self.target, change.state, began)
            done = len(steps) if change.state == "done" else list(steps).index(change.state)
            self.work.listener(WorkProgressed("convert", str(self.target.name), None, "step", done, len(steps)))
        return [change.facts["old"], *(name for name, _, _ in change.facts["leaves"])]

    def refresh(self) -> None:
        """Take back what was prepared for a month that is too near, and do nothing else."""
        change = self.work.change(self.target)
        if change is not None and change.kind == "convert":
            self._fresh(change)

    def _begin(self) -> Change:
        anatomy, refused, _ = self.steps.read(
            self.target.info.schema, self.target.info.name, self.target.settings.time.column
        )
        if anatomy is None:
            raise PartitionError(f"{self.target.name} cannot be partitioned: {refused[0][0]}", refused[0][1])
        return self._write("planned", {"anatomy": anatomy.as_json()})

    def _write(self, state: str, facts: dict[str, Any]) -> Change:
        with self.store.transaction() as transaction:
            self._note(state, facts)(transaction.execute)
            found = PartitionJournal(transaction.execute).change(self.target.full)
        assert found is not None
        return found

    def _note(self, state: str, facts: dict[str, Any]) -> Note:
        return self.work.noted(self.target, self.lease, "convert", state, facts)

    def _fresh(self, change: Change) -> Change:
        """Prepare an interrupted conversion again for a later month if the month at which it was to end is too near."""
        if not _too_near(self.target, change, self.store):
            return change
        anatomy = anatomy_from(change.facts["anatomy"])
        facts = {"anatomy": change.facts["anatomy"]}
        self.steps.discard(anatomy, self._note("indexed", facts), self.target.patience)
        return self._write("indexed", facts)

    # The steps

    def _index(self, a: Anatomy, facts: dict[str, Any]) -> None:
        for name, ddl in index_statements(a):
            self.steps.build_index(a, name, ddl)
        self._write("indexed", facts)

    def _root(self, a: Anatomy, facts: dict[str, Any]) -> None:
        until, refused = self.planner.boundary(self.target, self.store.now())
        if until is None:
            raise PartitionError(f"{self.target.name} cannot be partitioned: {refused[0][0]}", refused[0][1])
        leaves = self.planner.leaves(self.target, a, until)
        upper = self.target.calendar.literal(until)
        facts = {
            **facts,
            "until": until.name,
            "upper": upper,
            "old": old_name(a, until.name),
            "leaves": [[name, range_.lower, range_.upper] for name, range_ in leaves],
        }
        self.steps.make_root(a, leaves, self._note("rooted", facts), self.target.patience)

    def _bound(self, a: Anatomy, facts: dict[str, Any]) -> None:
        self.steps.bound(a, facts["upper"], self._note("bounded", facts), self.target.patience)

    def _validate(self, a: Anatomy, facts: dict[str, Any]) -> None:
        self.steps.validate(a, facts["upper"])
        self._write("validated", facts)

    def _swap(self, a: Anatomy, facts: dict[str, Any]) -> None:
        self.steps.swap(a, facts["old"], facts["upper"], self._note("swapped", facts), self.target.patience)

    def _finish(self, a: Anatomy, facts: dict[str, Any]) -> None:
        self.steps.analyze(a.table)
        self.problems += self.steps.validate_keys(a)
        self._write("done", facts)
