"""What every change of partitions works with: the store and its steps, the actor, the listener, the pace, and the
journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wane.contract.model import Contract
from wane.db import Store
from wane.db.statement import Execute
from wane.errors import PartitionError
from wane.events import Listener, PartitionStep
from wane.leases import Lease
from wane.partition.journal import Change, PartitionJournal
from wane.partition.lease import require
from wane.partition.model import PartitionDone
from wane.partition.sql import PostgresPartitions
from wane.partition.sql_steps import Note
from wane.partition.table import Place, followers_of, place_of
from wane.prune.pace import Pace


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """Changes to partitions of one contract's tables."""

    store: Store
    contract: Contract
    steps: PostgresPartitions
    actor: str
    listener: Listener
    pace: Pace
    stop: threading.Event

    def followers(self, place: Place) -> list[Place]:
        """Resolve the tables that are partitioned along with another."""
        return [place_of(self.store, self.contract, one) for one in followers_of(self.contract, place.settings)]

    def change(self, place: Place) -> Change | None:
        """Return the progress of a table, by the journal; None for one that Wane never partitioned."""
        with self.steps.journaling() as journal:
            return journal.change(place.full)

    def partitioned(self, place: Place, *, splitting: bool = False, lead: Place | None = None) -> Change:
        """Return the change that partitioned a table; raise, with what finishes it, if it is incomplete.

        `splitting`: accept one that is being split. `lead`: the table that it is partitioned along with.
        """
        change, name = self.change(place), (lead or place).name
        if change is None or (change.kind, change.state) == ("undo", "restored"):
            raise PartitionError(
                f"{place.name} is not partitioned by Wane", f"`wane partition convert {name}` does that"
            )
        if change.kind == "undo":
            raise PartitionError(
                f"{place.name} is on its way back", f"`wane partition undo {name}` finishes that first"
            )
        if change.kind == "split" and not splitting:
            raise PartitionError(
                f"{place.name} is being split into months",
                f"`wane partition convert {name} --split` goes on; `wane partition undo {name}` takes it back",
            )
        if change.kind == "convert" and change.state not in ("swapped", "done"):
            raise PartitionError(
                f"{place.name} was converted half-way: {change.state}",
                f"`wane partition convert {name} --accept` goes on; `wane partition undo {name}` takes it back",
            )
        return change

    def noted(self, place: Place, lease: Lease, kind: str, state: str, facts: Mapping[str, Any]) -> Note:
        """Return what writes the progress of a table in the transaction of a step, and raises if the lease was lost."""

        def note(run: Execute) -> None:
            require(self.store, lease, run)
            PartitionJournal(run).write(place.full, kind, state, facts, self.actor)

        return note

    def tell(self, place: Place, step: str, began: float, partition: str | None = None) -> None:
        """Emit that a table reached a step, which began at that time of the monotonic clock."""
        self.listener(PartitionStep(str(place.name), step, partition, time.monotonic() - began))

    def rest(self, taken: float) -> None:
        """Pause after a batch that took this number of seconds, or until a stop is requested."""
        self.stop.wait(self.pace.pause_seconds(taken))

    def done(self, place: Place, did: str, began: float, **told: Any) -> PartitionDone:
        """Build the report of what was done to a table, with the locks that it took."""
        held = self.steps.held
        return PartitionDone(
            table=str(place.name),
            did=did,
            longest_lock_seconds=round(held.seconds, 4),
            lock_waits=held.waits,
            seconds=round(time.monotonic() - began, 3),
            **told,
        )
