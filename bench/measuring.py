"""What benchmarks share: a PostgreSQL to measure, a stopwatch, and where it ran."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from wane._db import Store
from wane._db.statement import Statement

ROOT = Path(__file__).parents[1]
AS_PEOPLE_RUN_IT = {"shared_buffers": "1GB", "max_wal_size": "4GB"}
"""Settings of a server that is measured; tests' servers are smaller."""
TCP_HOST = "127.0.0.1"
URL_VARIABLE = "WANE_BENCH_POSTGRES_URL"
_LOAD_AT_START = round(os.getloadavg()[0], 1)
_SERVER: dict[str, str] = {}
"""The version and the settings of the server that is measured, as soon as one is: see `describe_server`."""
_DESCRIBED = ("server_version", "shared_buffers", "max_wal_size", "wal_buffers")


@contextmanager
def postgres_url(*, tcp: bool = False) -> Iterator[str]:
    """Yield a database of our own on a server of our own, over a socket or TCP, or a schema of our own on an existing
    one."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        with psycopg.connect(given, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA wane_bench")
            try:
                describe_server(given)
                yield given + ("&" if "?" in given else "?") + "options=-csearch_path%3Dwane_bench"
            finally:
                connection.execute("DROP SCHEMA wane_bench CASCADE")
        return
    sys.path.insert(0, str(ROOT / "tests"))
    import servers

    installation = servers.packaged_installation()
    if installation is None:
        sys.exit(f"no PostgreSQL to measure: run `make setup`, or set {URL_VARIABLE}")
    directory = Path(tempfile.mkdtemp(prefix="wane-bench-", dir="/tmp"))
    directory.chmod(0o755)
    listening = {"listen_addresses": TCP_HOST} if tcp else {}
    settings = {**AS_PEOPLE_RUN_IT, **listening}
    with servers.PostgresServer(installation, directory, durable=True, settings=settings) as server:
        url = server.url.replace(str(directory), TCP_HOST) if tcp else server.url
        describe_server(url)
        yield url


def version_of(store: Store) -> str:
    """Return the name and the version of a store's database."""
    name, text = {"sqlite": ("SQLite", "SELECT sqlite_version()"), "postgres": ("PostgreSQL", "SHOW server_version")}[
        store.kind
    ]
    [(version,)] = store.read(Statement(text, {}), 10)
    return f"{name} {version}"


def describe_server(url: str) -> None:
    """Let results have the version and the settings of a server; also results that were begun before."""
    with psycopg.connect(url) as connection:
        for name in _DESCRIBED:
            [(value,)] = connection.execute(f"SHOW {name}".encode()).fetchall()
            _SERVER[name] = value


def cpu_seconds(process: int | None = None) -> float:
    """Return CPU time of this process, or of a server's process on this machine, as the kernel counts it."""
    if process is None:
        return time.process_time()
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def server_cpu_seconds(process: int) -> float:
    """Return CPU time of all living processes of the server that a connection's process belongs to."""

    def parent(one: int) -> int:
        try:
            return int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return 0  # It has just ended.

    main = parent(process)
    found = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
    total = 0.0
    for one in found:
        if parent(one) == main:
            with suppress(FileNotFoundError, ProcessLookupError):
                total += cpu_seconds(one)
    return total


def with_cpu(server: int | None, action: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return seconds, CPU seconds of this process and of the server's that works for it, and the result."""

    def used() -> float:
        return cpu_seconds() + (0 if server is None else cpu_seconds(server))

    before = used()
    seconds, result = timed(action)
    return seconds, used() - before, result


def measured(server: int | None, action: Callable[[], Any], cpu: bool) -> tuple[float, Any]:
    """Return seconds, or CPU seconds of this process and the server's, and the result."""
    seconds, spent, result = with_cpu(server, action)
    return (spent if cpu else seconds), result


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Return where and when a run was made, at which load it began, and on which server."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "measured_on": datetime.now(UTC).date().isoformat(),
        "load_at_start": _LOAD_AT_START,
        "server": _SERVER,
    }
