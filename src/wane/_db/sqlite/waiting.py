"""What a store's own connection waits for: the disk, and other writers.

Both are settings of the connection (`synchronous`, `busy_timeout`), and setting them costs as much as a small
statement: they are set only when the next use needs other values than the last one.
"""

from __future__ import annotations

import sqlite3

_NORMAL = 1
"""`PRAGMA synchronous`: with a write-ahead log, commits are written in order and not waited for."""


_RARELY = 10
_MEMORY = 2


class Waiting:
    """The settings of one connection, as its last use left them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Begin with the settings that the connection has: it waits for everything."""
        self._connection = connection
        self._has_log = False
        self._full: int | None = None
        """`PRAGMA synchronous` as it was, once it was read."""
        self._lowered = False
        self._usual: dict[str, int] = {}
        """The settings that many transactions in a row replace; empty while they are in force."""
        self.busy_seconds: float | None = None
        """The connection's busy timeout as it was; None while that is in force."""

    def choose(self, *, disk: bool, writers: bool, repeated: bool = False) -> None:
        """Wait for the disk, and for other writers, or do not; `repeated`: for many transactions in a row.

        Without a write-ahead log, wait always: a power failure could destroy the database, where with a log it loses
        whole transactions, the last ones; and a commit needs the lock of readers. Never called inside a transaction.
        """
        if not (self._has_log or self._logs()):
            return
        if disk == self._lowered:
            self._choose_disk(disk=disk)
        if repeated != bool(self._usual):
            self._choose_repeated(repeated=repeated)
        if writers and self.busy_seconds is not None:
            self._set("busy_timeout", round(self.busy_seconds * 1_000))
            self.busy_seconds = None
        elif not writers and self.busy_seconds is None:
            self.busy_seconds = self._read("busy_timeout") / 1_000
            self._set("busy_timeout", 0)

    def _choose_repeated(self, *, repeated: bool) -> None:
        """Configure the connection for many transactions in a row that change the same pages, or as it was.

        The log grows to ten times its usual size before a commit moves it into the database. What undoes one statement
        of a transaction, a copy of every page that it changes, is in memory: batches are small. A change of that makes
        SQLite read the schema anew, so it is not undone between calls.
        """
        if repeated:
            self._usual = {name: self._read(name) for name in ("wal_autocheckpoint", "temp_store")}
            chosen = {"wal_autocheckpoint": _RARELY * self._usual["wal_autocheckpoint"], "temp_store": _MEMORY}
        else:
            chosen, self._usual = self._usual, {}
        for name, value in chosen.items():
            self._set(name, value)

    def _choose_disk(self, *, disk: bool) -> None:
        if self._full is None:
            self._full = self._read("main.synchronous")
        if self._full > _NORMAL:
            self._set("main.synchronous", self._full if disk else _NORMAL)
        self._lowered = not disk

    def _logs(self) -> bool:
        """Return whether the database has a write-ahead log; no process can remove it while the connection is open."""
        [(mode,)] = self._connection.execute("PRAGMA main.journal_mode").fetchall()
        self._has_log = mode == "wal"
        return self._has_log

    def _read(self, name: str) -> int:
        [(value,)] = self._connection.execute(f"PRAGMA {name}").fetchall()
        return int(value)

    def _set(self, name: str, value: int) -> None:
        self._connection.execute(f"PRAGMA {name} = {value:d}").fetchall()
