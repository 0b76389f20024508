"""The partitions of one keeper: planning, converting, maintaining, retiring and undoing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wane._contract.model import Contract
from wane._db import Store
from wane._db.schema import Kind
from wane._partition.sql import partitions_of
from wane._prune.pace import Pace
from wane.events import Listener, ignore_event

if TYPE_CHECKING:
    from wane._partition.model import PartitionDone, PartitionPlan, Retiring
    from wane._partition.sql import PostgresPartitions
    from wane._partition.table import PartitionTarget
    from wane._partition.work import PartitionWork


class Partition:
    """Partitions (PostgreSQL): see docs/how-to/partition.md. On SQLite every call is refused."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        *,
        actor: str,
        archiving: Callable[[str], None],
        listener: Listener = ignore_event,
    ) -> None:
        """Set up the partitions of a contract. `archiving` moves the due rows of a table to the archive, or raises."""
        self._store = store
        self._contract = contract
        self._actor = actor
        self._listener = listener
        self._archiving = archiving

    def plan(self, table: str) -> PartitionPlan:
        """Report what converting a table would do, what would stop working, and whether it is worth it.

        Every statement is listed. Reads only.
        """
        with self._steps() as steps:
            from wane._partition.plan import PartitionPlanner

            return PartitionPlanner(self._store, self._contract, steps).plan(self._target(table))

    def convert(self, table: str, *, accept: bool = False) -> PartitionDone:
        """Partition a table by month, and those partitioned along with it, while the application runs.

        Safe to repeat after any interruption. `accept`: accept that what the plan lists as breaking stops working.
        """
        with self._working() as work:
            from wane._partition.convert import Converter

            return Converter(work).convert(self._target(table), accept=accept)

    def maintain(self, *tables: str) -> list[PartitionDone]:
        """Create the partitions that are missing ahead: of the tables named, or of all that are partitioned."""
        with self._working() as work:
            from wane._partition.months_ahead import MonthsAhead

            names = tables or [str(one.table) for one in self._contract.partitions]
            targets = [self._target(name) for name in names]
            if not tables:
                targets = [
                    one for one in targets if one.info.kind is Kind.PARTITIONED and not one.settings.by_application
                ]
            return [MonthsAhead(work).create(target) for target in targets]

    def undo(
        self,
        table: str,
        *,
        reattach: bool = False,
        pace: Pace | None = None,
        stop: threading.Event | None = None,
    ) -> PartitionDone:
        """Make a partitioned table plain again.

        The swap is immediate; rows that came since are moved in small batches. Safe to repeat. `reattach`: months that
        are in quarantine are put back first; without it they are a reason to refuse.
        """
        with self._working(pace, stop) as work:
            from wane._partition.retire import Retirer
            from wane._partition.undo import Undoer

            target = self._target(table)
            work.require_own(target)
            if reattach:
                Retirer(work, self._archiving).reattach_all(target)
            return Undoer(work).undo(target)

    def split(self, table: str, *, pace: Pace | None = None, stop: threading.Event | None = None) -> PartitionDone:
        """Split the partition that holds everything from before the conversion into months.

        Rows are copied in small batches while the application runs. Safe to repeat.
        """
        with self._working(pace, stop) as work:
            from wane._partition.split import Splitter

            return Splitter(work).split(self._target(table))

    def retire(
        self,
        table: str,
        *,
        dry_run: bool = False,
        pace: Pace | None = None,
        stop: threading.Event | None = None,
    ) -> list[Retiring]:
        """Retire partitions that are past their time, if the flags allow it.

        A partition with a row that must stay is retained, and the reason is reported. Safe to repeat.
        """
        with self._working(pace, stop) as work:
            from wane._partition.retire import Retirer

            return Retirer(work, self._archiving).retire(self._target(table), dry_run=dry_run)

    def reattach(self, table: str, partition: str) -> Retiring:
        """Put a partition that is in quarantine back, with what was taken along."""
        with self._working() as work:
            from wane._partition.retire import Retirer

            return Retirer(work, self._archiving).reattach(self._target(table), partition)

    def _target(self, table: str) -> PartitionTarget:
        from wane._partition.table import find_target

        return find_target(self._store, self._contract, table)

    @contextmanager
    def _working(self, pace: Pace | None = None, stop: threading.Event | None = None) -> Iterator[PartitionWork]:
        with self._steps() as steps:
            from wane._partition.work import PartitionWork

            pace = pace or Pace.of(self._contract.sweep)
            yield PartitionWork(
                self._store, self._contract, steps, self._actor, self._listener, pace, stop or threading.Event()
            )

    @contextmanager
    def _steps(self) -> Iterator[PostgresPartitions]:
        steps = partitions_of(self._store)
        try:
            yield steps
        finally:
            steps.close()
