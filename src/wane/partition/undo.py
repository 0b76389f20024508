"""From a partitioned table back to a plain one: the swap back takes milliseconds, whatever the partitions hold; then rows that came since are moved
into the table, a few at a time, while everybody works.

Before its swap a conversion is simply taken back.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from typing import Any

from wane.contract.model import Contract
from wane.errors import PartitionError
from wane.events import Listener, PartitionStep
from wane.partition.lease import leased, require
from wane.partition.model import PartitionDone
from wane.partition.place import Place, followers_of, place_of
from wane.prune.pace import Pace
from wane.store import Store
from wane.store.own import Execute
from wane.store.postgres.partition import PostgresPartitions
from wane.store.postgres.partition_anatomy import Anatomy, AnatomyKey, anatomy_from
from wane.store.postgres.partition_journal import Change, PartitionJournal
from wane.store.postgres.partition_steps import Note
from wane.store.timetable import Lease


class Undoer:
    """Takes tables of one contract back."""

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

    def undo(self, place: Place) -> PartitionDone:
        """Take a table back, after those that were partitioned along; go on where an earlier attempt ended."""
        self.store.require_migrated()
        began = time.monotonic()
        followers = [place_of(self.store, self.contract, one) for one in followers_of(self.contract, place.settings)]
        ways = []
        for one in (*followers, place):
            with leased(self.store, one.full) as lease:
                way = _WayBack(self, one, lease)
                ways.append(way)
                way.run(required=one is place and not any(other.did != "nothing" for other in ways[:-1]))
            if way.stopped:
                break
        held = self.steps.held
        return PartitionDone(
            table=str(place.name),
            did=ways[-1].did,
            partitions=tuple(name for way in ways for name in way.gone),
            rows=sum(way.rows for way in ways),
            longest_lock_seconds=round(held.seconds, 4),
            lock_waits=held.waits,
            seconds=round(time.monotonic() - began, 3),
            stopped=any(way.stopped for way in ways),
            problems=tuple(problem for way in ways for problem in way.problems),
        )


class _WayBack:
    """One table, under a lease."""

    def __init__(self, undoer: Undoer, place: Place, lease: Lease) -> None:
        self.store = undoer.store
        self.steps = undoer.steps
        self.listener = undoer.listener
        self.actor = undoer.actor
        self.pace = undoer.pace
        self.stop = undoer.stop
        self.place = place
        self.lease = lease
        self.did = "nothing"
        self.gone: list[str] = []
        self.rows = 0
        self.stopped = False
        self.problems: list[str] = []

    def run(self, *, required: bool) -> None:
        change = self._change()
        if change is None:
            if required:
                raise PartitionError(f"{self.place.name} was not partitioned by Wane", "there is nothing to take back")
            return
        a = anatomy_from(change.facts["anatomy"])
        if change.kind == "convert" and change.state not in ("swapped", "done"):
            self._take_back(a)
            return
        if change.kind == "split":
            change = self._unsplit(a, change)
        if change.kind != "undo":
            self._swap_back(a, change)
            change = self._change()
            assert change is not None
        self.did = "undone"
        if change.state == "merging":
            self._merge(a, change.facts)
        if not self.stopped:
            self._restore(a)

    def _change(self) -> Change | None:
        with self.steps.journaling() as journal:
            return journal.change(self.place.full)

    def _tell(self, step: str, began: float, partition: str | None = None) -> None:
        self.listener(PartitionStep(str(self.place.name), step, partition, time.monotonic() - began))

    def _note(self, state: str, facts: dict[str, Any]) -> Note:
        def note(run: Execute) -> None:
            require(self.store, self.lease, run)
            PartitionJournal(run).write(self.place.full, "undo", state, facts, self.actor)

        return note

    def _take_back(self, a: Anatomy) -> None:
        """Nothing was swapped yet: what was prepared is removed."""
        began = time.monotonic()
        facts = {"anatomy": a.as_json()}

        def note(run: Execute) -> None:
            require(self.store, self.lease, run)
            PartitionJournal(run).write(self.place.full, "convert", "planned", facts, self.actor)

        self.steps.discard(a, note, self.place.patience)
        self.steps.drop_own_indexes(a)
        self._forget()
        self.did = "rolled back"
        self._tell("rolled back", began)

    def _unsplit(self, a: Anatomy, change: Change) -> Change:
        """A copy into months that was not finished is thrown away first."""
        facts = {key: value for key, value in change.facts.items() if key not in ("split", "floor")}

        def note(run: Execute) -> None:
            require(self.store, self.lease, run)
            PartitionJournal(run).write(self.place.full, "convert", "done", facts, self.actor)

        self.steps.discard_split(a, change.facts["old"], note, self.place.patience)
        found = self._change()
        assert found is not None
        return found

    def _forget(self) -> None:
        with self.store.transaction() as transaction:
            require(self.store, self.lease, transaction.execute)
            PartitionJournal(transaction.execute).forget(self.place.full)

    def _swap_back(self, a: Anatomy, change: Change) -> None:
        began = time.monotonic()
        with self.steps.journaling() as journal:
            if journal.retired(self.place.full, "detaching"):
                raise PartitionError(
                    f"a partition of {self.place.name} is being retired", "`wane partition retire` finishes that first"
                )

        def note(run: Execute, filled: list[str], inbound: list[AnatomyKey]) -> None:
            keys = {(key.table, key.name): key for key in (*a.broken_keys, *inbound)}
            facts = {**change.facts, "filled": filled, "restore": [asdict(key) for key in keys.values()]}
            self._note("merging", facts)(run)

        self.steps.swap_back(a, change.facts["old"], note, self.place.patience)
        self._tell("swapped back", began)

    def _merge(self, a: Anatomy, facts: dict[str, Any]) -> None:
        for leaf in facts["filled"]:
            began, batch = time.monotonic(), self.pace.first_batch
            while True:
                if self.stop.is_set():
                    self.stopped = True
                    return
                started = time.monotonic()
                moved = self.steps.merge(a, leaf, batch, self.place.patience)
                self.rows += moved
                taken = time.monotonic() - started
                if moved == 0 and self.steps.drop_merged(a, leaf, self._note("merging", facts), self.place.patience):
                    break
                batch = self.pace.next_batch(batch, taken)
                self.stop.wait(self.pace.pause_seconds(taken))
            self.gone.append(leaf)
            self._tell("merged", began, leaf)
        keys = [AnatomyKey(**key) for key in facts["restore"]]
        self.steps.restore_keys(a, keys, self._note("restored", facts), self.place.patience)

    def _restore(self, a: Anatomy) -> None:
        began = time.monotonic()
        self.problems += self.steps.validate_keys(a)
        self.steps.drop_own_indexes(a)
        self.steps.analyze(a.table)
        self._forget()
        self._tell("plain", began)
