"""Hard deletion by age: rows that the archive has retained for as long as the contract specifies leave it for good,
month by month.

Whole months leave without being read. Of a month that is due in part, files are rewritten without what is due. What
left with a row goes with it, held rows stay with all that left with them, and what an unfinished sweep has written is
left alone. The files themselves stay on the disk until they are tidied, and that is reported separately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from wane._archive.delta.comparison import shape_of
from wane._archive.delta.files import ColdFile, Replacement, listing
from wane._archive.journal import ArchivedSweep
from wane._archive.maintenance.absent import erase_absent
from wane._archive.maintenance.archived_holds import ArchivedHold, NewHold, read_holds
from wane._archive.maintenance.journal import EXPIRE
from wane._archive.maintenance.rewrite import (
    ExpiredRows,
    ParentRows,
    RewriteJob,
    count,
    rewrite,
    share_out,
)
from wane._archive.maintenance.upkeep import Upkeep
from wane._archive.model import ExpiredTable
from wane._archive.pipeline.rewritten_file import RewrittenFile
from wane._archive.rows.names import ColumnNames
from wane._contract.duration import Forever, format_duration
from wane._contract.model import ArchiveTable, Table, Time
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._prune.batches import require_not_append_only
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError

_MARGIN = timedelta(days=1)
"""A month is a month in its rule's time zone: in another zone it begins and ends at most a day earlier or later."""
_TRIES = 3


class ArchiveExpiry:
    """Expires rows of the archive of tables."""

    def __init__(self, upkeep: Upkeep) -> None:
        self.upkeep = upkeep

    def expire(
        self, table: Table, *, dry_run: bool = False, most_months: int | None = None, absent_only: bool = False
    ) -> ExpiredTable:
        """Delete what the archive has retained long enough of one table, the oldest months first.

        Rows that the application deleted after they were copied go too, if the contract requires it, or `absent_only`
        they do. A failure is the outcome of this table and does not affect others.
        """
        name = str(table.name)
        done = ExpiredTable(name, Outcome.DONE, None, dry_run=dry_run)
        cutoff = None if absent_only else self.cutoff(table)
        done.cutoff = cutoff
        with self.upkeep.context.reporting(done):
            if cutoff is not None:
                self._expire(table, cutoff, done, dry_run=dry_run, most_months=most_months)
            elif not dry_run:
                self.upkeep.finish(name)
            if absent_only or self._settings(table).erases_absent:
                erase_absent(self.upkeep, table, done, dry_run=dry_run)
        return done

    def _settings(self, table: Table) -> ArchiveTable:
        return next(one for one in self.upkeep.contract.archive if one.table == table.name)

    def cutoff(self, table: Table) -> datetime | None:
        """Return the time before which rows expire, strictly; None if none ever do.

        A floor of the contract that is longer than `keep` is obeyed.
        """
        contract = self.upkeep.contract
        keep = next((one.keep for one in contract.archive if one.table == table.name), None)
        if keep is None or isinstance(keep, Forever):
            return None
        return self.upkeep.store.now() - max(keep, dict(contract.floors).get(table.name, timedelta(0)))

    def _expire(
        self, table: Table, cutoff: datetime, done: ExpiredTable, *, dry_run: bool, most_months: int | None
    ) -> None:
        name = str(table.name)
        require_not_append_only(table)
        sweeps = self.upkeep.sweeps()
        names = self.upkeep.written_by(name, sweeps)
        if dry_run:
            self.upkeep.require_whole(names)
            held = read_holds(self.upkeep, names)
            done.held = held.everything or None
            for month in [] if held.everything else self._months(names, cutoff):
                _MonthExpiry(self, table, names, month, cutoff, sweeps, held).count(done)
            return
        with self.upkeep.leases(names, sweeps) as leases:
            sweeps = self.upkeep.sweeps()  # As they are now that no other process writes.
            with self.upkeep.transaction(leases) as transaction:
                self.upkeep.context.require_open(transaction, name)
            self.upkeep.require_restored(name)
            held = read_holds(self.upkeep, names)
            done.held = held.everything or None
            for month in [] if held.everything else self._months(names, cutoff)[:most_months]:
                for attempt in range(_TRIES):
                    try:
                        _MonthExpiry(self, table, names, month, cutoff, sweeps, held).expire(done, leases)
                        break
                    except NewHold as problem:
                        held = read_holds(self.upkeep, names)
                        if held.everything or attempt + 1 == _TRIES:
                            done.held = held.everything or str(problem)
                            break
                if done.held:
                    break
            if not done.rows:
                inputs = {"keep": _keep_text(self, table)}
                self.upkeep.record_nothing(name, EXPIRE, names, leases, inputs=inputs, cutoff=cutoff)

    def _months(self, names: Sequence[str], cutoff: datetime) -> list[str]:
        """Return the months of which a row may be due, the oldest first."""
        found = set()
        for name in names:
            handle = self.upkeep.cold(name).open()
            if handle is not None:
                found |= {file.month for file in listing(handle)}
        return sorted(month for month in found if start_of(month) - _MARGIN < cutoff)


