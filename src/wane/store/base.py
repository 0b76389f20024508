"""The store: a database, spoken to in Wane's nouns.

`Store` says what every store can do. What both do alike over users' rows is written here once, on top of a few primitives
(run a bounded read, explain, estimate) that each store brings. A read has a time limit; one that runs into it raises
TimedOut, and whoever asked falls back to an estimate that says it is one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wane.contract.model import Contract, State
from wane.contract.names import TableName
from wane.errors import Locked, NotMigrated, StoreError, TimedOut, Unreachable
from wane.store.archive_reader import Source
from wane.store.archive_restore import RestoreDialect
from wane.store.archive_types import ArchiveDialect
from wane.store.looks import UNREAD, Look, gather
from wane.store.messages import Messages
from wane.store.migrations import Migration, migrations
from wane.store.moments import read_moment
from wane.store.own import Execute
from wane.store.roles import RolePlan
from wane.store.rows import Rows
from wane.store.schema import Column, Schema, TableInfo
from wane.store.selection import BoundFollower, Selection, Types, follower_paths
from wane.store.space import DatabaseSpace, Size, TableSpace
from wane.store.statement import Statement
from wane.store.timetable import Timetable
from wane.store.transaction import Transaction

if TYPE_CHECKING:
    from wane.store.postgres.partition import PostgresPartitions


class Exactness(StrEnum):
    """How much a count can be trusted."""

    EXACT = "exact"
    ESTIMATE = "estimate"
    AT_LEAST = "at least"


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows, and how much it can be trusted."""

    rows: int
    exactness: Exactness = Exactness.EXACT


@dataclass(frozen=True, slots=True)
class Due:
    """What is due under one rule. None means: could not be found out in the time allowed."""

    count: Count | None
    oldest: datetime | None
    newest: datetime | None
    followers: tuple[tuple[str, Count | None], ...] = ()


_TOGETHER = (256, 64, 1)
"""How many looks go into one statement: many, to save round trips; if one of them fails, fewer, and in the end each alone."""
_TOO_LONG = (TimedOut, Locked)
"""What a bounded read may run into; whoever asked falls back to less."""
_COUNTED_ROWS = 1_000_000
"""Tables that the database believes to be larger are not counted."""
_PROBE_ROWS = (10_000, 100)
"""How many rows a bounded probe looks at when the full count takes too long, and when that takes too long as well."""


