"""A connection of Wane's own: it does not wait for ever, and detects whether its session is its own.

A server may stop, or vanish behind a proxy, without any notice. Server-side limits (statement_timeout and the like) do
not help there, and neither do keepalives, as long as something answers them. And behind a connection pooler every
transaction may run in another session, so nothing may be left in one: no setting, no prepared statement, no LISTEN.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus

Waiting = Generator[Any, Any, Any]
Rows = list[tuple[Any, ...]]
_PREPARED_AFTER = 3
"""Statements that run repeatedly are prepared once they have run this often."""
_ON_REQUEST = 2**31
"""How often other statements run before they are prepared, unless that is requested: never."""
_MOST_PREPARED = 500
"""Statements that stay prepared: more than a reading of a hundred tables has."""
_UNKNOWN, _FLOAT8 = 0, 701
_INTEGERS = ((21, -(1 << 15), 1 << 15), (23, -(1 << 31), 1 << 31), (20, -(1 << 63), 1 << 63))
"""PostgreSQL's numbers of types; those of integers with their ranges. The type of a text follows from its use."""
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
_CACHED_TEXTS = 128


@dataclass(frozen=True, slots=True)
class AtOnceTransaction:
    """How statements run that are a transaction each: what begins one, and its settings, for it alone or the
    session."""

    begin: str
    local: str
    session: str


