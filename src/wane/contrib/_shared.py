"""One database for a whole process: callers that open the same one share its connection and threads.

For programs that create a new object for every use, and have no point at which they open or close one. What is shared
belongs to no event loop, and a forked process has its own.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from wane._db import Store, open_store
from wane._db.url import DatabaseUrl
from wane.queue._wakeups import Wakeups

_MOST_WAITING = 64
"""Threads that wait for wakeups. A caller that finds none free waits for one, and then checks at least once."""


class SharedDatabase:
    """A database that is opened when it is first needed; opening is retried if it failed."""

    def __init__(self, url: DatabaseUrl) -> None:
        self.url = url
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wane")
        """Runs everything that uses the store."""
        self.waiting = ThreadPoolExecutor(max_workers=_MOST_WAITING, thread_name_prefix="wane-wakeups")
        """Runs everything that waits for wakeups."""
        self._opened: tuple[Store, Wakeups] | None = None

    async def open(self, *, migrate: bool = False) -> tuple[Store, Wakeups]:
        """Open the store, with Wane's own tables in it, and its wakeups; the same ones on every call.

        `migrate` creates the tables if they are missing.
        """
        if self._opened is not None:
            return self._opened
        return await asyncio.get_running_loop().run_in_executor(self.thread, self._open, migrate)

    def _open(self, migrate: bool) -> tuple[Store, Wakeups]:
        if self._opened is None:
            store = open_store(self.url)
            try:
                if migrate:
                    store.migrate()
                store.require_migrated()
            except BaseException:
                store.close()
                raise
            self._opened = store, Wakeups(store)
        return self._opened

    def close(self) -> None:
        """Wait for what is under way, then close every connection."""
        self.waiting.shutdown(cancel_futures=True)
        self.thread.submit(self._close).result()
        self.thread.shutdown()

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            store, wakeups = opened
            wakeups.close()
            store.close()


_databases: dict[tuple[int, DatabaseUrl], SharedDatabase] = {}
"""By process too: a connection that was inherited through a fork is its parent's, and is neither used nor closed."""


def shared_database(url: DatabaseUrl) -> SharedDatabase:
    """Return the database that this process shares under that URL."""
    key = os.getpid(), url
    return _databases.get(key) or _databases.setdefault(key, SharedDatabase(url))


def close_database(url: DatabaseUrl) -> None:
    """Close what this process shares under that URL; a later call opens it again."""
    found = _databases.pop((os.getpid(), url), None)
    if found is not None:
        found.close()
