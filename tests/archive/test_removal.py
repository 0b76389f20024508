"""Copies leave the archive by one commit that rewrites the files which hold them, and no others."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive.inline import InlineExecutor
from wane._archive.delta import comparison
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.files import listing
from wane._archive.pipeline import removal, rewritten_file
from wane._archive.pipeline.removal import GoneCopies, remove_copies
from wane._archive.rows.statistics import statistics
from wane._archive.spark.executor import Progress, SparkExecutor, unseen
from wane._contract.settings import SparkSettings
from wane._leases import Lease
from wane.errors import Unproven

LEASE = Lease("archive event", "one", 1, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def table(tmp_path: Path) -> ColdTable:
    """Return three files of sweep 1, with the keys 0 to 9, 10 to 19 and 20 to 29, and one of sweep 2 with the keys of
    the first."""
    table = ColdTable(tmp_path, "event", "origin")
    table.ensure([["id", "long"]], follows=True)
    (tmp_path / "event" / "_month=2026-01").mkdir()
    for number, (sweep, first) in enumerate([(1, 0), (1, 10), (1, 20), (2, 0)], 1):
        commit(table, number, sweep, range(first, first + 10))
    return table


def commit(table: ColdTable, number: int, sweep: int, ids: Sequence[int]) -> None:
    path = f"_month=2026-01/sweep-{number:010d}-000000-abc.parquet"
    rows = {
        "id": pa.array(ids, pa.int64()),
        "_key": [f"[{one:02d}]" for one in ids],
        "_parent": pa.array([f"[{one // 10}]" for one in ids]),
        "_version": ["1"] * len(ids),
        "_sweep": pa.array([sweep] * len(ids), pa.int64()),
    }
    written = Path(str(table.folder)) / path
    pq.write_table(pa.table(rows), written, row_group_size=4)
    stats = json.dumps(statistics(pq.read_metadata(written), ()))
    file = {"path": path, "bytes": written.stat().st_size, "month": "2026-01", "statistics": stats}
    table.commit("event", number, [file], [LEASE])


def content(table: ColdTable) -> set[tuple[int, int]]:
    rows: Any = pa.table(table.require().to_pyarrow_table())
    return set(zip(rows["_sweep"].to_pylist(), rows["id"].to_pylist(), strict=True))


def paths(table: ColdTable) -> set[str]:
    return {file.path for file in listing(table.require())}


def test_one_commit_rewrites_the_files_that_hold_a_copy_and_reads_no_other(table: ColdTable) -> None:
    before, version, rows = paths(table), table.require().version(), content(table)
    gone = [(1, 3), (1, 7), (1, 25)]
    # Neither the file of other keys nor the file of another sweep is opened.
    for number in (2, 4):
        one = Path(str(table.folder)) / f"_month=2026-01/sweep-{number:010d}-000000-abc.parquet"
        footer = pq.read_metadata(one).serialized_size + 8
        one.write_bytes(b"x" * (one.stat().st_size - footer) + one.read_bytes()[-footer:] if number == 2 else b"y")
    remove_copies(
        InlineExecutor(),
        table,
        GoneCopies.restored([(s, f"[{n:02d}]") for s, n in gone], follows=False),
        [LEASE],
        why="a test",
    )
    assert table.require().version() == version + 1
    left = paths(table)
    assert {one for one in before if "0000000002" in one or "0000000004" in one} == before & left
    assert len(left) == 4
    rewritten = [pq.read_table(Path(str(table.folder)) / one) for one in sorted(left - before)]
    assert sorted(map(len, rewritten)) == [8, 9]
    for part in rewritten:
        assert part["id"].to_pylist() == sorted(part["id"].to_pylist())
    assert {(1, n) for part in rewritten for n in part["id"].to_pylist()} == {
        (s, n) for s, n in rows if s == 1 and not 10 <= n < 20 and (s, n) not in gone
    }


def test_a_sweep_that_is_removed_takes_its_files_without_a_rewrite(table: ColdTable) -> None:
    before = paths(table)
    remove_copies(InlineExecutor(), table, GoneCopies.of_sweep(1), [LEASE], why="a test")
    assert content(table) == {(2, n) for n in range(10)}
    assert paths(table) < before


def test_followers_leave_with_the_row_that_they_left_with(table: ColdTable) -> None:
    remove_copies(
        InlineExecutor(), table, GoneCopies.restored([(1, "[0]"), (1, "[2]")], follows=True), [LEASE], why="a test"
    )
    assert content(table) == {(1, n) for n in range(10, 20)} | {(2, n) for n in range(10)}


def test_a_second_removal_commits_nothing(table: ColdTable) -> None:
    gone = GoneCopies.stale(1, [("[03]", "1"), ("[04]", "other")], follows=False)
    remove_copies(InlineExecutor(), table, gone, [LEASE], why="a test")
    version, rows = table.require().version(), content(table)
    assert (1, 3) not in rows
    assert (1, 4) in rows
    remove_copies(InlineExecutor(), table, gone, [LEASE], why="a test")
    assert (table.require().version(), content(table)) == (version, rows)


def test_what_is_left_is_proven_before_anything_leaves(table: ColdTable, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, original = content(table), rewritten_file._write

    def lossy(new: Any, old: Any, masks: Any, shape: Any) -> Any:
        left = original(new, old, masks, shape)
        pq.write_table(pq.read_table(new).slice(1), new)
        return left

    monkeypatch.setattr(rewritten_file, "_write", lossy)
    with pytest.raises(Unproven, match="does not hold what was left"):
        remove_copies(InlineExecutor(), table, GoneCopies.restored([(1, "[03]")], follows=False), [LEASE], why="a test")
    assert content(table) == rows


def test_a_task_for_each_file_rewrites_and_another_reads_back(table: ColdTable) -> None:
    counts: list[tuple[str, int]] = []

    class Counting(InlineExecutor):
        def run(self, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
            pickle.loads(pickle.dumps(task))  # As Spark ships it.
            counts.append((task.func.__name__, count))  # type: ignore[attr-defined]
            return super().run(task, count, progress)

    gone = [(1, 3), (1, 7), *((1, n) for n in range(20, 30))]
    named = GoneCopies.restored([(s, f"[{n:02d}]") for s, n in gone], follows=False)
    remove_copies(Counting(), table, named, [LEASE], why="a test")
    # The second file lies between the keys, and all of the third leaves: nothing of it is written.
    assert counts == [("_task", 2), ("_digest", 1)]
    assert {(1, n) for n in [0, 1, 2, 4, 5, 6, 8, 9, *range(10, 20)]} | {(2, n) for n in range(10)} == content(table)


@pytest.mark.on_spark
def test_files_are_rewritten_in_tasks_of_spark(table: ColdTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("the driver reads or writes rows of a file")

    # Tasks run in processes that have none of this.
    for owner, name in ((removal, "write_rest"), (removal, "groups"), (comparison, "groups")):
        monkeypatch.setattr(owner, name, refuse)
    executor = SparkExecutor(SparkSettings())
    remove_copies(executor, table, GoneCopies.of_sweep(2), [LEASE], why="a test")
    remove_copies(
        executor, table, GoneCopies.restored([(1, "[03]"), (1, "[25]")], follows=False), [LEASE], why="a test"
    )
    assert content(table) == {(1, n) for n in range(30)} - {(1, 3), (1, 25)}


def test_more_copies_than_tasks_may_hold_leave_in_several_commits(
    table: ColdTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "_AT_ONCE", 5)
    version = table.require().version()
    gone = GoneCopies.restored([(1, f"[{n:02d}]") for n in range(12)], follows=False)
    remove_copies(InlineExecutor(), table, gone, [LEASE], why="a test")
    assert table.require().version() == version + 3
    assert content(table) == {(1, n) for n in range(12, 30)} | {(2, n) for n in range(10)}
