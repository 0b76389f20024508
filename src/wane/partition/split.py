"""The table of before, split into months by a copy beside the application: copying → done. Stopped or killed, it goes on where it was."""

from __future__ import annotations

import threading
import time
from typing import Any

from wane.contract.model import Contract
from wane.errors import PartitionError
from wane.events import Listener, PartitionStep
from wane.partition.lease import leased, require
from wane.partition.model import PartitionDone
from wane.partition.months import Month
from wane.partition.place import Place, followers_of, place_of
from wane.prune.pace import Pace
from wane.store import Store
from wane.store.own import Execute
from wane.store.partitions import MIN, Range
from wane.store.postgres.partition import PostgresPartitions
from wane.store.postgres.partition_anatomy import Anatomy, anatomy_from
from wane.store.postgres.partition_journal import Change, PartitionJournal
from wane.store.postgres.partition_statements import early_name, month_name
from wane.store.postgres.partition_statements import place as placed
from wane.store.postgres.partition_steps import Note
from wane.store.timetable import Lease

_MOST_MONTHS = 240


class Splitter:
    """Splits tables of one contract."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        steps: PostgresPartitions,
        *,
        actor: str,
        listener: Listener,
        pace: Pace,
        stop: threading.Event,
    ) -> None:
        self.store = store
        self.contract = contract
        self.steps = steps
        self.actor = actor
        self.listener = listener
        self.pace = pace
        self.stop = stop

    def split(self, place: Place) -> PartitionDone:
        """Split what a table was before it was partitioned, and what is partitioned along; go on where an earlier attempt ended."""
        self.store.require_migrated()
        began, made, rows = time.monotonic(), list[str](), 0
        followers = [place_of(self.store, self.contract, one) for one in followers_of(self.contract, place.settings)]
        for one in (place, *followers):
            with leased(self.store, one.full) as lease:
                names, copied = self._split(one, lease)
            made, rows = made + names, rows + copied
            if self.stop.is_set():
                break
        held = self.steps.held
        return PartitionDone(
            table=str(place.name),
            did="split" if made else "nothing",
            partitions=tuple(made),
            rows=rows,
            longest_lock_seconds=round(held.seconds, 4),
            lock_waits=held.waits,
            seconds=round(time.monotonic() - began, 3),
            stopped=self.stop.is_set(),
        )

    def _change(self, place: Place) -> Change:
        with self.steps.journaling() as journal:
            change = journal.change(place.full)
        if change is None or (change.kind, change.state) not in (("convert", "done"), ("split", "copying")):
            raise PartitionError(f"{place.name} is not partitioned, or on its way", "convert it first")
        return change

    def _split(self, place: Place, lease: Lease) -> tuple[list[str], int]:
        change, began = self._change(place), time.monotonic()
        a, old = anatomy_from(change.facts["anatomy"]), change.facts["old"]
        if old not in [leaf.name for leaf in self.steps.leaves(a.schema, a.name)]:
            return [], 0  # It was split already, or has left.
        if change.kind == "convert":
            leaves = self._months(place, a, change)
            facts = {**change.facts, "split": [[name, range_.lower, range_.upper] for name, range_ in leaves]}
            note = self._noted(place, lease, "split", "copying", facts)
            self.steps.begin_split(a, old, leaves, note, place.patience)
            change = self._change(place)
        rows = self._copy(place, lease, a, change)
        if self.stop.is_set():
            return [], rows
        wrong = self.steps.differs(a, old)
        if wrong:
            raise PartitionError(
                f"the copy of {place.name} is not what it was copied from: {wrong}", "nothing was swapped; undo it"
            )
        names = [name for name, _, _ in change.facts["split"]]
        facts = {key: value for key, value in change.facts.items() if key not in ("split", "floor")}
        self.steps.swap_split(a, old, self._noted(place, lease, "convert", "done", facts), place.patience)
        self.steps.analyze(a.table)
        self.steps.validate_keys(a)
        self.listener(PartitionStep(str(place.name), "split", None, time.monotonic() - began))
        return names, rows

    def _noted(self, place: Place, lease: Lease, kind: str, state: str, facts: dict[str, Any]) -> Note:
        def note(run: Execute) -> None:
            require(self.store, lease, run)
            PartitionJournal(run).write(place.full, kind, state, facts, self.actor)

        return note

    def _months(self, place: Place, a: Anatomy, change: Change) -> list[tuple[str, Range]]:
        """The months of the rows that are there, and what catches whatever lies before."""
        calendar, until = place.calendar, Month.named(change.facts["until"])
        first, _ = self.steps.edges(placed(a, change.facts["old"]), a.time)
        earliest = None if first is None else calendar.moment(first)
        month = until if earliest is None else min(calendar.month_of(earliest), until)
        month = max(month, until.later(-_MOST_MONTHS))
        leaves = [(early_name(a), Range(MIN, calendar.literal(month)))]
        while month < until:
            leaves.append((month_name(a, month.name), Range(calendar.literal(month), calendar.literal(month.later()))))
            month = month.later()
        return leaves

    def _copy(self, place: Place, lease: Lease, a: Anatomy, change: Change) -> int:
        facts, floor, batch, rows = change.facts, change.facts.get("floor"), self.pace.first_batch, 0
        while not self.stop.is_set():
            began = time.monotonic()

            def note(run: Execute, end: list[str]) -> None:
                self._noted(place, lease, "split", "copying", {**facts, "floor": end})(run)

            count, floor = self.steps.copy_some(a, facts["old"], floor, batch, note)
            if not count:
                break
            rows += count
            taken = time.monotonic() - began
            batch = self.pace.next_batch(batch, taken)
            self.stop.wait(self.pace.pause_seconds(taken))
        return rows
