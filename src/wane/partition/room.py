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
from wane.store.schema import Kind

if TYPE_CHECKING:
    from wane.partition.model import PartitionDone, PartitionPlan, Retiring
    from wane.partition.place import Place
    from wane.partition.work import Work
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
            from wane.partition.plan import Planner

            return Planner(self._store, self._contract, steps).plan(self._place(table))

    def convert(self, table: str, *, accept: bool = False) -> PartitionDone:
        """Partition a table by the month while everybody works, and what is partitioned along. Safe to repeat after anything.

        `accept`: what the plan says would stop working may.
        """
        with self._working() as work:
            from wane.partition.convert import Converter

            return Converter(work).convert(self._place(table), accept=accept)

    def maintain(self, *tables: str) -> list[PartitionDone]:
        """Make the partitions that are missing ahead: of the tables named, or of all that are partitioned."""
        with self._working() as work:
            from wane.partition.maintain import Maintainer

            names = tables or [str(one.table) for one in self._contract.partitions]
            places = [self._place(name) for name in names]
            if not tables:
                places = [place for place in places if place.info.kind is Kind.PARTITIONED]
            return [Maintainer(work).maintain(place) for place in places]

    def undo(
        self,
        table: str,
        *,
        reattach: bool = False,
        pace: Pace | None = None,
        stop: threading.Event | None = None,
    ) -> PartitionDone:
        """Make a plain table of a partitioned one again: at once, and rows that came since follow a few at a time. Safe to repeat.

        `reattach`: months that are aside are put back first; without it they are a reason to refuse.
        """
        with self._working(pace, stop) as work:
            from wane.partition.retire import Retirer
            from wane.partition.undo import Undoer

            place = self._place(table)
            if reattach:
                Retirer(work, self._archiving).reattach_all(place)
            return Undoer(work).undo(place)

    def split(self, table: str, *, pace: Pace | None = None, stop: threading.Event | None = None) -> PartitionDone:
        """Split what a table was before it was partitioned into months: copied a few rows at a time beside everybody. Safe to repeat."""
        with self._working(pace, stop) as work:
            from wane.partition.split import Splitter

            return Splitter(work).split(self._place(table))

    def retire(
        self,
        table: str,
        *,
        dry_run: bool = False,
        pace: Pace | None = None,
        stop: threading.Event | None = None,
    ) -> list[Retiring]:
        """Let months go that are past their time, if the flags allow it; one with a row that must stay says why. Safe to repeat."""
        with self._working(pace, stop) as work:
            from wane.partition.retire import Retirer

            return Retirer(work, self._archiving).retire(self._place(table), dry_run=dry_run)

    def reattach(self, table: str, partition: str) -> Retiring:
        """Put a partition back that is aside, with what was taken along."""
        with self._working() as work:
            from wane.partition.retire import Retirer

            return Retirer(work, self._archiving).reattach(self._place(table), partition)

    def _place(self, table: str) -> Place:
        from wane.partition.place import find_place

        return find_place(self._store, self._contract, table)

    @contextmanager
    def _working(self, pace: Pace | None = None, stop: threading.Event | None = None) -> Iterator[Work]:
        with self._steps() as steps:
            from wane.partition.work import Work

            pace = pace or Pace.of(self._contract.sweep)
            yield Work(self._store, self._contract, steps, self._actor, self._listener, pace, stop or threading.Event())

    @contextmanager
    def _steps(self) -> Iterator[PostgresPartitions]:
        steps = self._store.partitions()
        try:
            yield steps
        finally:
            steps.close()
