"""The same front door for asyncio: every call runs on one thread of its own, one after the other, as the connection wants it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from wane.archive.asynchronous import AsyncArchive
from wane.claims import AsyncWorkClaims, Reclaim
from wane.errors import WrongArgumentType
from wane.keeper import Keeper, open_keeper
from wane.partition.asynchronous import AsyncPartition
from wane.queue import AsyncQueue, RetryPolicy
from wane.schedule import Ran

P = ParamSpec("P")
R = TypeVar("R")

_MOST_WAITING = 64
"""Threads that wait for wakeups of queues: beyond these, whoever waits takes turns."""


def _later(method: Callable[Concatenate[Keeper, P], R]) -> Callable[Concatenate[AsyncKeeper, P], Awaitable[R]]:
    async def call(self: AsyncKeeper, /, *arguments: P.args, **options: P.kwargs) -> R:
        return await on_thread(self, partial(method, self.keeper, *arguments, **options))

    call.__doc__ = method.__doc__
    return call


class AsyncKeeper:
    """A Keeper whose calls are awaited. A connection that is passed in must not be used by others while a call runs."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wane")
        self._waiting = ThreadPoolExecutor(max_workers=_MOST_WAITING, thread_name_prefix="wane-waiting")
        self.archive = AsyncArchive(keeper.archive, partial(on_thread, self))
        """What moves rows to the archive, and looks after it: see docs/reference/python.md."""
        self.partition = AsyncPartition(keeper.partition, partial(on_thread, self))
        """What partitions tables by the month, and keeps them so (PostgreSQL): see docs/reference/python.md."""

    @classmethod
    async def open(cls, *arguments: object, **options: object) -> AsyncKeeper:
        """Like `wane.open`."""
        opening = partial(open_keeper, *arguments, **options)  # type: ignore[arg-type]
        return cls(await asyncio.get_running_loop().run_in_executor(None, opening))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        self._thread.shutdown(wait=False)
        self._waiting.shutdown(wait=False, cancel_futures=True)

    adopt = _later(Keeper.adopt)
    apply = _later(Keeper.apply)
    apply_roles = _later(Keeper.apply_roles)
    audit = _later(Keeper.audit)
    check = _later(Keeper.check)
    check_live = _later(Keeper.check_live)
    close = _later(Keeper.close)
    consume = _later(Keeper.consume)
    disable = _later(Keeper.disable)
    discard = _later(Keeper.discard)
    enable = _later(Keeper.enable)
    health = _later(Keeper.health)
    migrate = _later(Keeper.migrate)
    growth = _later(Keeper.growth)
    hold = _later(Keeper.hold)
    holds = _later(Keeper.holds)
    plan = _later(Keeper.plan)
    pressure = _later(Keeper.pressure)
    preview = _later(Keeper.preview)
    prune = _later(Keeper.prune)
    prune_orphans = _later(Keeper.prune_orphans)
    release_hold = _later(Keeper.release_hold)
    roles = _later(Keeper.roles)
    space = _later(Keeper.space)
    status = _later(Keeper.status)
    sweep = _later(Keeper.sweep)
    take_snapshots = _later(Keeper.take_snapshots)
    vacuum = _later(Keeper.vacuum)

    async def run(
        self,
        *,
        schedulers: Collection[str] | None = None,
        workers: int = 1,
        stop: asyncio.Event | None = None,
        max_runs: int | None = None,
    ) -> Ran:
        # On threads of its own: other calls go on beside it. Cancelled, it stops at the next batch.
        if stop is not None and not isinstance(stop, asyncio.Event):
            raise WrongArgumentType(f"stop must be an asyncio.Event, not {stop!r}")
        told = threading.Event()
        work = partial(self.keeper.run, schedulers=schedulers, workers=workers, stop=told, max_runs=max_runs)
        running = asyncio.ensure_future(asyncio.to_thread(work))
        waiting = asyncio.ensure_future((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.set()
            waiting.cancel()
            await asyncio.wait({running})  # Also when cancelled: what it did must be over when the caller goes on.
        return running.result()

    run.__doc__ = Keeper.run.__doc__

    async def queue(self, pool: str, *, policy: RetryPolicy | None = None) -> AsyncQueue:
        opened = await on_thread(self, partial(self.keeper.queue, pool, policy=policy))
        return AsyncQueue(opened, self._thread, self._waiting)

    queue.__doc__ = Keeper.queue.__doc__

    async def claims(
        self, *, reclaim: Reclaim | None = None, reclaim_abandoned: Reclaim | None = None
    ) -> AsyncWorkClaims:
        opened = self.keeper.claims(reclaim=reclaim, reclaim_abandoned=reclaim_abandoned)
        return AsyncWorkClaims(opened, partial(on_thread, self))

    claims.__doc__ = Keeper.claims.__doc__


async def on_thread(keeper: AsyncKeeper, work: Callable[[], R]) -> R:
    """Run work that uses the keeper's connection where the keeper's own calls run: after them, and never beside one."""
    return await asyncio.get_running_loop().run_in_executor(keeper._thread, work)
