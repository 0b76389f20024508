"""How tasks learn how to reach the database: they ask the process that started them.

The address may hold a password. It is told over a socket in a folder that only the same user can enter, and only while the
pipeline runs, so that it stands in no setting, plan, log or file.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from wane.store.archive_reader import Source


@contextmanager
def told(source: Source) -> Iterator[Source]:
    """The source as tasks may have it: without its secret, and with where to ask for it."""
    if source.secret is None:
        yield source
        return
    folder = tempfile.mkdtemp(prefix="wane-")
    place = str(Path(folder) / "told")
    line = socket.socket(socket.AF_UNIX)
    try:
        before = os.umask(0o077)
        try:
            line.bind(place)
        finally:
            os.umask(before)
        line.listen(64)
        teller = threading.Thread(target=_tell, args=(line, source.secret.encode()), daemon=True)
        teller.start()
        yield replace(source, secret=None, at=place)
    finally:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        line.close()
        shutil.rmtree(folder, ignore_errors=True)


def _tell(line: socket.socket, secret: bytes) -> None:
    while True:
        try:
            asking, _ = line.accept()
        except OSError:
            return  # The pipeline is done.
        with asking, suppress(OSError):
            asking.sendall(secret)
