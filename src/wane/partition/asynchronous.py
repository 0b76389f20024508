"""The same partitions for asyncio: every call runs where the keeper's own calls run, after them and never beside one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from wane.partition.room import Partition

P = ParamSpec("P")
R = TypeVar("R")

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work elsewhere and waits for it without holding the loop."""


def _later(
    method: Callable[Concatenate[Partition, P], R],
) -> Callable[Concatenate[AsyncPartition, P], Awaitable[R]]:
    async def call(self: AsyncPartition, /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = await self._run(partial(method, self.partition, *arguments, **options))
        return result

    call.__doc__ = method.__doc__
    return call


class AsyncPartition:
    """A Partition whose calls are awaited. It is `partition` of an AsyncKeeper."""

    def __init__(self, partition: Partition, run: Run) -> None:
        self.partition = partition
        self._run = run

    convert = _later(Partition.convert)
    maintain = _later(Partition.maintain)
    plan = _later(Partition.plan)
    reattach = _later(Partition.reattach)
    retire = _later(Partition.retire)
    split = _later(Partition.split)
    undo = _later(Partition.undo)
