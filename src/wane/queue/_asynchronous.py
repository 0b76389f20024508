"""The same queue for asyncio: operations run on one thread, one after the other; waiting has threads of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from wane._aio import Awaited, Run, awaited
from wane._arguments import require_timeout
from wane.queue._queue import Queue

_SLICE_SECONDS = 5.0
"""A waiting thread cannot be interrupted, so it never waits for longer than this at a time."""


class AsyncQueue(Awaited[Queue]):
    """A Queue whose operations are awaited. Queues that share a store must share its thread too."""

    def __init__(self, queue: Queue, run: Run, waiting: ThreadPoolExecutor) -> None:
        super().__init__(queue, run)
        self._waiting = waiting

    ack = awaited(Queue.ack)
    dead_letters = awaited(Queue.dead_letters)
    enqueue = awaited(Queue.enqueue)
    enqueue_many = awaited(Queue.enqueue_many)
    expire_leases = awaited(Queue.expire_leases)
    messages = awaited(Queue.messages)
    next_due = awaited(Queue.next_due)
    notify = awaited(Queue.notify)
    read_dead_letter = awaited(Queue.read_dead_letter)
    read_message = awaited(Queue.read_message)
    read_wakeup_sequence = awaited(Queue.read_wakeup_sequence)
    release = awaited(Queue.release)
    renew = awaited(Queue.renew)
    requeue = awaited(Queue.requeue)
    reserve = awaited(Queue.reserve)
    reserve_many = awaited(Queue.reserve_many)
    resolve = awaited(Queue.resolve)
    close = awaited(Queue.close)

    async def wait_for_wakeup(self, after: int, timeout: float | None = None) -> int | None:
        import asyncio  # As in `wane._aio`: only its users wait for the import.

        loop = asyncio.get_running_loop()
        left = require_timeout("timeout", timeout)
        end = None if left is None else loop.time() + left
        while True:
            part = _SLICE_SECONDS if end is None else min(max(end - loop.time(), 0.0), _SLICE_SECONDS)
            waiting = partial(self.wrapped.wait_for_wakeup, after, part)
            sequence = await loop.run_in_executor(self._waiting, waiting)
            if sequence is not None or (end is not None and loop.time() >= end):
                return sequence

    wait_for_wakeup.__doc__ = Queue.wait_for_wakeup.__doc__
