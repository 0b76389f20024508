"""Around every request: known hosts only, bounded bodies and rates, and security headers on every answer."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, MutableMapping
from typing import Any

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wane.web._problems import RequestRefused, problem_of
from wane.web._proxy import TrustedProxy

MOST_BODY = 64 * 1024
"""The largest body of a request, in bytes."""
BODY_SECONDS = 10.0
"""How long the body of a request may take to arrive."""
_MOST_PATH = 4_096
_RATE, _BURST = 20.0, 100.0
"""Requests a second that one address may send on average, and at once."""
_MOST_ADDRESSES = 10_000
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    b" connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
_UNCACHED = {b"cache-control": b"no-store"}


class TooLarge(Exception):
    """The body of a request is larger than allowed."""


class TooSlow(Exception):
    """The body of a request did not arrive in time."""


class Rates:
    """How many requests each address has left: a bucket that fills at a steady rate."""

    def __init__(self, rate: float = _RATE, burst: float = _BURST, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Take one request from an address; return whether it had one left."""
        now = self._clock()
        left, at = self._left.pop(address, (self._burst, now))
        left = min(left + (now - at) * self._rate, self._burst)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.popitem(last=False)
        return allowed


class Shield:
    """Wraps an application: refuses what is too large, too frequent or for another host; adds security headers."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], rates: Rates, proxy: TrustedProxy | None = None) -> None:
        self.app = app
        self.hosts = hosts
        self.rates = rates
        self.proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.proxy is not None:
            scope = self.proxy.seen(scope)
        headers = dict(scope["headers"])
        refused = self._refused(scope, headers)
        answered = _guarded(send, scope["path"])
        if refused is not None:
            await _refuse(answered, scope["path"], refused)
            return
        await self.app(scope, _bounded(receive), answered)

    def _refused(self, scope: Scope, headers: MutableMapping[bytes, bytes]) -> RequestRefused | None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        # A page of another site that resolves its name to this address would otherwise read everything.
        if "*" not in self.hosts and name not in self.hosts:
            return RequestRefused(421, "UnknownHost", "this host name is not served here: see the option --host-name")
        if not self.rates.allow((scope.get("client") or ("?",))[0]):
            return RequestRefused(429, "TooManyRequests", "too many requests")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _MOST_PATH:
            return RequestRefused(414, "TooLong", f"the address may have {_MOST_PATH} bytes at the most")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            return RequestRefused(400, "WrongLength", "the length of the body is not a number")
        if int(length) > MOST_BODY:
            return RequestRefused(413, "TooLarge", f"the body may have {MOST_BODY} bytes at the most")
        return None


def _bounded(receive: Receive) -> Receive:
    seen, whole, until = 0, False, anyio.current_time() + BODY_SECONDS

    async def bounded() -> Message:
        nonlocal seen, whole
        if whole:  # What comes then is that the client has left.
            return await receive()
        try:
            with anyio.fail_after(until - anyio.current_time()):
                message = await receive()
        except TimeoutError:
            raise TooSlow from None
        whole = not message.get("more_body", False)
        seen += len(message.get("body", b""))
        if seen > MOST_BODY:
            raise TooLarge
        return message

    return bounded


def _guarded(send: Send, path: str) -> Send:
    extra = _HEADERS if "/static/" in path else {**_HEADERS, **_UNCACHED}

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            named = {name for name, _ in message.get("headers", [])}
            added = [(name, value) for name, value in extra.items() if name not in named]
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return guarded


async def _refuse(send: Send, path: str, problem: RequestRefused) -> None:
    """Answer with a problem document, or, to a browser, with the reason alone."""
    api = "/api/" in path
    headers: list[Any] = [(b"content-type", b"application/problem+json" if api else b"text/plain; charset=utf-8")]
    if problem.status == 429:
        headers.append((b"retry-after", b"5"))
    body = json.dumps(problem_of(problem)) if api else problem.message
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
