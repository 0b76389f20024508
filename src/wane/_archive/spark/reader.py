"""Reading a database from another process: what the archive's tasks use.

A reader sees one snapshot of the database, however long it reads, and reads it in two ways: as Arrow through ADBC, and
as plain values for checks that the database computes. On PostgreSQL all readers of a sweep share one snapshot, which
the process that started them exports. A reader holds no secret but its connection's, which it fetches from that
process.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from wane._archive.spark.sql_reader import BEGIN_POSTGRES, BEGIN_SQLITE, PING, use_snapshot
from wane._db.postgres.settings import SAFE_SETTINGS, SEARCH_PATH, UNLIMITED, set_locally
from wane._db.sqlite import digests
from wane.errors import Locked, StoreError, Unreachable

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16 * 1024 * 1024
"""A batch ends at this number of bytes or rows; a driver's buffer grows by doubling, so it takes up to twice as much
memory."""
BATCH_ROWS = 8_192
_FETCH_SECONDS = 10.0
_MOST_SECRET_BYTES = 64 * 1024
_POSTGRES_SETTINGS = {**SAFE_SETTINGS, "jit": "off", "lock_timeout": "5s", "application_name": "wane archive"}
_OPTIONS = re.compile(r"(?<=[?&]options=)[^&]*")
_OUR_OPTIONS = f"-csearch_path={SEARCH_PATH.replace(' ', '')}"
_POOLED = "unsupported startup parameter"
"""The error of a connection pooler that refuses options of the session."""
_TRANSIENT = re.compile(r"08...|40...|53...|57P..")
"""SQLSTATEs of transient errors: a lost connection, a conflict, a lack of resources, a shutdown."""
_LOCKED = "55P03"
_BUSY = re.compile(r"database( table)? is locked")


@dataclass(frozen=True, slots=True)
class Source:
    """A database, as tasks reach it. `secret` never leaves the process: `at` is where it can be fetched."""

    kind: str
    path: str | None = None
    secret: str | None = field(default=None, repr=False)
    at: str | None = None
    """A socket that serves the secret to processes of the same user."""
    variable: str | None = None
    """On another machine: the environment variable that holds it there."""
    snapshot: str | None = None
    """PostgreSQL: the exported snapshot that readers share; None for one of their own."""

    def address(self) -> str:
        """Return the path or URL to connect to."""
        if self.path is not None:
            return self.path
        if self.variable is not None:
            return _from_environment(self.variable)
        return self.secret if self.secret is not None else fetch(self.at or "")


def _from_environment(variable: str) -> str:
    address = os.environ.get(variable)
    if not address:
        raise StoreError(
            f"the environment variable {variable} is not set on {socket.gethostname()}",
            "set it to the database's URL for every worker, for example in conf/spark-env.sh, and restart them",
        )
    return address


def fetch(at: str) -> str:
    """Fetch the secret from the process that started the task."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_FETCH_SECONDS)
        line.connect(at)
        received = b""
        while piece := line.recv(4096):
            received += piece
            if len(received) > _MOST_SECRET_BYTES:
                break
    return received.decode()


class Reader(ABC):
    """One snapshot of a database."""

    @abstractmethod
    def batches(self, query: str, widest: str) -> Iterator[pa.RecordBatch]:
        """Read a query as Arrow, in batches of bounded size.

        `widest` is a query for the size in bytes of its longest row.
        """

    @abstractmethod
    def row(self, query: str) -> list[Any]:
        """Return the one row that a query reads."""


@contextmanager
def open_reader(source: Source) -> Iterator[Reader]:
    """Open a reader of one snapshot of the database. Error messages never contain its address.

    Raise Unreachable or Locked for transient errors, where a retry may help, and StoreError for everything else.
    """
    address = source.address()
    with ExitStack() as stack:
        yield _sqlite(address, stack) if source.kind == "sqlite" else _postgres(address, source.snapshot, stack)


def _without(address: str, text: str) -> str:
    """Remove the address, and passwords in it, from a text."""
    secrets = [address, *re.findall(r"://[^:/?#]*:([^@]+)@", address), *re.findall(r"password=([^&\s]+)", address)]
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


