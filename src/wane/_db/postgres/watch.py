"""Noticing wakeups on PostgreSQL: a connection that listens, or, behind a connection pooler, polls."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import psycopg

from wane._db.postgres.bounded import AtOnceTransaction, BoundedConnection
from wane._db.watch import Watch
from wane.errors import Unreachable

CHANNEL = "wane_wakeup"
_LOST = "the connection that waits for wakeups is lost"
_LATEST_SECONDS = 0.5
"""Commits that found other messages ready do not notify; no reader waits for longer than this for one of those."""


class PostgresWatch(Watch):
    """Notices wakeups of any pool."""

    def __init__(
        self,
        connection: BoundedConnection,
        transaction: AtOnceTransaction,
        explained: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Listen on the connection unless it is pooled; `transaction` is that of its reads."""
        self._connection = connection
        self._transaction = transaction
        self._explained = explained
        # Behind a pooler, LISTEN would apply to the pooler's session, for the next client that gets it.
        self._listens = not connection.pooled
        if self._listens:
            with explained("the database refused to answer"):
                connection.execute(f"LISTEN {CHANNEL}")

    def read(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        try:
            with self._explained("the database refused to answer"):
                return self._connection.at_once(self._transaction, text, parameters)
        except Unreachable as problem:
            raise Unreachable(f"{_LOST}: {problem.message.partition(': ')[2]}", problem.hint) from problem

    def wait(self, seconds: float) -> None:
        longest = min(seconds, _LATEST_SECONDS)
        if not self._listens:
            time.sleep(max(longest, 0))
            return
        with self._explained(_LOST):
            for _ in self._connection.notifies(timeout=longest, stop_after=1):
                pass

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()
