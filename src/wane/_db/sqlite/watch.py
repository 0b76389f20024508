"""Noticing commits of other connections on SQLite: a separate connection polls the file's version, cheaply."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from wane._db.sqlite.file import OpenFiles
from wane._db.watch import Watch

_POLL_SECONDS = 0.005
"""The interval between two polls: a few milliseconds of delay for less than a hundredth of a core."""


class SqliteWatch(Watch):
    """Notices every commit of another connection, in this process or elsewhere."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        files: OpenFiles,
        explained: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._connection = connection
        self._files = files
        self._explained = explained
        self._seen = self._version()

    def read(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        self._files.require_same()
        with self._explained("the database refused to answer"):
            return self._connection.execute(text, parameters).fetchall()

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (version := self._version()) == self._seen:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_SECONDS, left))
        self._seen = version

    def close(self) -> None:
        self._connection.close()

    def _version(self) -> int:
        [(version,)] = self.read("PRAGMA data_version", {})
        return int(version)
