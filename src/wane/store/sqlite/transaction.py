"""A transaction on SQLite. It holds the write lock from its first statement, so nothing changes between look and delete."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from wane.contract.model import Cap, Mark
from wane.store.rows import Rows
from wane.store.schema import TableInfo
from wane.store.selection import Selection, losing
from wane.store.sqlite.clock import steady_now
from wane.store.sqlite.ddl import fires_on_delete
from wane.store.sqlite.reflect import TEMPORARY_TRIGGERS, VERSION, fold
from wane.store.statement import Statement
from wane.store.transaction import Batch, Key, Taken, Transaction, schema_changed

R = TypeVar("R")

_ASK_AGAIN_SECONDS = 0.002
_NORMAL = 1
"""`PRAGMA synchronous`: with a write-ahead log, commits are written in order and not waited for."""


class SqliteTransaction(Transaction):
    """One transaction on a sqlite3 connection."""

    most_values = 30_000  # SQLite binds at most 32,766.

    def __init__(self, connection: sqlite3.Connection, rows: Rows) -> None:
        self.rows = rows
        self._connection = connection
        self._cursor = connection.cursor()
        # A caller's connection may read rows in its own way.
        self._cursor.row_factory = None

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return self._cursor.execute(text, parameters).fetchall()

    def change(self, statement: Statement) -> int:
        return self._cursor.execute(statement.text, statement.parameters).rowcount

    def now(self) -> datetime:
        return datetime.now(UTC)

    def clock(self) -> datetime | None:
        return steady_now(self._connection)

    def columns(self, table: TableInfo) -> list[tuple[str, str]]:
        found = self.execute(
            "SELECT name, upper(type) FROM pragma_table_xinfo(:name, :schema) WHERE hidden <> 1 ORDER BY cid",
            {"name": table.name, "schema": table.schema},
        )
        return [(name, kind) for name, kind in found]

    def layout(self, table: TableInfo) -> list[list[str]]:
        # A row's version is made of its values, so that it tells every change by itself.
        return [[name, kind, ""] for name, kind in self.columns(table)]

    def enter(self, tables: Sequence[TableInfo]) -> None:
        """There is one writer at a time, and that is this transaction."""

    def close_gate(self, table: TableInfo) -> None:
        """There is one writer at a time, and that is this transaction."""

    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        return keys

    def require_bound(self, selection: Selection) -> None:
        [(version,)] = self.execute(VERSION, {})
        if version != selection.relied.version:
            raise schema_changed(selection, "tables, indexes or triggers were created, changed or dropped")
        # Only a caller's connection has any. They fire for its own statements alone, so reflection does not see them.
        tables = {fold(table.name) for table in losing(selection)}
        for name, table, text in self.execute(TEMPORARY_TRIGGERS, {}):
            if fold(table) in tables and fires_on_delete(text):
                raise schema_changed(selection, f"the connection has a temporary trigger, {name}, on {table}")

    def take(self, batch: Batch) -> Taken:
        selection = batch.selection
        most = min(batch.limit, batch.most)
        # Nobody places a hold while this transaction has the write lock.
        held = bool(self._read(self.rows.anything_held(selection)))
        if takes_up_to(selection) and not held:
            return self._take_up_to(replace(batch, limit=most))
        if takes_by_key(selection):
            return self._take_locked(replace(batch, limit=most, skip_locked=False, held=held))
        count = self.change(self.rows.take_oldest(selection, batch.now, most))
        return Taken({str(selection.name): count}, None, done=count < most)

    def _take_up_to(self, batch: Batch) -> Taken:
        """Find where the batch ends, then take everything due up to there. Nobody writes in between, so it is as many rows."""
        selection = batch.selection
        ends = self._read(self.rows.end_of_batch(selection, batch.now, batch.limit, batch.floor))
        end = ends[0] if ends else None
        count = self.change(self.rows.take_up_to(selection, batch.now, batch.floor, end))
        return Taken({str(selection.name): count}, end, done=end is None)


def takes_up_to(selection: Selection) -> bool:
    """Whether a rule's rows can be taken by their place alone, if nothing of their table is held.

    No two rows may stand in the same place, as keys do that differ by case only. What is beyond a cap moves while rows leave.
    """
    marks, caps = isinstance(selection.rule.action, Mark), isinstance(selection.rule.bound, Cap)
    loose = any(column.collation is not None for column in selection.key)
    return not (marks or caps or loose or selection.followers or selection.watched)


def takes_by_key(selection: Selection) -> bool:
    """Whether a rule's rows are looked up before they are taken.

    To find their followers, to see that a trigger kept none, or to know where a batch ended: rows that a guard saves stay in front, and
    every batch would walk over all of them again.
    """
    marks = isinstance(selection.rule.action, Mark)
    return marks or bool(selection.followers or selection.saved_by or selection.watched)


def asking_often(connection: sqlite3.Connection, work: Callable[[], R]) -> R:
    """Do what needs the write lock, by asking often for as long as the connection is willing to wait.

    SQLite itself asks less and less often, up to ten times a second: beside an application that writes all the time it never comes
    at the right moment.
    """
    cursor = connection.cursor()
    cursor.row_factory = None
    [(patience,)] = cursor.execute("PRAGMA busy_timeout").fetchall()
    deadline = time.monotonic() + patience / 1_000
    cursor.execute("PRAGMA busy_timeout = 0").fetchall()
    try:
        while True:
            try:
                return work()
            except sqlite3.OperationalError as problem:
                if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(_ASK_AGAIN_SECONDS)
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {patience:d}").fetchall()


def can_write(connection: sqlite3.Connection) -> bool:
    """Whether the connection gets the write lock now, without waiting; it is released again."""
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
def writing(connection: sqlite3.Connection, *, leave_open: bool = False, durable: bool = True) -> Iterator[None]:
    """All or nothing: a transaction of its own, or a savepoint inside the caller's.

    `leave_open`: a caller whose connection opens transactions by itself gets one, still open, to commit. Not `durable`: its commit does
    not wait for the disk.
    """
    with nullcontext() if durable else _not_waiting(connection), _writing(connection, leave_open=leave_open):
        yield


@contextmanager
def _writing(connection: sqlite3.Connection, *, leave_open: bool) -> Iterator[None]:
    cursor = connection.cursor()
    # Taking the write lock at once: reading first and writing later fails beside another writer, whatever the timeout.
    begun = leave_open and not connection.in_transaction and _begins_by_itself(connection)
    if begun:
        cursor.execute("BEGIN IMMEDIATE")
    inside = connection.in_transaction
    if inside or leave_open:
        cursor.execute("SAVEPOINT wane" if inside else "BEGIN IMMEDIATE")
    else:
        asking_often(connection, lambda: cursor.execute("BEGIN IMMEDIATE"))
    try:
        yield
        cursor.execute("RELEASE wane" if inside else "COMMIT")
    except BaseException:
        # A full disk or a lost file may have ended the transaction already.
        if connection.in_transaction:
            for undo in ("ROLLBACK TO wane", "RELEASE wane") if inside and not begun else ("ROLLBACK",):
                cursor.execute(undo)
        raise


@contextmanager
def _not_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Let commits not wait for the disk.

    Only with a write-ahead log: what a power failure takes from that are whole transactions, the last ones. With a rollback journal it
    could be the database.
    """
    cursor = connection.cursor()
    if connection.in_transaction or cursor.execute("PRAGMA main.journal_mode").fetchall() != [("wal",)]:
        yield
        return
    [(before,)] = cursor.execute("PRAGMA main.synchronous").fetchall()
    cursor.execute(f"PRAGMA main.synchronous = {min(before, _NORMAL)}")
    try:
        yield
    finally:
        cursor.execute(f"PRAGMA main.synchronous = {before}")


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    """Whether the caller expects the connection to open transactions, and commits them."""
    mode = getattr(
        connection, "autocommit", -1
    )  # Since Python 3.12; -1 means that the isolation level decides, as before.
    return connection.isolation_level is not None if mode == -1 else not mode


@contextmanager
def reading_text(connection: sqlite3.Connection) -> Iterator[None]:
    """Read texts as texts: a caller's connection may read them in its own way, and a key must come back as it was."""
    before = connection.text_factory
    connection.text_factory = str
    try:
        yield
    finally:
        connection.text_factory = before
