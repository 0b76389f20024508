"""What every change of partitions works with: the store and its steps, the actor, the listener, the pace, and the
journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wane._contract.model import Contract
from wane._db import Store
from wane._db.schema import Kind
from wane._db.statement import Execute
from wane._leases import Lease, Leases, leased
from wane._partition.anatomy import RETIRE_ONLY, Anatomy, anatomy_from
from wane._partition.journal import Change, PartitionJournal
from wane._partition.model import PartitionDone
from wane._partition.sql import PostgresPartitions
from wane._partition.sql_steps import Note
from wane._partition.table import PartitionTarget, followers_of, target_of
from wane._prune.pace import Pace
from wane._prune.pacing import Pacing
from wane._rules.partitions import partition_misfit
from wane.errors import PartitionBusy, PartitionError
from wane.events import Listener, PartitionStep

LEASE_SECONDS = 30
_MOST_SECONDS = 25.0
"""The longest that one statement under the lease may take."""


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

    def followers(self, target: PartitionTarget) -> list[PartitionTarget]:
        """Resolve the tables that are partitioned along with another."""
        return [target_of(self.store, self.contract, one) for one in followers_of(self.contract, target.settings)]

    def change(self, target: PartitionTarget) -> Change | None:
        """Return the progress of a table, by the journal; None for one that Wane never partitioned."""
        with self.steps.journaling() as journal:
            return journal.change(target.full)

    def partitioned(
        self, target: PartitionTarget, *, splitting: bool = False, lead: PartitionTarget | None = None
    ) -> Change:
        """Return the change that partitioned a table; raise, with what finishes it, if it is incomplete.

        `splitting`: accept one that is being split. `lead`: the table that it is partitioned along with.
        """
        self.require_own(target)
        change, name = self.change(target), (lead or target).name
        if change is None or (change.kind, change.state) == ("undo", "restored"):
            convert = f"`wane partition convert {name}` does that"
            raise PartitionError(
                f"{target.name} is not partitioned by Wane",
                RETIRE_ONLY if target.info.kind is Kind.PARTITIONED else convert,
            )
        if change.kind == "undo":
            raise PartitionError(
                f"the undo of {target.name} is unfinished", f"finish it first: `wane partition undo {name}`"
            )
        if change.kind == "split" and not splitting:
            raise PartitionError(
                f"{target.name} is being split into months",
                f"`wane partition convert {name} --split` goes on; `wane partition undo {name}` takes it back",
            )
        if change.kind == "convert" and change.state not in ("swapped", "done"):
            raise PartitionError(
                f"{target.name} was converted half-way: {change.state}",
                f"`wane partition convert {name} --accept` goes on; `wane partition undo {name}` takes it back",
            )
        return change

    def require_own(self, target: PartitionTarget) -> None:
        """Raise if the application makes the partitions of a table."""
        if target.settings.by_application:
            raise PartitionError(
                f"the application makes the partitions of {target.name}",
                f"`wane partition retire {target.name}` retires them, and Wane does nothing else to them",
            )

    def anatomy(self, target: PartitionTarget, lead: PartitionTarget | None = None) -> Anatomy:
        """Return the definition of a table whose partitions can be retired; raise if there are none."""
        if not target.settings.by_application:
            a = anatomy_from(self.partitioned(target, lead=lead).facts["anatomy"])
            self.steps.partition_key(a.schema, a.name)
            return a
        if self.change(target) is not None:
            raise PartitionError(
                f"Wane has converted {target.name}, so it makes its partitions",
                f"remove `made_by` from [partition.{(lead or target).name}]",
            )
        misfit = partition_misfit(self.store, target.info, target.settings.time)
        if misfit is not None:
            raise PartitionError(*misfit)
        return self.steps.read_partitioned(target.info.schema, target.info.name, target.settings.time.column)

    @contextmanager
    def leased(self, target: PartitionTarget) -> Iterator[Lease]:
        """Hold the lease of a table's partitions; raise PartitionBusy if another process holds it."""
        doing = f"the partitions of {target.full} are being changed"
        # The caller may be inside a long statement when the lease has to be renewed.
        with (
            self.store.clone() as other,
            leased(other, f"partition {target.full}", LEASE_SECONDS, busy=PartitionBusy, doing=doing) as lease,
        ):
            yield lease

    def require(self, lease: Lease, run: Execute) -> None:
        """Raise LeaseLost unless the lease is still held, and keep it held until the transaction has ended."""
        Leases(self.store.dialect).require(run, lease, self.store.clock(), most_seconds=_MOST_SECONDS)

    def noted(self, target: PartitionTarget, lease: Lease, kind: str, state: str, facts: Mapping[str, Any]) -> Note:
        """Return what writes the progress of a table in the transaction of a step, and raises if the lease was lost."""

        def note(run: Execute) -> None:
            self.require(lease, run)
            PartitionJournal(run).write(target.full, kind, state, facts, self.actor)

        return note

    def emit(self, target: PartitionTarget, step: str, began: float, partition: str | None = None) -> None:
        """Emit that a table reached a step, which began at that time of the monotonic clock."""
        self.listener(PartitionStep(str(target.name), step, partition, time.monotonic() - began))

    def pacing(self, target: PartitionTarget) -> Pacing:
        """Return what sizes the batches of work on a table, pauses after each, and stops between two."""
        return Pacing(self.store, self.pace, self.stop, self.listener, table=str(target.name))

    def done(self, target: PartitionTarget, did: str, began: float, **details: Any) -> PartitionDone:
        """Build the report of what was done to a table, with the locks that it took."""
        held = self.steps.held
        return PartitionDone(
            table=str(target.name),
            did=did,
            longest_lock_seconds=round(held.seconds, 4),
            lock_waits=held.waits,
            seconds=round(time.monotonic() - began, 3),
            **details,
        )
