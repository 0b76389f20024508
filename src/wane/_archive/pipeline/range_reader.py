"""Reading rows of a SQLite database as Arrow inside a write transaction, in a process of its own (`arrow_process.py`).

With a write-ahead log, a reader sees what is committed. While this process holds the write lock, that is what the
transaction began with, whatever it has deleted since.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from wane._archive.pipeline import arrow_process
from wane._archive.pipeline.arrow_process import HEADER
from wane.errors import StoreError, TimedOut

_ENDED = "the database cannot be read: the process that reads rows as Arrow ended"


class RangeReader:
    """Reads one query at a time. It ends with the first that fails or is given up."""

    def __init__(self, path: Path, seconds: float) -> None:
        """Read the database at a path; nothing may take longer than some seconds."""
        self._path = path
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def started(self) -> bool:
        """Return whether it can read."""
        return self._process is not None

    def start(self) -> None:
        """Start the process, unless it runs, and wait until it can read."""
        if self._process is not None:
            return
        # It finds the modules that this process does, and none beside its own file.
        found = os.pathsep.join(one for one in sys.path if one)
        self._process = subprocess.Popen(
            [sys.executable, "-P", arrow_process.__file__, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": found},
        )
        with self._ending() as pipes:
            _answer(pipes.stdout, time.monotonic() + self._seconds)

    @contextmanager
    def reading(self, query: str) -> Iterator[Callable[[], Any]]:
        """Begin to read a query; yield a function that waits for the table that it read, to be called once."""
        with self._ending() as pipes:
            _write(pipes.stdin, f"{json.dumps(query)}\n".encode())
            deadline = time.monotonic() + self._seconds
            yield lambda: pa.ipc.open_stream(pa.py_buffer(_answer(pipes.stdout, deadline))).read_all()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    @contextmanager
    def _ending(self) -> Iterator[Any]:
        """Yield the process; end it if anything fails: it may still be answering, which the next query would read."""
        assert self._process is not None
        try:
            yield self._process
        except BaseException:
            self.close()
            raise


def _write(pipe: IO[bytes], line: bytes) -> None:
    try:
        view = memoryview(line)
        while view:
            view = view[pipe.write(view) :]
    except OSError as problem:
        raise StoreError(f"{_ENDED} ({problem})") from problem


def _answer(pipe: IO[bytes], deadline: float) -> bytearray:
    failed, size = HEADER.unpack(_exactly(pipe, HEADER.size, deadline))
    answer = _exactly(pipe, size, deadline)
    if failed:
        raise StoreError(f"the database cannot be read: {answer.decode()}")
    return answer


def _exactly(pipe: IO[bytes], size: int, deadline: float) -> bytearray:
    found = bytearray(size)
    view = memoryview(found)
    while view:
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimedOut(
                "rows that leave were not read in time", "run it again: the sweep resumes where its journal ends"
            )
        read = os.readv(pipe.fileno(), [view])
        if not read:
            raise StoreError(_ENDED)
        view = view[read:]
    return found
