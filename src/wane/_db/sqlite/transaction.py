"""A transaction on SQLite, which holds the write lock from its first statement."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from wane._db.schema import TableInfo
from wane._db.sqlite.clock import steady_now
from wane._db.sqlite.dialect import SqliteDialect
from wane._db.statement import Statement
from wane._db.transaction import Transaction

R = TypeVar("R")

_RETRY_SECONDS = 0.002
STEPS_BETWEEN_CHECKS = 5_000
"""Virtual machine steps between two checks of the clock: well below a millisecond."""


class SqliteTransaction(Transaction):
    """One transaction on a sqlite3 connection."""

    kind = "sqlite"
    dialect = SqliteDialect()
    most_values = 30_000  # SQLite binds at most 32,766.

    def __init__(self, connection: sqlite3.Connection, *, read_only: bool = False) -> None:
        super().__init__()
        self._read_only = read_only
        self._connection = connection
        self._cursor = connection.cursor()
        # A caller's connection may have its own row factory.
        self._cursor.row_factory = None

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return self._cursor.execute(text, parameters).fetchall()

    def change(self, statement: Statement) -> int:
        return self._cursor.execute(statement.text, statement.parameters).rowcount

    def limit(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def clock(self) -> datetime | None:
        return steady_now(self._connection, mark=not self._read_only)

    def columns(self, table: TableInfo) -> list[tuple[str, str]]:
        found = self.execute(
            "SELECT name, upper(type) FROM pragma_table_xinfo(:name, :schema) WHERE hidden <> 1 ORDER BY cid",
            {"name": table.name, "schema": table.schema},
        )
        return [(name, kind) for name, kind in found]

    def layout(self, table: TableInfo) -> list[list[str]]:
        # A row's version is made of its values, so that it reflects every change by itself.
        return [[name, kind, ""] for name, kind in self.columns(table)]

    def enter(self, tables: Sequence[TableInfo]) -> None:
        """Do nothing: there is one writer at a time, and that is this transaction."""

    def close_gate(self, table: TableInfo) -> None:
        """Do nothing: there is one writer at a time, and that is this transaction."""


def retry_while_busy(connection: sqlite3.Connection, work: Callable[[], R], seconds: float | None = None) -> R:
    """Run what needs the write lock, and retry on lock contention until the connection's busy timeout.

    SQLite itself retries less and less often, down to ten times a second: while an application writes all the time, it
    would hardly ever find the lock free. With `seconds`, the connection does not wait by itself already.
    """
    if seconds is not None:
        return _retry(work, time.monotonic() + seconds)
    cursor = connection.cursor()
    cursor.row_factory = None
    [(patience,)] = cursor.execute("PRAGMA busy_timeout").fetchall()
    cursor.execute("PRAGMA busy_timeout = 0").fetchall()
    try:
        return _retry(work, time.monotonic() + patience / 1_000)
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {patience:d}").fetchall()


def _retry(work: Callable[[], R], deadline: float) -> R:
    while True:
        try:
            return work()
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def can_write(connection: sqlite3.Connection) -> bool:
    """Check whether the connection gets the write lock now, without waiting; it is released again."""
    cursor = connection.cursor()
    cursor.row_factory = None
    [(patience,)] = cursor.execute("PRAGMA busy_timeout").fetchall()
    cursor.execute("PRAGMA busy_timeout = 0").fetchall()
    try:
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {patience:d}").fetchall()
    return True


@contextmanager
def writing(
    connection: sqlite3.Connection, *, leave_open: bool = False, busy_seconds: float | None = None
) -> Iterator[None]:
    """Run all or nothing: in a transaction of its own, or a savepoint inside the caller's.

    `leave_open`: a caller whose connection opens transactions by itself gets one, still open, to commit.
    `busy_seconds`: how long to retry where the connection does not wait for other writers by itself.
    """
    cursor = connection.cursor()
    # Take the write lock at once: reading first and writing later fails while another process writes, whatever the
    # timeout.
    begun = leave_open and not connection.in_transaction and _begins_by_itself(connection)
    if begun:
        cursor.execute("BEGIN IMMEDIATE")
    inside = connection.in_transaction
    if inside or leave_open:
        cursor.execute("SAVEPOINT wane" if inside else "BEGIN IMMEDIATE")
    else:
        retry_while_busy(connection, lambda: cursor.execute("BEGIN IMMEDIATE"), busy_seconds)
    try:
        yield
        cursor.execute("RELEASE wane" if inside else "COMMIT")
    except BaseException:
        # A full disk or a lost file may have ended the transaction already.
        if connection.in_transaction:
            for undo in ("ROLLBACK TO wane", "RELEASE wane") if inside and not begun else ("ROLLBACK",):
                cursor.execute(undo)
        raise


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    """Check whether the caller expects the connection to open transactions, and commits them."""
    mode = getattr(
        connection, "autocommit", -1
    )  # Since Python 3.12; -1 means that the isolation level decides, as before.
    return connection.isolation_level is not None if mode == -1 else not mode


@contextmanager
def reading_text(connection: sqlite3.Connection) -> Iterator[None]:
    """Read texts as str: a caller's connection may have its own text factory, and a key must come back as it was."""
    before = connection.text_factory
    connection.text_factory = str
    try:
        yield
    finally:
        connection.text_factory = before
