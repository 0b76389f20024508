"""Reading a database from another process: what the archive's tasks use.

A reader sees one state of the database, however long it reads, and reads it twice over: as Arrow through ADBC, and as plain values for checks that
the database computes. It holds no secret but its connection's, which it fetches from the process that started it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from wane.errors import StoreError, Unreachable
from wane.store.postgres.settings import SAFE_SETTINGS, SEARCH_PATH, set_locally
from wane.store.sqlite import digests

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16 * 1024 * 1024
BATCH_ROWS = 8_192
_FETCH_SECONDS = 10.0
_MOST_SECRET_BYTES = 64 * 1024
_POSTGRES_SETTINGS = {**SAFE_SETTINGS, "jit": "off", "lock_timeout": "5s", "application_name": "wane archive"}
_OPTIONS = re.compile(r"(?<=[?&]options=)[^&]*")
_OUR_OPTIONS = f"-csearch_path={SEARCH_PATH.replace(' ', '')}"
_POOLED = "unsupported startup parameter"
"""What a connection pooler says to options of the session."""


@dataclass(frozen=True, slots=True)
class Source:
    """A database, as tasks find it. `secret` never leaves the process: `at` says where it can be fetched."""

    kind: str
    path: str | None = None
    secret: str | None = field(default=None, repr=False)
    at: str | None = None
    """A socket that tells the secret to processes of the same user."""
    variable: str | None = None
    """On another machine: the environment variable that holds it there."""

    def address(self) -> str:
        """What to connect to."""
        if self.path is not None:
            return self.path
        if self.variable is not None:
            return _from_environment(self.variable)
        return self.secret if self.secret is not None else fetch(self.at or "")


def _from_environment(variable: str) -> str:
    address = os.environ.get(variable)
    if not address:
        raise Unreachable(
            f"the environment variable {variable} is not set on {socket.gethostname()}",
            "set it to the database's URL for every worker, for example in conf/spark-env.sh, and restart them",
        )
    return address


def fetch(at: str) -> str:
    """The secret that the starting process tells."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_FETCH_SECONDS)
        line.connect(at)
        told = b""
        while piece := line.recv(4096):
            told += piece
            if len(told) > _MOST_SECRET_BYTES:
                break
    return told.decode()


class Reader(ABC):
    """One state of a database."""

    @abstractmethod
    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """What a query reads, as Arrow."""

    @abstractmethod
    def row(self, query: str) -> list[Any]:
        """The one row that a query reads."""


@contextmanager
def open_reader(source: Source) -> Iterator[Reader]:
    """Read one state of the database. Errors never show what it was reached by."""
    address = source.address()
    try:
        with ExitStack() as stack:
            yield _sqlite(address, stack) if source.kind == "sqlite" else _postgres(address, stack)
    except (StoreError, AssertionError):
        raise
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] != "adbc_driver_manager":
            raise
        raise StoreError(f"the database cannot be read: {_without(address, str(problem))}") from None


def _without(address: str, text: str) -> str:
    """The text without the address, or a password that stands in it."""
    secrets = [address, *re.findall(r"://[^:/?#]*:([^@]+)@", address), *re.findall(r"password=([^&\s]+)", address)]
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


class _Adbc(Reader):
    def __init__(self, connection: Any, options: Mapping[str, str]) -> None:
        self._connection = connection
        self._options = options

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**self._options)
            cursor.execute(query)
            with cursor.fetch_record_batch() as batches:
                yield from batches

    def row(self, query: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            [row] = cursor.fetchall()
            return list(row)


def _postgres(address: str, stack: ExitStack) -> Reader:
    import adbc_driver_postgresql.dbapi as driver

    def connect(to: str) -> Any:
        return stack.enter_context(driver.connect(to, autocommit=True))

    try:
        # The driver asks the catalogs by bare names before anything can be set, so the session has to begin with our search path.
        try:
            connection = connect(_pinned(address))
        except Exception as problem:
            if _POOLED not in str(problem):
                raise
            connection = connect(address)
    except Exception as problem:
        raise Unreachable(f"the database cannot be reached: {_without(address, str(problem))}") from None
    with connection.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute(set_locally(_POSTGRES_SETTINGS))
        cursor.fetchall()
    return _Adbc(connection, {"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})


def _pinned(address: str) -> str:
    """The URL of a session that begins with our search path."""
    ours = quote(_OUR_OPTIONS, safe="")
    if _OPTIONS.search(address):
        return _OPTIONS.sub(lambda given: f"{given[0]}%20{ours}", address)
    return f"{address}{'&' if '?' in address else '?'}options={ours}"


class _Sqlite(_Adbc):
    """Digests need functions of ours, which ADBC's connection cannot have: a process of its own computes them on the same state."""

    def __init__(self, connection: Any, checking: subprocess.Popen[str]) -> None:
        super().__init__(connection, {"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
        self._checking = checking

    def row(self, query: str) -> list[Any]:
        _say(self._checking, json.dumps(query))
        answer = _hear(self._checking)
        if isinstance(answer, dict):
            raise StoreError(f"the database cannot be read: {answer['error']}")
        return list(answer)


def _sqlite(path: str, stack: ExitStack) -> Reader:
    import adbc_driver_sqlite.dbapi as driver

    if not Path(path).exists():
        raise Unreachable(f"there is no database at {path}")
    checking = subprocess.Popen(
        [sys.executable, "-I", digests.__file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stack.callback(_end, checking)
    if _hear(checking) != digests.READY:
        raise StoreError("the database cannot be read")
    # Nobody can write now: what begins to read here sees what the other process sees.
    reading = stack.enter_context(driver.connect(f"file:{quote(path)}?mode=ro", autocommit=True))
    with reading.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT count(*) FROM sqlite_master")
        cursor.fetchall()
    _say(checking, digests.GO)
    return _Sqlite(reading, checking)


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise StoreError("the database cannot be read", "it may be locked by others for too long; try again")
    return json.loads(line)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
