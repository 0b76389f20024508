"""The SQLite store: one file, its attached databases, and the clock of the host it is on."""

from __future__ import annotations

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

from wane._db.migrations import pending
from wane._db.schema import Schema
from wane._db.sqlite.clock import ClockMark, steady_now
from wane._db.sqlite.dialect import SqliteDialect, SqliteTypes, literal
from wane._db.sqlite.digests import register
from wane._db.sqlite.file import OpenFiles, suggest_file
from wane._db.sqlite.planner import SqlitePlanner
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
from wane._db.store import Store
from wane._db.transaction import Transaction, driver_connection
from wane._db.url import DatabaseUrl
from wane._db.watch import Watch
from wane.errors import Locked, SchemaChanged, StoreError, TimedOut, Unreachable, WaneError

R = TypeVar("R")

OLDEST_VERSION = (3, 35, 0)
BUSY_SECONDS = 5.0
_MOST_REPEATED_SECONDS = 30.0
"""How long one of several repeated transactions may take."""
_CACHE_KIB = 32_000
"""Pages that a connection remembers, at the most: SQLite's own 2 MB are fewer than the indexes of a large table
need."""

_OTHER_TABLES = re.compile("no such (table|column)")
"""The errors of a statement that was written for tables that were dropped or changed since."""
_APPLIED = "SELECT name FROM wane_migration ORDER BY name"
_MIGRATION_TABLE = "CREATE TABLE IF NOT EXISTS wane_migration (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL)"


