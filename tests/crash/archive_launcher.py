"""Starts processes that archive, one after the other, so that each can be killed: `python archive_launcher.py CONTRACT
STEPS`.

For every line (a seed, and a step or "-") it forks a process and prints its number; when that process is gone, it
prints how it ended. The process archives until it is killed; with a step, it waits there to be killed.

The code is the product's own, but for Spark: tasks run in forked processes here, one after the other, because a Java
process for every kill would take half a minute. Kills with a real Spark are in test_archive_kills.py too, and are few.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from archive.inline import ForkedExecutor, fork
from crash.launcher import Steps, serve
from wane._archive.delta.cold_table import ColdTable
from wane._archive.journal import Journal
from wane._archive.pipeline import evict, evictors, range_take, sweep
from wane._archive.spark import executor
from wane._contract.load import load_contract
from wane._db.postgres.store import PostgresStore
from wane._db.sqlite.store import SqliteStore
from wane._keeper import open_keeper
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome

PACE = Pace(target_seconds=1.0, duty=0.9, first_batch=30, least_batch=30, most_batch=30)
CHANGE_SECONDS = 0.2
EVICTOR_ROWS = 10
"""So few copies are worth a task on PostgreSQL."""


STEPS = {
    "copy_ranges": "copy",
    "read_back": "read back",
    "_compare": "read back",
    "evict_share": "evict task",
    "_task": "thin",
    "_digest": "compare",
    "_read": "compare",
}
"""The step that a task of this name belongs to."""


def forking(steps: Steps) -> type[ForkedExecutor]:
    """Return an executor that enters a step before each task."""

    class Stepping(ForkedExecutor):
        def run(self, task: Any, count: int, progress: object = None) -> Iterator[str]:
            for number in range(count):
                steps.enter(STEPS[task.func.__name__])
                yield fork(task, number)

    return Stepping


def taking(steps: Steps, kind: type[range_take.RangeTake]) -> None:
    """Let what takes rows by their range report a step before its statement, and one when it has taken exactly the
    copies."""
    take = kind.take

    def stepping(this: range_take.RangeTake, *arguments: Any) -> bool:
        steps.enter("take range")
        exactly = take(this, *arguments)
        if exactly:
            steps.enter("took range")
        return exactly

    kind.take = stepping  # type: ignore[method-assign,assignment]


def hook(steps: Steps) -> None:
    executor.default = forking(steps)
    evictors.ROWS_EACH = EVICTOR_ROWS
    for kind in (range_take._Sums, range_take._Pairs, range_take._Values):
        taking(steps, kind)
    steps.function(sweep, "cut", "cut")
    steps.function(evict, "evict", "evict")
    steps.function(sweep, "remove_copies", "remove")
    evicting = evict.Eviction.run

    def run(this: evict.Eviction, *arguments: Any) -> None:
        time.sleep(CHANGE_SECONDS)  # The application changes some of the rows that are about to leave.
        evicting(this, *arguments)

    evict.Eviction.run = run  # type: ignore[method-assign,assignment]
    for owner, method, step in (
        (Journal, "plan", "plan"),
        (Journal, "write", "write"),
        (Journal, "claim", "claim"),
        (Journal, "progress", "progress"),
        (Journal, "removed", "removed"),
        (ColdTable, "commit", "commit"),
    ):
        steps.before(owner, method, step)
    original = Journal.move

    def move(this: Journal, number: int, state: Any, **options: Any) -> Any:
        moved = original(this, number, state, **options)
        steps.enter(f"to {state}")
        return moved

    Journal.move = move  # type: ignore[method-assign,assignment]
    steps.around(SqliteStore)
    steps.around(PostgresStore)


def lost_its_turn(message: str) -> bool:
    """Return whether the lease was lost or held: its seconds can pass on a busy machine, and the next call goes on."""
    return "is being written by" in message or ("the lease of" in message and "ended" in message)


def archive(contract: Path, *, forever: bool) -> None:
    loaded = load_contract(contract)
    loaded = replace(loaded, spark=replace(loaded.spark, lease_seconds=5))
    with open_keeper(contract=loaded, actor="to be killed") as keeper:
        while True:
            done = keeper.archive.run(pace=PACE)
            busy = any(lost_its_turn(rule.message) for rule in done.rules)
            if not forever and not busy:
                assert {rule.outcome for rule in done.rules} == {Outcome.DONE}, done
                return
            assert busy or not done.failed, done
            time.sleep(0.05)


def main(contract: str, log: str, hook: Callable[[Steps], None] = hook, work: Callable[..., None] = archive) -> None:
    def run(steps: Steps, _: random.Random) -> None:
        hook(steps)
        work(Path(contract), forever=steps.target != "finish")

    serve(log, run)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
