"""The archive of one keeper: running the pipeline, and inspecting what it wrote."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from wane._archive.delta.sql_log import ArchiveLog, archive_findings
from wane._archive.journal import Journal
from wane._archive.restore.journal import PROTECT, JournaledRestore, OnConflict, RestoreJournal
from wane._arguments import require_at_least_one
from wane._contract.duration import format_duration
from wane._contract.lookup import find_table, is_named, require_known
from wane._contract.model import Contract, Rule, Table, ToArchive, walk_followers
from wane._db import Store
from wane._db.transaction import Transaction
from wane._findings import Finding, did_you_mean
from wane._prune.admission import require_admin
from wane._prune.holds import Elsewhere
from wane._prune.pace import Pace
from wane.errors import SparkError, TimedOut, WrongArgument
from wane.events import Listener, ignore_event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wane._archive.context import ArchiveContext
    from wane._archive.delta.cold_table import ColdTable
    from wane._archive.delta.group_commit import Commits
    from wane._archive.maintenance.archived_holds import LocatedCopy
    from wane._archive.maintenance.repair import Adopted, Repaired
    from wane._archive.maintenance.upkeep import Upkeep
    from wane._archive.model import (
        AbsentRow,
        ArchiveRun,
        ColdStatus,
        CompactedTable,
        DueRule,
        ExpiredTable,
        Proof,
        Restored,
        RestoreStatus,
        Surveyed,
        SweepStatus,
        TidiedTable,
    )
    from wane._archive.query.cold_rows import ColdRows
    from wane._archive.tier.tier import DatabaseTier
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


def _require_choice(where: str | None, sweep: int | None, keys: Sequence[object]) -> None:
    if (where is not None) + (sweep is not None) + bool(keys) != 1:
        raise WrongArgument("choose rows by exactly one of `where`, `sweep` and `keys`")


def _require_restoring(on_conflict: str, protect: timedelta | None) -> None:
    if on_conflict not in set(OnConflict):
        raise WrongArgument(f"on_conflict is {on_conflict!r}", f"allowed: {', '.join(OnConflict)}")
    if protect is not None and protect < timedelta(0):
        raise WrongArgument("protect must not be negative")


def _in_database(table: Table) -> str:
    """Write where the rows of a table are that is archived in the same database."""
    return f"rows of {table.name} are in {table.tier_schema}.{table.name.name}_<yyyymm>, in the same database"


class Archive:
    """Rows past their hot window, moved to cold storage: see docs/explanation/archive.md."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        *,
        actor: str,
        listener: Listener = ignore_event,
        commits: Commits | None = None,
    ) -> None:
        self._store = store
        self._contract = contract
        self._actor = actor
        self._listener = listener
        self._commits = commits

    def run(
        self,
        *only: str,
        strict: bool = False,
        wait: bool = False,
        pace: Pace | None = None,
        stop: threading.Event | None = None,
        starting: Starting = lambda _: None,
    ) -> ArchiveRun:
        """Move what is due under every rule that archives, or under those named, if the flags allow it.

        With `wait`, a rule moves nothing until its `least_rows` are due, or one has been due for
        `longest_wait`. Safe to repeat after any interruption.
        """
        from wane._archive.model import ArchiveRun

        rules = self._named(only)
        require_admin(self._store, self._contract)
        context = self._context(stop, starting, pace)
        from wane._archive.archiver import Archiver

        archiver = Archiver(context, strict=strict, wait=wait)
        return ArchiveRun(tuple(archiver.archive(table, rule) for table, rule in rules))

    def has_work(self, *only: str, wait: bool = False) -> bool:
        """Check whether a run would move anything: rows are due, or a sweep or a restore is unfinished.

        Reads the database only: neither the archive nor Spark is needed.
        """
        rules = self._named(only)
        self._store.require_migrated()
        context = self._context()
        from wane._archive.archiver import Archiver

        archiver = Archiver(context, wait=wait)
        return any(archiver.has_work(table, rule) for table, rule in rules)

    def due(self, *only: str, wait: bool = False) -> list[DueRule]:
        """Count what is due by every rule that archives, or by those named. Reads the database only.

        With `wait`, each has why a run that waits, as workers do, would leave its rows.
        """
        rules = self._named(only)
        from wane._archive.archiver import Archiver
        from wane._archive.model import DueRule
        from wane._db.counting import READ_SECONDS
        from wane._ledger import Ledger
        from wane._prune.binding import Bindings
        from wane._prune.fuse import PROBE_SECONDS
        from wane._prune.gates import closed_gate
        from wane._rules.reads import count_due

        own = Ledger(self._store.dialect, self._store.reader(PROBE_SECONDS))
        flags = own.flags() if self._store.migrated else {}
        bindings, now = Bindings(self._store, self._contract), self._store.now()
        archiver = Archiver(self._context(), wait=wait)
        found = []
        for table, rule in rules:
            due: int | None
            try:
                due = count_due(self._store, bindings.selection(table, rule), now, READ_SECONDS)
            except TimedOut:
                due = None
            way = self._contract.described_transform(str(table.name), rule)
            closed = closed_gate(flags, table.name, self._contract.sweep)
            waits = archiver.waits(table, rule, now)
            with_them = tuple(dict.fromkeys(str(one.reference.table) for one in walk_followers(rule.followers)))
            found.append(
                DueRule(str(table.name), rule.name, due, self._unfinished(table), way, closed, waits, with_them)
            )
        return found

    def _unfinished(self, table: Table) -> str:
        if not self._store.migrated:
            return ""
        with self._store.snapshot() as transaction:
            sweep = Journal(transaction).unfinished(str(table.name))
        return "" if sweep is None else sweep.state.value

    def _named(self, only: Sequence[str]) -> list[tuple[Table, Rule]]:
        """Return the rules that archive, or those of them that are named."""
        require_known(self._contract, only)
        rules = [(table, rule) for table, rule in self._rules() if not only or is_named(only, table.name, rule.name)]
        if only and not rules:
            raise WrongArgument(f"no rule of {', '.join(only)} archives", 'such a rule has `then = "archive"`')
        return rules

    def absent(self, table: str | None = None, *, limit: int = 1_000) -> list[AbsentRow]:
        """Return rows that the application deleted after they were copied, and whose copies are still archived.

        Of every table, or of one; the oldest first, at most `limit` of each table.
        """
        require_at_least_one("limit", limit)
        _require_libraries(_READING)
        self._store.require_migrated()
        from wane._archive.maintenance.absent import list_absent

        chosen = self._chosen(
            [] if table is None else [table], list(dict.fromkeys(str(one.name) for one, _ in self._rules()))
        )
        colds = [cold for cold in self._cold_tables() if cold.name in chosen]
        self._require_whole(colds)
        return [row for cold in colds for row in list_absent(self._store, cold, limit)]

    def expire(
        self,
        *only: str,
        erase_absent: bool = False,
        dry_run: bool = False,
        stop: threading.Event | None = None,
        starting: Starting = lambda _: None,
    ) -> list[ExpiredTable]:
        """Delete for good what the archive has retained as long as the contract specifies, if the flags allow it.

        Of every table, or of those named. With `erase_absent`, delete instead the rows that the application deleted
        after they were copied (`absent`). A dry run only reports what would go. Safe to repeat after any interruption.
        """
        self._store.require_migrated()
        lake = {str(table.name): table for table, _ in self._rules()}
        tier = {} if erase_absent else {str(table.name): table for table in _tier_tables(self._contract)}
        chosen = self._chosen(only, [*lake, *tier])
        if not dry_run:
            require_admin(self._store, self._contract)
        done = [self._tier(stop).expire(tier[name], dry_run=dry_run) for name in chosen if name in tier]
        if not any(name in lake for name in chosen) and (chosen or self._contract.archive_url is None):
            return done
        upkeep = self._upkeep(stop, starting, reading=dry_run)
        from wane._archive.maintenance.expire import ArchiveExpiry

        expiry = ArchiveExpiry(upkeep)
        found = [name for name in chosen if name in lake]
        return [
            *(expiry.expire(lake[name], dry_run=dry_run, absent_only=erase_absent) for name in found),
            *done,
        ]

    def _tier(self, stop: threading.Event | None = None, pace: Pace | None = None) -> DatabaseTier:
        from wane._archive.tier.tier import DatabaseTier

        return DatabaseTier(
            self._store,
            self._contract,
            self._actor,
            self._listener,
            stop or threading.Event(),
            custom_pace=pace,
        )

    def _require_lake(self, table: str | None) -> None:
        """Raise if a table is archived in the same database, where SQL reads it and the database itself proves it."""
        shelved = next((one for one in _tier_tables(self._contract) if str(one.name) == table), None)
        if shelved is not None:
            raise WrongArgument(
                _in_database(shelved), "query them with SQL; `wane archive ls`, `expire` and `restore` work on them"
            )

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
        upkeep = self._upkeep(stop, starting, reading=dry_run)
        from wane._archive.maintenance.compact import Compaction

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
        """Remove files that have been part of nothing for longer than `older_than`, or than the contract specifies."""
        _require_libraries()
        from wane._archive.maintenance.tidy import LEAST, Tidying

        if older_than is not None and older_than < LEAST:
            raise WrongArgument(
                f"older_than must be at least {format_duration(LEAST)}",
                "a reader may still use what was just replaced",
            )
        upkeep = self._upkeep(stop, reading=dry_run)
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
                one.archived if one.committed else {},
                one.evicted,
                one.stale,
                one.absent,
                one.archived,
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
        self._store.require_migrated()
        tier = [shelved for one in _tier_tables(self._contract) if (shelved := self._tier().status(one)) is not None]
        if not self._names():
            return tier
        _require_libraries(_READING)
        from wane._archive.inspection import status_of

        colds = self._cold_tables()
        self._require_whole(colds)
        with self._store.snapshot() as transaction:
            changed = Journal(transaction).changed()
        transforms = {str(one.table): one.transform.described() for one in self._contract.archive if one.transform}
        found = [status for cold in colds if (status := status_of(cold, changed)) is not None]
        return [*(replace(status, transform=transforms.get(status.table)) for status in found), *tier]

    def verify(
        self, table: str | None = None, *, spark: bool = False, starting: Starting = lambda _: None
    ) -> list[Proof]:
        """Read back every file of the archive, and compare it with what the archive's log records of it.

        On Spark with `spark`, or if the files are large.
        """
        self._require_lake(table)
        _require_libraries(_READING)
        from wane._archive.delta.commits import examine, report
        from wane._archive.inspection import bytes_of, in_process, proof
        from wane._archive.model import Proof
        from wane._archive.query.cold_rows import WITHOUT_SPARK_BYTES

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
        from wane._archive.maintenance.repair import Repair

        repair = Repair(context)
        tables = {str(table.name): table for table in repair.upkeep.tables()}
        chosen = self._chosen(only, list(tables))
        require_admin(self._store, self._contract)
        return [repair.repair(tables[name]) for name in chosen]

    def adopt(self, *, as_new: bool = False) -> Adopted:
        """Make this database the one that writes to the archive, as the archive is now.

        Another one that did is refused from then on. With `as_new`, a clone begins an archive of its own instead: in
        another folder, or, where the archive is shared, in another partition; the original goes on.
        """
        self._store.require_migrated()
        context = self._context()
        from wane._archive.maintenance.repair import Repair

        repair = Repair(context)
        require_admin(self._store, self._contract)
        return repair.begin_anew(self._names()) if as_new else repair.adopt(self._names())

    def findings(self) -> list[Finding]:
        """Report what is wrong with the archive: logs that have lost commits, and sweeps that nothing finishes.

        Reads only.
        """
        contract = self._contract
        if contract.archive_url is None or not self._store.migrated:
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
        from wane._archive.query.query import frame, narrowed
        from wane._archive.query.skipping import kinds_of, plain_condition, rows_at_most
        from wane._archive.rows.names import ColumnNames
        from wane._archive.spark.session import long_work

        require_at_least_one("limit", limit)
        cold = self._cold(table)
        self._require_whole([cold])
        kinds = kinds_of(cold.require())  # A missing table is reported without starting Spark.
        names = ColumnNames.of(self._contract, cold.name)
        where = names.condition(where, list(kinds))
        condition = plain_condition(where, kinds, self._contract.spark)
        with long_work(rows_at_most(cold, condition)):
            spark = self._context(starting=starting).executor.spark()
        requested = None if columns is None else [names.requested(name, kinds) for name in columns]
        found = narrowed(frame(spark, cold, condition), where=where, columns=requested, limit=limit)
        return found.toDF(*map(names.shown, found.columns))

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
        from wane._archive.query.cold_rows import WITHOUT_SPARK_BYTES, PlainRows, SparkRows, request
        from wane._archive.rows.names import ColumnNames
        from wane._archive.spark.session import long_work

        require_at_least_one("limit", limit)
        cold = self._cold(table)
        self._require_whole([cold])
        names = ColumnNames.of(self._contract, cold.name)
        requested = request(cold, names, where=where, columns=columns, limit=limit, settings=self._contract.spark)
        if requested.plain and requested.bytes < WITHOUT_SPARK_BYTES and not spark:
            return PlainRows(requested)
        with long_work(requested.rows):
            return SparkRows(self._context(starting=starting).executor.spark(), requested)

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
            raise WrongArgument(f"the contract does not name {unknown[0]}", did_you_mean(unknown[0], known))
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
        stop: threading.Event | None = None,
        starting: Starting = lambda _: None,
    ) -> Restored:
        """Restore archived rows with what left with them, chosen by a condition, by their sweep, or by keys.

        Into the hot table they move; into a side table they are copied. Restored rows are held against sweeps for
        `protect` (seven days by default). With `most`, such as `chosen` of a dry run, more rows of a table than it
        specifies raise PlanError, and none comes back. `stop` ends it between two batches, and the same call resumes.
        Safe to repeat after any interruption.
        """
        chosen = self._restorable(table)
        _require_choice(where, sweep, keys)
        _require_restoring(on_conflict, protect)
        self._store.require_migrated()
        require_admin(self._store, self._contract)
        if chosen in _tier_tables(self._contract):
            if sweep is not None or into is not None:
                raise WrongArgument(
                    _in_database(chosen), "choose them by --key or --where, and copy them into other tables with SQL"
                )
            return self._tier(stop, pace).restore(
                chosen,
                where=where,
                keys=[{name: str(value) for name, value in key.items()} for key in keys],
                on_conflict=OnConflict(on_conflict),
                protect=PROTECT if protect is None else protect,
                most=most,
                dry_run=dry_run,
            )
        _require_libraries()
        from wane._archive.delta.commits import require_whole
        from wane._archive.query.staging import Choice
        from wane._archive.restore.restore import Restorer
        from wane._archive.rows.names import ColumnNames

        cold = self._cold(table)
        require_whole(self._store, [cold], recording=not dry_run)
        # A missing table is reported without starting Spark.
        known, names = [field.name for field in cold.require().schema().fields], ColumnNames.of(self._contract, table)
        if sweep is not None:
            self._require_sweep(str(chosen.name), sweep)
        return Restorer(self._context(stop, starting, pace)).restore(
            chosen,
            Choice(
                names.condition(where, known),
                sweep,
                tuple({names.requested(name, known): str(value) for name, value in key.items()} for key in keys),
            ),
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
        from wane._archive.restore.restore import Restorer

        Restorer(self._context()).cancel(table, number)
        with self._store.snapshot() as transaction:
            ended = RestoreJournal(transaction).find(number)
            assert ended is not None
            return _restore_status(transaction, ended)

    def _restorable(self, table: str) -> Table:
        """Return a table whose rows are archived by a rule of its own; raise if they are not."""
        chosen = find_table(self._contract, table)
        if not any(name == chosen for name, _ in self._rules()) and chosen not in _tier_tables(self._contract):
            raise WrongArgument(
                f"no rule archives {table} by itself", "rows that left with others come back with those"
            )
        return chosen

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
        from wane._archive.delta.group_commit import commit_single

        return ArchiveContext(
            self._store,
            self._contract,
            self._actor,
            self._listener,
            stop or threading.Event(),
            custom_pace=pace,
            starting=starting,
            commits=self._commits or commit_single,
        )

    def _upkeep(
        self, stop: threading.Event | None, starting: Starting = lambda _: None, *, reading: bool = False
    ) -> Upkeep:
        self._store.require_migrated()
        context = self._context(stop, starting)
        from wane._archive.maintenance.upkeep import Upkeep

        return Upkeep(context, reading=reading)

    def _chosen(self, only: Sequence[str], known: Sequence[str]) -> list[str]:
        for name in only:
            if name not in known:
                hint = did_you_mean(name, known) or f"archived tables: {', '.join(known) or 'none'}"
                raise WrongArgument(f"no rule archives {name}", hint)
        return list(dict.fromkeys(only)) or list(known)

    def _cold(self, name: str) -> ColdTable:
        self._require_lake(name)
        known = {cold.name: cold for cold in self._cold_tables()}
        if name not in known:
            raise WrongArgument(f"no rule archives {name}", f"archived tables: {', '.join(known) or 'none'}")
        return known[name]

    def _require_whole(self, colds: Sequence[ColdTable]) -> None:
        """Raise if the log of a table lacks commits, and write nothing, because the caller only reads."""
        from wane._archive.delta.commits import require_whole

        require_whole(self._store, colds, recording=False)

    def _cold_tables(self) -> list[ColdTable]:
        """Return the archive's table for every table that loses rows to it."""
        _require_libraries(_READING)
        from wane._archive.context import ArchiveContext

        return ArchiveContext(self._store, self._contract, self._actor).cold_tables(self._names(), reading=True)

    def _names(self) -> list[str]:
        """Return every table that loses rows to the archive."""
        names = dict.fromkeys(str(table.name) for table, _ in self._rules())
        names |= dict.fromkeys(
            str(follower.reference.table)
            for _, rule, follower in self._contract.followers()
            if isinstance(rule.action, ToArchive)
        )
        return list(names)


def _tier_tables(contract: Contract) -> list[Table]:
    """Return the tables whose rows move to another schema of the same database."""
    return [table for table in contract.tables if table.tier_schema is not None]


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
    if _tier_tables(archive._contract):
        from wane._archive.tier.tier import ShelvedRows

        return _Either(ShelvedRows(archive._store, archive._contract), _lake(archive))
    return _lake(archive)


class _Either:
    """Rows that are archived in the same database, and in the archive."""

    def __init__(self, first: Elsewhere, second: Elsewhere | None) -> None:
        self._parts = [one for one in (first, second) if one is not None]
        self._found: dict[str, Elsewhere] = {}

    def find(self, table: TableInfo, key: Mapping[str, object]) -> str | None:
        for one in self._parts:
            text = one.find(table, key)
            if text is not None:
                self._found[text] = one
                return text
        return None

    def has(self, transaction: Transaction, table: TableInfo, text: str) -> bool:
        return self._found[text].has(transaction, table, text)


def _lake(archive: Archive) -> Elsewhere | None:
    if archive._contract.archive_url is None or not archive._names():
        return None
    try:
        from wane._archive.maintenance.archived_holds import ArchivedRows
    except ImportError:
        return None
    return ArchivedRows(archive._store, archive._contract, archive._cold_tables)


def locate_row(archive: Archive, table: TableInfo, key: Mapping[str, object], seconds: float) -> LocatedCopy | None:
    """Find the file that has an archived row, by its key columns; None if no file has it.

    Raise TimedOut if reading the key columns of the files takes longer than `seconds`.
    """
    _require_libraries(_READING)
    from wane._archive.maintenance.archived_holds import ArchivedRows

    archive._require_whole(archive._cold_tables())
    return ArchivedRows(archive._store, archive._contract, archive._cold_tables).locate(table, key, seconds)
