"""Files are read back while the last ranges are copied, and what cannot be read then is reported as ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, STAYING, cold_keeper, events
from servers import Database
from wane._archive.spark.executor import Begun, SparkExecutor
from wane._prune.sweep import Outcome

ROWS = 100
RANGES = CONTRACT.replace("range_rows = 60", "range_rows = 20")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[Path]]:
    """Return the files of every job that was begun early."""
    found: list[list[Path]] = []
    begin = SparkExecutor.begin

    def recording(self: SparkExecutor, task: Callable[[int], str], count: int) -> Begun:
        assert isinstance(task, partial)
        found.append([Path(file.path) for file in task.args[0].files])
        return begin(self, task, count)

    monkeypatch.setattr(SparkExecutor, "begin", recording)
    return found


@pytest.mark.on_spark
def test_ranges_are_read_back_while_the_last_ones_are_copied(
    database: Database, tmp_path: Path, begun: list[list[Path]]
) -> None:
    events(database, ROWS)
    with cold_keeper(database, tmp_path, RANGES) as cold:
        done = cold.one()
        assert (done.outcome, done.archived["event"]) == (Outcome.DONE, ROWS)
        files = [path for job in begun for path in job]
        assert files, "nothing was read early"
        assert len(set(files)) == len(files) < len(list(cold.folder.rglob("sweep-*.parquet")))
        assert cold.hot() == STAYING
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]


@pytest.mark.on_spark
def test_a_file_that_cannot_be_read_early_is_reported_and_copied_anew(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[list[Path]]
) -> None:
    events(database, ROWS)
    begin = SparkExecutor.begin

    def damaging(self: SparkExecutor, task: Any, count: int) -> Begun:
        for file in task.args[0].files:
            Path(file.path).write_bytes(b"damaged")
        return begin(self, task, count)

    with cold_keeper(database, tmp_path, RANGES) as cold:
        with monkeypatch.context() as patch:
            patch.setattr(SparkExecutor, "begin", damaging)
            failed = cold.one()
        assert begun, "nothing was read early"
        assert failed.outcome is Outcome.FAILED
        assert "cannot be trusted" in failed.message
        assert len(cold.hot()) == ROWS + len(STAYING)
        assert cold.cold() == []
        done = cold.one()
        assert (done.outcome, done.archived["event"], cold.hot()) == (Outcome.DONE, ROWS, STAYING)


@pytest.mark.on_spark
def test_reading_ends_with_a_copy_that_fails(database: Database, tmp_path: Path, begun: list[list[Path]]) -> None:
    events(database, ROWS)
    with cold_keeper(database, tmp_path, RANGES) as cold:
        database.execute("UPDATE event SET amount = 'NaN' WHERE id = ?", (ROWS,))
        failed = cold.one()
        assert failed.outcome is Outcome.FAILED, failed
        assert "wane-spark" not in {thread.name for thread in threading.enumerate()}
        database.execute("UPDATE event SET amount = 1 WHERE id = ?", (ROWS,))
        assert cold.one().outcome is Outcome.DONE
        assert cold.hot() == STAYING
