"""A session on a Spark that runs elsewhere, over Spark Connect: `[spark] remote = "sc://host:15002"`.

No Java runs in this process. Tasks run where the server starts them, in a Python of that server, which must have Wane.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from wane._contract.settings import SparkSettings
from wane.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # The older default has no minima and maxima.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A corrupted byte is noticed, and not decoded as if it were a value.
    "parquet.page.verify-checksum.enabled": "true",
}
"""What a session can set of what a Spark of our own has. The others are the server's: speculation is off by default."""
_PORT = 15_002
_ANSWER_SECONDS = 5.0
_sessions: dict[str, SparkSession] = {}
"""The session of the process, by its URL: one at most."""


def is_loopback(remote: str) -> bool:
    """Check whether a server is on this machine."""
    host = urlsplit(remote).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_answer(where: str, addresses: Sequence[str]) -> None:
    """Raise SparkError if nothing answers at any address; Spark itself takes a minute to notice that."""
    reasons = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
                return
        except (OSError, ValueError, OverflowError) as problem:
            reasons.append(str(problem))
    raise SparkError(
        f"no Spark answers at {where}: {'; '.join(reasons)}", "check [spark] master or remote, and that it runs"
    )


def require_none() -> None:
    """Raise SparkError if this process uses Spark Connect: Spark's Python has one of both in a process."""
    if _sessions:
        raise SparkError(
            f"this process is connected to {next(iter(_sessions))}, and cannot start a Spark beside it",
            "use one of [spark] master and remote in one process",
        )


def connected(settings: SparkSettings, remote: str, starting: Callable[[str], None]) -> SparkSession:
    """Return the process's session at a server; connect if there is none, or the server has forgotten it."""
    known = _sessions.get(remote)
    if known is not None and _answers(known):
        return known
    _sessions.pop(remote, None)
    require_none()
    parts = urlsplit(remote)
    require_answer(remote, [f"{parts.hostname}:{parts.port or _PORT}"])
    starting(remote)
    _sessions[remote] = found = _connect(settings, remote)
    return found


def _answers(session: SparkSession) -> bool:
    try:
        return bool(session.version)
    except Exception:
        return False


def _connect(settings: SparkSettings, remote: str) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise SparkError(
            f"this process runs a Spark of its own, and cannot connect to {remote} beside it",
            "use one of [spark] master and remote in one process",
        )
    try:
        made = SparkSession.builder.remote(remote).create()
        _ = made.version
    except ImportError as problem:
        raise SparkError(
            f"Spark Connect needs packages that are missing: {str(problem).splitlines()[0]}",
            "install them: pip install 'wane[connect]'",
        ) from problem
    except Exception as problem:
        raise SparkError(
            f"Spark does not answer at {remote}: {str(problem).splitlines()[0]}",
            "check that the Spark Connect server runs, and `remote` of [spark]",
        ) from problem
    for name, value in {**_SETTINGS, **dict(settings.settings)}.items():
        try:
            made.conf.set(name, value)
        except PySparkException as problem:
            with suppress(Exception):
                made.stop()
            raise SparkError(
                f"{name} cannot be set over Spark Connect: {str(problem).splitlines()[0]}",
                "remove it from [spark] settings, and set it where the server is started",
            ) from problem
    return made