@dataclass(slots=True)
class _PreparedStatement:
    """A statement that the session has prepared, and what decodes its rows."""

    name: bytes
    decoding: Any  # a Transformer: where its compiled form is missing, another class has this name
    knows_types: bool = False


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that closes itself when the server has been silent for `answer_seconds`; None: never."""

    answer_seconds: float | None = None
    pooled = False
    """Whether a connection pooler stands between client and server."""
    search_path = ""
    """The session's own search path, by which a contract's names without a schema are resolved."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.functions: dict[str, bool] = {}
        """The functions that were to be created in this session, and whether it has them."""
        self._settings: str | None = None
        """What was set in this session and not only in a transaction: see `at_once` and `call`."""
        self._at_once = 0
        """How many statements ran at once since anything else did."""
        self._statements: dict[tuple[bytes, tuple[int, ...]], _PreparedStatement] = {}
        """The statements that `_run_prepared` has prepared, by their text and the types of their values."""
        self._prepared_count = 0
        self._encoding = "utf-8"
        self._news = select.poll()
        self._news.register(self.fileno(), select.POLLIN)

    @property
    def may_prepare(self) -> bool:
        """Return whether a prepared statement would be found again: not behind a pooler."""
        return not self.pooled

    def recognise(self) -> None:
        """Detect what kind of session this is: a pooler gives its clients process ids that are no server's."""
        requested = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('search_path')"
        [(process, self.search_path)] = self.execute(requested).fetchall()
        self.pooled = process != self.info.backend_pid
        self._encoding = self.info.encoding
        if self.may_prepare:
            # With None, the driver would not even prepare what is to be prepared.
            self.prepare_threshold, self.prepared_max = _ON_REQUEST, _MOST_PREPARED

    @property
    def writes_readable_texts(self) -> bool:
        """Return whether the driver reads the texts of times in the session's own styles, which a result that is read
        after its transaction counts as written in."""
        status = self.pgconn.parameter_status
        dates, intervals = status(b"DateStyle") or b"ISO", status(b"IntervalStyle") or b"postgres"
        return dates.startswith(b"ISO") and intervals == b"postgres"

    def has_news(self) -> bool:
        """Check whether the server sent something that has not been read."""
        return bool(self._news.poll(0))

    def at_once(self, transaction: AtOnceTransaction, text: str, parameters: Mapping[str, object]) -> Rows:
        """Run one statement in a transaction of its own, in one round trip, and return its rows.

        Its result is read as binary: by the time it is read, the texts of timestamps follow the session's style again.
        A session of which nothing else was asked for some statements has the settings itself, until `end_calls`:
        setting them for each takes longer than many of these do.
        """
        if self._settings not in (None, transaction.session):
            self.end_calls()
        self._at_once += 1
        if not self.may_prepare or self._at_once <= _PREPARED_AFTER:
            statements = [(text, parameters)]
            return self.run_in_transaction(transaction.begin, transaction.local, statements, Format.BINARY)[0]
        if self._settings is None:
            self.execute(transaction.session.encode())
            self._settings = transaction.session
        query, names = numbered(text, self._encoding)
        values = [parameters[name] for name in names]
        encoded = [self._encoded(value) for value in values]
        if None not in encoded:
            return self._run_prepared(query, encoded)
        cursor = psycopg.RawCursor(self)
        cursor.format = Format.BINARY
        return _rows(cursor.execute(query, values, prepare=True))

    def _encoded(self, value: object) -> tuple[int, bytes | None] | None:
        """Encode a value with its type's number, as the driver would; None: the driver encodes it, or refuses it."""
        kind = type(value)
        if value is None:
            return _UNKNOWN, None
        if isinstance(value, str) and kind is str:
            encoded = value.encode(self._encoding)
            return None if b"\0" in encoded else (_UNKNOWN, encoded)
        if isinstance(value, int) and kind is int:
            for number, least, beyond in _INTEGERS:
                if least <= value < beyond:
                    return number, b"%d" % value
            return None
        return (_FLOAT8, repr(value).encode()) if kind is float else None

    def _run_prepared(self, query: bytes, encoded: Sequence[Any]) -> Rows:
        """Run a prepared statement without a cursor, which takes the client longer than all else that it does here."""
        types, values = tuple(number for number, _ in encoded), [value for _, value in encoded]
        with self.lock:
            known = self._statements.get((query, types)) or self._prepare(query, types)
            try:
                result = self._run_known(known, values)
            except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported):
                # After a rollback the driver discards every statement of the session; and one whose columns have other
                # types since it was prepared is refused from then on. Nothing was changed.
                self._discard((query, types))
                known = self._prepare(query, types)
                result = self._run_known(known, values)
            if result.status != ExecStatus.TUPLES_OK:
                return []
            known.decoding.set_pgresult(result, set_loaders=not known.knows_types)
            known.knows_types = True
            rows: Rows = known.decoding.load_rows(0, result.ntuples, tuple)
        return rows

    def _run_known(self, statement: _PreparedStatement, values: Sequence[bytes | None]) -> Any:
        self.pgconn.send_query_prepared(statement.name, values, result_format=Format.BINARY)
        return self._result()

    def _prepare(self, query: bytes, types: tuple[int, ...]) -> _PreparedStatement:
        if len(self._statements) >= _MOST_PREPARED:
            self._discard(next(iter(self._statements)))
        self._prepared_count += 1
        new = _PreparedStatement(b"wane_%d" % self._prepared_count, Transformer(self))
        self.pgconn.send_prepare(new.name, query, types)
        self._result()
        self._statements[query, types] = new
        return new

    def _discard(self, key: tuple[bytes, tuple[int, ...]]) -> None:
        self.pgconn.send_query(b"DEALLOCATE " + self._statements.pop(key).name)
        try:
            self._result()
        except psycopg.errors.InvalidSqlStatementName:  # Then the session has none of them.
            self._statements.clear()

    def _result(self) -> Any:
        """Wait for the result of what was sent; raise if it is an error."""
        result = self.wait(generators.execute(self.pgconn))[-1]
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=self._encoding)
        return result

    def run_in_transaction(
        self,
        begin: str,
        settings: str,
        statements: Sequence[tuple[str, Mapping[str, object]]],
        result: Format = Format.TEXT,
    ) -> list[Rows]:
        """Run statements in a transaction with settings, in one round trip, and return their rows."""
        try:
            return run_together(self, [(begin, {}), (settings, {}), *statements, ("COMMIT", {})], result)[2:-1]
        except BaseException:
            # A broken connection has ended it already.
            if not self.closed and self.info.transaction_status is not TransactionStatus.IDLE:
                self.rollback()
            raise

    def call(self, text: str, values: Sequence[object], settings: str) -> tuple[Any, ...] | None:
        """Run one statement outside any transaction, in one round trip; return its first row.

        Its values are sent as texts, which the statement casts: the driver would choose the types of numbers by their
        size, and each combination would be prepared by itself.

        `settings` is the statement that sets what it needs for the session: its statement_timeout cannot be set inside
        it, and a second statement would take longer than many of these do. They stay until `end_calls`.
        """
        if self._settings != settings:
            self.end_calls()
            self.execute(settings.encode())
            self._settings = settings
        encoded = [(_UNKNOWN, None if value is None else self._text(value)) for value in values]
        rows = self._run_prepared(text.encode(self._encoding), encoded)
        return rows[0] if rows else None

    def _text(self, value: object) -> bytes:
        encoded = str(value).encode(self._encoding)
        if b"\0" in encoded:
            raise psycopg.DataError("a text contains NUL")
        return encoded

    def end_calls(self) -> None:
        """Give the session its own settings back."""
        self._at_once = 0
        if self._settings is not None and not self.closed:
            self.execute("RESET ALL")
            self._settings = None

    def wait(self, gen: Waiting, *arguments: Any, **options: Any) -> Any:
        if self.answer_seconds is not None:
            gen = self._within(gen, self.answer_seconds)
        return super().wait(gen, *arguments, **options)

    def _within(self, gen: Waiting, seconds: float) -> Waiting:
        """Run the same steps; raise OperationalError if nothing arrives for `seconds`."""
        answered = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    answered = now
                elif now - answered > seconds:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no response from the server for {seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def run_together(
    connection: psycopg.Connection[Any],
    statements: Sequence[tuple[str, Mapping[str, object]]],
    result_format: Format = Format.BINARY,
) -> list[Rows]:
    """Run statements in one round trip, and return their rows; if one fails, the server skips the others.

    They are sent as one message: a server that got a part of them, from a client that was cut off, would hold the locks
    of what it ran until it notices, because it waits inside of a statement, where no limit applies.
    """
    if not psycopg.Pipeline.is_supported():
        binary = result_format is Format.BINARY
        return [_rows(connection.execute(text.encode(), values, binary=binary)) for text, values in statements]
    pgconn, decoding, encoding = connection.pgconn, Transformer(connection), connection.info.encoding
    with connection.lock:
        pgconn.enter_pipeline_mode()
        try:
            for text, values in statements:
                query, names = numbered(text, encoding)
                encoded = decoding.dump_sequence([values[name] for name in names], [PyFormat.AUTO] * len(names))
                pgconn.send_query_params(query, encoded, decoding.types, decoding.formats, result_format)
            pgconn.pipeline_sync()
            results = connection.wait(_fetch(pgconn, len(statements) + 1))
        finally:
            if pgconn.status == ConnStatus.OK:
                pgconn.exit_pipeline_mode()
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=encoding)
    return [_decoded(decoding, result) for result in results[:-1]]


def _fetch(pgconn: Any, count: int) -> Waiting:
    """Send what is left to send, and fetch the results of so many statements of a pipeline, whose end counts as one."""
    if pgconn.flush():  # More than the system takes at a time.
        yield from generators.send(pgconn)
    found = []
    for _ in range(count):
        found += yield from generators.fetch_many(pgconn)
    return found


def _decoded(decoding: Any, result: Any) -> Rows:
    if result.status != ExecStatus.TUPLES_OK:
        return []
    decoding.set_pgresult(result)
    rows: Rows = decoding.load_rows(0, result.ntuples, tuple)
    return rows


def _rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Rows:
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


@lru_cache(maxsize=_CACHED_TEXTS)
def numbered(text: str, encoding: str) -> tuple[bytes, tuple[str, ...]]:
    """Convert a text to PostgreSQL's own placeholders, in a connection's encoding; return it with the names of the
    values in their order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return "%" if found[1] is None else f"${names.setdefault(found[1], len(names) + 1)}"

    return _PLACEHOLDER.sub(number, text).encode(encoding), tuple(names)
