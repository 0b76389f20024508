"""Keepers for requests: each request works on a thread, with a connection that no other request uses meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from wane._keeper import Keeper
from wane.errors import Unreachable

R = TypeVar("R")
SIZE = 4
"""The requests that read the database at the same time; others wait."""


class KeeperPool:
    """At most some keepers, opened when they are needed, and closed together."""

    def __init__(self, open_one: Callable[[], Keeper], size: int = SIZE) -> None:
        self._open = open_one
        self._size = size
        self._limiter: CapacityLimiter | None = None
        self._idle: list[Keeper] = []
        self._turn = threading.Lock()

    async def run(self, work: Callable[[Keeper], R]) -> R:
        """Run work with a keeper on a thread; a keeper that lost its database is closed."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._size)
        return await run_sync(self._work, work, limiter=self._limiter)

    def _work(self, work: Callable[[Keeper], R]) -> R:
        with self._turn:
            keeper = self._idle.pop() if self._idle else None
        keeper = keeper or self._open()
        try:
            result = work(keeper)
        except Unreachable:
            keeper.close()
            raise
        except BaseException:
            self._give_back(keeper)
            raise
        self._give_back(keeper)
        return result

    def _give_back(self, keeper: Keeper) -> None:
        with self._turn:
            self._idle.append(keeper)

    def close(self) -> None:
        """Close every keeper that is not at work."""
        with self._turn:
            idle, self._idle = self._idle, []
        for keeper in idle:
            keeper.close()
