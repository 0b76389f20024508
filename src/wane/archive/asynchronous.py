"""The same archive for asyncio: every call runs where the keeper's own calls run, after them and never beside one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from wane.archive.room import Archive

P = ParamSpec("P")
R = TypeVar("R")

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work elsewhere and waits for it without holding the loop."""


def _later(method: Callable[Concatenate[Archive, P], R]) -> Callable[Concatenate[AsyncArchive, P], Awaitable[R]]:
    async def call(self: AsyncArchive, /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = await self._run(partial(method, self.archive, *arguments, **options))
        return result

    call.__doc__ = method.__doc__
    return call


class AsyncArchive:
    """An Archive whose calls are awaited: `keeper.archive` of an AsyncKeeper. Events to stop them are `threading.Event`s."""

    def __init__(self, archive: Archive, run: Run) -> None:
        self.archive = archive
        self._run = run

    adopt = _later(Archive.adopt)
    cancel_restore = _later(Archive.cancel_restore)
    compact = _later(Archive.compact)
    expire = _later(Archive.expire)
    findings = _later(Archive.findings)
    query = _later(Archive.query)
    repair = _later(Archive.repair)
    restore = _later(Archive.restore)
    restores = _later(Archive.restores)
    run = _later(Archive.run)
    status = _later(Archive.status)
    survey = _later(Archive.survey)
    tables = _later(Archive.tables)
    tidy = _later(Archive.tidy)
    verify = _later(Archive.verify)
