"""The SQLite store: one file, its attached databases, and the clock of the host it is on."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from wane._contract.names import TableName, join_name
from wane._db.migrations import pending
from wane._db.queryplan import QueryPlan, read_sqlite_plan
from wane._db.schema import Column, Schema, TableInfo, index_name
from wane._db.sqlite.clock import ClockMark, steady_now
from wane._db.sqlite.dialect import SqliteDialect, SqliteTypes, literal
from wane._db.sqlite.digests import register
from wane._db.sqlite.file import OpenFiles, suggest_file
from wane._db.sqlite.reflect import reflect
from wane._db.sqlite.transaction import (
    STEPS_BETWEEN_CHECKS,
    SqliteTransaction,
    can_write,
    reading_text,
    retry_while_busy,
    writing,
)
from wane._db.sqlite.waiting import Waiting
from wane._db.sqlite.watch import SqliteWatch
from wane._db.statement import Execute, Statement
from wane._db.store import Activity, Store, Watch
from wane._db.transaction import Transaction, driver_connection
from wane._db.url import DatabaseUrl
from wane.errors import Locked, SchemaChanged, StoreError, TimedOut, Unreachable

R = TypeVar("R")

OLDEST_VERSION = (3, 35, 0)
BUSY_SECONDS = 5.0
_LEAST_ROW_BYTES = 4
"""The smallest size of a row of any table."""

_OTHER_TABLES = re.compile("no such (table|column)")
"""The errors of a statement that was written for tables that were dropped or changed since."""
_APPLIED = "SELECT name FROM wane_migration ORDER BY name"
_MIGRATION_TABLE = "CREATE TABLE IF NOT EXISTS wane_migration (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL)"


class SqliteStore(Store):
    """A SQLite database file."""

    kind = "sqlite"
    own_activity = Activity(0, 0)
    dialect = SqliteDialect()
    types = SqliteTypes()
    migration_list = _MIGRATION_TABLE
    migration_entry = (
        "INSERT INTO wane_migration (name, applied_at) VALUES ('{}', strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now'))"
    )

    def __init__(self, url: DatabaseUrl, *, read_only: bool, attach: Sequence[tuple[str, str]] = ()) -> None:
        assert url.path is not None
        self.shown = url.shown
        self.path = url.path
        self.url = url
        self._opened = (read_only, attach)
        if sqlite3.sqlite_version_info < OLDEST_VERSION:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old", "Wane needs 3.35 or newer")
        self._turn = threading.RLock()
        self._closed = False
        self._mark: ClockMark | None = None
        """The mark of the clock that `at_once` read last."""
        self._moved = False
        """Whether the paths now name other files than those that are open."""
        self._files, self._open = self._connect(read_only=read_only, attach=attach)
        self._waiting = Waiting(self._open)
        try:
            self.is_migrated()
        except BaseException:
            self.close()
            raise

    def _connect(self, *, read_only: bool, attach: Sequence[tuple[str, str]]) -> tuple[OpenFiles, sqlite3.Connection]:
        others = [(name, self.path.parent / file) for name, file in attach]
        files = OpenFiles(self.path, [file for _, file in others])
        connection = _connect(self.path, read_only=read_only)
        try:
            for name, file in others:
                self._attach(connection, name, file, read_only=read_only)
            files.opened(connection)
        except BaseException:
            connection.close()
            raise
        return files, connection

    @property
    def _connection(self) -> sqlite3.Connection:
        """Return the connection to the file that the path names now.

        If that is another file than before, this raises, once, and the next call opens it: never inside a transaction.
        """
        return self._connection_for(disk=True, writers=True)

    def _connection_for(self, *, disk: bool, writers: bool) -> sqlite3.Connection:
        """Return the connection, which waits for the disk, and for other writers, or does not."""
        self._require_uninterrupted()
        with self._turn:
            if self._closed:
                return self._open
            if _in_transaction(self._open):
                return self._open
            if self._moved:
                self._reopen()
            else:
                self._require_same_files()
            self._waiting.choose(disk=disk, writers=writers)
            return self._open

    def _reopen(self) -> None:
        with self._turn:
            if not self._moved:
                return  # Another thread was faster.
            self._open.close()
            read_only, attach = self._opened
            self._files, self._open = self._connect(read_only=read_only, attach=attach)
            self._waiting = Waiting(self._open)
            self._moved = False
            self.is_migrated()

    def _require_same_files(self) -> None:
        try:
            self._files.require_same()
        except Unreachable:
            # The other file may not have Wane's own tables.
            self._moved, self.migrated = True, False
            self.reopened += 1
            raise

    def _attach(self, connection: sqlite3.Connection, name: str, file: Path, *, read_only: bool) -> None:
        _require_file(file)
        # Without mode=rw SQLite would create a missing file, and an empty database would pass as one without problems.
        uri = f"file:{quote(str(file))}?mode={'ro' if read_only else 'rw'}"
        with _explained(f"{file} cannot be attached as {name}"):
            connection.execute(f"ATTACH ? AS {self.dialect.quote(name)}", (uri,))
            connection.execute(f"SELECT count(*) FROM {self.dialect.quote(name)}.sqlite_master")

    def close(self) -> None:
        self._closed = True
        self._open.close()

    def _cancel(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # It was closed.
            self._open.interrupt()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def clock(self) -> datetime | None:
        with self._turn, _explained("the database refused"):
            connection = self._connection_for(disk=True, writers=False)
            return retry_while_busy(connection, lambda: steady_now(connection), self._waiting.busy_seconds)

    def clone(self, *, answer_seconds: float | None = None) -> SqliteStore:
        del answer_seconds  # There is no server; a wait for a lock is limited by BUSY_SECONDS.
        read_only, attach = self._opened
        store = SqliteStore(self.url, read_only=read_only, attach=attach)
        store.audit = self.audit
        return store

    def tables_behind(self, view: TableInfo) -> list[str]:
        # No catalog lists what a view reads. The program that reads all of it opens every table, or an index of it, by
        # its first page.
        with self._turn, suppress(sqlite3.Error):
            program = self._connection.execute(f"EXPLAIN SELECT * FROM {self.dialect.table(view)}").fetchall()
            pages = json.dumps([row[3] for row in program if row[1] == "OpenRead"])
            schema = self.dialect.quote(view.schema)
            found = self._connection.execute(
                f"SELECT DISTINCT tbl_name FROM {schema}.sqlite_master WHERE rootpage IN"
                " (SELECT value FROM json_each(?)) ORDER BY 1",
                (pages,),
            )
            return [join_name([view.schema, name]) for (name,) in found]
        return []

    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._turn, _explained("the database refused"):
            connection = self._connection_for(disk=True, writers=False)
            work = lambda: connection.execute(text, parameters).fetchall()  # noqa: E731
            return retry_while_busy(connection, work, self._waiting.busy_seconds)

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[tuple[Execute, datetime | None]]:
        with self.transaction(durable=durable) as transaction:
            yield transaction.execute, transaction.clock()

    def at_once(self, work: Callable[[Execute, datetime], R], *, durable: bool = True) -> R | None:
        # The statement is refused while another transaction writes, and changes nothing (`SAME_MARK`) if the mark was
        # moved since it was read: so its time is as good as one that is read under the write lock.
        with self._turn, _explained("the database refused"):
            connection = self._connection_for(disk=durable, writers=False)
            if connection.in_transaction or self._waiting.busy_seconds is None:
                return None
            try:
                return self._by_mark(connection, work)
            except sqlite3.OperationalError as problem:
                if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                return None

    def _by_mark(self, connection: sqlite3.Connection, work: Callable[[Execute, datetime], R]) -> R | None:
        """Run work by the mark of the clock that was read last, or else by the present one, if it need not be moved."""
        mark, self._mark = self._mark, None
        now = None if mark is None else mark.now()
        if now is None:
            mark = ClockMark.read(connection)
            now = None if mark is None else mark.now()
        if mark is None or now is None:
            return None
        done = work(_running(connection, mark), now)
        if done:
            self._mark = mark
        return done

    def watch(self) -> Watch:
        with _explained("the database cannot be watched"):
            files, connection = self._connect(read_only=True, attach=())
            return SqliteWatch(connection, files, _explained)

    def identity(self) -> str:
        file = self.path.resolve()
        status = file.stat()
        return f"sqlite:{file}:{status.st_dev}:{status.st_ino}"

    def is_same_database(self, identity: str) -> bool:
        # A file that was moved is the same file; a file that was restored or vacuumed into another is at the same path.
        path, *file = identity.rsplit(":", 2)
        now, *same = self.identity().rsplit(":", 2)
        return path == now or file == same

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def locate(self, name: TableName) -> TableName:
        return name  # Statements find tables without a schema as `reflect` does.

    def forget_located(self) -> None:
        return

    def reflect(self, *, own: bool = False) -> Schema:
        with self._turn, _explained("the schema cannot be read"):
            found = reflect(self._connection, own=own)
            return found.with_table(reflect(self._connection, own=True), "wane_audit") if self.audit else found

    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        del often  # The driver caches the statements that it prepared last.
        deadline = time.monotonic() + seconds
        with self._turn, _explained("the database refused to answer"):
            connection = self._connection
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
            try:
                return connection.execute(statement.text, statement.parameters).fetchall()
            finally:
                connection.set_progress_handler(None, 0)

    def explain(self, statement: Statement) -> str:
        with _explained("the statement cannot be explained"):
            found = self._connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", statement.parameters).fetchall()
        depth: dict[int, int] = {0: -1}
        lines = []
        for identifier, parent, _, detail in found:
            depth[identifier] = depth.get(parent, -1) + 1
            lines.append("  " * depth[identifier] + detail)
        return "\n".join(lines)

    def query_plan(self, statement: Statement) -> QueryPlan:
        with self._turn, _explained("the statement cannot be explained"):
            found = self._connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", statement.parameters).fetchall()
        return read_sqlite_plan(found)

    def estimate(self, statement: Statement) -> int | None:
        del statement  # SQLite's planner does not report its estimates.
        return None

    def time_read(self, statement: Statement, times: int, seconds: float) -> float:
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            self.read(statement, seconds)
            taken.append(time.perf_counter() - began)
        return min(taken)

    def activity(self) -> Activity:
        with self._turn, _explained("the database refused to answer"):
            # It counts the commits of others; those that only read wait for nobody.
            [(commits,)] = self._connection.execute("PRAGMA data_version").fetchall()
            return Activity(commits, 0)

    def quiet_seconds(self) -> float:
        written = []
        for file in (self.path, Path(f"{self.path}-wal")):
            with suppress(FileNotFoundError):
                written.append(file.stat().st_mtime)
        return max(time.time() - max(written), 0.0) if written else 0.0

    def estimate_rows(self, table: TableInfo) -> int | None:
        return table.rows_estimate  # What ANALYZE counted, or nothing.

    def row_numbers(self, table: TableInfo) -> tuple[int, int] | None:
        if any(column.name.lower() == "rowid" for column in table.columns):
            return None
        name = self.dialect.table(table)
        with self._turn, _explained("the database refused to answer"):
            try:
                [(first, last)] = self._connection.execute(
                    f"SELECT (SELECT min(rowid) FROM {name}), (SELECT max(rowid) FROM {name})"
                )
            except sqlite3.OperationalError:
                return None  # It numbers no rows.
            [(pages, size)] = self._connection.execute("SELECT * FROM pragma_page_count(), pragma_page_size()")
        if first is None:
            return 1, 0
        # Numbers that were given out in turn are dense. As many rows as there are random ones would not fit into the
        # file.
        return (int(first), int(last)) if last - first < pages * size // _LEAST_ROW_BYTES else None

    def count_after(self, table: TableInfo, number: int, most: int, seconds: float) -> int:
        p = self.parameters()
        some = f"SELECT 1 FROM {self.dialect.table(table)} WHERE rowid > {p.bind('number', number)} LIMIT {p.bind('n', most)}"
        [(rows,)] = self.read(p.statement(f"SELECT count(*) FROM ({some}) AS some_rows"), seconds)
        return int(rows)

    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        quote_name = self.dialect.quote
        collate = " COLLATE BINARY"
        parts = [
            quote_name(column.name) + (collate if column == time and column.collation is not None else "")
            for column in columns
        ]
        name = quote_name(index_name(table, columns))
        text = f"CREATE INDEX {name} ON {quote_name(table.name)} ({', '.join(parts)})"
        return f"{text} WHERE {where};" if where else f"{text};"

    @contextmanager
    def transaction(self, connection: object | None = None, *, durable: bool = True) -> Iterator[Transaction]:
        if connection is None:
            # Threads that share a store take turns: inside another's transaction, a thread could not commit its own
            # work.
            with self._turn, _explained("the database refused"):
                own = self._connection_for(disk=durable, writers=False)
                try:
                    with writing(own, busy_seconds=self._waiting.busy_seconds):
                        yield SqliteTransaction(own)
                        self._require_same_files()
                finally:
                    own.set_progress_handler(None, 0)
            return
        used = driver_connection(connection, sqlite3.Connection)
        with _explained("the database refused"), reading_text(used):
            if self._moved:
                self._reopen()
            self._require_same_files()
            self._require_same(used)
            changes = used.total_changes
            with writing(used, leave_open=True):
                yield SqliteTransaction(used)
                if used.total_changes > changes:
                    self._require_locked_by_caller()

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with self._turn, _explained("the database refused to answer"):
            connection = self._connection
            if connection.in_transaction:
                yield SqliteTransaction(connection)
                return
            connection.execute("BEGIN")
            try:
                yield SqliteTransaction(connection, read_only=True)
            finally:
                with suppress(sqlite3.OperationalError):  # An error of the file may have ended it already.
                    connection.execute("ROLLBACK")

    def _require_same(self, connection: sqlite3.Connection) -> None:
        """Raise if the caller's connection is not to this very file."""
        cursor = connection.cursor()
        cursor.row_factory = None
        files = {name: file for _, name, file in cursor.execute("PRAGMA database_list")}
        if not files.get("main") or not self.path.samefile(files["main"]):
            raise StoreError(f"the connection is not to {self.path}", "pass a connection to the keeper's own database")

    def _require_locked_by_caller(self) -> None:
        """Raise if the caller's connection, which has written, writes to another file than the path names now.

        A path does not show which file a connection has open, but a file has one writer at a time: if this store can
        write as well, there are two files.
        """
        if not self._turn.acquire(blocking=False):
            return  # Another thread may be waiting for this very lock.
        try:
            own = self._connection
            if not own.in_transaction and can_write(own):
                raise StoreError(
                    f"the connection is not to {self.path}, but to a file that was there before",
                    "nothing was changed; open a new connection",
                )
        finally:
            self._turn.release()

    def literal(self, statement: Statement) -> str:
        return literal(statement)

    @contextmanager
    def exported_snapshot(self) -> Iterator[None]:
        yield None

    def incremental_vacuum(self, pages: int) -> None:
        """Give free pages at the end of the file back to the disk, in one transaction."""
        with self._turn, _explained("free pages cannot be given back"):
            # Through `execute` this would be one step, and one page.
            text = f"PRAGMA incremental_vacuum({pages:d})"
            connection = self._connection
            retry_while_busy(connection, lambda: connection.executescript(text))

    def applied_migrations(self) -> list[str]:
        with _explained("Wane's own tables cannot be read"):
            known = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'wane_migration'").fetchone()
            return [name for (name,) in self._connection.execute(_APPLIED)] if known else []

    def migrate(self) -> list[str]:
        with _explained("Wane's own tables cannot be created"), writing(self._connection):
            self._connection.execute(_MIGRATION_TABLE)
            lacking = pending(self.kind, [name for (name,) in self._connection.execute(_APPLIED)])
            for migration in lacking:
                for statement in statements(migration.sql):
                    self._connection.execute(statement)
                self._connection.execute(
                    "INSERT INTO wane_migration (name, applied_at) VALUES (?, ?)",
                    (migration.name, self.now().isoformat(timespec="seconds")),
                )
        self.migrated = True
        return [migration.name for migration in lacking]


