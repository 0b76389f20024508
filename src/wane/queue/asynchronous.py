"""The same queue for asyncio: operations run on one thread, one after the other; waiting has threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from wane.queue.model import require_seconds
from wane.queue.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")

_SLICE_SECONDS = 5.0
"""A thread cannot be told to stop waiting, so it never waits for longer than this at a time."""


def _later(method: Callable[Concatenate[Queue, P], R]) -> Callable[Concatenate[AsyncQueue, P], Awaitable[R]]:
    async def call(self: AsyncQueue, /, *arguments: P.args, **options: P.kwargs) -> R:
        work = partial(method, self.queue, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    call.__doc__ = method.__doc__
    return call


class AsyncQueue:
    """A Queue whose operations are awaited. Queues that share a store must share its thread too."""

    def __init__(self, queue: Queue, thread: ThreadPoolExecutor, waiting: ThreadPoolExecutor) -> None:
        self.queue = queue
        self._thread = thread
        self._waiting = waiting

    ack = _later(Queue.ack)
    dead_letters = _later(Queue.dead_letters)
    enqueue = _later(Queue.enqueue)
    enqueue_many = _later(Queue.enqueue_many)
    expire_leases = _later(Queue.expire_leases)
    messages = _later(Queue.messages)
    next_due = _later(Queue.next_due)
    notify = _later(Queue.notify)
    read_dead_letter = _later(Queue.read_dead_letter)
    read_message = _later(Queue.read_message)
    read_wakeup_sequence = _later(Queue.read_wakeup_sequence)
    release = _later(Queue.release)
    renew = _later(Queue.renew)
    requeue = _later(Queue.requeue)
    reserve = _later(Queue.reserve)
    reserve_many = _later(Queue.reserve_many)
    resolve = _later(Queue.resolve)
    close = _later(Queue.close)

    async def wait_for_wakeup(self, after: int, timeout: float | None = None) -> int | None:
        loop = asyncio.get_running_loop()
        left = require_seconds("timeout", timeout)
        end = None if left is None else loop.time() + left
        while True:
            part = _SLICE_SECONDS if end is None else min(max(end - loop.time(), 0.0), _SLICE_SECONDS)
            waiting = partial(self.queue.wait_for_wakeup, after, part)
            sequence = await loop.run_in_executor(self._waiting, waiting)
            if sequence is not None or (end is not None and loop.time() >= end):
                return sequence

    wait_for_wakeup.__doc__ = Queue.wait_for_wakeup.__doc__