class SqliteStore(Store):
    """A SQLite database file."""

    kind = "sqlite"
    one_writer = True
    folds_names = True
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
        self.located = {}
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

    def _connection_for(self, *, disk: bool, writers: bool, repeated: bool = False) -> sqlite3.Connection:
        """Return the connection, configured for what comes: see `Waiting.choose`."""
        if self.interrupted:
            raise TimedOut("the read was cancelled")
        with self._turn:
            if self._closed:
                return self._open
            if _in_transaction(self._open):
                return self._open
            if self._moved:
                self._reopen()
            else:
                self._require_same_files()
            self._waiting.choose(disk=disk, writers=writers, repeated=repeated)
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
            self._moved, self._migrated = True, False
            self.reopened += 1
            raise

    def _attach(self, connection: sqlite3.Connection, name: str, file: Path, *, read_only: bool) -> None:
        _require_file(file)
        # Without mode=rw SQLite would create a missing file, and an empty database would pass as one without problems.
        uri = f"file:{quote(str(file))}?mode={'ro' if read_only else 'rw'}"
        with _Explained(f"{file} cannot be attached as {name}"):
            connection.execute(f"ATTACH ? AS {self.dialect.quote(name)}", (uri,))
            connection.execute(f"SELECT count(*) FROM {self.dialect.quote(name)}.sqlite_master")

    def close(self) -> None:
        self._closed = True
        self._open.close()

    def interrupt(self) -> None:
        self.interrupted = True
        with suppress(sqlite3.ProgrammingError):  # It was closed.
            self._open.interrupt()

    @property
    def planner(self) -> SqlitePlanner:
        return SqlitePlanner(self)

    @contextmanager
    def reading(self, what: str) -> Iterator[sqlite3.Connection]:
        """Yield the connection for reads; `what` begins the messages of the driver's errors."""
        with self._turn, _Explained(what):
            yield self._connection

    def now(self) -> datetime:
        return datetime.now(UTC)

    def clock(self) -> datetime | None:
        with self._turn, _Explained("the database refused"):
            connection = self._connection_for(disk=True, writers=False)
            return retry_while_busy(connection, lambda: steady_now(connection), self._waiting.busy_seconds)

    def clone(self, *, answer_seconds: float | None = None) -> SqliteStore:
        del answer_seconds  # There is no server; a wait for a lock is limited by BUSY_SECONDS.
        read_only, attach = self._opened
        store = SqliteStore(self.url, read_only=read_only, attach=attach)
        store.audit = self.audit
        return store

    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._turn, _Explained("the database refused"):
            connection = self._connection_for(disk=True, writers=False)
            work = lambda: connection.execute(text, parameters).fetchall()  # noqa: E731
            return retry_while_busy(connection, work, self._waiting.busy_seconds)

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[tuple[Execute, datetime | None]]:
        with self.transaction(durable=durable) as transaction:
            yield transaction.execute, transaction.clock()

    def at_once(self, work: Callable[[Execute, datetime], R], *, durable: bool = True) -> R | None:
        """Run work that is one statement, by the clock, without the transaction of `write`, which costs more.

        None or nothing means that the statement found nothing to change, or was not run: then use `write`.
        """
        # The statement is refused while another transaction writes, and changes nothing (`SAME_MARK`) if the mark was
        # moved since it was read: so its time is as good as one that is read under the write lock.
        with self._turn:
            try:
                connection = self._connection_for(disk=durable, writers=False)
                if connection.in_transaction or self._waiting.busy_seconds is None:
                    return None
                return self._by_mark(connection, work)
            except sqlite3.DatabaseError as problem:
                if getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                    return None
                raise _explain("the database refused", problem) from problem

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
        with _Explained("the database cannot be watched"):
            files, connection = self._connect(read_only=True, attach=())
            return SqliteWatch(connection, files, _Explained)

    def identity(self) -> str:
        file = self.path.resolve()
        status = file.stat()
        return f"sqlite:{file}:{status.st_dev}:{status.st_ino}"

    def reflect(self, *, own: bool = False) -> Schema:
        with self._turn, _Explained("the schema cannot be read"):
            found = reflect(self._connection, own=own)
            return found.with_table(reflect(self._connection, own=True), "wane_audit") if self.audit else found

    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        del often  # The driver caches the statements that it prepared last.
        deadline = time.monotonic() + seconds
        with self._turn, _Explained("the database refused to answer"):
            connection = self._connection
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
            try:
                return connection.execute(statement.text, statement.parameters).fetchall()
            finally:
                connection.set_progress_handler(None, 0)

    def repeat(self, work: Callable[[Transaction], R | None]) -> Iterator[R]:
        """Run work in one transaction after the other, and yield what it returned once that is committed.

        No commit waits for the disk. It ends with the first transaction that does not get the write lock at once, for
        which work returns None, or that fails in any way: nothing of that one is committed, and the caller tries it
        by itself to find out why.
        """
        with self._turn:
            own = self._connection_for(disk=False, writers=False, repeated=True)
            if own.in_transaction or self._waiting.busy_seconds is None:
                return
            cursor = own.cursor()
            with suppress(WaneError, sqlite3.Error), _limited(own) as limit:
                while True:
                    limit()
                    cursor.execute("BEGIN IMMEDIATE")
                    try:
                        done = self._repeated(own, work)
                        if done is None:
                            return
                        cursor.execute("COMMIT")
                    finally:
                        if _in_transaction(own):
                            cursor.execute("ROLLBACK")
                    yield done

    def _repeated(self, own: sqlite3.Connection, work: Callable[[Transaction], R | None]) -> R | None:
        transaction = SqliteTransaction(own)
        done = work(transaction)
        if done is not None:
            transaction.require_recorded()
            self._files.require_same()
        return done

    @contextmanager
    def transaction(self, connection: object | None = None, *, durable: bool = True) -> Iterator[Transaction]:
        if connection is None:
            # Threads that share a store take turns: inside another's transaction, a thread could not commit its own
            # work.
            with self._turn, _Explained("the database refused"):
                own = self._connection_for(disk=durable, writers=False)
                try:
                    with writing(own, busy_seconds=self._waiting.busy_seconds):
                        transaction = SqliteTransaction(own)
                        yield transaction
                        transaction.require_recorded()
                        self._require_same_files()
                finally:
                    own.set_progress_handler(None, 0)
            return
        used = driver_connection(connection, sqlite3.Connection)
        with _Explained("the database refused"), reading_text(used):
            if self._moved:
                self._reopen()
            self._require_same_files()
            self._require_same(used)
            changes = used.total_changes
            with writing(used, leave_open=True):
                transaction = SqliteTransaction(used)
                yield transaction
                transaction.require_recorded()
                if used.total_changes > changes:
                    self._require_locked_by_caller()

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with self._turn, _Explained("the database refused to answer"):
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

    def incremental_vacuum(self, pages: int) -> None:
        """Give free pages at the end of the file back to the disk, in one transaction."""
        with self._turn, _Explained("free pages cannot be given back"):
            # Through `execute` this would be one step, and one page.
            text = f"PRAGMA incremental_vacuum({pages:d})"
            connection = self._connection
            retry_while_busy(connection, lambda: connection.executescript(text))

    def applied_migrations(self) -> list[str]:
        with _Explained("Wane's own tables cannot be read"):
            known = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'wane_migration'").fetchone()
            return [name for (name,) in self._connection.execute(_APPLIED)] if known else []

    def migrate(self) -> list[str]:
        with _Explained("Wane's own tables cannot be created"), writing(self._connection):
            self._connection.execute(_MIGRATION_TABLE)
            lacking = pending(self.kind, [name for (name,) in self._connection.execute(_APPLIED)])
            for migration in lacking:
                for statement in statements(migration.sql):
                    self._connection.execute(statement)
                self._connection.execute(
                    "INSERT INTO wane_migration (name, applied_at) VALUES (?, ?)",
                    (migration.name, self.now().isoformat(timespec="seconds")),
                )
        self._migrated = True
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
    with _Explained(f"{path} cannot be opened"):
        connection = sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB:d}")
            register(connection)
            connection.execute("SELECT count(*) FROM sqlite_master")  # A file that is no database shows here.
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def _limited(connection: sqlite3.Connection) -> Iterator[Callable[[], None]]:
    """Limit what a connection does from each call of what is yielded on, until its next call or the end."""
    deadline = 0.0

    def limit() -> None:
        nonlocal deadline
        deadline = time.monotonic() + _MOST_REPEATED_SECONDS

    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
    try:
        yield limit
    finally:
        connection.set_progress_handler(None, 0)


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