class _MonthExpiry:
    """One month of one table's archive, and of what left with its rows."""

    def __init__(
        self,
        expiry: ArchiveExpiry,
        table: Table,
        names: Sequence[str],
        month: str,
        cutoff: datetime,
        sweeps: dict[int, ArchivedSweep],
        held: ArchivedHold,
    ) -> None:
        self.upkeep = expiry.upkeep
        self.table = table
        self.name = str(table.name)
        self.month = month
        self.held = held
        self.sweeps = sweeps
        self.inputs = {"month": month, "keep": _keep_text(expiry, table), "cutoff": cutoff.isoformat()}
        columns = ColumnNames.of(self.upkeep.contract, self.name)
        times = {
            number: _time_of(table, sweep.rule, columns)
            for number, sweep in sweeps.items()
            if sweep.table == self.name and sweep.done
        }
        self.due = ExpiredRows(cutoff, month, end_of(month) + _MARGIN <= cutoff, times, held.keys)
        unfinished = [number for number, sweep in sweeps.items() if not sweep.done]
        self.files: dict[str, list[ColdFile]] = {}
        self.shapes: dict[str, Any] = {}
        for name in names:
            handle = self.upkeep.cold(name).open()
            if handle is not None:
                found = (file for file in listing(handle) if file.month == month)
                self.files[name] = [file for file in found if not file.has_any(unfinished)]
                self.shapes[name] = shape_of(handle)

    def count(self, done: ExpiredTable) -> None:
        for name, files in self.files.items():
            whole, read = self._split(name, files)
            done.add(name, self.month, sum(file.rows for file in whole))
            done.add(name, self.month, sum(one.gone for one in self._each(count, name, "dry-run", read)))

    def expire(self, done: ExpiredTable, leases: Sequence[Lease]) -> None:
        """Expire the month in one job: every file that is due, of the table and of what left with its rows."""
        if not any(self.files.values()):
            return
        job = self.upkeep.begin(self.name, EXPIRE, leases)
        changes = [self._change(name, files, job) for name, files in self.files.items()]
        changes = [change for change in changes if change.removed]
        if not changes:
            self.upkeep.abandon(job, leases)
            return
        plan = {"changes": [change.written() for change in changes], "inputs": self.inputs}
        self.upkeep.carry_out(job, self.name, EXPIRE, plan, leases, may=self._still_free)
        for change in changes:
            done.add(change.table, self.month, change.gone)

    def _still_free(self, transaction: Transaction) -> None:
        self.upkeep.require_no_new_hold(transaction, list(self.files), self.held)

    def _split(self, name: str, files: Sequence[ColdFile]) -> tuple[list[ColdFile], list[ColdFile]]:
        """Split files into those that go without being read, and those that must be read.

        Files are read if their month is not due as a whole, a row is held, or another table's sweeps write there too.
        """
        sole_writer = self.upkeep.writers(name, self.sweeps) == [self.name]
        if self.due.whole and sole_writer and not self.due.held:
            return list(files), []
        return [], list(files)

    def _each(
        self, work: Callable[[Any, RewriteJob], list[RewrittenFile]], name: str, prefix: str, files: Sequence[ColdFile]
    ) -> list[RewrittenFile]:
        if not files:
            return []
        own = name == self.name
        parents = [file.path for file in self.files.get(self.name, [])]
        job = RewriteJob(
            prefix,
            str(self.upkeep.cold(name).folder),
            self.shapes[name],
            share_out(files, one_each=own or self.due.whole),
            self.due,
            None
            if own
            else ParentRows(str(self.upkeep.cold(self.name).folder), parents, self.shapes.get(self.name, [])),
            self.upkeep.contract.archive_statistics(name),
        )
        return work(self.upkeep.context.executor, job)

    def _change(self, name: str, files: Sequence[ColdFile], job: int) -> Replacement:
        whole, read = self._split(name, files)
        known = {file.path: file for file in read}
        made = [one for one in self._each(rewrite, name, f"expire-{job:010d}", read) if one.gone]
        for one in made:
            rest = 0 if one.rest is None else one.rest.rows
            if known[one.path].rows != one.gone + rest:
                raise ArchiveError(
                    f"{one.path} has other rows than the archive's log records", "see `wane archive verify`"
                )
        removed = (*whole, *(known[one.path] for one in made))
        return Replacement(name, removed, tuple(one.rest for one in made if one.rest is not None))


def _time_of(table: Table, rule: str, names: ColumnNames) -> Time | None:
    """Return the time of a rule, with the archive's name of its column."""
    found = next((one for one in table.rules if one.name == rule), None)
    time = None if found is None or isinstance(found.bound, Forever) else found.bound.time
    return time and replace(time, column=names.archived(time.column))


def _keep_text(expiry: ArchiveExpiry, table: Table) -> str:
    keep = next(one.keep for one in expiry.upkeep.contract.archive if one.table == table.name)
    assert isinstance(keep, timedelta)
    return format_duration(keep)


def start_of(month: str) -> datetime:
    year, number = (int(one) for one in month.split("-"))
    return datetime(year, number, 1, tzinfo=UTC)


def end_of(month: str) -> datetime:
    """Return the first instant after the month."""
    return (start_of(month) + timedelta(days=32)).replace(day=1)
