"""Several processes that begin at the same time: forks of one that has imported everything and opened no database.

What they do is the function `main` of a module below `tests`. It calls `begin` when it is ready, and returns what JSON
can write.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier
from typing import Any

SECONDS = 100
"""How long they may take: most of the time that a test has, because a busy machine may need it."""
_barriers: list[Barrier] = []


def run_together(module: str, arguments: Sequence[Sequence[object]], seconds: float = SECONDS) -> list[Any]:
    """Run `main` of a module once for each set of arguments, each in a process of its own, and return the answers in
    order."""
    program = "from together import launch; launch()"
    done = subprocess.run(
        [sys.executable, "-c", program, module, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *_paths()])},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def begin() -> None:
    """Wait until all of them are ready."""
    [barrier] = _barriers
    barrier.wait(SECONDS)


def launch() -> None:
    """Fork and answer: the program of `run_together`."""
    module, arguments = sys.argv[1], json.loads(sys.argv[2])
    main = importlib.import_module(module).main
    fork = get_context("fork")
    _barriers.append(fork.Barrier(len(arguments)))
    # A process that waits for the others takes no second set of arguments.
    with fork.Pool(len(arguments)) as pool:
        sys.stdout.write(json.dumps(pool.starmap(main, arguments, chunksize=1)))


def _paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
