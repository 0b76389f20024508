"""Starts processes that archive, expire, compact and tidy, so that each can be killed: see `archive_launcher`.

Here nothing is too young to be tidied, so that only what really may go does, and Spark's part of a compaction is done
in Arrow.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crash import archive_launcher
from crash.archive_launcher import PACE, lost_its_turn
from crash.launcher import Steps
from wane._archive.delta import files
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.files import ColdFile
from wane._archive.facade import Archive
from wane._archive.maintenance import compact, expire, tidy, upkeep
from wane._archive.maintenance.journal import Jobs
from wane._contract.load import load_contract
from wane._keeper import open_keeper
from wane._ledger import Ledger
from wane._prune.sweep import Outcome

AT_ONCE = timedelta(microseconds=1)


class Sorted:
    """What Spark's DataFrame is to a compaction: something that writes sorted files."""

    def __init__(self, steps: Steps, cold: ColdTable, files: Sequence[ColdFile]) -> None:
        self.steps = steps
        self.paths = [cold.folder / file.path for file in files]
        self.write = self

    def option(self, *_: str) -> Sorted:
        return self

    def parquet(self, folder: str) -> None:
        self.steps.enter("sort")
        rows = pa.concat_tables([pq.ParquetFile(path).read() for path in self.paths], promote_options="default")
        Path(folder).mkdir()
        pq.write_table(rows.sort_by("_key"), Path(folder) / "part-00000.parquet")
        self.steps.enter("sorted")


def hook(steps: Steps) -> None:
    archive_launcher.hook(steps)

    def in_order(_: compact.Compaction, cold: ColdTable, handle: Any, small: Sequence[ColdFile], *order: Any) -> Any:
        return Sorted(steps, cold, small)

    compact.Compaction._sorted = in_order  # type: ignore[method-assign,assignment]
    tidy.LEAST = AT_ONCE
    steps.function(compact, "_moved", "move")
    steps.before(Jobs, "begin", "begin")
    steps.before(Jobs, "plan", "decide")
    steps.before(Jobs, "end", "end")
    replacing = files.replace

    def replaced(cold: ColdTable, *arguments: Any, **options: Any) -> None:
        steps.enter(f"replace {cold.name}")
        replacing(cold, *arguments, **options)
        steps.enter(f"replaced {cold.name}")

    upkeep.replace = replaced  # type: ignore[attr-defined]
    checking = expire._MonthExpiry._still_free

    def still_free(this: Any, transaction: Any) -> None:
        checking(this, transaction)
        steps.enter("free")

    expire._MonthExpiry._still_free = still_free  # type: ignore[method-assign,assignment]
    unlink = Path.unlink

    def unlinked(path: Path, *arguments: Any, **options: Any) -> None:
        if path.suffix == ".parquet":
            steps.enter("unlink")
        unlink(path, *arguments, **options)

    Path.unlink = unlinked  # type: ignore[method-assign,assignment]
    steps.before(Ledger, "record", "record")


def live(contract: Path, *, forever: bool) -> None:
    repeat(contract, lambda archive: [*archive.expire(), *archive.compact()], forever=forever)


def repeat(contract: Path, maintain: Callable[[Archive], list[Any]], *, forever: bool, lease_seconds: int = 5) -> None:
    """Archive, maintain and tidy until killed, or until all of it is done."""
    loaded = load_contract(contract)
    loaded = replace(loaded, spark=replace(loaded.spark, lease_seconds=lease_seconds))
    with open_keeper(contract=loaded, actor="to be killed") as keeper:
        archive = keeper.archive
        while True:
            done: list[Any] = [*archive.run(pace=PACE).rules, *maintain(archive), *archive.tidy(older_than=AT_ONCE)]
            wrong = [one for one in done if one.outcome is not Outcome.DONE and not lost_its_turn(one.message)]
            assert not wrong, wrong
            if not forever and all(one.outcome is Outcome.DONE for one in done):
                return
            time.sleep(0.05)


if __name__ == "__main__":
    archive_launcher.main(sys.argv[1], sys.argv[2], hook=hook, work=live)
