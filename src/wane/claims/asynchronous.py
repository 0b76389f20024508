"""The same claims for asyncio: every call runs where the keeper's own calls run, after them and never beside one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from wane.claims.work import WorkClaims

P = ParamSpec("P")
R = TypeVar("R")

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work elsewhere and waits for it without holding the loop."""


def _later(
    method: Callable[Concatenate[WorkClaims, P], R],
) -> Callable[Concatenate[AsyncWorkClaims, P], Awaitable[R]]:
    async def call(self: AsyncWorkClaims, /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = await self._run(partial(method, self.claims, *arguments, **options))
        return result

    call.__doc__ = method.__doc__
    return call


class AsyncWorkClaims:
    """WorkClaims whose calls are awaited. Obtained as `await keeper.claims(…)` of an AsyncKeeper."""

    def __init__(self, claims: WorkClaims, run: Run) -> None:
        self.claims = claims
        self._run = run

    abandon = _later(WorkClaims.abandon)
    claim = _later(WorkClaims.claim)
    close = _later(WorkClaims.close)
    complete = _later(WorkClaims.complete)
    extend = _later(WorkClaims.extend)
    get = _later(WorkClaims.get)
    install = _later(WorkClaims.install)
    list_by_state = _later(WorkClaims.list_by_state)
    list_expired = _later(WorkClaims.list_expired)
    missing = _later(WorkClaims.missing)
    missing_sql = _later(WorkClaims.missing_sql)
    preview_vacuum = _later(WorkClaims.preview_vacuum)
    remembered = _later(WorkClaims.remembered)
    return_expired = _later(WorkClaims.return_expired)
    submit = _later(WorkClaims.submit)
    vacuum = _later(WorkClaims.vacuum)
    vacuum_expired = _later(WorkClaims.vacuum_expired)
