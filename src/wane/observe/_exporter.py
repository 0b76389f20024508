"""Metrics over HTTP: `GET /metrics`, in a thread that ends with the process or when it is closed."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wane._closable import Closable
from wane.errors import MetricsError, WrongArgument

PATH = "/metrics"
_CLIENT_SECONDS = 10.0
"""How long a client may take to send its request."""

Answer = Callable[[str], tuple[bytes, str]]
"""Maps a client's Accept header to the text and its content type."""


class Exporter(Closable):
    """A server of metrics. Close it, or use it as a context manager."""

    def __init__(self, answer: Answer, port: int, address: str = "127.0.0.1") -> None:
        """Serve from a thread. Port 0 takes any free one, which `port` then holds."""
        self._server = _bound(answer, _require_port(port), address)
        self.address = address
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="wane-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}{PATH}"

    def close(self) -> None:
        """Stop listening; safe to repeat."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _require_port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65_535:
        raise WrongArgument(f"a port is a number from 0 to 65535, not {value!r}")
    return value


def _bound(answer: Answer, port: int, address: str) -> ThreadingHTTPServer:
    try:
        [(family, *_), *_] = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise MetricsError(
            f"metrics cannot be served on {address}: {problem.strerror}", "give an address of this machine"
        ) from problem

    class Server(_QuietServer):
        address_family = family

    try:
        return Server((address, port), _handler(answer))
    except OSError as problem:
        hint = {
            errno.EADDRINUSE: "another process serves there; choose another port, or 0 for any free one",
            errno.EACCES: "ports below 1024 are for root; choose a larger one",
            errno.EADDRNOTAVAIL: "give an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them",
        }
        what = "the port is in use" if problem.errno == errno.EADDRINUSE else str(problem.strerror).lower()
        raise MetricsError(
            f"metrics cannot be served on {address} port {port}: {what}", hint.get(problem.errno or 0, "")
        ) from problem


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a request: a client that disconnected is not worth a log line."""


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_SECONDS
        server_version = "wane"
        sys_version = ""

        def do_GET(self) -> None:
            self._reply(with_body=True)

        def do_HEAD(self) -> None:
            self._reply(with_body=False)

        def _reply(self, *, with_body: bool) -> None:
            if self.path.partition("?")[0] == PATH:
                body, kind = answer(self.headers.get("Accept", ""))
                status = HTTPStatus.OK
            else:
                body, kind = f"metrics are at {PATH}\n".encode(), "text/plain; charset=utf-8"
                status = HTTPStatus.NOT_FOUND
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing for scrapes."""

    return Handler
