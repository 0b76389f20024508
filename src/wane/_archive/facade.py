"""The archive of one keeper: running the pipeline, and inspecting what it wrote."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from wane._archive.journal import Journal
from wane._archive.journal_restore import JournaledRestore, RestoreJournal
from wane._archive.sql_log import ArchiveLog, archive_findings
from wane._contract.duration import format_duration
from wane._contract.lookup import find_table, is_named, require_known
from wane._contract.model import Contract, Rule, Table, ToArchive, ToColdTier
from wane._db import Store
from wane._db.transaction import Transaction
from wane._findings import Finding, did_you_mean
from wane._prune.admission import require_admin
from wane._prune.holds import Elsewhere
from wane._prune.pace import Pace
from wane.errors import SparkError, WrongArgument
from wane.events import Listener, nobody

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wane._archive.archived_holds import LocatedCopy
    from wane._archive.cold_rows import ColdRows
    from wane._archive.cold_table import ColdTable
    from wane._archive.context import ArchiveContext
    from wane._archive.model import (
        ArchiveRun,
        ColdStatus,
        CompactedTable,
        ExpiredTable,
        Proof,
        Restored,
        RestoreStatus,
        Surveyed,
        SweepStatus,
        TidiedTable,
    )
    from wane._archive.repair import Adopted, Repaired
    from wane._archive.upkeep import Upkeep
    from wane._db.schema import TableInfo

Starting = Callable[[str], None]
"""Called with the Spark master when Spark is being started, because that takes seconds."""
_SECONDS = 10.0
_LIBRARIES = ("pyspark", "pyarrow", "deltalake", "adbc_driver_manager", "pandas")
_READING = ("pyarrow", "deltalake")


def _require_libraries(needed: Sequence[str] = _LIBRARIES) -> None:
    """Raise unless the libraries of the archive are installed; everything else of Wane works without them."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if set(missing) & set(needed):
        raise SparkError(f"the archive's libraries are missing: {', '.join(missing)}", "pip install 'wane[spark]'")


