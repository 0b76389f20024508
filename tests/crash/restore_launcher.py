"""Starts processes that restore and archive by turns, so that each can be killed: `python restore_launcher.py CONTRACT
STEPS`.

Like archive_launcher.py: the code is the product's own, but for Spark, whose tasks run in forked processes here. Each
process leads a group of its own, so that a kill takes its tasks with it, as it does when a machine dies.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from archive import inline
from crash.archive_launcher import PACE, lost_its_turn
from crash.launcher import Steps, serve
from wane._archive.restore import restore
from wane._archive.restore.journal import RestoreJournal
from wane._archive.restore.sql import RestoreRows
from wane._archive.spark import executor
from wane._contract.load import load_contract
from wane._db.postgres.store import PostgresStore
from wane._db.sqlite.store import SqliteStore
from wane._keeper import open_keeper
from wane._prune.sweep import Outcome
from wane.errors import ArchiveBusy, ArchiveError, LeaseLost

PROTECT = timedelta(milliseconds=20)


def hook(steps: Steps) -> None:
    executor.default = inline.ForkedExecutor
    steps.before(inline.ForkedExecutor, "stage", "stage")
    steps.function(restore, "load_pieces", "bring")
    steps.function(restore, "remove_copies", "remove copies")
    for owner, method, step in (
        (restore._Restore, "_compare", "look"),
        (restore._Restore, "_delete_staged", "sweep out"),
        (RestoreJournal, "plan", "plan restore"),
        (RestoreJournal, "lock_piece", "lock piece"),
        (RestoreRows, "insert", "insert"),
        (RestoreRows, "hold", "hold"),
        (RestoreJournal, "progress", "bring back"),
    ):
        steps.before(owner, method, step)
    original = RestoreJournal.move

    def move(this: RestoreJournal, number: int, state: Any) -> Any:
        moved = original(this, number, state)
        steps.enter(f"restore to {state}")
        return moved

    RestoreJournal.move = move  # type: ignore[method-assign,assignment]
    steps.around(SqliteStore)
    steps.around(PostgresStore)


def restore_and_archive(contract: Path, generator: random.Random, *, forever: bool) -> None:
    loaded = load_contract(contract)
    loaded = replace(loaded, spark=replace(loaded.spark, lease_seconds=5, range_rows=20))
    with open_keeper(contract=loaded, actor="to be killed") as keeper:
        while True:
            done = keeper.archive.run(pace=PACE)
            busy = any(lost_its_turn(rule.message) for rule in done.rules)
            assert busy or not done.failed, done
            if not forever and not busy:
                assert {rule.outcome for rule in done.rules} == {Outcome.DONE}, done
                return
            if forever and not busy:
                where = f"id % 5 = {generator.randrange(5)}"
                try:
                    keeper.archive.restore("event", where=where, on_conflict="skip", protect=PROTECT, pace=PACE)
                except (ArchiveBusy, LeaseLost):
                    pass
                except ArchiveError as problem:
                    if "is archived yet" not in str(problem):
                        raise
            time.sleep(0.05)


def main(contract: str, log: str) -> None:
    def run(steps: Steps, generator: random.Random) -> None:
        hook(steps)
        restore_and_archive(Path(contract), generator, forever=steps.target != "finish")

    serve(log, run)


if __name__ == "__main__":
    main(*sys.argv[1:])
