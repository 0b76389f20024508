"""The same surface for asyncio: every call runs on the keeper's one thread; the loop waits without holding it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from wane.async_keeper import AsyncKeeper, on_thread
from wane.webhooks.loop import Loop
from wane.webhooks.model import RetentionPolicy, RetentionRuns
from wane.webhooks.retention import WebhookRetention

P = ParamSpec("P")
R = TypeVar("R")


def _later(
    method: Callable[Concatenate[WebhookRetention, P], R],
) -> Callable[Concatenate[AsyncWebhookRetention, P], Awaitable[R]]:
    async def call(self: AsyncWebhookRetention, /, *arguments: P.args, **options: P.kwargs) -> R:
        return await on_thread(self.keeper, partial(method, self.retention, *arguments, **options))

    call.__doc__ = method.__doc__
    return call


class AsyncWebhookRetention:
    """A WebhookRetention whose calls are awaited."""

    def __init__(self, keeper: AsyncKeeper) -> None:
        self.keeper = keeper
        self.retention = WebhookRetention(keeper.keeper)

    @classmethod
    async def open(cls, *arguments: Any, **options: Any) -> Self:
        """Like `WebhookRetention.open`."""
        keeper = await AsyncKeeper.open(*arguments, **options)
        try:
            return cls(keeper)
        except BaseException:
            await keeper.__aexit__(None, None, None)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.keeper.__aexit__(kind, error, trace)

    close = _later(WebhookRetention.close)
    list_prune_audits = _later(WebhookRetention.list_prune_audits)
    prune_events = _later(WebhookRetention.prune_events)
    prune_orphan_deliveries = _later(WebhookRetention.prune_orphan_deliveries)
    run_retention_pass = _later(WebhookRetention.run_retention_pass)
    run_retention_pass_before = _later(WebhookRetention.run_retention_pass_before)

    async def run_retention(
        self, policy: RetentionPolicy, *, stop_event: asyncio.Event | None = None, max_runs: int | None = None
    ) -> RetentionRuns:
        """Like `WebhookRetention.run_retention`; other calls are answered while it waits."""
        stop = stop_event or asyncio.Event()
        loop = Loop(self.retention, policy, max_runs)
        while not stop.is_set():
            seconds = await on_thread(self.keeper, loop.step)
            if seconds is None:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds)
        return loop.runs
