"""What all maintenance of the archive shares: which sweeps write to which of its tables, one writer at a time, gates,
and jobs that were left unfinished.

A job replaces files with others. It is recorded first; then, in one transaction that checks its leases, the gates and
holds, the archive's commits are made and the audit entry is written. A process that dies in between leaves a job that
the next one finishes, if its first commit was made, or abandons.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

from wane._archive.context import ArchiveContext
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.commits import record, require_whole, seen
from wane._archive.delta.files import Replacement, committed, replace
from wane._archive.journal import ArchivedSweep, Journal
from wane._archive.maintenance.archived_holds import ArchivedHold, NewHold, find, holds_of
from wane._archive.maintenance.journal import EXPIRE, Jobs, MaintenanceJob
from wane._archive.restore.journal import RestoreJournal
from wane._contract.model import Table, ToArchive
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._ledger import Ledger
from wane._prune.pacing import Closed
from wane._prune.sql_outbox import OutboxEvent, write_event
from wane.errors import ArchiveChanged, ArchiveError
from wane.events import ArchiveMaintained, hard_deleted, hard_deleted_name


class Upkeep:
    """Maintains the archive of one contract; `reading`, as a dry run does, it writes nothing and waits for no
    writer."""

    def __init__(self, context: ArchiveContext, *, reading: bool = False) -> None:
        self.context = context
        self.reading = reading
        self.store = context.store
        self.contract = context.contract
        self._root, self._origin = context.root, context.origin(reading=reading)
        self._colds: dict[str, ColdTable] = {}

    def cold(self, name: str) -> ColdTable:
        return self._colds.setdefault(
            name, ColdTable(self._root, name, self._origin, shared=self.contract.archive_shared)
        )

    # Who writes what

    def tables(self) -> list[Table]:
        """Return tables whose rows move to the archive."""
        return [
            table for table in self.contract.tables if any(isinstance(one.action, ToArchive) for one in table.rules)
        ]

    def sweeps(self) -> dict[int, ArchivedSweep]:
        with self.store.snapshot() as transaction:
            return Journal(transaction).summaries()

    def written_by(self, table: str, sweeps: dict[int, ArchivedSweep]) -> list[str]:
        """Return the archive's tables that a table's sweeps write to, by the contract or earlier; its own first."""
        now = [
            str(follower.reference.table)
            for one, rule, follower in self.contract.followers()
            if str(one.name) == table and isinstance(rule.action, ToArchive)
        ]
        before = sorted(name for one in sweeps.values() if one.table == table for name in one.wrote)
        return list(dict.fromkeys([table, *now, *before]))

    def writers(self, name: str, sweeps: dict[int, ArchivedSweep]) -> list[str]:
        """Return the tables whose sweeps write to one of the archive's tables."""
        known = sorted({str(table.name) for table in self.tables()} | {one.table for one in sweeps.values()})
        return [table for table in known if name in self.written_by(table, sweeps)]

    # One writer at a time

    @contextmanager
    def leases(self, names: Sequence[str], sweeps: dict[int, ArchivedSweep]) -> Iterator[list[Lease]]:
        """Hold the leases of some of the archive's tables, whose logs are complete.

        Jobs that were left there are finished or abandoned first.
        """
        with self.hold_leases(names, sweeps) as held:
            self.require_whole(names)
            self._finish({*names, *(writer for name in names for writer in self.writers(name, sweeps))}, held)
            yield held

    @contextmanager
    def hold_leases(
        self, names: Sequence[str], sweeps: dict[int, ArchivedSweep], *, adopting: bool = False
    ) -> Iterator[list[Lease]]:
        """Hold the leases of every table whose sweeps write to some of the archive's tables."""
        wanted = sorted({writer for name in names for writer in self.writers(name, sweeps)})
        with ExitStack() as stack:
            yield [stack.enter_context(self.context.leased(table, adopting=adopting)) for table in wanted]

    def require_whole(self, names: Sequence[str]) -> None:
        """Raise if the log of one of the archive's tables has lost commits."""
        require_whole(self.store, map(self.cold, names), recording=not self.reading)

    @contextmanager
    def transaction(self, leases: Sequence[Lease]) -> Iterator[Transaction]:
        """Open a transaction in which the leases are held until it ends; raise if one was lost."""
        with self.store.transaction() as transaction:
            self.context.fence(transaction)
            journal = Journal(transaction)
            for lease in leases:
                journal.require(lease)
            yield transaction

    def require_restored(self, table: str) -> None:
        """Raise if a restore of a table is unfinished: what it restores must not leave the archive meanwhile."""
        with self.store.snapshot() as transaction:
            restore = RestoreJournal(transaction).unfinished(table)
        if restore is not None:
            raise ArchiveError(
                f"restore {restore.id} of {table} is unfinished: what it restores must not expire meanwhile",
                f"let it finish first: `wane archive run {table}`; or end it: `wane archive cancel-restore {restore.id}`",
            )

    def require_no_new_hold(self, transaction: Transaction, names: Sequence[str], held: ArchivedHold) -> None:
        """Raise NewHold if a hold was placed on some of the archive's tables since `held` was read.

        Holds that are placed from now on wait until this transaction ends.
        """
        tables = find(self.store, names)
        transaction.enter(tables)
        if {hold.id for hold in holds_of(transaction, tables)} - held.known:
            raise NewHold("new holds are being placed")

    # Jobs

    def begin(self, table: str, kind: str, leases: Sequence[Lease]) -> int:
        with self.transaction(leases) as transaction:
            self.context.require_open(transaction, table)
            return Jobs(transaction).begin(table, kind, actor=self.context.actor)

    def unfinished(self, names: Collection[str] | None = None) -> list[MaintenanceJob]:
        """Return jobs that have not ended, of all of the archive's tables or of some, newest first."""
        with self.store.snapshot() as transaction:
            return [job for job in Jobs(transaction).open() if names is None or job.table in names]

    def abandon(self, job: int, leases: Sequence[Lease]) -> None:
        """Abandon a job of which nothing was committed. What it wrote is in no table, and is tidied later."""
        with self.transaction(leases) as transaction:
            Jobs(transaction).end(job, "abandoned")

    def plan(self, job: int, plan: Any, leases: Sequence[Lease]) -> None:
        with self.transaction(leases) as transaction:
            Jobs(transaction).plan(job, plan)

    def carry_out(
        self,
        job: int,
        table: str,
        kind: str,
        plan: Any,
        leases: Sequence[Lease],
        *,
        may: Callable[[Transaction], None] = lambda _: None,
    ) -> None:
        """Record the plan of a job, commit it, and record it in the audit trail.

        `may` raises if it must not be carried out any more. A job that is refused before its first commit is abandoned.
        """
        self.plan(job, plan, leases)
        began = time.monotonic()
        try:
            with self.transaction(leases) as transaction:
                self.context.require_open(transaction, table)
                may(transaction)
                changes = read_changes(plan)
                audit = self._conclude(transaction, job, table, kind, plan["inputs"], changes)
                # Last: whatever the database refuses, it has refused by now. The row first, what left with it after: a
                # reader who sees the row in the archive also sees what left with it.
                for change in changes:
                    replace(self.cold(change.table), table, job, change, leases, rows_leave=kind == EXPIRE)
                self._record(transaction, changes)
        except (NewHold, Closed, ArchiveChanged):
            if not self.begun(job, table, plan):
                self.abandon(job, leases)
            raise
        self._emit(table, kind, changes, audit, time.monotonic() - began)

    def _conclude(
        self, transaction: Transaction, job: int, table: str, kind: str, inputs: Any, changes: Sequence[Replacement]
    ) -> int:
        now = transaction.now()
        gone = {change.table: change.gone for change in changes}
        ledger, actor = Ledger.of(transaction), self.context.actor
        audit = ledger.note(f"archive_{kind}", table, actor, inputs, now, counts=gone, run=f"{kind}-{job}")
        for change in changes if kind == EXPIRE else ():
            if change.gone and self.contract.events.emits_hard_deleted(change.table):
                event = OutboxEvent(hard_deleted_name(change.table), change.table, change.gone, audit, now)
                write_event(self.store, transaction.execute, self.contract.events.outbox, event)
        Jobs(transaction).end(job, "done", audit_id=audit)
        return audit

    def _emit(self, table: str, kind: str, changes: Sequence[Replacement], audit: int, seconds: float) -> None:
        for change in changes if kind == EXPIRE else ():
            if change.gone and self.contract.events.emits_hard_deleted(change.table):
                self.context.listener(hard_deleted(change.table, None, change.gone, audit))
        self.context.listener(
            ArchiveMaintained(
                kind,
                table,
                {change.table: change.gone for change in changes},
                sum(len(change.removed) for change in changes),
                sum(file.bytes for change in changes for file in change.removed)
                - sum(file.bytes for change in changes for file in change.added),
                seconds,
            )
        )

    def record_nothing(
        self,
        table: str,
        kind: str,
        names: Sequence[str],
        leases: Sequence[Lease],
        *,
        inputs: dict[str, Any],
        cutoff: datetime | None = None,
    ) -> None:
        """Record in the audit trail that maintenance of a kind found nothing to do."""
        with self.transaction(leases) as transaction:
            counts, actor, now = dict.fromkeys(names, 0), self.context.actor, transaction.now()
            Ledger.of(transaction).note(f"archive_{kind}", table, actor, inputs, now, counts=counts, cutoff=cutoff)

    def finish(self, table: str) -> None:
        """Finish or abandon jobs that an earlier process left in a table's archive, under the rules they began with."""
        sweeps = self.sweeps()
        names = self.written_by(table, sweeps)
        if self.unfinished(names):
            with self.leases(names, sweeps):
                pass

    def _finish(self, names: set[str], leases: Sequence[Lease]) -> None:
        """Finish a job that an earlier process left if it was committed in part; abandon it otherwise."""
        for job in self.unfinished(names):
            for change in [] if job.plan is None else read_changes(job.plan):
                # From here on the process that left it cannot commit anything any more.
                self.cold(change.table).take_over(leases)
            if job.plan is None or not self.begun(job.id, job.table, job.plan):
                self.abandon(job.id, leases)
                continue
            with self.transaction(leases) as transaction:
                changes = [change for change in read_changes(job.plan) if self._made(job, change, leases)]
                audit = self._conclude(transaction, job.id, job.table, job.kind, job.plan["inputs"], changes)
                self._record(transaction, changes)
            self._emit(job.table, job.kind, changes, audit, 0.0)

    def _record(self, transaction: Transaction, changes: Sequence[Replacement]) -> None:
        record(transaction, seen(self.cold(change.table) for change in changes))

    def _made(self, job: MaintenanceJob, change: Replacement, leases: Sequence[Lease]) -> bool:
        """Make a change of a job; return whether that was possible after all."""
        try:
            replace(self.cold(change.table), job.table, job.id, change, leases, rows_leave=job.kind == EXPIRE)
        except ArchiveChanged:
            # Another process rewrote what was to leave with rows that are gone: it leaves when its whole month is due.
            return False
        return True

    def redo(self, job: MaintenanceJob, leases: Sequence[Lease]) -> bool:
        """Repeat the commits of a done job that a log has lost; return whether it has all of them now.

        The row first: what left with it stays if the row itself does.
        """
        return all(self._made(job, change, leases) for change in read_changes(job.plan))

    def begun(self, job: int, table: str, plan: Any) -> bool:
        """Check whether a job's first commit was made: then it is finished, whatever happened since."""
        first = read_changes(plan)[0]
        return committed(self.cold(first.table), table, job)


def read_changes(plan: Any) -> list[Replacement]:
    return [Replacement.read(change) for change in plan["changes"]]
