"""Objects whose methods are awaited: each call runs on another thread, so that the event loop is not blocked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work on another thread and waits for it without blocking the loop."""


def on_thread(thread: ThreadPoolExecutor) -> Run:
    """Return what runs work on a thread, one call after the other."""

    async def run(work: Callable[[], Any]) -> Any:
        import asyncio  # Takes as long to import as all of the database access: only its users wait for it.

        return await asyncio.get_running_loop().run_in_executor(thread, work)

    return run


class Awaited(Generic[T]):
    """Wraps an object whose connection needs one call at a time; `run` ensures that."""

    def __init__(self, wrapped: T, run: Run) -> None:
        self.wrapped = wrapped
        self.run_elsewhere = run


def awaited(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Awaited[T], P], Awaitable[R]]:
    """Make a method of a wrapped object awaitable, under the same name and with the same documentation."""

    async def call(self: Awaited[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = await self.run_elsewhere(partial(method, self.wrapped, *arguments, **options))
        return result

    call.__doc__ = method.__doc__
    return call
