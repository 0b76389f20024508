"""The partitions of one keeper: planning, converting, keeping, and going back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wane.contract.model import Contract
from wane.events import Listener, nobody
from wane.prune.pace import Pace
from wane.store import Store

if TYPE_CHECKING:
    from wane.partition.model import PartitionDone, PartitionPlan, Retiring
    from wane.partition.retire import Retirer
    from wane.store.postgres.partition import PostgresPartitions


class Partition:
    """Tables by the month (PostgreSQL): see docs/how-to/partition.md. On SQLite every call is refused."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        *,
        actor: str,
        archiving: Callable[[str], None],
        listener: Listener = nobody,
    ) -> None:
        """`archiving` moves the due rows of a table to the archive, or raises."""
        self._store = store
        self._contract = contract
        self._actor = actor
        self._listener = listener
        self._archiving = archiving

    def plan(self, table: str) -> PartitionPlan:
        """What converting a table would do, statement by statement, what would stop working, and whether it is worth it. Reads only."""
        with self._steps() as steps:
            from wane.partition.place import find_place
            from wane.partition.plan import Planner

            return Planner(self._store, self._contract, steps).plan(find_place(self._store, self._contract, table))

    def convert(self, table: str, *, accept: bool = False) -> PartitionDone:
        """Partition a table by the month while everybody works, and what is partitioned along. Safe to repeat after anything.

        `accept`: what the plan says would stop working may.
        """
        with self._steps() as steps:
            from wane.partition.convert import Converter
            from wane.partition.place import find_place

            converter = Converter(self._store, self._contract, steps, actor=self._actor, listener=self._listener)
            return converter.convert(find_place(self._store, self._contract, table), accept=accept)

    def maintain(self, *tables: str) -> list[PartitionDone]:
        """Make the partitions that are missing ahead: of the tables named, or of all that are partitioned."""
        with self._steps() as steps:
            from wane.partition.maintain import Maintainer
            from wane.partition.place import find_place

            maintainer = Maintainer(self._store, self._contract, steps, listener=self._listener)
            names = tables or [str(one.table) for one in self._contract.partitions]
            places = [find_place(self._store, self._contract, name) for name in names]
            if not tables:
                places = [place for place in places if place.info.kind.value == "partitioned table"]
            return [maintainer.maintain(place) for place in places]

    def undo(self, table: str, *, pace: Pace | None = None, stop: threading.Event | None = None) -> PartitionDone:
        """Make a plain table of a partitioned one again: at once, and rows that came since follow a few at a time. Safe to repeat."""
        with self._steps() as steps:
            from wane.partition.place import find_place
            from wane.partition.undo import Undoer

            undoer = Undoer(
                self._store,
                self._contract,
                steps,
                actor=self._actor,
                listener=self._listener,
                pace=pace or Pace.of(self._contract.sweep),
                stop=stop or threading.Event(),
            )
            return undoer.undo(find_place(self._store, self._contract, table))

    def split(self, table: str, *, pace: Pace | None = None, stop: threading.Event | None = None) -> PartitionDone:
        """Split what a table was before it was partitioned into months: copied a few rows at a time beside everybody. Safe to repeat."""
        with self._steps() as steps:
            from wane.partition.place import find_place
            from wane.partition.split import Splitter

            splitter = Splitter(
                self._store,
                self._contract,
                steps,
                actor=self._actor,
                listener=self._listener,
                pace=pace or Pace.of(self._contract.sweep),
                stop=stop or threading.Event(),
            )
            return splitter.split(find_place(self._store, self._contract, table))

    def retire(
        self,
        table: str,
        *,
        dry_run: bool = False,
        pace: Pace | None = None,
        stop: threading.Event | None = None,
    ) -> list[Retiring]:
        """Let months go that are past their time, if the flags allow it; one with a row that must stay says why. Safe to repeat."""
        with self._retiring(pace, stop) as retirer:
            from wane.partition.place import find_place

            return retirer.retire(find_place(self._store, self._contract, table), dry_run=dry_run)

    def reattach(self, table: str, partition: str) -> Retiring:
        """Put a partition back that is aside, with what was taken along."""
        with self._retiring(None, None) as retirer:
            from wane.partition.place import find_place

            return retirer.reattach(find_place(self._store, self._contract, table), partition)

    @contextmanager
    def _retiring(self, pace: Pace | None, stop: threading.Event | None) -> Iterator[Retirer]:
        with self._steps() as steps:
            from wane.partition.retire import Retirer

            yield Retirer(
                self._store,
                self._contract,
                steps,
                actor=self._actor,
                listener=self._listener,
                archiving=self._archiving,
                pace=pace or Pace.of(self._contract.sweep),
                stop=stop or threading.Event(),
            )

    @contextmanager
    def _steps(self) -> Iterator[PostgresPartitions]:
        steps = self._store.partitions()
        try:
            yield steps
        finally:
            steps.close()
