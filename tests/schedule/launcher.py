"""Starts processes that schedule or work, so that each can be killed or stopped: `python launcher.py URL CONTRACT`.

For every line it reads, `scheduler` or `worker`, it forks a process and prints its number. The code that runs is the
product's own; only here, and only so that evidence can be written down, its connections say which process they belong
to.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from wane._db.postgres import store as imported  # noqa: F401 - before processes are forked
from wane._keeper import open_keeper

WORKERS = 2
"""Workers in one process."""
DAWDLE_SECONDS = 0.0004
"""How long the deletion of one row takes at the least, so that sweeps are at work for long enough to be hit."""


def name_sqlite_clients() -> None:
    original = sqlite3.connect

    def dawdle() -> int:
        time.sleep(DAWDLE_SECONDS)
        return os.getpid()

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = original(*arguments, **options)
        connection.create_function("process_id", 0, dawdle)
        return connection

    sqlite3.connect = connect  # type: ignore[assignment]


def run(url: str, contract: Path, role: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if url.startswith("postgresql:"):
        url += f"{'&' if '?' in url else '?'}options={quote(f'-c evidence.process={os.getpid()}')}"
    else:
        name_sqlite_clients()
    with open_keeper(url, contract=contract, actor=role) as keeper:
        if role == "worker":
            keeper.run(schedulers=[], workers=WORKERS, stop=stop)
        else:
            keeper.run(workers=0, stop=stop)


def main(url: str, contract: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody has to bury the dead.
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(url, Path(contract), line.strip())
                code = 0
            finally:
                os._exit(code)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
