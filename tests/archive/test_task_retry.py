"""What may pass is left to Spark's retry of a task; what is done is known before the others are."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from archive.cold import cold_keeper, conserve, events
from races.racing import Background, await_true
from servers import Database, SqliteDatabase
from wane._archive.delta.failure import TransientFailure, answering, answers
from wane._archive.spark.executor import SparkExecutor
from wane._archive.spark.session import session
from wane._contract.settings import SparkSettings
from wane._db.sqlite import digests
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, Locked, StoreError, Unreachable

DEADLINE_SECONDS = 60.0
ROWS = 130


# Tasks are functions inside of others, because Spark's processes cannot import this file.


@pytest.mark.on_spark
def test_an_answer_is_there_before_the_other_tasks_are_done(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def task(number: int) -> str:
        """Answer at once if it is the first, or when the first one's answer was seen."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while number and not seen.exists():
            if time.monotonic() > deadline:
                return "nobody saw the first answer"
            time.sleep(0.01)
        return str(number)

    found = []
    for answer in SparkExecutor(SparkSettings()).run(task, 2):
        found.append(answer)
        seen.touch()
    assert found == ["0", "1"]


@pytest.mark.on_spark
def test_workers_begin_with_what_tasks_import_and_their_garbage_collector_ignores_it() -> None:
    def task(number: int) -> str:
        import gc
        import sys

        needed = ("wane._archive.pipeline.evictors", "adbc_driver_manager.dbapi", "pyarrow.parquet")
        return json.dumps([gc.get_freeze_count() > 0, *(name in sys.modules for name in needed)])

    assert [json.loads(one) for one in SparkExecutor(SparkSettings()).run(task, 2)] == [[True] * 4] * 2


def losing(folder: Path, attempts: int) -> Callable[[int], str]:
    """Return a task that loses its connection in its first attempts, if it is the second one."""

    def task(number: int) -> str:
        def work() -> dict[str, Any]:
            if number == 1 and len(list(folder.iterdir())) < attempts:
                (folder / str(time.monotonic_ns())).touch()
                raise Unreachable("the connection is lost", "look\nat it")
            return {"number": number}

        return answering(work)

    return task


@pytest.mark.on_spark
def test_a_task_that_loses_its_connection_is_rerun(tmp_path: Path) -> None:
    found = answers(SparkExecutor(SparkSettings()).run(losing(tmp_path, 1), 3))
    assert sorted(one["number"] for one in found) == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.on_spark
@pytest.mark.sampled
def test_a_task_that_never_gets_through_fails_with_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as raised:
        answers(SparkExecutor(SparkSettings()).run(losing(tmp_path, 99), 2))
    assert (raised.value.message, raised.value.hint) == ("the connection is lost", "look\nat it")
    assert len(list(tmp_path.iterdir())) == 4  # What local[*,4] says.


@pytest.mark.parametrize("problem", [Unreachable("gone"), Locked("locked")])
def test_what_may_pass_is_raised_for_spark(problem: StoreError) -> None:
    def work() -> dict[str, Any]:
        raise problem

    with pytest.raises(TransientFailure, match=problem.message):
        answering(work)


def test_what_stays_is_answered() -> None:
    def work() -> dict[str, Any]:
        raise ArchiveError("a value that cannot be stored")

    assert json.loads(answering(work))["message"] == "a value that cannot be stored"


def test_a_busy_sqlite_is_reported_as_locked(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = sqlite_database
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    monkeypatch.setattr(digests, "BUSY_SECONDS", 0.0)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        digests.main(Path(database.path).as_uri())
        other.execute("ROLLBACK")
    assert json.loads(capsys.readouterr().out) == {"error": "database is locked"}


@pytest.mark.on_spark
@pytest.mark.sampled
def test_a_task_whose_connection_is_terminated_costs_nothing(clusters: Any, tmp_path: Path) -> None:
    with clusters["postgres"].database() as database:
        events(database, ROWS)
        ever = {"event": {row for (row,) in database.query("SELECT id FROM event")}}
        planned, go = threading.Event(), threading.Event()

        def wait() -> None:
            planned.set()
            assert go.wait(DEADLINE_SECONDS)

        with cold_keeper(database, tmp_path) as cold, closing(database.connect()) as other:
            session(cold.keeper.contract.spark)
            cold.at["planned"] = wait
            running = Background(cold.one)
            assert planned.wait(DEADLINE_SECONDS)
            other.execute("BEGIN")
            other.execute("LOCK TABLE event IN ACCESS EXCLUSIVE MODE")
            go.set()
            await_true(lambda: terminate(database) != [], "a task waits for the lock", seconds=DEADLINE_SECONDS)
            other.execute("ROLLBACK")
            done = running.result(seconds=2 * DEADLINE_SECONDS)
            assert done.outcome is Outcome.DONE, done.message
            assert done.evicted["event"] == ROWS
            conserve(cold, ever, done=True)


def terminate(database: Database) -> list[Any]:
    waiting = "application_name = 'wane archive' AND wait_event_type = 'Lock' AND datname = current_database()"
    return database.query(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {waiting}")