class Watch(ABC):
    """Notices that something was committed that somebody may wait for. It may notice too much, and in rare cases late."""

    @abstractmethod
    def read(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Return as soon as something was noticed, at the latest after so many seconds."""

    @abstractmethod
    def close(self) -> None:
        """Close its connection."""


class Store(ABC):
    """A database."""

    kind: str
    """"sqlite" or "postgres"."""
    audit = False
    """Whether the audit trail is among the tables that a contract may speak of."""
    shown: str
    """Its URL without secrets."""
    reopened = 0
    """How often the database had to be opened again. What was read of its schema before that may be of another database."""
    types: Types
    rows: Rows
    messages: Messages
    timetable: Timetable
    archive: ArchiveDialect
    restore: RestoreDialect
    migration_list: str
    """The statements that create the list of applied migrations, if it is missing."""
    migration_end = ""
    """The statement that ends the script of what is missing, if there is one."""
    migration_entry: str
    """The statement that enters a migration by its name, with {} for the name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What each store brings

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""

    @abstractmethod
    def now(self) -> datetime:
        """The database's clock, in UTC."""

    @abstractmethod
    def clock(self) -> datetime | None:
        """What leases and due times are measured by: None where the database's clock is asked inside the statement itself.

        It never runs backwards, whatever happens to the clock of a host.
        """

    @abstractmethod
    def again(self, *, answer_seconds: float | None = None) -> Store:
        """The same database, over connections of its own.

        With `answer_seconds`, a server that has said nothing for so long counts as gone: the connection is given up.
        """

    @abstractmethod
    def tables_behind(self, view: TableInfo) -> list[str]:
        """The full names of the tables that a view reads, directly or through other views; empty if that cannot be said."""

    @abstractmethod
    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run one statement as a transaction of its own, again and again the same: it may be prepared."""

    @abstractmethod
    def acting(self, *, durable: bool = True) -> AbstractContextManager[tuple[Execute, datetime | None]]:
        """What runs statements that change something by the clock, and the moment that they go by, as `clock` tells it.

        The moment is read when nothing has to be waited for any more: a process that waited for others, or was stopped on its way,
        must not act as of before. Not `durable`: the commit need not wait for the disk, if the statement does not say so itself.
        """

    @abstractmethod
    def watch(self) -> Watch:
        """Something that notices, on a connection of its own, that others woke a pool."""

    @abstractmethod
    def identity(self) -> str:
        """Which database this is: equal for the same database only, whatever the URL looks like."""

    @abstractmethod
    def is_same_database(self, identity: str) -> bool:
        """Whether an identity that was recorded earlier is this database's, also if it was moved or failed over since."""

    @abstractmethod
    def version(self) -> str:
        """The database's version, for people."""

    @abstractmethod
    def reflect(self, *, own: bool = False) -> Schema:
        """Every table that a contract may speak of; or Wane's own tables, for the contract that Wane has with itself."""

    @abstractmethod
    def locate(self, name: TableName) -> TableName:
        """Return a name that statements find the table by, as `reflect` would find it; the name itself if there is no such table.

        A table that was found is remembered until the schema is reflected again.
        """

    @abstractmethod
    def forget_located(self) -> None:
        """Search again the next time that a table is located."""

    @abstractmethod
    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing; raise TimedOut if it takes longer. One that comes often may be prepared."""

    def asking(self, seconds: float) -> Execute:
        """What reads Wane's own tables so: without a transaction, waiting for no writer, each statement for so long at most."""
        return lambda text, parameters: self.read(Statement(text, parameters), seconds)

    @abstractmethod
    def time_read(self, statement: Statement, times: int, seconds: float) -> float:
        """How long a statement that changes nothing takes, in seconds: the fastest of several times, so that a busy machine matters
        little. Raise TimedOut if one of them takes longer than allowed."""

    @abstractmethod
    def estimate_rows(self, table: TableInfo) -> int | None:
        """How many rows a large table has, about, without reading them; None where nobody knows."""

    @abstractmethod
    def size_look(self, table: TableInfo) -> Look | None:
        """The bytes that a table takes, its indexes and partitions included; None where that would take a walk over all of it."""

    @abstractmethod
    def functions_fingerprint(self, seconds: float) -> str | None:
        """The fingerprint of the contract that the functions inside the database were installed for; None if there are none."""

    @abstractmethod
    def explain(self, statement: Statement) -> str:
        """The query plan, as the database prints it; the statement does not run."""

    @abstractmethod
    def estimate(self, statement: Statement) -> int | None:
        """How many rows the planner thinks a statement reads, or None where the store has no such planner."""

    @abstractmethod
    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        """The statement that would create an index, for people to copy."""

    @abstractmethod
    def transaction(
        self, connection: object | None = None, *, durable: bool = True
    ) -> AbstractContextManager[Transaction]:
        """All or nothing, on a connection of the store's own or inside the transaction of the caller's connection.

        Not `durable`: the commit does not wait for the disk, where the store can do that without risk for what was committed before.
        If power fails, the whole transaction may vanish, and nothing but it and what came after it.
        """

    @abstractmethod
    def literal(self, statement: Statement) -> str:
        """The statement with its values written into it, quoted by the driver: for tasks that run it elsewhere."""

    @abstractmethod
    def source(self) -> Source:
        """Where tasks in other processes read this database; its secret is fetched, never sent along."""

    @abstractmethod
    def exported_snapshot(self) -> AbstractContextManager[str | None]:
        """Hold one state of the database for readers on other connections, and give its name; None if the store cannot share one."""

    @abstractmethod
    def preview(self, selection: Selection, now: datetime, limit: int) -> list[Statement]:
        """The statements that would take the oldest due rows, to be shown and explained."""

    @abstractmethod
    def barred(self, role: str) -> str:
        """Why whoever is connected cannot act as a member of a role; "" if they can."""

    @abstractmethod
    def plan_roles(self, contract: Contract) -> RolePlan:
        """What has to be run for the contract's roles."""

    @abstractmethod
    def apply_roles(self, contract: Contract) -> RolePlan:
        """Run what is missing for the contract's roles, in one transaction; return what was run."""

    @abstractmethod
    def sizes(self, tables: Sequence[tuple[TableInfo, int | None]], seconds: float) -> dict[tuple[str, str], Size]:
        """What tables take with their indexes, by their full names; each with the number of its rows, if that is known."""

    @abstractmethod
    def space(self, tables: Sequence[TableInfo], seconds: float) -> list[TableSpace]:
        """What tables take, and how much of it nobody uses."""

    @abstractmethod
    def database_space(self) -> DatabaseSpace:
        """What the whole database takes."""

    @abstractmethod
    def give_back(self, pages: int) -> int:
        """SQLite: give free pages at the end of the file back to the disk, in one transaction; return how many."""

    @abstractmethod
    def partitions(self) -> PostgresPartitions:
        """The steps of partitioning, over connections of their own; raise where there are no partitions."""

    @abstractmethod
    def applied_migrations(self) -> list[str]:
        """The names of the migrations of Wane's own tables that this database has."""

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring Wane's own tables up to date, once, however many processes try at a time; return what was applied."""

    # What all stores do alike

    def pending_migrations(self) -> list[Migration]:
        """What `migrate` would apply, as SQL for people to run: with the list of migrations and the entries in it."""
        applied = set(self.applied_migrations())
        pending = [one for one in migrations(self.kind) if one.name not in applied]
        found = [f"{one.sql}{self.migration_entry.format(one.name)};\n" for one in pending]
        if found:
            found[0] = f"{self.migration_list};\n{found[0]}"
            found[-1] += self.migration_end
        return [Migration(one.name, text) for one, text in zip(pending, found, strict=True)]

    def is_migrated(self) -> bool:
        """Whether the database has all of Wane's own tables."""
        return {one.name for one in migrations(self.kind)} <= set(self.applied_migrations())

    def require_migrated(self) -> None:
        """Raise if Wane's own tables are missing: nothing leaves without its audit row."""
        if not self.rows.with_holds:
            self.rows.with_holds = self.is_migrated()
        if not self.rows.with_holds:
            lacks = (
                "has an older version of Wane's own tables"
                if self.applied_migrations()
                else "does not have Wane's own tables yet"
            )
            raise NotMigrated(f"{self.shown} {lacks}", "run `wane migrate`")

    def _preview_locked(self, selection: Selection, now: datetime, limit: int) -> list[Statement]:
        keys = [("…",) * len(selection.key)]
        return [
            self.rows.candidates(selection, now, limit),
            *(self.rows.delete_followers(selection, path, keys) for path in follower_paths(selection)),
            self.rows.take_keys(selection, now, keys),
        ]

    def count_rows(self, table: TableInfo, seconds: float) -> Count | None:
        """The rows of a table: exact if that is quick, else what the database believes."""
        believed = table.rows_estimate
        if believed is not None and believed > _COUNTED_ROWS:
            return Count(believed, Exactness.ESTIMATE)
        # Not count(*): SQLite answers that in one step, which no time limit can interrupt.
        statement = Statement(f"SELECT count(1) FROM {self.rows.dialect.table(table)}", {})
        counted = self._count(statement, (), seconds)
        if counted is None and believed is not None:
            return Count(believed, Exactness.ESTIMATE)
        return counted

    def measure_rows(self, table: TableInfo, seconds: float) -> Count | None:
        """Like count_rows, but what the database believes is brought up to date with the size that the table has by now."""
        believed = table.rows_estimate
        try:
            if believed is None or believed <= _COUNTED_ROWS:
                counted = self.count_rows(table, seconds)
                if counted is None or counted.exactness is Exactness.EXACT:
                    return counted
        except StoreError:
            pass  # A role may see how large a table is, and not what is in it.
        try:
            fresh = self.estimate(Statement(f"SELECT 1 FROM {self.rows.dialect.table(table)}", {}))
        except StoreError:
            fresh = None
        rows = believed if fresh is None else fresh
        return None if rows is None else Count(rows, Exactness.ESTIMATE)

    def has_more_rows_than(self, table: TableInfo, limit: int, seconds: float) -> bool | None:
        """Whether a table has more rows than that, without counting all of them."""
        p = self.rows.parameters()
        text = f"SELECT 1 FROM {self.rows.dialect.table(table)} LIMIT 1 OFFSET {p.bind('limit', limit)}"
        try:
            return bool(self.read(p.statement(text), seconds))
        except _TOO_LONG:
            return None

    def count_some_rows(self, table: TableInfo, most: int, seconds: float) -> int:
        """Count the rows of a table, up to `most`; raise TimedOut if that takes longer."""
        p = self.rows.parameters()
        some = f"SELECT 1 FROM {self.rows.dialect.table(table)} LIMIT {p.bind('n', most)}"
        [(rows,)] = self.read(p.statement(f"SELECT count(*) FROM ({some}) AS some_rows"), seconds)
        return int(rows)

    def count_due(self, selection: Selection, now: datetime, seconds: float, most: int | None = None) -> int:
        """Count the due rows, never by an estimate; with `most`, up to that. Raise TimedOut if that takes longer."""
        [(rows,)] = self.read(self.rows.count_due(selection, now, most), seconds)
        return int(rows)

    def due(self, selection: Selection, now: datetime, seconds: float) -> Due:
        """What a rule would take now."""
        probes = [self.rows.keys_due(selection, now, limit) for limit in _PROBE_ROWS]
        count = self._count(self.rows.count_due(selection, now), probes, seconds)
        followers = tuple(
            (name, self._count(self.rows.count_followers(selection, path, now), (), seconds))
            for name, path in _named(sorted(follower_paths(selection), key=len))
        )
        return Due(
            count,
            self._edge(selection, now, seconds, newest=False),
            self._edge(selection, now, seconds, newest=True),
            followers,
        )

    def _count(self, exact: Statement, probes: Sequence[Statement], seconds: float) -> Count | None:
        try:
            [(rows,)] = self.read(exact, seconds)
            return Count(rows)
        except _TOO_LONG:
            pass
        with suppress(*_TOO_LONG):
            estimate = self.estimate(exact)
            if estimate is not None:
                return Count(estimate, Exactness.ESTIMATE)
        for probe in probes:
            with suppress(*_TOO_LONG):
                return Count(len(self.read(probe, seconds)), Exactness.AT_LEAST)
        return None

    def _edge(self, selection: Selection, now: datetime, seconds: float, *, newest: bool) -> datetime | None:
        try:
            found = self.read(self.rows.edge_due(selection, now, newest=newest), seconds)
        except _TOO_LONG:
            return None
        moments = [moment for (value,) in found if (moment := read_moment(value, selection.time)) is not None]
        return (max if newest else min)(moments, default=None)

    def keys_due(self, selection: Selection, now: datetime, limit: int, seconds: float) -> list[tuple[Any, ...]]:
        """The keys of the oldest due rows, oldest first."""
        return self.read(self.rows.keys_due(selection, now, limit), seconds)

    def backlog(self, selection: Selection, now: datetime, most: int, seconds: float) -> tuple[int, datetime | None]:
        """How many rows are due, counted up to `most`, and the moment of the oldest; raise TimedOut if that takes too long."""
        [(rows,)] = self.read(self.rows.count_some_due(selection, now, most), seconds)
        if not rows:
            return 0, None
        found = self.read(self.rows.edge_due(selection, now, newest=False), seconds)
        moments = [moment for (value,) in found if (moment := read_moment(value, selection.time)) is not None]
        return rows, min(moments, default=None)

    def held_tables(self, seconds: float) -> frozenset[str] | None:
        """The tables of which somebody holds anything now; None if that cannot be read, so that every row has to be asked."""
        if not self.rows.with_holds:
            return frozenset()
        try:
            return frozenset(name for (name,) in self.read(self.rows.held_tables(), seconds, often=True))
        except Unreachable:
            raise
        except StoreError:
            return None

    def look(
        self, looks: Sequence[Look], seconds: float, within: float, values: Mapping[str, object] | None = None
    ) -> list[Any]:
        """The value of each look, or UNREAD: what takes longer than `seconds`, or is refused, is left out alone, and after
        `within` seconds all that is left. `values` is what looks that are kept need."""
        return self._looked(looks, seconds, time.monotonic() + within, values, _TOGETHER)

    def _looked(
        self,
        looks: Sequence[Look],
        seconds: float,
        end: float,
        values: Mapping[str, object] | None,
        sizes: Sequence[int],
    ) -> list[Any]:
        # What did not answer as one of so many is asked among fewer.
        smaller = [size for size in sizes[1:] if size < len(looks)]
        told: list[Any] = []
        for first in range(0, len(looks), sizes[0]):
            part = looks[first : first + sizes[0]]
            found = self._look(part, min(seconds, end - time.monotonic()), values)
            if found is None and smaller:
                found = self._looked(part, seconds, end, values, smaller)
            told += [UNREAD] * len(part) if found is None else found
        return told

    def _look(self, looks: Sequence[Look], seconds: float, values: Mapping[str, object] | None) -> list[Any] | None:
        if seconds <= 0:
            return None
        text, p = gather(self.rows, looks, values)
        try:
            [found] = self.read(p.statement(text), seconds, often=True)
        except Unreachable:
            raise
        except StoreError:
            return None
        return list(found)

    def count_never_due(self, selection: Selection, limit: int, seconds: float) -> int | None:
        """How many rows the rule speaks of and can never select, because their time is no moment; counts up to `limit`."""
        try:
            [(rows,)] = self.read(self.rows.count_never_due(selection, limit), seconds)
            return int(rows)
        except _TOO_LONG:
            return None

    def distinct(self, table: TableInfo, column: Column, limit: int, seconds: float) -> list[State | None] | None:
        """The different values of a column, at most `limit` of them; None if that would take too long.

        With an index that starts with the column this hops from value to value, however large the table is.
        """
        # A column may compare its texts without regard to case; states are told apart by their bytes, which no index orders.
        loose = column.collation is not None and self.kind == "sqlite"
        indexed = not loose and any(
            i.columns[:1] == (column.name,) and i.predicate is None and i.method == "btree" and i.valid
            for i in table.indexes
        )
        name, place = self.rows.dialect.quote(column.name), self.rows.dialect.table(table)
        p = self.rows.parameters()
        n = p.bind("n", limit)
        hop = (
            f"WITH RECURSIVE hop(v) AS (SELECT * FROM (SELECT min({name}) FROM {place}) AS f UNION ALL"
            f" SELECT (SELECT min({name}) FROM {place} WHERE {name} > hop.v) FROM hop WHERE hop.v IS NOT NULL)"
            f" SELECT v FROM hop WHERE v IS NOT NULL LIMIT {n}"
        )
        # min() knows neither booleans nor every enum on PostgreSQL; those have few values, but a table may have many rows.
        plain = f"SELECT DISTINCT {self.rows.dialect.bytewise(name, column)} FROM {place} WHERE {name} IS NOT NULL LIMIT {n}"
        nothing = f"SELECT 1 FROM {place} WHERE {name} IS NULL LIMIT 1"
        try:
            values = self.read(p.statement(hop if indexed and column.type != "boolean" else plain), seconds)
            missing = self.read(Statement(nothing, {}), seconds)
        except _TOO_LONG:
            return None
        return [value for (value,) in values] + ([None] if missing else [])

    def sample(self, table: TableInfo, column: Column, limit: int, seconds: float) -> list[object]:
        """Some values of a column: from both ends where an index leads with it, and from wherever the table begins."""
        name, place = self.rows.dialect.quote(column.name), self.rows.dialect.table(table)
        p = self.rows.parameters()
        n = p.bind("n", limit)
        reads = [f"SELECT {name} FROM {place} LIMIT {n}"]
        if any(index.columns[:1] == (column.name,) and index.method == "btree" for index in table.indexes):
            reads += [
                f"SELECT {name} FROM {place} WHERE {name} IS NOT NULL ORDER BY {name} {way} LIMIT {n}"
                for way in ("ASC", "DESC")
            ]
        values: list[object] = []
        for text in reads:
            try:
                values += [value for (value,) in self.read(p.statement(text), seconds)]
            except _TOO_LONG:
                continue
        return values

    def sample_times(self, selection: Selection, limit: int, seconds: float, *, indexed: bool) -> list[object]:
        """Some values of a rule's time column: of any rows, and of those that the rule speaks of, from both ends if an index serves it."""
        column = selection.time_column
        values = self.sample(selection.table, column, limit, seconds)
        name, place = self.rows.column(column), self.rows.dialect.table(selection.table)
        order = f" ORDER BY {self.rows.dialect.order('t', column, selection.time)}"
        for ends in (f"{order} ASC", f"{order} DESC") if indexed else ("",):
            # One state at a time: over several no index is in the order of time.
            for state in selection.rule.states or (None,):
                p = self.rows.parameters()
                conditions = [f"{name} IS NOT NULL"]
                if state is not None and selection.state is not None:
                    states = self.rows.column(selection.state)
                    conditions.insert(0, self.rows.dialect.one_of(p, "state", states, selection.state, [state]))
                if selection.orphan is not None:
                    conditions.insert(0, f"{self.rows.column(selection.orphan)} IS NULL")
                where = " AND ".join(conditions)
                text = f"SELECT {name} FROM {place} AS t WHERE {where}{ends} LIMIT {p.bind('n', limit)}"
                with suppress(*_TOO_LONG):
                    values += [value for (value,) in self.read(p.statement(text), seconds)]
        return values


def _named(paths: Sequence[tuple[BoundFollower, ...]]) -> list[tuple[str, tuple[BoundFollower, ...]]]:
    """Followers by their table's name; where a table follows by several references, by those."""
    tables = Counter(path[-1].reference.table.name for path in paths)
    named = []
    for path in paths:
        reference = path[-1].reference
        columns = ",".join(column.name for column in reference.columns)
        several = tables[reference.table.name] > 1
        named.append((f"{reference.table.name}.{columns}" if several else reference.table.name, path))
    return named
