"""The archive inside the database: rows that a rule moved to `<schema>.<table>_<yyyymm>` expire, and come back.

A batch is one transaction, in which rows leave one table, arrive in another or nowhere, and are recorded in the audit
trail. So there is nothing to journal: after any crash, the next call continues with the rows that are left. Needs
neither Spark nor any other library.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from wane._archive.model import DIFFERENT, OLDER, ArchivedColumnChange, ColdStatus, ExpiredTable, Restored
from wane._archive.restore.journal import OnConflict
from wane._archive.restore.sql import is_rows_fault
from wane._archive.tier.sql import (
    TierComparison,
    TierMonth,
    TierRows,
    find_months,
    held_row,
    older_versions,
    parse_comparisons,
)
from wane._archive.work import ArchiveWork
from wane._contract.duration import Forever, format_duration
from wane._contract.model import Contract, Table, ToColdTier
from wane._db import Store
from wane._db.schema import TableInfo, qualified
from wane._db.statement import Parameters, Statement
from wane._db.transaction import Transaction
from wane._ledger import AuditEntry, Hold
from wane._prune.batches import Batches, pass_gates, require_not_append_only
from wane._prune.binding import Bindings
from wane._prune.pacing import Closed, Stopped
from wane._prune.sql_outbox import OutboxEvent, write_event
from wane._prune.sweep import Outcome
from wane._rules.rows import rows_of
from wane._rules.selection import BoundFollower, Selection
from wane.errors import ArchiveError, Locked, PlanError, StoreError, TimedOut, WaneError, WrongArgument
from wane.events import ArchiveMaintained, RowsRestored, hard_deleted, hard_deleted_name

_SHOWN = 20
_CHANGED = "another row got its key meanwhile, or it left the archive"


def _schema_of(table: Table) -> str:
    """Return the schema that the rows of a table in the tier move to."""
    assert table.tier_schema is not None
    return table.tier_schema


@dataclass(frozen=True, slots=True)
class DatabaseTier(ArchiveWork):
    """Expires and restores rows of a contract's tables that are archived in the same database."""

    def _selections(self, table: Table) -> list[Selection]:
        bindings = Bindings(self.store, self.contract)
        return [bindings.selection(table, rule) for rule in table.rules if isinstance(rule.action, ToColdTier)]

    def _whole(self, selections: Sequence[Selection]) -> Selection:
        """Return one selection with the followers of all rules."""
        found: dict[object, BoundFollower] = {}
        for selection in selections:
            for follower in selection.followers:
                found.setdefault((follower.reference.table.qualified, follower.reference.columns), follower)
        return replace(selections[0], followers=tuple(found.values()))

    def _months(self, table: Table, selection: Selection) -> list[TierMonth]:
        with self.store.snapshot() as transaction:
            return find_months(transaction, _schema_of(table), selection.table)

    def _rows(self, transaction: Transaction, table: Table, selection: Selection, month: TierMonth) -> TierRows:
        return TierRows(rows_of(self.store), transaction, selection, _schema_of(table), month.month)

    # Listing

    def status(self, table: Table) -> ColdStatus | None:
        """Count the rows of every month of a table; return None if there are none yet."""
        selection = self._whole(self._selections(table))
        months = self._months(table, selection)
        rows = 0
        shapes = []
        with self.store.snapshot() as transaction:
            for month in months:
                statement = self._count(transaction, table, selection, month, lambda *_: ["1 = 1"])
                rows += statement
                shapes.append(transaction.columns(self._rows(transaction, table, selection, month).table))
            shapes.append(transaction.columns(selection.table))
        names = [f"{one.month[:4]}-{one.month[4:]}" for one in months]
        if not months:
            return None
        size = sum(one.bytes for one in months)
        place = f"{_schema_of(table)}.{selection.table.name}_<yyyymm>"
        changes = tuple(_changes(shapes, [*names[1:], names[-1]]))
        return ColdStatus(str(table.name), place, rows, size, len(months), names[0], names[-1], 0, changes=changes)

    def _count(
        self,
        transaction: Transaction,
        table: Table,
        selection: Selection,
        month: TierMonth,
        where: Callable[..., list[str]],
    ) -> int:
        rows = self._rows(transaction, table, selection, month)
        p = transaction.parameters()
        statement = rows.count(p, where(rows, p))
        [(found,)] = transaction.execute(statement.text, statement.parameters)
        return int(found)

    # Expiry

    def cutoff(self, table: Table) -> datetime | None:
        """Return the time before which rows expire, strictly; None if none ever do."""
        keep = next((one.keep for one in self.contract.archive if one.table == table.name), None)
        if keep is None or isinstance(keep, Forever):
            return None
        return self.store.now() - max(keep, dict(self.contract.floors).get(table.name, timedelta(0)))

    def expire(self, table: Table, *, dry_run: bool = False) -> ExpiredTable:
        """Delete rows for good that are older than `keep`, with what left with them, the oldest months first.

        A failure is the outcome of this table and does not affect others.
        """
        done = ExpiredTable(str(table.name), Outcome.DONE, self.cutoff(table), dry_run=dry_run)
        try:
            if done.cutoff is not None:
                self._expire(table, done.cutoff, done, dry_run=dry_run)
        except Closed as closed:
            done.outcome = Outcome.STOPPED if self.stop.is_set() else Outcome.OFF
            done.message = str(closed)
        except WaneError as problem:
            done.outcome, done.message = Outcome.FAILED, str(problem)
        return done

    def _expire(self, table: Table, cutoff: datetime, done: ExpiredTable, *, dry_run: bool) -> None:
        name = str(table.name)
        require_not_append_only(table)
        selections = self._selections(table)
        whole = self._whole(selections)
        months = [one for one in self._months(table, whole) if one.month <= cutoff.strftime("%Y%m")]
        if dry_run:
            with self.store.snapshot() as transaction:
                for month in months:
                    rows = self._count(
                        transaction, table, whole, month, lambda rows, p: rows.expired(p, cutoff, selections)
                    )
                    done.add(name, _written(month), rows)
            return
        keep = next(one.keep for one in self.contract.archive if one.table == table.name)
        assert isinstance(keep, timedelta)
        audit = AuditEntry.begun(
            "archive_expire",
            name,
            self.actor,
            {"keep": format_duration(keep), "tier": "database"},
            self.store.now(),
            run=f"expire-{uuid.uuid4().hex[:8]}",
            cutoff=cutoff,
        )

        def begin(transaction: Transaction) -> datetime:
            return pass_gates(transaction, whole, self.contract.sweep, self.fence)

        began = time.monotonic()
        batches = Batches(self.store, self.pace, audit, begin, self.stop)
        for month in months:
            take = partial(self._delete, batches, table, whole, month, cutoff, selections)
            while True:
                taken = self._paced(batches, take)
                for one, rows in taken.items():
                    done.add(one, _written(month), rows)
                if not taken.get(name):
                    break
        if batches.audit.id is None:
            with batches.open() as batch:
                batch.record({name: 0})
        counts = batches.audit.counts
        for one, rows in counts.items():
            if rows and self.contract.events.emits_hard_deleted(one):
                self.listener(hard_deleted(one, None, rows, batches.audit.id))
        self.listener(ArchiveMaintained("expire", name, dict(counts), 0, 0, time.monotonic() - began))

    def _delete(
        self,
        batches: Batches,
        table: Table,
        whole: Selection,
        month: TierMonth,
        cutoff: datetime,
        selections: Sequence[Selection],
    ) -> dict[str, int]:
        with batches.open() as batch:
            transaction = batch.transaction
            rows = self._rows(transaction, table, whole, month)
            p = transaction.parameters()
            statement = rows.delete(p, rows.expired(p, cutoff, selections), batches.size)
            [found] = transaction.execute(statement.text, statement.parameters)
            counts = _by_name(rows.names, found)
            batch.record(counts)
            for one, gone in counts.items():
                if gone and self.contract.events.emits_hard_deleted(one):
                    event = OutboxEvent(hard_deleted_name(one), one, gone, batch.audit_id, batch.clock)
                    write_event(self.store, transaction.execute, self.contract.events.outbox, event)
        return counts

    def _paced(self, batches: Batches, work: Callable[[], dict[str, int]]) -> dict[str, int]:
        """Run a batch, smaller if rows are locked or it takes too long, and pause."""
        counts = batches.attempt(work)
        batches.adapt()
        batches.pause()
        return counts

    # Restoring

    def restore(
        self,
        table: Table,
        *,
        where: str | None,
        keys: Sequence[Mapping[str, str]],
        on_conflict: OnConflict,
        protect: timedelta,
        most: Mapping[str, int] | None = None,
        dry_run: bool = False,
    ) -> Restored:
        """Move chosen rows back, with what left with them; the newest months first."""
        if on_conflict is OnConflict.REPLACE:
            raise WrongArgument(
                "rows that are in the same database replace no others",
                "use --on-conflict skip, or delete the other row",
            )
        choice = [parse_comparisons(where)] if where is not None else []
        choice += [[TierComparison(name, "=", value) for name, value in key.items()] for key in keys]
        inputs = {"where": where} if where is not None else {"keys": [dict(key) for key in keys]}
        restoring = _TierRestore(self, table, choice, self._whole(self._selections(table)))
        return restoring.run(inputs, on_conflict, protect, most, dry_run=dry_run)