class Archive:
    """Rows past their hot window, moved to cold storage: see docs/explanation/archive.md."""

    def __init__(self, store: Store, contract: Contract, *, actor: str, listener: Listener = nobody) -> None:
        self._store = store
        self._contract = contract
        self._actor = actor
        self._listener = listener

    def run(
        self,
        *only: str,
        strict: bool = False,
        pace: Pace | None = None,
        stop: threading.Event | None = None,
        starting: Starting = lambda _: None,
    ) -> ArchiveRun:
        """Move what is due under every rule that archives, or under those named, if the flags allow it.

        Safe to repeat after any interruption.
        """
        from wane._archive.model import ArchiveRun

        require_known(self._contract, only)
        rules = [(table, rule) for table, rule in self._rules() if not only or is_named(only, table.name, rule.name)]
        if only and not rules:
            raise WrongArgument(f"no rule of {', '.join(only)} archives", 'such a rule says `then = "archive"`')
        require_admin(self._store, self._contract)
        context = self._context(stop, starting, pace)
        from wane._archive.archiver import Archiver

        archiver = Archiver(context, strict=strict)
        return ArchiveRun(tuple(archiver.archive(table, rule) for table, rule in rules))

    def expire(
        self,
        *only: str,
        dry_run: bool = False,
        stop: threading.Event | None = None,
        starting: Starting = lambda _: None,
    ) -> list[ExpiredTable]:
        """Delete for good what the archive has retained as long as the contract says, if the flags allow it.

        Of every table, or of those named. A dry run only reports what would go. Safe to repeat after any interruption.
        """
        upkeep = self._upkeep(stop, starting)
        from wane._archive.expire import ArchiveExpiry

        tables = {str(table.name): table for table in upkeep.tables()}
        chosen = self._chosen(only, list(tables))
        if not dry_run:
            require_admin(self._store, self._contract)
        expiry = ArchiveExpiry(upkeep)
        return [expiry.expire(tables[name], dry_run=dry_run) for name in chosen]

    def compact(
        self,
        *only: str,
        least_files: int = 2,
        dry_run: bool = False,
        stop: threading.Event | None = None,
        starting: Starting = lambda _: None,
    ) -> list[CompactedTable]:
        """Rewrite small files of a month as few large, sorted ones, where there are at least `least_files` of them."""
        if least_files < 2:
            raise WrongArgument(f"least_files must be at least 2, not {least_files}", "one file cannot be compacted")
        upkeep = self._upkeep(stop, starting)
        from wane._archive.compact import Compaction

        chosen = self._chosen(only, self._names())
        if not dry_run:
            require_admin(self._store, self._contract)
        compaction = Compaction(upkeep)
        return [compaction.compact(name, least_files=least_files, dry_run=dry_run) for name in chosen]

    def tidy(
        self,
        *only: str,
        older_than: timedelta | None = None,
        dry_run: bool = False,
        stop: threading.Event | None = None,
    ) -> list[TidiedTable]:
        """Remove files that have been part of nothing for longer than `older_than`, or than the contract says."""
        _require_libraries()
        from wane._archive.tidy import LEAST, Tidying

        if older_than is not None and older_than < LEAST:
            raise WrongArgument(
                f"older_than must be at least {format_duration(LEAST)}",
                "a reader may still use what was just replaced",
            )
        upkeep = self._upkeep(stop)
        chosen = self._chosen(only, self._names())
        if not dry_run:
            require_admin(self._store, self._contract)
        tidying = Tidying(upkeep)
        return [tidying.tidy(name, older_than=older_than, dry_run=dry_run) for name in chosen]

    def status(self, table: str | None = None, *, limit: int = 20) -> list[SweepStatus]:
        """Return the sweeps in the journal, newest first."""
        from wane._archive.model import SweepStatus

        name = None if table is None else str(find_table(self._contract, table).name)
        self._store.require_migrated()
        with self._store.snapshot() as transaction:
            sweeps = Journal(transaction).sweeps(name, limit)
        return [
            SweepStatus(
                one.id,
                one.table,
                one.rule,
                one.state.value,
                one.strict,
                one.planned_at,
                one.changed_at,
                one.archived,
                one.evicted,
                one.stale,
                one.absent,
            )
            for one in sweeps
        ]

    def restores(self, table: str | None = None, *, unfinished: bool = False, limit: int = 20) -> list[RestoreStatus]:
        """Return the restores in the journal, newest first; with `unfinished`, only those that are not done."""
        name = None if table is None else str(find_table(self._contract, table).name)
        self._store.require_migrated()
        with self._store.snapshot() as transaction:
            found = RestoreJournal(transaction).restores(name, limit, unfinished=unfinished)
            return [_restore_status(transaction, one) for one in found]

    def tables(self) -> list[ColdStatus]:
        """Return the status of every table of the archive: its rows, bytes, files and months, from its own log."""
        _require_libraries(_READING)
        from wane._archive.inspection import status_of

        colds = self._cold_tables()
        self._require_whole(colds)
        return [status for cold in colds if (status := status_of(cold)) is not None]

    def verify(
        self, table: str | None = None, *, spark: bool = False, starting: Starting = lambda _: None
    ) -> list[Proof]:
        """Read back every file of the archive, and compare it with what the archive's log says of it.

        On Spark with `spark`, or if the files are large.
        """
        _require_libraries(_READING)
        from wane._archive.cold_rows import WITHOUT_SPARK_BYTES
        from wane._archive.commits import examine, report
        from wane._archive.inspection import bytes_of, in_process, proof
        from wane._archive.model import Proof

        chosen = [self._cold(table)] if table is not None else self._cold_tables()
        opened = [(cold, *examine(self._store, cold)) for cold in chosen]
        report(self._store, {cold.name: problem for cold, _, problem in opened})
        proofs = [Proof(cold.name, 0, 0, (str(problem),)) for cold, _, problem in opened if problem is not None]
        whole = [(cold, log) for cold, log, problem in opened if problem is None and log is not None]
        few = sum(bytes_of(log) for _, log in whole) < WITHOUT_SPARK_BYTES
        run = in_process if few and not spark else self._context(starting=starting).executor.run
        return proofs + [proof(run, cold, log) for cold, log in whole]

    def repair(self, *only: str, starting: Starting = lambda _: None) -> list[Repaired]:
        """Commit again what the archive's logs have lost, from the database's own journal, where the files still exist.

        Changes no hot row.
        """
        self._store.require_migrated()
        context = self._context(starting=starting)
        from wane._archive.repair import Repair

        repair = Repair(context)
        tables = {str(table.name): table for table in repair.upkeep.tables()}
        chosen = self._chosen(only, list(tables))
        require_admin(self._store, self._contract)
        return [repair.repair(tables[name]) for name in chosen]

    def adopt(self) -> Adopted:
        """Make this database the one that writes to the archive, as the archive is now.

        Another one that did is refused from then on.
        """
        self._store.require_migrated()
        context = self._context()
        from wane._archive.repair import Repair

        repair = Repair(context)
        require_admin(self._store, self._contract)
        return repair.adopt(self._names())

    def findings(self) -> list[Finding]:
        """Report what is wrong with the archive: logs that have lost commits, and sweeps that nothing finishes.

        Reads only.
        """
        contract = self._contract
        if contract.archive_url is None or not self._store.is_migrated():
            return []
        try:
            from wane._archive.findings import find
        except ImportError:
            return archive_findings(ArchiveLog(self._store.dialect, self._store.reader(_SECONDS)))
        return find(self._store, contract, self._names())

    def query(
        self,
        table: str,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        starting: Starting = lambda _: None,
    ) -> DataFrame:
        """Return archived rows as a Spark DataFrame. `where` is a condition in Spark's SQL."""
        _require_libraries()
        from wane._archive.query import frame, narrowed
        from wane._archive.skipping import kinds_of, plain_condition

        _require_positive(limit)
        cold = self._cold(table)
        self._require_whole([cold])
        kinds = kinds_of(cold.require())  # A missing table is reported without starting Spark.
        spark = self._context(starting=starting).executor.spark()
        condition = plain_condition(where, kinds, self._contract.spark)
        return narrowed(frame(spark, cold, condition), where=where, columns=columns, limit=limit)

    def read(
        self,
        table: str,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        spark: bool = False,
        starting: Starting = lambda _: None,
    ) -> ColdRows:
        """Return archived rows one after the other, in the order of their months and files.

        `where` is a condition in Spark's SQL. Spark evaluates it with `spark`, if it does more than compare columns
        with values, or if the files that may hold such rows are large; the rows and their order are the same.
        """
        _require_libraries(_READING)
        from wane._archive.cold_rows import WITHOUT_SPARK_BYTES, PlainRows, SparkRows, request

        _require_positive(limit)
        cold = self._cold(table)
        self._require_whole([cold])
        asked = request(cold, where=where, columns=columns, limit=limit, settings=self._contract.spark)
        if asked.plain and asked.bytes < WITHOUT_SPARK_BYTES and not spark:
            return PlainRows(asked)
        return SparkRows(self._context(starting=starting).executor.spark(), asked)

    def survey(self, *only: str, starting: Starting = lambda _: None) -> list[Surveyed]:
        """Survey every hot table and the archive: how much there is, how fast it grows, and what will be due when.

        Counted on Spark.
        """
        _require_libraries()
        from wane._archive.survey import Surveyor

        known = {str(table.name) for table in self._contract.tables}
        known |= {str(name) for name, _ in self._contract.excused}
        colds = [] if self._contract.archive_url is None else self._cold_tables()
        known |= {str(follower.reference.table) for _, _, follower in self._contract.followers()}
        known |= {cold.name for cold in colds}
        unknown = [name for name in only if name not in known]
        if unknown:
            raise WrongArgument(f"the contract does not speak of {unknown[0]}", did_you_mean(unknown[0], known))
        self._require_whole(colds)
        return Surveyor(self._store, self._contract, starting=starting).survey(colds, only)

    def restore(
        self,
        table: str,
        *,
        where: str | None = None,
        sweep: int | None = None,
        keys: Sequence[Mapping[str, object]] = (),
        into: str | None = None,
        on_conflict: str = "refuse",
        protect: timedelta | None = None,
        most: Mapping[str, int] | None = None,
        dry_run: bool = False,
        pace: Pace | None = None,
        starting: Starting = lambda _: None,
    ) -> Restored:
        """Restore archived rows with what left with them, chosen by a condition, by their sweep, or by keys.

        Into the hot table they move; into a side table they are copied. Restored rows are held against sweeps for
        `protect` (seven days by default). With `most`, such as `chosen` of a dry run, more rows of a table than it says
        raise PlanError, and none comes back. Safe to repeat after any interruption.
        """
        chosen = find_table(self._contract, table)
        if not any(name == chosen for name, _ in self._rules()):
            shelved = next((one.action for one in chosen.rules if isinstance(one.action, ToColdTier)), None)
            hint = "rows that left with others come back with those"
            if shelved is not None:
                hint = f"its rows are in {shelved.schema}.{chosen.name.name}_<yyyymm>, in the same database: see docs/how-to/archive.md"
            raise WrongArgument(f"no rule archives {table} by itself", hint)
        if (where is not None) + (sweep is not None) + bool(keys) != 1:
            raise WrongArgument("choose rows by exactly one of `where`, `sweep` and `keys`")
        _require_libraries()
        from wane._archive.commits import require_whole
        from wane._archive.journal_restore import OnConflict
        from wane._archive.restore import PROTECT, Restorer
        from wane._archive.staging import Choice

        if on_conflict not in set(OnConflict):
            raise WrongArgument(f"on_conflict is {on_conflict!r}", f"allowed: {', '.join(OnConflict)}")
        if protect is not None and protect < timedelta(0):
            raise WrongArgument("rows cannot be protected for less than no time")
        self._store.require_migrated()
        require_admin(self._store, self._contract)
        cold = self._cold(table)
        require_whole(self._store, [cold])
        cold.require()  # A missing table is reported without starting Spark.
        if sweep is not None:
            self._require_sweep(str(chosen.name), sweep)
        return Restorer(self._context(None, starting, pace)).restore(
            chosen,
            Choice(where, sweep, tuple({name: str(value) for name, value in key.items()} for key in keys)),
            into=into,
            on_conflict=OnConflict(on_conflict),
            protect=PROTECT if protect is None else protect,
            most=most,
            dry_run=dry_run,
        )

    def cancel_restore(self, number: int) -> RestoreStatus:
        """End an unfinished restore where it is; return its status.

        Rows that are back stay there, and their copies leave the archive; no other row comes back. What was copied into
        a side table stays there.
        """
        self._store.require_migrated()
        require_admin(self._store, self._contract)
        with self._store.snapshot() as transaction:
            restore = RestoreJournal(transaction).find(number)
        if restore is None:
            raise WrongArgument(f"there is no restore {number}", "`wane archive restores` lists them")
        table = find_table(self._contract, restore.table)
        _require_libraries()
        from wane._archive.restore import Restorer

        Restorer(self._context()).cancel(table, number)
        with self._store.snapshot() as transaction:
            ended = RestoreJournal(transaction).find(number)
            assert ended is not None
            return _restore_status(transaction, ended)

    def _require_sweep(self, table: str, number: int) -> None:
        with self._store.snapshot() as transaction:
            sweep = Journal(transaction).find(number)
        if sweep is None or sweep.table != table:
            raise WrongArgument(f"{table} has no sweep {number}", f"`wane archive status {table}` lists its sweeps")

    def _rules(self) -> Iterator[tuple[Table, Rule]]:
        for table, rule in self._contract.rules():
            if isinstance(rule.action, ToArchive):
                yield table, rule

    def _context(
        self,
        stop: threading.Event | None = None,
        starting: Starting = lambda _: None,
        pace: Pace | None = None,
    ) -> ArchiveContext:
        _require_libraries()
        from wane._archive.context import ArchiveContext

        return ArchiveContext(
            self._store,
            self._contract,
            self._actor,
            self._listener,
            stop or threading.Event(),
            starting,
            custom_pace=pace,
        )

    def _upkeep(self, stop: threading.Event | None, starting: Starting = lambda _: None) -> Upkeep:
        self._store.require_migrated()
        context = self._context(stop, starting)
        from wane._archive.upkeep import Upkeep

        return Upkeep(context)

    def _chosen(self, only: Sequence[str], known: Sequence[str]) -> list[str]:
        for name in only:
            if name not in known:
                hint = did_you_mean(name, known) or f"archived tables: {', '.join(known) or 'none'}"
                raise WrongArgument(f"no rule archives {name}", hint)
        return list(dict.fromkeys(only)) or list(known)

    def _cold(self, name: str) -> ColdTable:
        known = {cold.name: cold for cold in self._cold_tables()}
        if name not in known:
            raise WrongArgument(f"no rule archives {name}", f"archived tables: {', '.join(known) or 'none'}")
        return known[name]

    def _require_whole(self, colds: Sequence[ColdTable]) -> None:
        """Raise if the log of a table lacks commits, and write nothing, because the caller only reads."""
        from wane._archive.commits import require_whole

        require_whole(self._store, colds, recording=False)

    def _cold_tables(self) -> list[ColdTable]:
        """Return the archive's table for every table that loses rows to it."""
        _require_libraries(_READING)
        from wane._archive.context import ArchiveContext

        return ArchiveContext(self._store, self._contract, self._actor).cold_tables(self._names())

    def _names(self) -> list[str]:
        """Return every table that loses rows to the archive."""
        names = dict.fromkeys(str(table.name) for table, _ in self._rules())
        names |= dict.fromkeys(
            str(follower.reference.table)
            for _, rule, follower in self._contract.followers()
            if isinstance(rule.action, ToArchive)
        )
        return list(names)


