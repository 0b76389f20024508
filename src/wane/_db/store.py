"""The store: a database behind one interface.

`Store` declares what every database can do: connect, reflect, read within a time limit, plan, open a transaction,
migrate. What a feature needs of one store and not of the other is defined with the feature. A read that exceeds its
limit raises TimedOut, and the caller falls back to an estimate that is marked as one.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from wane._closable import Closable
from wane._contract.names import TableName
from wane._db.migrations import pending
from wane._db.planner import Planner
from wane._db.schema import Schema
from wane._db.statement import Dialect, Execute, Statement, Types
from wane._db.transaction import Transaction
from wane._db.url import DatabaseUrl
from wane._db.watch import Watch
from wane.errors import NotMigrated


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
    _migrated = False
    """Whether the database is known to have all of Wane's own tables."""
    migration_list: str
    """The statements that create the list of applied migrations, if it is missing."""
    migration_end = ""
    """The statement that ends the script of what is missing, if there is one."""
    migration_entry: str
    """The statement that records a migration by its name, with {} for the name."""
    located: dict[TableName, TableName]
    """The tables that `locate` found, until the schema is reflected again."""
    one_writer = False
    """Whether one connection writes at a time, whatever rows it changes."""
    has_partitions = False
    """Whether tables may be partitioned."""
    has_roles = False
    """Whether users have roles, which have rights on single tables."""
    has_functions = False
    """Whether functions can be stored in the database."""
    enforces_keys = False
    """Whether foreign keys are enforced on every connection, however it is configured."""
    folds_names = False
    """Whether the names of tables are case-insensitive."""

    interrupted = False
    """Whether `interrupt` was called."""

    # What each store implements

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""

    @abstractmethod
    def interrupt(self) -> None:
        """Cancel what another thread reads, from this one: the statement that runs, and any after it, raise TimedOut.

        For stores that only read. Close it then: a late cancellation may hit the next statement.
        """

    @property
    @abstractmethod
    def planner(self) -> Planner:
        """Return what explains, estimates and times statements."""

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
    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run one statement as a transaction of its own; because it is run repeatedly, it may be prepared."""

    @abstractmethod
    def write(self, *, durable: bool = True) -> AbstractContextManager[tuple[Execute, datetime | None]]:
        """Yield what runs statements that change something by the clock, and the time to use, as `clock` returns it.

        The time is read when there is nothing left to wait for: a process that waited for others, or was stopped in
        between, must not act on an old time. Not `durable`: the commit need not wait for the disk, unless the statement
        itself requests it.
        """

    @abstractmethod
    def watch(self) -> Watch:
        """Open a Watch, on a connection of its own, that notices wakeups of a pool."""

    @abstractmethod
    def identity(self) -> str:
        """Identify the database, for `is_same_database` to compare."""

    @abstractmethod
    def reflect(self, *, own: bool = False) -> Schema:
        """Read every table that a contract may cover; with `own`, Wane's own tables, for its own contract."""

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
    def applied_migrations(self) -> list[str]:
        """Return the names of the migrations of Wane's own tables that this database has."""

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring Wane's own tables up to date, once, however many processes try at a time; return what was applied."""

    # What all stores share

    @property
    def migrated(self) -> bool:
        """Check whether the database has all of Wane's own tables: until then nothing is deleted.

        It is read until it is true: another process may migrate the database at any time.
        """
        return self._migrated or self.is_migrated()

    def is_migrated(self) -> bool:
        """Read whether the database has all of Wane's own tables now: it may have lost them."""
        self._migrated = not pending(self.kind, self.applied_migrations())
        return self._migrated

    def require_migrated(self) -> None:
        """Raise if Wane's own tables are missing: nothing is deleted without its audit row."""
        if not self.migrated:
            lacks = (
                "has an older version of Wane's own tables"
                if self.applied_migrations()
                else "does not have Wane's own tables yet"
            )
            raise NotMigrated(f"{self.shown} {lacks}", "run `wane migrate`")