class ShelvedRows:
    """Rows that are archived in the same database, for callers that hold one."""

    def __init__(self, store: Store, contract: Contract) -> None:
        self._store = store
        self._contract = contract

    def find(self, table: TableInfo, key: Mapping[str, object]) -> str | None:
        """Return the text by which a hold names the row of this key; None if no month has it."""
        with self._store.snapshot() as transaction:
            return self._search(transaction, table, [(name, str(value)) for name, value in key.items()])

    def has(self, transaction: Transaction, table: TableInfo, text: str) -> bool:
        """Check whether a row that was found is still there."""
        return any(
            transaction.execute(statement.text, statement.parameters)
            for statement in self._statements(transaction, table, None, text)
        )

    def _search(self, transaction: Transaction, table: TableInfo, key: Sequence[tuple[str, str]]) -> str | None:
        for statement in self._statements(transaction, table, key, None):
            for (text,) in transaction.execute(statement.text, statement.parameters):
                return str(text)
        return None

    def _statements(
        self, transaction: Transaction, table: TableInfo, key: Sequence[tuple[str, str]] | None, text: str | None
    ) -> Iterator[Statement]:
        rows = rows_of(self._store)
        for schema in {_schema_of(one) for one in self._contract.tables if _is_shelved(one)}:
            for month in find_months(transaction, schema, table):
                yield held_row(rows, transaction, table, schema, month, key, text)