class _Explained:
    """Converts the driver's errors to Wane's, with messages for users."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        """Do nothing: errors are converted when they leave the block."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, sqlite3.DatabaseError):
            raise _explain(self.what, problem) from problem


def _explain(what: str, problem: sqlite3.DatabaseError) -> StoreError:
    # The name may be of a finer kind: SQLITE_READONLY_DIRECTORY, SQLITE_BUSY_SNAPSHOT.
    code = "_".join((getattr(problem, "sqlite_errorname", "") or "").split("_")[:2])
    if code == "SQLITE_INTERRUPT" or "interrupted" in str(problem):
        return TimedOut("a read took longer than it may")
    if code == "SQLITE_BUSY":
        return Locked(f"{what}: {problem}", "another process holds the database; try again")
    if _OTHER_TABLES.match(str(problem)):
        hint = "a table or a column that a statement names is no longer as it was"
        return SchemaChanged(f"{what}: {problem}", hint)
    hints = {
        "SQLITE_NOTADB": "the file is not a SQLite database",
        "SQLITE_CORRUPT": "restore it from a backup; `PRAGMA integrity_check` lists what is damaged",
        "SQLITE_CANTOPEN": "check the path and the permissions of the file and its folder",
        "SQLITE_READONLY": "let the user that runs Wane write the file and its folder, where SQLite puts its journal"
        " (`chmod`, `chown`), or run Wane as their owner; `wane check`, `plan` and `health` only read",
        "SQLITE_FULL": "free space on the database's disk, or in the folder for temporary files (`TMPDIR`)",
    }
    kind = Unreachable if code in ("SQLITE_CANTOPEN", "SQLITE_NOTADB") else StoreError
    return kind(f"{what}: {problem}", hints.get(code, ""))
