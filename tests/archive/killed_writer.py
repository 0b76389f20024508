"""A process that archives, and ends as by `kill -9` when it has reached a state: `python -m archive.killed_writer
FOLDER STATE [spark]`.

STATE may also be a step of maintenance or a restore, such as `expire replaced`. With the last word its tasks run on the
Spark that the contract names, and several of them evict, as they do for many rows.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from archive.cold import PACE
from archive.inline import InlineExecutor
from wane._archive.delta.object_store import ObjectPath
from wane._archive.maintenance import compact, repair, rewrite, tidy, trimming, upkeep, write_back
from wane._archive.maintenance.journal import Jobs
from wane._archive.pipeline import evictors, removal, sweep
from wane._archive.restore import restore
from wane._archive.restore.journal import RestoreJournal
from wane._archive.restore.sql import RestoreRows
from wane._archive.spark import executor
from wane._keeper import Keeper, open_keeper
from wane._ledger import Ledger
from wane.events import ArchiveStep, BatchTaken, Event

AT_ONCE = timedelta(microseconds=1)
STALE = "UPDATE {} SET body = 'changed' WHERE id / 5 * 5 = id AND id < 10000"
"""What the application does before a sweep evicts that is to have stale copies."""

WORK: dict[str, Callable[[Keeper], object]] = {
    "sweep": lambda keeper: keeper.archive.run(pace=PACE),
    "expire": lambda keeper: keeper.archive.expire(),
    "erase": lambda keeper: keeper.archive.expire(erase_absent=True),
    "compact": lambda keeper: keeper.archive.compact(),
    "tidy": lambda keeper: keeper.archive.tidy(older_than=AT_ONCE),
    "repair": lambda keeper: keeper.archive.repair(),
    "restore": lambda keeper: keeper.archive.restore("event", where="id < 30", pace=PACE),
}
Step = tuple[Any, str, bool]
"""A function of a module or a method of a class, and whether the process dies after it."""
_COMMIT: dict[str, Step] = {
    "begin": (Jobs, "begin", True),
    "replace": (upkeep, "replace", False),
    "replaced": (upkeep, "replace", True),
    "recorded": (upkeep, "record", True),
    "end": (Jobs, "end", False),
}
"""Steps of each job that replaces files. A job ends, in a transaction that waits for the commits, before they are
made."""
STEPS: dict[str, Step | tuple[Step, list[Step]]] = {
    **{f"{job} {step}": where for job in ("expire", "erase", "compact") for step, where in _COMMIT.items()},
    "sweep remove": (sweep, "remove_copies", False),
    "sweep rewritten": (removal, "_without", True),
    "sweep removed": (sweep, "remove_copies", True),
    "expire written": (rewrite, "_rewrite", True),
    "erase written": (removal, "_without", True),
    "compact written": (compact, "_write", True),
    "tidy removed": (tidy, "_remove", True),
    "tidy checkpoint": (trimming, "sync_folder", False),
    "tidy trim": ((tidy, "trim", False), [(ObjectPath, "unlink", True), (type(Path()), "unlink", True)]),
    "tidy trimmed": (tidy, "trim", True),
    "tidy record": (Ledger, "note", False),
    "repair write": (write_back, "_write", True),
    "repair written": (repair, "write_back", True),
    "repair record": (Ledger, "note", False),
    "restore stage": (InlineExecutor, "stage", True),
    "restore plan": (RestoreJournal, "plan", True),
    "restore insert": (RestoreRows, "insert", False),
    "restore progress": (RestoreJournal, "progress", True),
    "restore remove": (restore, "remove_copies", False),
    "restore removed": (restore, "remove_copies", True),
    "restore report": (restore._Restore, "_report", False),
}
"""Where a process dies: the first time that it is in a function; or, of two, in one of the others, called by the
first."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in(owner: Any, name: str, after: bool) -> None:
    original = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> None:
        if after:
            original(*arguments, **options)
        die()

    setattr(owner, name, dying)


def die_within(owner: Any, name: str, inner: list[Step]) -> None:
    original = getattr(owner, name)

    def calling(*arguments: Any, **options: Any) -> Any:
        for one in inner:
            die_in(*one)
        return original(*arguments, **options)

    setattr(owner, name, calling)


def die_at(step: str) -> None:
    match STEPS[step]:
        case (owner, str() as name, bool() as after):
            die_in(owner, name, after)
        case ((owner, name, _), [*inner]):
            die_within(owner, name, inner)


def main(folder: Path, state: str, where: str = "") -> None:
    def listen(event: Event) -> None:
        reached = event.state if isinstance(event, ArchiveStep) else "batch" if isinstance(event, BatchTaken) else ""
        if reached == "committed" and state.startswith("sweep "):
            with keeper.store.transaction() as transaction:
                transaction.execute(STALE.format("main.event" if keeper.store.kind == "sqlite" else "public.event"), {})
        if reached == state:
            die()

    if where == "spark":
        evictors.ROWS_EACH = 30
    else:
        executor.default = InlineExecutor
    tidy.LEAST = AT_ONCE
    with open_keeper(contract=folder / "wane.toml", actor="killed", listener=listen) as keeper:
        if state in STEPS:
            die_at(state)
        done = WORK[state.partition(" ")[0] if state in STEPS else "sweep"](keeper)
    sys.exit(f"it never reached {state}: {done}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
