"""A process that starts pytest for many runs: it imports once what no mutation changes, and forks for each run.

Invariant: neither the product nor a test is imported before the fork, so a run sees the tree as it is when it starts.
Run as a script, it reads one run per line, `{"arguments": [...], "output": "…"}`, and answers with two lines: the run's
process, and its exit code.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO

IMPORTED = ("pytest", "hypothesis", "hypothesis.strategies", "psycopg", "pydantic")
"""What all tests import and takes longest."""


class Nursery:
    """A process that forks for each run of tests, seen from outside."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, arguments: Sequence[str], output: Path, seconds: float | None) -> int:
        """Run pytest, end whatever it leaves behind, and return its exit code; raise TimeoutExpired after so many
        seconds."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps({"arguments": list(arguments), "output": str(output)}).encode() + b"\n")
        child = int(answers.readline())
        try:
            in_time = _readable(answers, seconds)
        finally:
            # Also after a run that has ended: the processes that it started may not have.
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            code = int(answers.readline())
        if not in_time:
            raise subprocess.TimeoutExpired(list(arguments), seconds or 0)
        return code


@contextmanager
def nursery(tree: Path, environment: Mapping[str, str]) -> Iterator[Nursery]:
    """Start a nursery for a copy of the tree, for a while."""
    command = [sys.executable, __file__]
    pipe = subprocess.PIPE
    # Without a buffer, in which an answer could wait that the pipe no longer has.
    with subprocess.Popen(command, cwd=tree, env=environment, stdin=pipe, stdout=pipe, bufsize=0) as process:
        try:
            yield Nursery(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # Upon which it ends.


def _readable(answers: IO[bytes], seconds: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(answers, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def serve() -> None:
    for name in IMPORTED:
        import_module(name)
    while line := sys.stdin.readline():
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            run(request["arguments"], request["output"])
        _answer(child)
        _, status = os.waitpid(child, 0)
        _answer(os.waitstatus_to_exitcode(status))


def run(arguments: list[str], output: str) -> None:
    """Run pytest in this process, which ends with it, as `python -m pytest` does."""
    try:
        import pytest

        for descriptor, path, mode in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY | os.O_APPEND)):
            opened = os.open(path, mode)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.dup2(1, 2)
        sys.path[0] = str(Path.cwd())
    except BaseException:
        traceback.print_exc()
        os._exit(os.EX_SOFTWARE)  # Not 1, which means that tests failed.
    sys.exit(pytest.main(arguments))


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
