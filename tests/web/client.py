"""A client of an application in this process, as a browser or a program would over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.applications import Starlette

HOST = "127.0.0.1"


class Client:
    """A client with cookies of its own."""

    def __init__(self, portal: BlockingPortal, app: Starlette) -> None:
        self._portal = portal
        transport = httpx.ASGITransport(app)
        self._client = httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}")

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._portal.call(partial(self._client.request, method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


@contextmanager
def open_client(app: Starlette) -> Iterator[Client]:
    """Start an application, and stop it at the end."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(app.router.lifespan_context(app)):
        yield Client(portal, app)
