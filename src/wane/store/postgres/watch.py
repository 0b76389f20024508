"""Noticing wakeups on PostgreSQL: a connection that listens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import psycopg

from wane.store.base import Watch

CHANNEL = "wane_wakeup"
_LATEST_SECONDS = 0.5
"""Commits that found other messages ready do not notify; nobody waits for longer than this for one of those."""


class PostgresWatch(Watch):
    """Notices wakeups of any pool."""

    def __init__(
        self, connection: psycopg.Connection[Any], explained: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._connection = connection
        self._explained = explained
        self.read(f"LISTEN {CHANNEL}", {})

    def read(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._explained("the database refused to answer"):
            cursor = self._connection.execute(text.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def wait(self, seconds: float) -> None:
        with self._explained("the connection that waits for wakeups is lost"):
            for _ in self._connection.notifies(timeout=min(seconds, _LATEST_SECONDS), stop_after=1):
                pass

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()
