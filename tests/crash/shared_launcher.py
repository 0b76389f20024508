"""Starts processes that archive a fleet whose members share one table, so that each can be killed: see
`archive_launcher`.

One member works at a time, so that the process is in one step, and tasks run in it: it has threads, and is not forked
once more.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from archive.inline import InlineExecutor, call
from crash import archive_launcher
from crash.archive_launcher import PACE, STEPS, lost_its_turn
from crash.launcher import Steps
from wane._archive.delta import group_commit
from wane._archive.delta.group_commit import SweepCommit
from wane._archive.spark import executor
from wane._fleet.fleet import Fleet
from wane._fleet.reading import FleetFile, FleetMember, load_fleet
from wane._prune.sweep import Outcome


def hook(steps: Steps) -> None:
    archive_launcher.hook(steps)

    class Stepping(InlineExecutor):
        def run(self, task: Any, count: int, progress: object = None) -> Iterator[str]:
            for number in range(count):
                steps.enter(STEPS[task.func.__name__])
                yield call(task, number)

    executor.default = Stepping
    together = group_commit.commit_together

    def committed(commits: Sequence[SweepCommit]) -> Any:
        steps.enter(f"commit {commits[0].cold.name}")
        done = together(commits)
        steps.enter(f"committed {commits[0].cold.name}")
        return done

    group_commit.commit_together = committed


def loaded(path: Path) -> FleetFile:
    def brief(member: FleetMember) -> FleetMember:
        contract = member.require_contract()
        return replace(member, contract=replace(contract, spark=replace(contract.spark, lease_seconds=5)))

    file = load_fleet(path)
    return replace(file, members=tuple(brief(one) for one in file.members), parallel=1)


def archive(path: Path, *, forever: bool) -> None:
    file = loaded(path)
    while True:
        found = Fleet(file, actor="to be killed").each(lambda keeper: keeper.archive.run(pace=PACE), doing="archive")
        assert not [one.problem for one in found if one.problem], found
        rules = [rule for one in found if one.result for rule in one.result.rules]
        busy = any(lost_its_turn(rule.message) for rule in rules)
        if not forever and not busy:
            assert {rule.outcome for rule in rules} == {Outcome.DONE}, rules
            return
        time.sleep(0.05)


if __name__ == "__main__":
    archive_launcher.main(sys.argv[1], sys.argv[2], hook=hook, work=archive)
