"""A process that archives, and ends as by `kill -9` when it has reached a state: `python -m archive.killed_writer FOLDER STATE`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from archive.cold import PACE
from archive.inline import InlineExecutor
from wane._archive.spark import executor
from wane._keeper import open_keeper
from wane.events import ArchiveStep, BatchTaken, Event


def main(folder: Path, state: str) -> None:
    def hear(event: Event) -> None:
        reached = event.state if isinstance(event, ArchiveStep) else "batch" if isinstance(event, BatchTaken) else ""
        if reached == state:
            os.kill(os.getpid(), signal.SIGKILL)

    executor.default = InlineExecutor
    with open_keeper(contract=folder / "wane.toml", actor="killed", listener=hear) as keeper:
        done = keeper.archive.run(pace=PACE)
    sys.exit(f"it never reached {state}: {done}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
