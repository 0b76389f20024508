"""One transaction: on a connection of the store's own, or inside the caller's transaction.

Everything that a batch does (read, lock, delete, count, audit) goes through one of these, so it commits or vanishes as
a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from wane._db.schema import TableInfo
from wane._db.statement import Dialect, Parameters, Statement
from wane.errors import StoreError

C = TypeVar("C")


class Transaction(ABC):
    """What can be done inside one transaction."""

    kind: str
    """"sqlite" or "postgres"."""
    dialect: Dialect
    most_values = 1_000_000
    """How many values one statement may bind."""

    def __init__(self) -> None:
        self._unrecorded: dict[str, int] = {}

    def owe_record(self, counts: Mapping[str, int]) -> None:
        """Require an audit row for rows that left, by table, before the commit: zero included."""
        for name, rows in counts.items():
            self._unrecorded[name] = self._unrecorded.get(name, 0) + rows

    def recorded(self, counts: Mapping[str, int]) -> None:
        """Deduct what an audit row of this transaction states from what it has to record."""
        for name, rows in counts.items():
            left = self._unrecorded.pop(name, 0) - rows
            if left > 0:
                self._unrecorded[name] = left

    def require_recorded(self) -> None:
        """Raise unless audit rows state everything that left; called before the commit."""
        if self._unrecorded:
            rows = ", ".join(f"{rows:,} of {name}" for name, rows in self._unrecorded.items())
            raise StoreError(
                f"rows left and no audit row states them ({rows}); the transaction was rolled back",
                "nothing was taken; please report this as a defect of Wane",
            )

    def parameters(self) -> Parameters:
        """Begin the parameters of a statement."""
        return Parameters(self.dialect)

    @abstractmethod
    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    def read(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        return self.execute(statement.text, statement.parameters)

    def read_often(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Run a statement that every batch runs, and return its rows: it is prepared where that is possible."""
        return self.read(statement)

    @abstractmethod
    def change(self, statement: Statement) -> int:
        """Run one statement and return how many rows it changed."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the time of the database's clock."""

    @abstractmethod
    def clock(self) -> datetime | None:
        """Return the time that leases and due times are measured by: see Store.clock."""

    @abstractmethod
    def columns(self, table: TableInfo) -> list[tuple[str, str]]:
        """Read the names and types of the table's columns.

        Once rows of it were read, these do not change until the transaction ends.
        """

    @abstractmethod
    def layout(self, table: TableInfo) -> list[list[str]]:
        """Read each column's name, type and identity.

        The identity changes when the column's values can differ while no row's version changes.
        """

    @abstractmethod
    def enter(self, tables: Sequence[TableInfo]) -> None:
        """Enter the gate of some tables: holds that are placed from now on wait until this transaction has ended."""

    @abstractmethod
    def close_gate(self, table: TableInfo) -> None:
        """Wait until no transaction is inside the table's gate, and block others until this one has ended."""

    @abstractmethod
    def limit(self, seconds: float) -> None:
        """Let nothing take longer than this, from here to the end of the transaction; raise TimedOut if it does."""

    def finish(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run the last statement of the transaction, at the latest with the commit; return no rows.

        Fail if it changes no row.
        """
        if self.change(Statement(text, parameters)) == 0:
            raise unwritten()
        return []


def unwritten() -> StoreError:
    """Build the error of a batch whose audit row cannot be written."""
    return StoreError(
        "this sweep's audit row is missing or behind; the batch was rolled back",
        "nothing was taken; the next sweep begins a new one",
    )


def driver_connection(connection: Any, kind: type[C]) -> C:
    """Return the driver's own connection behind what a caller passes.

    That is the object itself, or the connection of a SQLAlchemy connection or session.
    """
    found = connection
    try:
        if hasattr(found, "get_bind") and hasattr(found, "connection"):
            found = found.connection()  # A session begins its transaction here.
        if hasattr(found, "exec_driver_sql"):
            found.exec_driver_sql("SELECT 1")  # A connection begins its transaction with its first statement.
            found = found.connection.driver_connection
    except Exception as problem:
        raise StoreError(f"the connection cannot be used: {problem}", "pass an open one") from problem
    if not isinstance(found, kind):
        wanted = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        raise StoreError(
            f"a connection of type {type(connection).__module__}.{type(connection).__name__} cannot be used here",
            f"pass a {wanted}, or a SQLAlchemy connection or session over one",
        )
    return found
