"""How tasks learn the database's address: from the process that started them, or, on a cluster, from their environment.

The address may hold a password. It is sent over a socket in a folder that only the same user can enter, and only while
the pipeline runs, so that it appears in no setting, plan, log or file. Nothing secret is sent to another machine.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from wane._archive.spark.reader import Source
from wane._archive.spark.session import is_local
from wane._contract.settings import SparkSettings
from wane.errors import SparkError


def require_reachable(source: Source, settings: SparkSettings) -> None:
    """Raise unless tasks can reach the database from where they run."""
    if is_local(settings):
        return
    if source.path is not None:
        raise SparkError(
            f"tasks must run on the host of the SQLite file, and {settings.where} is another one",
            'set master = "local[*,4]" in [spark]',
        )
    if settings.url_variable is None:
        raise SparkError(
            f"tasks at {settings.where} do not know the database's URL, and it is not sent to them",
            'set an environment variable for every worker, and name it: url_variable = "WANE_URL" in [spark]',
        )
    if f"spark.executorEnv.{settings.url_variable}" in dict(settings.settings):
        raise SparkError(
            f"[spark] settings show {settings.url_variable} to everyone who can read the settings of Spark",
            "set it in the workers' own environment instead, for example in conf/spark-env.sh",
        )


@contextmanager
def task_source(source: Source, settings: SparkSettings) -> Iterator[Source]:
    """Yield the source as tasks may have it: without its secret, and with where to fetch it."""
    require_reachable(source, settings)
    by_variable = settings.url_variable is not None and settings.remote is not None and source.path is None
    if by_variable or not is_local(settings):
        yield replace(source, secret=None, variable=settings.url_variable)
        return
    if source.secret is None:
        yield source
        return
    folder = tempfile.mkdtemp(prefix="wane-")
    path = str(Path(folder) / "secret")
    line = socket.socket(socket.AF_UNIX)
    try:
        line.bind(path)
        line.listen(64)
        server = threading.Thread(target=_serve, args=(line, source.secret.encode()), daemon=True)
        server.start()
        yield replace(source, secret=None, at=path)
    finally:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        line.close()
        shutil.rmtree(folder, ignore_errors=True)


def _serve(line: socket.socket, secret: bytes) -> None:
    while True:
        try:
            client, _ = line.accept()
        except OSError:
            return  # The pipeline is done.
        with client, suppress(OSError):
            client.sendall(secret)
