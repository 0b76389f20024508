"""Starts processes that archive rows, some of which the application deletes meanwhile, and erase and tidy their copies:
see `archive_life_launcher`."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

from crash import archive_launcher, archive_life_launcher
from crash.archive_life_launcher import repeat
from crash.launcher import Steps
from wane._archive.pipeline import evict

DELETED = 5
"""Every row whose id is a multiple of this is deleted between its copy and its eviction."""


def hook(steps: Steps) -> None:
    archive_life_launcher.hook(steps)
    evicting = evict.Eviction.run

    def run(this: evict.Eviction, *arguments: Any) -> None:
        with sqlite3.connect(sys.argv[3], timeout=30) as application:
            application.execute(f"DELETE FROM event_read WHERE event_id % {DELETED} = 0")
            application.execute(f"DELETE FROM event WHERE id % {DELETED} = 0 AND id < 10000")
        application.close()
        evicting(this, *arguments)

    evict.Eviction.run = run  # type: ignore[method-assign,assignment]


def live(contract: Path, *, forever: bool) -> None:
    repeat(contract, lambda archive: archive.expire(erase_absent=True), forever=forever, lease_seconds=1)


if __name__ == "__main__":
    archive_launcher.main(sys.argv[1], sys.argv[2], hook=hook, work=live)
