"""Running things in the environment that has Prefect, with this checkout's Wane."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "in_prefect"
STORAGE_VARIABLE = "PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_QUEUE_STORAGE"


def prefect_python() -> str:
    python = ROOT / ".venv-prefect/bin/python"
    if not python.exists():
        pytest.fail("there is no environment with Prefect: run `make prefect`", pytrace=False)
    return str(python)


def environment(home: Path, **given: str) -> dict[str, str]:
    """Return what a Prefect server finds, and nothing of the user who runs the tests."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "WANE_", "PYTEST_"))
    }
    return {
        **inherited,
        "PYTHONPATH": str(ROOT / "src"),
        "PREFECT_HOME": str(home / "prefect"),
        STORAGE_VARIABLE: "wane.contrib.prefect",
        **given,
    }


class Server:
    """A Prefect server's cleanup queue in a process of its own."""

    def __init__(self, home: Path, **given: str) -> None:
        self._process = subprocess.Popen(
            [prefect_python(), str(HERE / "server.py")],
            env=environment(home, **given),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: dict[int, dict[str, Any]] = {}
        self._requested = 0

    def send(self, call: str, **options: object) -> int:
        """Begin a call."""
        self._requested += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": self._requested, "call": call, "options": options}) + "\n")
        self._process.stdin.flush()
        return self._requested

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for the end of a call."""
        assert self._process.stdout is not None
        while number not in self._answers:
            line = self._process.stdout.readline()
            assert line, "the server is gone"
            received = json.loads(line)
            if "number" in received:
                self._answers[received["number"]] = received
        return self._answers.pop(number)

    def call(self, call: str, **options: object) -> Any:
        """Return what a call returns, if it succeeds."""
        answer = self.answer(self.send(call, **options))
        assert "error" not in answer, answer
        return answer["result"]

    def error(self, call: str, **options: object) -> tuple[str, str]:
        """Return the kind and the words of the error of a call that fails."""
        answer = self.answer(self.send(call, **options))
        assert "error" in answer, answer
        return answer["error"], answer["message"]

    def kill(self) -> None:
        """End it without goodbye."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