class _Adbc(Reader):
    def __init__(self, connection: Any, address: str) -> None:
        self._connection = connection
        self._address = address

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Convert errors of the driver while it reads into Wane's errors."""
        import adbc_driver_manager
        import pyarrow as pa

        try:
            yield
        # A stream of Arrow raises errors of Python and of Arrow.
        except (adbc_driver_manager.Error, OSError, pa.ArrowException) as problem:
            message = f"the database cannot be read: {_without(self._address, str(problem))}"
            raise self._kind(problem)(message) from None

    def _kind(self, problem: Exception) -> type[StoreError]:
        state = getattr(problem, "sqlstate", None) or ""
        if state == _LOCKED or _BUSY.search(str(problem)):
            return Locked
        return Unreachable if _TRANSIENT.fullmatch(state) or not self._answers() else StoreError

    def _answers(self) -> bool:
        """Check whether the connection still works; an error with an SQLSTATE shows that it does."""
        import adbc_driver_manager

        try:
            self.execute(PING)
        except adbc_driver_manager.Error as problem:
            return problem.sqlstate is not None
        return True

    def execute(self, statement: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def _stream(self, query: str, options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            with self.reading():
                cursor.adbc_statement.set_options(**options)
                cursor.execute(query)
                stream = cursor.fetch_record_batch()
            with stream:
                while True:
                    try:
                        with self.reading():
                            batch = stream.read_next_batch()
                    except StopIteration:
                        return
                    yield batch

    def row(self, query: str) -> list[Any]:
        with self.reading():
            [row] = self.execute(query)
            return list(row)


class _Postgres(_Adbc):
    def batches(self, query: str, widest: str) -> Iterator[pa.RecordBatch]:
        del widest  # The driver counts bytes itself.
        return self._stream(query, {"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})

    def begin(self, snapshot: str | None) -> None:
        """Begin to read one snapshot of the database: the exported one, or else the newest."""
        self.execute(BEGIN_POSTGRES)
        if snapshot is None:
            return
        try:
            self.execute(use_snapshot(snapshot))
        except Exception as problem:
            if self._kind(problem) is not StoreError:
                raise
            raise StoreError(
                "the snapshot that all tasks of this copy read is gone, or is another server's",
                "the connection that held it was lost: run again, and what is not copied yet is copied in a new one. On a cluster, all"
                " tasks must reach the very server that the run is connected to",
            ) from None


class _Catalogs:
    """The types that the driver found in the database of the newest snapshot.

    The driver reads them from the catalogs over a connection of its own, which costs more than a small range. Readers
    of one snapshot see one state of the catalogs, so that those of a process share them; there is no other state that
    they could be of.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._of: tuple[str, str | None] | None = None
        self._database: Any = None

    def connect(self, address: str, snapshot: str | None) -> Any:
        """Connect to the database."""
        import adbc_driver_manager
        import adbc_driver_postgresql
        from adbc_driver_manager import dbapi

        with self._turn:
            if snapshot is None or self._of != (address, snapshot):
                found = dbapi._SharedDatabase(adbc_driver_postgresql.connect(address))
                if self._database is not None:
                    self._database.close()  # As soon as its last connection is.
                self._database, self._of = found, (address, snapshot)
            connection = adbc_driver_manager.AdbcConnection(self._database._db)
            return dbapi.Connection(self._database, connection, autocommit=True)


_catalogs = _Catalogs()


def _postgres(address: str, snapshot: str | None, stack: ExitStack) -> Reader:
    def connect(to: str) -> Any:
        return stack.enter_context(_catalogs.connect(to, snapshot))

    try:
        # The driver queries the catalogs by bare names before anything can be set, so the session has to begin with
        # our search path.
        try:
            connection = connect(_pinned(address))
        except Exception as problem:
            if _POOLED not in str(problem):
                raise
            connection = connect(address)
    except Exception as problem:
        raise Unreachable(
            f"the database cannot be reached: {_without(address, str(problem))}",
            "check that its server accepts connections from the hosts on which Spark's tasks run",
        ) from None
    reader = _Postgres(connection, address)
    with reader.reading():
        reader.begin(snapshot)
        reader.execute(set_locally(_POSTGRES_SETTINGS))
        reader.execute(UNLIMITED)
    return reader


def _pinned(address: str) -> str:
    """Return the URL of a session that begins with our search path."""
    ours = quote(_OUR_OPTIONS, safe="")
    if _OPTIONS.search(address):
        return _OPTIONS.sub(lambda given: f"{given[0]}%20{ours}", address)
    return f"{address}{'&' if '?' in address else '?'}options={ours}"


class _Sqlite(_Adbc):
    """Digests need functions of ours, which ADBC's connection cannot have: a separate process computes them on the same
    snapshot."""

    def __init__(self, connection: Any, address: str, checking: subprocess.Popen[str]) -> None:
        super().__init__(connection, address)
        self._checking = checking

    def batches(self, query: str, widest: str) -> Iterator[pa.RecordBatch]:
        """Read batches of bounded size.

        The driver limits rows only, so wide rows are read few at a time and combined as far as they fit.
        """
        with self.reading():
            [[bytes_each]] = self.execute(widest)
        rows_each = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, bytes_each or 0)))
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self._stream(query, {"adbc.sqlite.query.batch_rows": str(rows_each)}):
            if waiting and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES):
                yield _combined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if waiting:
            yield _combined(waiting)

    def _answers(self) -> bool:
        return True  # A file is not lost like a connection.

    def row(self, query: str) -> list[Any]:
        _send(self._checking, json.dumps(query))
        return list(_receive(self._checking))


def _combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # Which copies one, too.


def _sqlite(path: str, stack: ExitStack) -> Reader:
    import adbc_driver_sqlite.dbapi as driver

    if not Path(path).exists():
        raise StoreError(f"there is no database at {path}", "the file was moved or deleted: correct `url` of [store]")
    uri = f"file:{quote(path)}"
    # Without site-packages, of which it needs nothing: it starts for every task.
    checking = subprocess.Popen(
        [sys.executable, "-I", "-S", digests.__file__, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stack.callback(_end, checking)
    _receive(checking)
    # No one can write now: a transaction that begins here sees the same snapshot as the other process.
    reader = _Sqlite(stack.enter_context(driver.connect(f"{uri}?mode=ro", autocommit=True)), path, checking)
    with reader.reading():
        for statement in BEGIN_SQLITE:
            reader.execute(statement)
    _send(checking, digests.GO)
    return reader


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _receive(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise StoreError(
            "the database cannot be read: the process that computes digests ended",
            "run it again; if it ends each time, the machine may be out of memory",
        )
    answer = json.loads(line)
    if isinstance(answer, dict):
        kind = Locked if _BUSY.search(answer["error"]) else StoreError
        raise kind(f"the database cannot be read: {answer['error']}")
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
