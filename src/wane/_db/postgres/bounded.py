"""A connection of Wane's own: it does not wait for ever, and detects whether its session is its own.

A server may stop, or vanish behind a proxy, without any notice. Server-side limits (statement_timeout and the like) do
not help there, and neither do keepalives, as long as something answers them. And behind a connection pooler every
transaction may run in another session, so nothing may be left in one: no setting, no prepared statement, no LISTEN.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.pq import Format, TransactionStatus

Waiting = Generator[Any, Any, Any]
_PREPARED_AFTER = 3
"""Statements that run repeatedly are prepared once they have run this often."""
_ON_REQUEST = 2**31
"""How often other statements run before they are prepared, unless that is requested: never."""
_MOST_PREPARED = 500
"""Statements that stay prepared: more than a reading of a hundred tables has."""
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
_KEPT_TEXTS = 128


@dataclass(frozen=True, slots=True)
class AtOnceTransaction:
    """How statements run that are a transaction each: what begins one, and its settings, for it alone or the session."""

    begin: str
    local: str
    session: str


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

    @property
    def may_prepare(self) -> bool:
        """Return whether a prepared statement would be found again: not behind a pooler."""
        return not self.pooled

    def recognise(self) -> None:
        """Detect what kind of session this is: a pooler gives its clients process ids that are no server's."""
        asked = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('search_path')"
        [(process, self.search_path)] = self.execute(asked).fetchall()
        self.pooled = process != self.info.backend_pid
        if self.may_prepare:
            # With None, the driver would not even prepare what is to be prepared.
            self.prepare_threshold, self.prepared_max = _ON_REQUEST, _MOST_PREPARED

    def at_once(
        self, transaction: AtOnceTransaction, text: str, parameters: Mapping[str, object]
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run one statement in a transaction of its own, in one round trip.

        Its result is read as binary: by the time it is read, the texts of timestamps follow the session's style again.
        A session of which nothing else was asked for some statements has the settings itself, until `end_calls`:
        setting them for each takes longer than many of these do.
        """
        if self._settings not in (None, transaction.session):
            self.end_calls()
        self._at_once += 1
        if self.may_prepare and self._at_once > _PREPARED_AFTER:
            if self._settings is None:
                self.execute(transaction.session.encode())
                self._settings = transaction.session
            query, names = numbered(text)
            cursor = psycopg.RawCursor(self)
            cursor.format = Format.BINARY
            return cursor.execute(query, [parameters[name] for name in names], prepare=True)
        return self._together(transaction, text, parameters)

    def _together(
        self, transaction: AtOnceTransaction, text: str, parameters: Mapping[str, object]
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        together = self.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()
        before = self.prepare_threshold
        self.prepare_threshold = _PREPARED_AFTER if self.may_prepare else None
        try:
            with together:
                self.execute(transaction.begin.encode(), prepare=False)
                self.execute(transaction.local.encode())
                cursor = self.execute(text.encode(), parameters, binary=True)
                self.execute("COMMIT", prepare=False)
        except BaseException:
            # A broken connection has ended it already.
            if not self.closed and self.info.transaction_status is not TransactionStatus.IDLE:
                self.rollback()
            raise
        finally:
            self.prepare_threshold = before
        return cursor

    def call(self, text: str, values: Sequence[object], limit: str) -> tuple[Any, ...] | None:
        """Run one statement outside any transaction, in one round trip; return its first row.

        `limit` is its statement_timeout. That cannot be set inside it, and a second statement would take longer than
        many of these do; so it stays the session's until `end_calls`.
        """
        if self._settings != limit:
            self.end_calls()
            self.execute("SELECT pg_catalog.set_config('statement_timeout', %s, false)", [limit])
            self._settings = limit
        return self.execute(text.encode(), values, prepare=True, binary=True).fetchone()

    def end_calls(self) -> None:
        """Give the session its own settings back."""
        self._at_once = 0
        if self._settings is not None and not self.closed:
            self._settings = None
            self.execute("RESET ALL")

    def wait(self, gen: Waiting, *arguments: Any, **options: Any) -> Any:
        if self.answer_seconds is not None:
            gen = self._within(gen, self.answer_seconds)
        return super().wait(gen, *arguments, **options)

    def _within(self, gen: Waiting, seconds: float) -> Waiting:
        """Run the same steps; raise OperationalError if nothing arrives for `seconds`."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    heard = now
                elif now - heard > seconds:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server has said nothing for {seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


@lru_cache(maxsize=_KEPT_TEXTS)
def numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Convert a text to PostgreSQL's own placeholders; return it with the names of the values in their order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return "%" if found[1] is None else f"${names.setdefault(found[1], len(names) + 1)}"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(names)
