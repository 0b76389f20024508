"""The same facade for asyncio: every call runs on the keeper's one thread, and the event loop is never blocked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from wane._aio import Awaited, awaited
from wane._async_keeper import AsyncKeeper
from wane.webhooks._loop import Loop
from wane.webhooks._model import RetentionPolicy, RetentionRuns
from wane.webhooks._retention import WebhookRetention


class AsyncWebhookRetention(Awaited[WebhookRetention]):
    """A WebhookRetention whose calls are awaited."""

    def __init__(self, keeper: AsyncKeeper) -> None:
        super().__init__(WebhookRetention(keeper.keeper), keeper.run_elsewhere)
        self.keeper = keeper

    @classmethod
    async def open(cls, *arguments: Any, **options: Any) -> Self:
        """Open like `WebhookRetention.open`."""
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

    close = awaited(WebhookRetention.close)
    list_prune_audits = awaited(WebhookRetention.list_prune_audits)
    prune_events = awaited(WebhookRetention.prune_events)
    prune_orphan_deliveries = awaited(WebhookRetention.prune_orphan_deliveries)
    run_retention_pass = awaited(WebhookRetention.run_retention_pass)
    run_retention_pass_before = awaited(WebhookRetention.run_retention_pass_before)

    async def run_retention(
        self, policy: RetentionPolicy, *, stop_event: asyncio.Event | None = None, max_runs: int | None = None
    ) -> RetentionRuns:
        """Run like `WebhookRetention.run_retention`; other calls are served while it waits."""
        stop = stop_event or asyncio.Event()
        loop = Loop(self.wrapped, policy, max_runs)
        while not stop.is_set():
            seconds = await self.run_elsewhere(loop.step)
            if seconds is None:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds)
        return loop.runs
