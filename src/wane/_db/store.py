"""The store: a database behind one interface.

`Store` declares what every database can do: connect, reflect, read within a time limit, explain, estimate, open a
transaction, migrate. What a feature needs of one store and not of the other is defined with the feature. A read that
exceeds its limit raises TimedOut, and the caller falls back to an estimate that is marked as one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from wane._closable import Closable
from wane._contract.names import TableName
from wane._db.migrations import Migration, pending
from wane._db.queryplan import QueryPlan
from wane._db.schema import Column, Schema, TableInfo
from wane._db.statement import Dialect, Execute, Parameters, Statement, Types
from wane._db.transaction import Transaction
from wane._db.url import DatabaseUrl
from wane.errors import NotMigrated, TimedOut

R = TypeVar("R")


class Watch(ABC):
    """Notices commits that a reader may wait for. It may notice too much, and in rare cases late."""

    @abstractmethod
    def read(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Return as soon as something was noticed, at the latest after `seconds`."""

    @abstractmethod
    def close(self) -> None:
        """Close its connection."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened in a database: counters that only grow."""

    changes: int
    """Transactions that changed something."""
    transactions: int
    """Transactions that are known of, with some delay."""


class Store(Closable):
    """A database."""

    kind: str
    """"sqlite" or "postgres"."""
    audit = False
    """Whether the audit trail is among the tables that a contract may cover."""
    shown: str
    """The URL without secrets."""
    reopened = 0
    """How often the database had to be opened again. What was read of its schema before that may be of another
    database."""
    url: DatabaseUrl
    dialect: Dialect
    types: Types
    migrated = False
    """Whether the database is known to have all of Wane's own tables. Until then nothing is deleted."""
    migration_list: str
    """The statements that create the list of applied migrations, if it is missing."""
    migration_end = ""
    """The statement that ends the script of what is missing, if there is one."""
    migration_entry: str
    """The statement that records a migration by its name, with {} for the name."""
    own_activity: Activity
    """By how much one transaction that changes something, and one reading of `activity`, let it grow."""

    interrupted = False
    """Whether `interrupt` was called."""

    # What each store implements

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""

    @abstractmethod
    def _cancel(self) -> None:
        """Cancel the statement that runs now, if there is one."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the time of the database's clock, in UTC."""

    @abstractmethod
    def clock(self) -> datetime | None:
        """Return the time that leases and due times are measured by; None if statements read the database's clock.

        It never runs backwards, whatever happens to the clock of a host.
        """

    @abstractmethod
    def clone(self, *, answer_seconds: float | None = None) -> Store:
        """Open the same database over connections of its own.

        With `answer_seconds`, a server that has been silent for that long counts as lost: the connection is given up.
        """

    @abstractmethod
    def tables_behind(self, view: TableInfo) -> list[str]:
        """Return the full names of the tables that a view reads, directly or through other views; empty if unknown."""

    @abstractmethod
    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run one statement as a transaction of its own; because it is run repeatedly, it may be prepared."""

    @abstractmethod
    def write(self, *, durable: bool = True) -> AbstractContextManager[tuple[Execute, datetime | None]]:
        """Yield what runs statements that change something by the clock, and the time to use, as `clock` returns it.

        The time is read when there is nothing left to wait for: a process that waited for others, or was stopped in
        between, must not act on an old time. Not `durable`: the commit need not wait for the disk, unless the statement
        itself requests it.
        """

    def at_once(self, work: Callable[[Execute, datetime], R], *, durable: bool = True) -> R | None:
        """Run work that is one statement, by the clock, where that is cheaper without `write`'s transaction.

        None or nothing means that the statement found nothing to change, or was not run: then use `write`.
        """
        del work, durable
        return None

    @abstractmethod
    def watch(self) -> Watch:
        """Open a Watch, on a connection of its own, that notices wakeups of a pool."""

    @abstractmethod
    def identity(self) -> str:
        """Identify the database: equal for the same database only, whatever the URL is."""

    @abstractmethod
    def is_same_database(self, identity: str) -> bool:
        """Check whether an identity recorded earlier is this database's, also if it was moved or failed over since."""

    @abstractmethod
    def version(self) -> str:
        """Return the database's version, for display."""

    @abstractmethod
    def reflect(self, *, own: bool = False) -> Schema:
        """Read every table that a contract may cover; with `own`, Wane's own tables, for its own contract."""

    @abstractmethod
    def locate(self, name: TableName) -> TableName:
        """Return a name by which statements find the table, as `reflect` would; if there is none, the name itself.

        A table that was found is remembered until the schema is reflected again.
        """

    @abstractmethod
    def forget_located(self) -> None:
        """Forget the tables located so far; the next `locate` searches again."""

    @abstractmethod
    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing; raise TimedOut if it takes longer than `seconds`.

        One that runs often may be prepared.
        """

    def reader(self, seconds: float) -> Execute:
        """Return what reads Wane's own tables without a transaction.

        It waits for no writer, and each statement may take `seconds` at most.
        """
        return lambda text, parameters: self.read(Statement(text, parameters), seconds)

    @abstractmethod
    def time_read(self, statement: Statement, times: int, seconds: float) -> float:
        """Measure the seconds of a statement that changes nothing: the fastest of several runs, to reduce noise.

        Raise TimedOut if one of them takes longer than allowed.
        """

    @abstractmethod
    def activity(self) -> Activity | None:
        """Read what happened in the database so far, by all users; None if that cannot be known."""

    @abstractmethod
    def quiet_seconds(self) -> float:
        """Return for how long nobody else has used the database, as far as that is known at once; else 0."""

    @abstractmethod
    def estimate_rows(self, table: TableInfo) -> int | None:
        """Estimate how many rows a large table has without reading them; None where that is unknown."""

    @abstractmethod
    def row_numbers(self, table: TableInfo) -> tuple[int, int] | None:
        """Read the first and the last number that the store gave to a row of a table.

        None if it numbers no rows, or not in turn; (1, 0) for an empty table.
        """

    @abstractmethod
    def count_after(self, table: TableInfo, number: int, most: int, seconds: float) -> int:
        """Count the rows that were numbered after another, up to `most`; raise TimedOut if that takes longer."""

    @abstractmethod
    def explain(self, statement: Statement) -> str:
        """Return the query plan, as the database prints it; the statement does not run."""

    @abstractmethod
    def query_plan(self, statement: Statement) -> QueryPlan:
        """Return what the query plan of a statement reads; the statement does not run."""

    @abstractmethod
    def estimate(self, statement: Statement) -> int | None:
        """Return how many rows the planner expects a statement to read, or None where the store has no such planner."""

    @abstractmethod
    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        """Write the statement that would create an index, for users to copy."""

    @abstractmethod
    def transaction(
        self, connection: object | None = None, *, durable: bool = True
    ) -> AbstractContextManager[Transaction]:
        """Run all or nothing, on a connection of the store's own or inside the transaction of the caller's connection.

        Not `durable`: the commit does not wait for the disk, where the store can do that without risk for what was
        committed before. If power fails, the whole transaction may be lost, and nothing but it and what came after it.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Transaction]:
        """Read in one snapshot of the database: nothing is written, and no writer is waited for."""

    @abstractmethod
    def literal(self, statement: Statement) -> str:
        """Write the statement with its values as literals, quoted by the driver: for tasks that run it elsewhere."""

    @abstractmethod
    def exported_snapshot(self) -> AbstractContextManager[str | None]:
        """Hold one snapshot for readers on other connections, and yield its name; None if it cannot be shared."""

    @abstractmethod
    def applied_migrations(self) -> list[str]:
        """Return the names of the migrations of Wane's own tables that this database has."""

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring Wane's own tables up to date, once, however many processes try at a time; return what was applied."""

    # What all stores share

    def interrupt(self) -> None:
        """Cancel what another thread reads, from this one: the statement that runs, and any after it, raise TimedOut.

        For stores that only read. Close it then: a late cancellation may hit the next statement.
        """
        self.interrupted = True
        self._cancel()

    def _require_uninterrupted(self) -> None:
        if self.interrupted:
            raise TimedOut("the read was cancelled")

    def pending_migrations(self) -> list[Migration]:
        """Return what `migrate` would apply, as SQL for users to run: with the list of migrations and the entries in it."""
        lacking = pending(self.kind, self.applied_migrations())
        found = [f"{one.sql}{self.migration_entry.format(one.name)};\n" for one in lacking]
        if found:
            found[0] = f"{self.migration_list};\n{found[0]}"
            found[-1] += self.migration_end
        return [Migration(one.name, text) for one, text in zip(lacking, found, strict=True)]

    def is_migrated(self) -> bool:
        """Read whether the database has all of Wane's own tables; another process may have migrated it since it was opened."""
        self.migrated = not pending(self.kind, self.applied_migrations())
        return self.migrated

    def parameters(self) -> Parameters:
        """Begin the parameters of a statement."""
        return Parameters(self.dialect)

    def require_migrated(self) -> None:
        """Raise if Wane's own tables are missing: nothing is deleted without its audit row."""
        if not self.migrated and not self.is_migrated():
            lacks = (
                "has an older version of Wane's own tables"
                if self.applied_migrations()
                else "does not have Wane's own tables yet"
            )
            raise NotMigrated(f"{self.shown} {lacks}", "run `wane migrate`")
