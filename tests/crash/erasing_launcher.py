"""Starts processes that archive rows, some of which the application deletes meanwhile, and erase and tidy their copies:
see `archive_life_launcher`."""

from __future__ import annotations

import sqlite3
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from crash import archive_launcher, archive_life_launcher
from crash.archive_launcher import PACE, lost_its_turn
from crash.archive_life_launcher import AT_ONCE
from crash.launcher import Steps
from wane._archive.pipeline import evict
from wane._contract.load import load_contract
from wane._keeper import open_keeper
from wane._prune.sweep import Outcome

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
    loaded = load_contract(contract)
    loaded = replace(loaded, spark=replace(loaded.spark, lease_seconds=1))
    with open_keeper(contract=loaded, actor="to be killed") as keeper:
        archive = keeper.archive
        while True:
            done: list[Any] = [*archive.run(pace=PACE).rules, *archive.expire(erase_absent=True)]
            done += archive.tidy(older_than=AT_ONCE)
            wrong = [one for one in done if one.outcome is not Outcome.DONE and not lost_its_turn(one.message)]
            assert not wrong, wrong
            if not forever and all(one.outcome is Outcome.DONE for one in done):
                return
            time.sleep(0.05)


if __name__ == "__main__":
    archive_launcher.main(sys.argv[1], sys.argv[2], hook=hook, work=live)
