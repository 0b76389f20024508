"""The same facade for asyncio: calls run one after the other on a thread of their own, as the connection requires."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self

from wane._aio import Awaited, awaited, on_thread
from wane._archive.asynchronous import AsyncArchive
from wane._keeper import Keeper, open_keeper
from wane._partition.asynchronous import AsyncPartition
from wane._schedule import Ran
from wane.claims import AsyncWorkClaims, Reclaim
from wane.errors import WrongArgumentType
from wane.queue import AsyncQueue, RetryPolicy

_MOST_WAITING = 64
"""The most threads that wait for wakeups of queues; further waiters take turns."""


class AsyncKeeper(Awaited[Keeper]):
    """A Keeper whose calls are awaited. A connection that is passed in must not be used elsewhere while a call runs."""

    def __init__(self, keeper: Keeper) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wane")
        super().__init__(keeper, on_thread(self._thread))
        self._waiting = ThreadPoolExecutor(max_workers=_MOST_WAITING, thread_name_prefix="wane-waiting")
        self.archive = AsyncArchive(keeper.archive, self.run_elsewhere)
        """Moves rows to the archive, and maintains it: see docs/reference/python.md."""
        self.partition = AsyncPartition(keeper.partition, self.run_elsewhere)
        """What partitions tables by the month, and keeps them so (PostgreSQL): see docs/reference/python.md."""

    @property
    def keeper(self) -> Keeper:
        """Return the keeper whose calls are awaited."""
        return self.wrapped

    @classmethod
    async def open(cls, *arguments: object, **options: object) -> AsyncKeeper:
        """Open like `wane.open`."""
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

    adopt = awaited(Keeper.adopt)
    ages = awaited(Keeper.ages)
    apply = awaited(Keeper.apply)
    apply_roles = awaited(Keeper.apply_roles)
    approvals = awaited(Keeper.approvals)
    approve = awaited(Keeper.approve)
    audit = awaited(Keeper.audit)
    check = awaited(Keeper.check)
    check_live = awaited(Keeper.check_live)
    close = awaited(Keeper.close)
    consume = awaited(Keeper.consume)
    disable = awaited(Keeper.disable)
    discard = awaited(Keeper.discard)
    enable = awaited(Keeper.enable)
    health = awaited(Keeper.health)
    migrate = awaited(Keeper.migrate)
    growth = awaited(Keeper.growth)
    hold = awaited(Keeper.hold)
    holds = awaited(Keeper.holds)
    plan = awaited(Keeper.plan)
    pressure = awaited(Keeper.pressure)
    preview = awaited(Keeper.preview)
    prune = awaited(Keeper.prune)
    prune_orphans = awaited(Keeper.prune_orphans)
    record_action = awaited(Keeper.record_action)
    record_health = awaited(Keeper.record_health)
    release_hold = awaited(Keeper.release_hold)
    review = awaited(Keeper.review)
    revoke = awaited(Keeper.revoke)
    roles = awaited(Keeper.roles)
    space = awaited(Keeper.space)
    status = awaited(Keeper.status)
    sweep = awaited(Keeper.sweep)
    take_snapshots = awaited(Keeper.take_snapshots)
    vacuum = awaited(Keeper.vacuum)
    why = awaited(Keeper.why)

    async def run(
        self,
        *,
        schedulers: Collection[str] | None = None,
        workers: int = 1,
        stop: asyncio.Event | None = None,
        max_runs: int | None = None,
    ) -> Ran:
        # On threads of its own: other calls run concurrently. If cancelled, it stops at the next batch.
        if stop is not None and not isinstance(stop, asyncio.Event):
            raise WrongArgumentType(f"stop must be an asyncio.Event, not {stop!r}")
        ending = threading.Event()
        work = partial(self.wrapped.run, schedulers=schedulers, workers=workers, stop=ending, max_runs=max_runs)
        running = asyncio.ensure_future(asyncio.to_thread(work))
        waiting = asyncio.ensure_future((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.set()
            waiting.cancel()
            await asyncio.wait({running})  # Also when cancelled: its work must have ended when the caller continues.
        return running.result()

    run.__doc__ = Keeper.run.__doc__

    async def queue(self, pool: str, *, policy: RetryPolicy | None = None) -> AsyncQueue:
        opened = await self.run_elsewhere(partial(self.wrapped.queue, pool, policy=policy))
        return AsyncQueue(opened, self.run_elsewhere, self._waiting)

    queue.__doc__ = Keeper.queue.__doc__

    async def claims(
        self, *, reclaim: Reclaim | None = None, reclaim_abandoned: Reclaim | None = None
    ) -> AsyncWorkClaims:
        opened = self.wrapped.claims(reclaim=reclaim, reclaim_abandoned=reclaim_abandoned)
        return AsyncWorkClaims(opened, self.run_elsewhere)

    claims.__doc__ = Keeper.claims.__doc__