def _require_positive(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise WrongArgument(f"limit must be at least 1, not {limit}")


def _restore_status(transaction: Transaction, restore: JournaledRestore) -> RestoreStatus:
    from wane._archive.model import RestoreStatus

    journal = RestoreJournal(transaction)
    pieces = journal.pieces(restore.id)
    return RestoreStatus(
        restore.id,
        restore.table,
        restore.into,
        restore.state.value,
        restore.inputs,
        restore.actor,
        restore.planned_at,
        restore.changed_at,
        restore.protect_until,
        sum(piece.rows for piece in pieces),
        dict(sum((Counter(piece.counts) for piece in pieces), Counter())),
        sum(piece.there for piece in pieces),
        sum(piece.replaced for piece in pieces),
        journal.count_unrestored(restore.id),
    )


def elsewhere(archive: Archive) -> Elsewhere | None:
    """Return the archive's rows, for placing holds on them; None where nothing is archived, or the archive cannot be
    read here."""
    if archive._contract.archive_url is None or not archive._names():
        return None
    try:
        from wane._archive.archived_holds import ArchivedRows
    except ImportError:
        return None
    return ArchivedRows(archive._store, archive._contract, archive._cold_tables)


def locate_row(archive: Archive, table: TableInfo, key: Mapping[str, object], seconds: float) -> LocatedCopy | None:
    """Find the file that has an archived row, by its key columns; None if no file has it.

    Raise TimedOut if reading the key columns of the files takes longer than `seconds`.
    """
    _require_libraries(_READING)
    from wane._archive.archived_holds import ArchivedRows

    archive._require_whole(archive._cold_tables())
    return ArchivedRows(archive._store, archive._contract, archive._cold_tables).locate(table, key, seconds)