@cache
def statements(script: str) -> tuple[str, ...]:
    """Split a script into its statements; `executescript` would commit the transaction around them."""
    found: list[str] = []
    collected = ""
    for line in script.splitlines(keepends=True):
        collected += line
        if sqlite3.complete_statement(collected):
            found.append(collected.strip())
            collected = ""
    return (*found, collected.strip()) if collected.strip() else tuple(found)


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    _require_file(path)
    uri = f"file:{quote(str(path.absolute()))}?mode={'ro' if read_only else 'rw'}"
    with _explained(f"{path} cannot be opened"):
        connection = sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            register(connection)
            connection.execute("SELECT count(*) FROM sqlite_master")  # A file that is no database shows here.
        except BaseException:
            connection.close()
            raise
        return connection


def _in_transaction(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:
        return False  # It is closed: the last attempt to open the new file failed.


def _running(connection: sqlite3.Connection, mark: ClockMark) -> Execute:
    def run(text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return connection.execute(text, {**parameters, **mark.bound}).fetchall()

    return run


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise Unreachable(f"{path} is a directory", "name the database's file")
    if not path.exists():
        hint = suggest_file(path) or "check the path"
        raise Unreachable(f"there is no database at {path}", f"{hint}; Wane never creates a database")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Convert the driver's errors to Wane's, with messages for users."""
    try:
        yield
    except sqlite3.DatabaseError as problem:
        # The name may be of a finer kind: SQLITE_READONLY_DIRECTORY, SQLITE_BUSY_SNAPSHOT.
        code = "_".join((getattr(problem, "sqlite_errorname", "") or "").split("_")[:2])
        if code == "SQLITE_INTERRUPT" or "interrupted" in str(problem):
            raise TimedOut("a read took longer than it may") from problem
        if code == "SQLITE_BUSY":
            raise Locked(f"{what}: {problem}", "another process holds the database; try again") from problem
        if _OTHER_TABLES.match(str(problem)):
            hint = "a table or a column that a statement names is no longer as it was"
            raise SchemaChanged(f"{what}: {problem}", hint) from problem
        hints = {
            "SQLITE_NOTADB": "the file is not a SQLite database",
            "SQLITE_CORRUPT": "restore it from a backup; `PRAGMA integrity_check` tells more",
            "SQLITE_CANTOPEN": "check the path and the permissions of the file and its folder",
            "SQLITE_READONLY": "the file or its folder cannot be written",
            "SQLITE_FULL": "the disk is full",
        }
        kind = Unreachable if code in ("SQLITE_CANTOPEN", "SQLITE_NOTADB") else StoreError
        raise kind(f"{what}: {problem}", hints.get(code, "")) from problem