def _is_shelved(table: Table) -> bool:
    return any(isinstance(rule.action, ToColdTier) for rule in table.rules)


@dataclass(frozen=True, slots=True)
class _Staying:
    """Chosen rows that stay for one reason: how many, and the keys of the first of them."""

    rows: int
    first: Sequence[str]


class _TierRestore:
    """One restore."""

    def __init__(
        self, tier: DatabaseTier, table: Table, choice: Sequence[Sequence[TierComparison]], selection: Selection
    ) -> None:
        self.tier = tier
        self.table = table
        self.name = str(table.name)
        self.choice = choice
        self.selection = selection
        self.months = tier._months(table, selection)[::-1]
        self.unrestored: list[tuple[str, str]] = []
        """Keys of rows that the database refused, each with the reason."""
        self.most = 0
        """Rows that were chosen: a rule may move more of them meanwhile, or some of those that came back."""

    def run(
        self,
        inputs: Mapping[str, object],
        on_conflict: OnConflict,
        protect: timedelta,
        most: Mapping[str, int] | None,
        *,
        dry_run: bool,
    ) -> Restored:
        if protect and not all(one.primary_key for one in self._tables()):
            raise WrongArgument(
                f"{self.name}, or what left with its rows, has no primary key, so rows cannot be protected one by one",
                "restore with --protect 0",
            )
        chosen, taken, older = self._chosen()
        self._require_planned(chosen, most)
        self.most = chosen[self.name]
        if taken.rows and on_conflict is OnConflict.REFUSE:
            raise self._refusal(taken)
        staying = [(key, DIFFERENT) for key in taken.first] + [(key, OLDER) for key in older.first]
        stay = taken.rows + older.rows
        if dry_run or not any(chosen.values()):
            would = {**chosen, self.name: chosen[self.name] - stay}
            shown = tuple(staying[:_SHOWN])
            return Restored(self.name, None, None, chosen, would, 0, 0, stay, shown, None, dry_run)
        now = self.tier.store.now()
        until = now + protect if protect else None
        hold = None
        if until is not None:
            hold = Hold(qualified(self.selection.table), None, "restored from the archive", self.tier.actor, now, until)
        audit = AuditEntry.begun(
            "restore",
            self.name,
            self.tier.actor,
            {**inputs, "on_conflict": on_conflict.value, "tier": "database"},
            now,
            run=f"restore-{uuid.uuid4().hex[:8]}",
        )
        batches = Batches(self.tier.store, self.tier.pace, audit, lambda one: one.now(), self.tier.stop, durable=True)
        stopped = self._move_back(batches, hold)
        restored = {**dict.fromkeys(chosen, 0), **batches.audit.counts}
        staying = [*self.unrestored, *staying]
        unrestored, left = stay + len(self.unrestored), chosen[self.name] - restored[self.name]
        if left > unrestored and not stopped:
            unrestored = left
            staying.append(("", _CHANGED))
        number = batches.audit.id or 0
        self.tier.listener(RowsRestored(self.name, number, None, restored, 0, 0, unrestored))
        shown = tuple(staying[:_SHOWN])
        return Restored(self.name, None, None, chosen, restored, 0, 0, unrestored, shown, until, stopped=stopped)

    def _require_planned(self, chosen: Mapping[str, int], most: Mapping[str, int] | None) -> None:
        for name, rows in chosen.items():
            if most is not None and rows > most.get(name, 0):
                raise PlanError(
                    f"{rows:,} rows of {name} are chosen, and {most.get(name, 0):,} were shown", "plan it again"
                )

    def _refusal(self, taken: _Staying) -> ArchiveError:
        return ArchiveError(
            f"{taken.rows:,} rows are not restored: other rows have their keys in {self.selection.table.name}:"
            f" {', '.join(taken.first)}",
            "nothing was changed; --on-conflict skip leaves those rows as they are",
        )

    def _move_back(self, batches: Batches, hold: Hold | None) -> bool:
        """Move the chosen rows month by month, under one audit row; return whether a stop ended it early."""
        stopped = False
        try:
            for month in self.months:
                self._month(batches, month, hold)
        except Stopped:
            stopped = True
        if batches.audit.id is None:
            with batches.open() as batch:
                batch.record({self.name: 0})
        return stopped

    def _tables(self) -> list[TableInfo]:
        with self.tier.store.snapshot() as transaction:
            found = [self.selection.table]
            for month in self.months:
                rows = self.tier._rows(transaction, self.table, self.selection, month)
                found += [path[-1].reference.table for path in rows.paths]
        return found

    def _chosen(self) -> tuple[dict[str, int], _Staying, _Staying]:
        """Count the chosen rows by table, those whose keys other rows have, and those of which a newer version is
        chosen; raise if values would be lost."""
        chosen: Counter[str] = Counter({self.name: 0})
        taken, first, having_some = 0, list[str](), list[TierRows]()
        with self.tier.store.snapshot() as transaction:

            def read(statement: Statement) -> tuple[int, ...]:
                [found] = transaction.execute(statement.text, statement.parameters)
                return tuple(found)

            for month in self.months:
                rows = self.tier._rows(transaction, self.table, self.selection, month)
                p = transaction.parameters()
                [count] = read(rows.count(p, rows.chosen(p, self.choice)))
                chosen[self.name] += count
                if not count:
                    continue
                having_some.append(rows)
                p = transaction.parameters()
                [free] = read(rows.count(p, [*rows.chosen(p, self.choice), *rows.free()]))
                taken += count - free
                if free < count and len(first) < _SHOWN:
                    p = transaction.parameters()
                    statement = rows.first(p, [*rows.chosen(p, self.choice), *rows.taken()], _SHOWN - len(first))
                    first += [key for (key,) in transaction.execute(statement.text, statement.parameters)]
                for path in rows.paths:
                    p = transaction.parameters()
                    [following] = read(rows.count_following(p, path, rows.chosen(p, self.choice)))
                    chosen[str(path[-1].reference.name)] += following
                p = transaction.parameters()
                lost = rows.lost(p, rows.chosen(p, self.choice))
                if lost is not None:
                    names, statement = lost
                    having = [name for name, some in zip(names, read(statement), strict=True) if some]
                    if having:
                        raise ArchiveError(
                            f"{rows.table.schema}.{rows.table.name} has values of {', '.join(having)}, which"
                            f" {self.name} no longer has: they would be lost",
                            "nothing was changed; add the column for as long as the restore takes, or copy the rows with SQL",
                        )
            older = self._older(transaction, having_some)
        return dict(chosen), _Staying(taken, first), older

    def _older(self, transaction: Transaction, months: Sequence[TierRows]) -> _Staying:
        """Count chosen rows that stay because a newer row of the same key is chosen too."""
        if not months:
            return _Staying(0, [])
        p = transaction.parameters()
        where = [*months[0].chosen(p, self.choice), *months[0].free()]  # The same of every month.
        statement = older_versions(p, [rows.keys(where) for rows in months], _SHOWN)
        found = transaction.execute(statement.text, statement.parameters)
        return _Staying(int(found[0][1]) if found else 0, [key for key, _ in found])

    def _month(self, batches: Batches, month: TierMonth, hold: Hold | None) -> None:
        while self._left(batches):
            try:
                counts = self.tier._paced(batches, lambda: self._batch(batches, month, hold))
            except StoreError as problem:
                if isinstance(problem, Locked | TimedOut) or not is_rows_fault(problem):
                    raise
                if batches.size > 1:
                    batches.size //= 2
                    continue
                self.unrestored.append((self._first(month), problem.message))
                continue
            if not counts.get(self.name):
                return

    def _left(self, batches: Batches) -> int:
        """Return how many rows may still come back."""
        return self.most - batches.audit.counts.get(self.name, 0)

    def _where(self, rows: TierRows, p: Parameters) -> list[str]:
        """Write the conditions of rows that come back now: of a key the newest that is chosen, and, if the database
        refuses that, none."""
        mine, other = rows.chosen(p, self.choice, "t", "o")
        return [mine, *rows.free(), *rows.newest(other), *rows.others(p, [key for key, _ in self.unrestored])]

    def _first(self, month: TierMonth) -> str:
        """Return the key of the next row."""
        with self.tier.store.snapshot() as transaction:
            rows = self.tier._rows(transaction, self.table, self.selection, month)
            p = transaction.parameters()
            statement = rows.first(p, self._where(rows, p), 1)
            [(key,)] = transaction.execute(statement.text, statement.parameters)
        return str(key)

    def _batch(self, batches: Batches, month: TierMonth, hold: Hold | None) -> dict[str, int]:
        with batches.open() as batch:
            transaction = batch.transaction
            rows = self.tier._rows(transaction, self.table, self.selection, month)
            p = transaction.parameters()
            statement = rows.restore(p, self._where(rows, p), min(batches.size, self._left(batches)), hold)
            [found] = transaction.execute(statement.text, statement.parameters)
            left, came = found[: len(rows.names)], found[len(rows.names) :]
            if left != came:
                raise StoreError(
                    f"{self.name}: {sum(left)} rows were to come back, and the database took {sum(came)}",
                    "a trigger or a rule on the table keeps rows out; nothing was changed",
                )
            counts = _by_name(rows.names, came)
            batch.record(counts)
        return counts


def _by_name(names: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for name, rows in zip(names, counts, strict=True):
        found[name] += rows
    return dict(found)


def _written(month: TierMonth) -> str:
    return f"{month.month[:4]}-{month.month[4:]}"


def _changes(shapes: Sequence[Sequence[tuple[str, str]]], months: Sequence[str]) -> Iterator[ArchivedColumnChange]:
    """Yield how columns differ from month to month, and which of the newest month the hot table, the last, has not."""
    for number, month in enumerate(months):
        was, now = dict(shapes[number]), dict(shapes[number + 1])
        hot = number == len(months) - 1
        for name in dict.fromkeys(was if hot else [*was, *now]):
            if name not in now or (not hot and was.get(name) != now[name]):
                yield ArchivedColumnChange(name, was.get(name), now.get(name), None, None, month)
