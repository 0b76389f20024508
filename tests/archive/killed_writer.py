"""A process that archives, and ends as by `kill -9` when it has reached a state: `python -m archive.killed_writer
FOLDER STATE [spark]`.

STATE may also be a step of an expiry or a restore, such as `expire replaced`. With the last word its tasks run on the
Spark that the contract names, and several of them evict, as they do for many rows.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archive.cold import PACE
from archive.inline import InlineExecutor
from wane._archive.maintenance import upkeep
from wane._archive.maintenance.journal import Jobs
from wane._archive.pipeline import evictors
from wane._archive.restore import restore
from wane._archive.restore.journal import RestoreJournal
from wane._archive.restore.sql import RestoreRows
from wane._archive.spark import executor
from wane._keeper import Keeper, open_keeper
from wane.events import ArchiveStep, BatchTaken, Event

WORK: dict[str, Callable[[Keeper], object]] = {
    "sweep": lambda keeper: keeper.archive.run(pace=PACE),
    "expire": lambda keeper: keeper.archive.expire(),
    "restore": lambda keeper: keeper.archive.restore("event", where="id < 30", pace=PACE),
}
STEPS: dict[str, tuple[Any, str, bool]] = {
    "expire begin": (Jobs, "begin", True),
    "expire replace": (upkeep, "replace", False),
    "expire replaced": (upkeep, "replace", True),
    "expire end": (Jobs, "end", False),
    "restore plan": (RestoreJournal, "plan", True),
    "restore insert": (RestoreRows, "insert", False),
    "restore progress": (RestoreJournal, "progress", True),
    "restore remove": (restore, "remove_copies", False),
    "restore removed": (restore, "remove_copies", True),
}
"""The step of maintenance that a process dies in: a function or method, and whether it dies after it."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in(owner: Any, name: str, after: bool) -> None:
    original = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> None:
        if after:
            original(*arguments, **options)
        die()

    setattr(owner, name, dying)


def main(folder: Path, state: str, where: str = "") -> None:
    def listen(event: Event) -> None:
        reached = event.state if isinstance(event, ArchiveStep) else "batch" if isinstance(event, BatchTaken) else ""
        if reached == state:
            die()

    if where == "spark":
        evictors.ROWS_EACH = 30
    else:
        executor.default = InlineExecutor
    with open_keeper(contract=folder / "wane.toml", actor="killed", listener=listen) as keeper:
        if state in STEPS:
            die_in(*STEPS[state])
        done = WORK[state.partition(" ")[0] if state in STEPS else "sweep"](keeper)
    sys.exit(f"it never reached {state}: {done}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
