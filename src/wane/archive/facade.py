"""The archive of one keeper: running the pipeline, and inspecting what it wrote."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from wane.archive.journal import Journal
from wane.archive.journal_jobs import Jobs
from wane.archive.journal_restore import RestoreJournal
from wane.archive.sql_log import ArchiveLog, archive_findings
from wane.contract.duration import format_duration
from wane.contract.lookup import find_table, require_known
from wane.contract.model import Contract, Rule, Shelve, Table, ToArchive
from wane.db import Store
from wane.errors import ArchiveError, SparkError, WrongArgument
from wane.events import Listener, nobody
from wane.findings import Finding, did_you_mean
from wane.prune.admission import require_admin
from wane.prune.holds import Elsewhere
from wane.prune.pace import Pace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wane.archive.archiver import Archiver
    from wane.archive.cold_table import ColdTable
    from wane.archive.model import (
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
    from wane.archive.repair import Adopted, Repaired
    from wane.archive.upkeep import Upkeep

Starting = Callable[[str], None]
"""Called with the Spark master when Spark is being started, because that takes seconds."""
_SECONDS = 10.0
_LIBRARIES = ("pyspark", "pyarrow", "deltalake", "adbc_driver_manager", "pandas")


def _require_libraries() -> None:
    """Raise unless the libraries of the archive are installed; everything else of Wane works without them."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
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
        from wane.archive.model import ArchiveRun

        require_known(self._contract, only)
        rules = [
            (table, rule)
            for table, rule in self._rules()
            if not only or {str(table.name), f"{table.name}.{rule.name}"} & set(only)
        ]
        if only and not rules:
            raise WrongArgument(f"no rule of {', '.join(only)} archives", 'such a rule says `then = "archive"`')
        require_admin(self._store, self._contract)
        archiver = self._archiver(strict=strict, pace=pace, stop=stop, starting=starting)
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
        _require_libraries()
        from wane.archive.expire import ArchiveExpiry

        upkeep = self._upkeep(stop, starting)
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
        _require_libraries()
        from wane.archive.compact import Compaction

        if least_files < 2:
            raise WrongArgument(f"least_files must be at least 2, not {least_files}", "one file cannot be compacted")
        upkeep = self._upkeep(stop, starting)
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
        from wane.archive.tidy import LEAST, Tidying

        if older_than is not None and older_than < LEAST:
            raise WrongArgument(
                f"older_than must be at least {format_duration(LEAST)}",
                "somebody may still read what was just replaced",
            )
        upkeep = self._upkeep(stop, lambda _: None)
        chosen = self._chosen(only, self._names())
        if not dry_run:
            require_admin(self._store, self._contract)
        tidying = Tidying(upkeep)
        return [tidying.tidy(name, older_than=older_than, dry_run=dry_run) for name in chosen]

    def status(self, table: str | None = None, *, limit: int = 20) -> list[SweepStatus]:
        """Return the sweeps in the journal, newest first."""
        from wane.archive.model import SweepStatus

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

    def restores(self, table: str | None = None, *, limit: int = 20) -> list[RestoreStatus]:
        """Return the restores in the journal, newest first."""
        from wane.archive.model import RestoreStatus

        name = None if table is None else str(find_table(self._contract, table).name)
        self._store.require_migrated()
        with self._store.snapshot() as transaction:
            journal = RestoreJournal(transaction)
            found = [(one, journal.pieces(one.id), journal.count_kept(one.id)) for one in journal.restores(name, limit)]
        return [
            RestoreStatus(
                one.id,
                one.table,
                one.into,
                one.state.value,
                one.inputs,
                one.actor,
                one.planned_at,
                one.changed_at,
                one.protect_until,
                sum(piece.rows for piece in pieces),
                dict(sum((Counter(piece.counts) for piece in pieces), Counter())),
                sum(piece.there for piece in pieces),
                sum(piece.replaced for piece in pieces),
                kept,
            )
            for one, pieces, kept in found
        ]

    def tables(self) -> list[ColdStatus]:
        """Return the status of every table of the archive: its rows, bytes, files and months, from its own log."""
        _require_libraries()
        from wane.archive.inspection import look

        colds = list(self._cold_tables())
        self._require_complete(colds)
        return [status for cold in colds if (status := look(cold)) is not None]

    def verify(self, table: str | None = None, *, starting: Starting = lambda _: None) -> list[Proof]:
        """Read back every file of the archive, on Spark, and compare it with what the archive's log says of it."""
        _require_libraries()
        from wane.archive.commits import find_lost, report
        from wane.archive.inspection import proof
        from wane.archive.model import Proof
        from wane.archive.session import session

        chosen = [self._cold(table)] if table is not None else list(self._cold_tables())
        compared = {cold.name: find_lost(self._store, cold) for cold in chosen}
        report(self._store, compared)
        lost = {name: problem for name, problem in compared.items() if problem is not None}
        there = [cold for cold in chosen if cold.name not in lost and cold.open() is not None]
        proofs = [Proof(name, 0, 0, (str(problem),)) for name, problem in lost.items()]
        if there:
            spark = session(self._contract.spark, starting)
            proofs += [found for cold in there if (found := proof(spark, cold)) is not None]
        return proofs

    def repair(self, *only: str, starting: Starting = lambda _: None) -> list[Repaired]:
        """Commit again what the archive's logs have lost, from the database's own journal, where the files still exist.

        Changes no hot row.
        """
        upkeep = self._upkeep(None, starting)
        tables = {str(table.name): table for table in upkeep.tables()}
        chosen = self._chosen(only, list(tables))
        require_admin(self._store, self._contract)
        from wane.archive.repair import Repair

        repair = Repair(upkeep, self._archiver(starting=starting))
        return [repair.repair(tables[name]) for name in chosen]

    def adopt(self) -> Adopted:
        """Make this database the one that writes to the archive, as the archive is now.

        Another one that did is refused from then on.
        """
        upkeep = self._upkeep(None, lambda _: None)
        require_admin(self._store, self._contract)
        from wane.archive.repair import Repair

        return Repair(upkeep, self._archiver()).adopt(self._names())

    def findings(self) -> list[Finding]:
        """Report what is wrong with the archive: logs that have lost commits, and sweeps that nothing finishes.

        Reads only.
        """
        contract = self._contract
        if contract.archive_url is None or not self._store.is_migrated():
            return []
        try:
            from wane.archive.findings import find
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
        from wane.archive.query import frame, narrowed
        from wane.archive.session import session

        if limit is not None and limit < 1:
            raise WrongArgument(f"limit must be at least 1, not {limit}")
        cold = self._cold(table)
        self._require_complete([cold])
        cold.require()  # A missing table is reported without starting Spark.
        return narrowed(frame(session(self._contract.spark, starting), cold), where=where, columns=columns, limit=limit)

    def survey(self, *only: str, starting: Starting = lambda _: None) -> list[Surveyed]:
        """Survey every hot table and the archive: how much there is, how fast it grows, and what will be due when.

        Counted on Spark.
        """
        _require_libraries()
        from wane.archive.survey import Surveyor

        known = {str(table.name) for table in self._contract.tables}
        known |= {str(name) for name, _ in self._contract.excused}
        colds = [] if self._contract.archive_url is None else list(self._cold_tables())
        known |= {str(follower.reference.table) for _, _, follower in self._contract.followers()}
        known |= {cold.name for cold in colds}
        unknown = [name for name in only if name not in known]
        if unknown:
            raise WrongArgument(f"the contract does not speak of {unknown[0]}", did_you_mean(unknown[0], known))
        self._require_complete(colds)
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
        dry_run: bool = False,
        pace: Pace | None = None,
        starting: Starting = lambda _: None,
    ) -> Restored:
        """Bring archived rows back with what left with them, chosen by a condition, by their sweep, or by keys.

        Into the hot table they move; into a side table they are copied. Restored rows are held against sweeps for
        `protect` (seven days by default). Safe to repeat after any interruption.
        """
        chosen = find_table(self._contract, table)
        if not any(name == chosen for name, _ in self._rules()):
            shelved = next((one.action for one in chosen.rules if isinstance(one.action, Shelve)), None)
            hint = "rows that left with others come back with those"
            if shelved is not None:
                hint = f"its rows are in {shelved.schema}.{chosen.name.name}_<yyyymm>, in the same database: see docs/how-to/archive.md"
            raise WrongArgument(f"no rule archives {table} by itself", hint)
        if (where is not None) + (sweep is not None) + bool(keys) != 1:
            raise WrongArgument("say which rows: exactly one of `where`, `sweep` and `keys`")
        _require_libraries()
        from wane.archive.commits import require_whole
        from wane.archive.journal_restore import OnConflict
        from wane.archive.restore import PROTECT, Restorer
        from wane.archive.staging import Choice

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
        restorer = Restorer(
            self._store, self._contract, actor=self._actor, listener=self._listener, pace=pace, starting=starting
        )
        return restorer.restore(
            chosen,
            Choice(where, sweep, tuple({name: str(value) for name, value in key.items()} for key in keys)),
            into=into,
            on_conflict=OnConflict(on_conflict),
            protect=PROTECT if protect is None else protect,
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
        from wane.archive.restore import Restorer

        Restorer(self._store, self._contract, actor=self._actor, listener=self._listener).cancel(table, number)
        return next(one for one in self.restores(restore.table, limit=10_000) if one.id == number)

    def _require_sweep(self, table: str, number: int) -> None:
        with self._store.snapshot() as transaction:
            known = Jobs(transaction).sweeps()
        if number not in known or known[number].table != table:
            raise WrongArgument(f"{table} has no sweep {number}", f"`wane archive status {table}` lists its sweeps")

    def _rules(self) -> Iterator[tuple[Table, Rule]]:
        for table, rule in self._contract.rules():
            if isinstance(rule.action, ToArchive):
                yield table, rule

    def _archiver(self, **options: Any) -> Archiver:
        _require_libraries()
        from wane.archive.archiver import Archiver

        return Archiver(self._store, self._contract, actor=self._actor, listener=self._listener, **options)

    def _upkeep(self, stop: threading.Event | None, starting: Starting) -> Upkeep:
        self._store.require_migrated()
        archiver = self._archiver()
        from wane.archive.upkeep import Upkeep

        return Upkeep(
            self._store,
            self._contract,
            actor=self._actor,
            origin=archiver.origin(),
            listener=self._listener,
            stop=stop,
            starting=starting,
        )

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

    def _require_complete(self, colds: Sequence[ColdTable]) -> None:
        """Raise if the log of a table lacks commits: what is left of the archive must not pass for all of it."""
        from wane.archive.commits import find_lost

        for cold in colds:
            problem = find_lost(self._store, cold)
            if problem is not None:
                raise problem

    def _cold_tables(self) -> Iterator[ColdTable]:
        """Yield the archive's table for every table that loses rows to it."""
        _require_libraries()
        from wane.archive.cold_table import ColdTable, place_of

        contract = self._contract
        if contract.archive_url is None:
            raise ArchiveError("the contract names no archive", 'add `[archive]` with `url = "./archive"`')
        self._store.require_migrated()
        root = place_of(contract.archive_url, None if contract.path is None else contract.path.parent)
        origin = self._archiver().origin()
        for name in self._names():
            yield ColdTable(root, name, origin)

    def _names(self) -> list[str]:
        """Return every table that loses rows to the archive."""
        names = dict.fromkeys(str(table.name) for table, _ in self._rules())
        names |= dict.fromkeys(
            str(follower.reference.table)
            for _, rule, follower in self._contract.followers()
            if isinstance(rule.action, ToArchive)
        )
        return list(names)


def elsewhere(archive: Archive) -> Elsewhere | None:
    """Return the archive's rows, for placing holds on them; None where nothing is archived, or the archive cannot be
    read here."""
    if archive._contract.archive_url is None or not archive._names():
        return None
    try:
        from wane.archive.archived_holds import ArchivedRows
    except ImportError:
        return None
    return ArchivedRows(archive._store, archive._contract, archive._cold_tables)
