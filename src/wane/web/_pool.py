"""Keepers for requests: each request works on a thread, with a connection that no other request uses meanwhile.

A request that reads has a deadline, and ends when its client goes away: its statement is cancelled in the database.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from anyio import CapacityLimiter, create_task_group, move_on_after
from anyio.to_thread import run_sync

from wane._keeper import Keeper
from wane.errors import TimedOut, Unreachable

R = TypeVar("R")
Gone = Callable[[], Awaitable[None]]
"""Returns when the client of a request has gone away."""
SIZE = 4
"""The requests that read the database at the same time; others wait."""
READ_SECONDS = 30.0
"""How long a request that reads may wait and read."""


class KeeperPool:
    """At most some keepers, opened when they are needed, and closed together."""

    def __init__(self, open_one: Callable[[], Keeper], size: int = SIZE) -> None:
        self._open = open_one
        self._size = size
        self._limiter: CapacityLimiter | None = None
        self._idle: list[Keeper] = []
        self._turn = threading.Lock()
        self._closings = 0
        """How often the pool was closed: a keeper that was at work then is closed when its work is done."""

    async def run(self, work: Callable[[Keeper], R]) -> R:
        """Run work with a keeper on a thread, to its end; a keeper that lost its database is closed."""
        return await self._run(_Turn(work))

    async def read(self, work: Callable[[Keeper], R], gone: Gone) -> R:
        """Run work that only reads; raise TimedOut at its deadline, or when the client has gone away."""
        turn = _Turn(work)
        async with create_task_group() as group:
            group.start_soon(turn.watch, gone)
            await self._settle(turn)
            group.cancel_scope.cancel()
        return turn.outcome()

    async def _settle(self, turn: _Turn[R]) -> None:
        try:
            turn.result = await self._run(turn)
        except Exception as problem:  # An exception group would hide what it was.
            turn.problem = turn.problem or problem

    async def _run(self, turn: _Turn[R]) -> R:
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._size)
        with move_on_after(READ_SECONDS) as waiting:
            await self._limiter.acquire_on_behalf_of(turn)
        if waiting.cancelled_caught:
            raise TimedOut("too many requests are reading the database", "try again")
        try:
            return await run_sync(self._work, turn)
        finally:
            self._limiter.release_on_behalf_of(turn)

    def _work(self, turn: _Turn[R]) -> R:
        with self._turn:
            keeper, closings = self._idle.pop() if self._idle else None, self._closings
        keeper = keeper or self._open()
        try:
            turn.begin(keeper)
            result = turn.work(keeper)
        except Unreachable:
            turn.end()
            keeper.close()
            raise
        except BaseException:
            self._give_back(keeper, turn, closings)
            raise
        self._give_back(keeper, turn, closings)
        return result

    def _give_back(self, keeper: Keeper, turn: _Turn[R], closings: int) -> None:
        turn.end()
        with self._turn:
            usable = not keeper.store.interrupted and closings == self._closings
            if usable:
                self._idle.append(keeper)
        if not usable:
            keeper.close()

    def close(self) -> None:
        """Close every keeper; one that is at work, when its work is done."""
        with self._turn:
            idle, self._idle = self._idle, []
            self._closings += 1
        for keeper in idle:
            keeper.close()


class _Turn(Generic[R]):
    """One request at work: its keeper may be interrupted between its begin and its end, and never after."""

    def __init__(self, work: Callable[[Keeper], R]) -> None:
        self.work = work
        self.result: R | None = None
        self.problem: Exception | None = None
        self._keeper: Keeper | None = None
        self._lock = threading.Lock()

    def begin(self, keeper: Keeper) -> None:
        with self._lock:
            if self.problem is not None:
                raise self.problem
            self._keeper = keeper

    def end(self) -> None:
        with self._lock:
            self._keeper = None

    async def watch(self, gone: Gone) -> None:
        """Wait until the client has gone away, or the time is over, and interrupt the work."""
        problem: Exception = TimedOut(
            f"the answer takes longer than {READ_SECONDS:g} seconds", "try again, or ask for less"
        )
        with move_on_after(READ_SECONDS):
            try:
                await gone()
                problem = TimedOut("the client has gone away")
            except Exception as failure:  # Its body is too large, for example.
                problem = failure
        await run_sync(self._interrupt, problem)

    def _interrupt(self, problem: Exception) -> None:
        with self._lock:
            self.problem = problem
            if self._keeper is not None:
                self._keeper.store.interrupt()

    def outcome(self) -> R:
        """Return what the work returned, or raise why there is nothing."""
        if self.problem is not None:
            raise self.problem
        return self.result  # type: ignore[return-value]
