"""Wane inside a Starlette or FastAPI application: schedulers and workers run as long as the application does.

    app = FastAPI(lifespan=lifespan("wane.toml"))

Any number of processes may do this: each sweep still runs once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypedDict

from wane._async_keeper import AsyncKeeper
from wane._contract.model import Contract
from wane._schedule import Ran

_LOG = logging.getLogger("wane")


class RequestState(TypedDict):
    """What a request finds in `request.state`."""

    wane: AsyncKeeper


Lifespan = Callable[[object], AbstractAsyncContextManager[RequestState]]


def lifespan(
    contract: Contract | Path | str,
    url: str | None = None,
    *,
    schedulers: Collection[str] | None = None,
    workers: int = 1,
    actor: str | None = None,
) -> Lifespan:
    """Return a lifespan that runs schedulers and workers, and gives requests a keeper: `request.state.wane`.

    A contract with mistakes, a database that cannot be opened or lacks Wane's own tables stop the application from
    starting. When it ends, workers stop after their current batch. With no schedulers and no workers it only opens the
    keeper.
    """

    @asynccontextmanager
    async def lived(app: object) -> AsyncIterator[RequestState]:
        async with await AsyncKeeper.open(url, contract=contract, actor=actor) as keeper:
            await keeper.run_elsewhere(keeper.keeper.store.require_migrated)
            running = asyncio.create_task(keeper.run(schedulers=schedulers, workers=workers))
            running.add_done_callback(_report)
            try:
                yield {"wane": keeper}
            finally:
                running.cancel()
                await asyncio.wait({running})

    return lived


def _report(running: asyncio.Task[Ran]) -> None:
    """Log why the runner ended before the application did: nothing is swept any more, and requests are still served."""
    if not running.cancelled() and (problem := running.exception()) is not None:
        _LOG.error("wane stopped: %s", problem)
