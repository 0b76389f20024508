"""A task's process is killed in the middle of reading, or of evicting: Spark runs it again, and every row is in the
archive once."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from archive.cold import PACE, PATIENCE_SECONDS, STAYING, cold_keeper, events
from archive.test_evictors import FOLLOWED, FOLLOWING, PAUSING, SEVERAL
from archive.test_plain_rows import fill
from races.racing import Background
from servers import Database, PostgresDatabase
from wane._archive.pipeline import evictors
from wane._archive.spark.session import session
from wane._prune.sweep import Outcome

ROWS = 130


def processes() -> dict[int, tuple[int, bytes]]:
    """Return every process's parent and command."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(folder.name)] = parent, (folder / "cmdline").read_bytes()
        except OSError:
            continue
    return found


def at_work(database: Database, name: str = "wane archive") -> list[int]:
    """Return the processes that run tasks of this process's Spark, if one of them is in the middle of its work."""
    known = processes()
    family = {os.getpid()}
    while more := {one for one, (parent, _) in known.items() if parent in family} - family:
        family |= more
    daemons = {one for one in family if b"wane._archive.spark.daemon" in known[one][1]}
    workers = [one for one in daemons if known[one][0] in daemons]
    if database.store == "sqlite":
        reading = any(b"digests.py" in command and parent in workers for parent, command in known.values())
    else:
        reading = bool(
            database.query(
                "SELECT 1 FROM pg_stat_activity WHERE application_name = ? AND wait_event_type = 'Lock'"
                " AND datname = current_database()",
                (name,),
            )
        )
    return workers if reading else []


@pytest.mark.on_spark
@pytest.mark.sampled("postgres")
def test_a_killed_task_is_rerun_and_no_row_is_copied_twice(database: Database, tmp_path: Path) -> None:
    events(database, ROWS)
    if database.store == "sqlite":
        database.execute("UPDATE event SET body = printf('%.*c', 1000000, 'x')")  # So that reading takes a while.
    planned, go = threading.Event(), threading.Event()

    def wait() -> None:
        planned.set()
        assert go.wait(PATIENCE_SECONDS)

    with cold_keeper(database, tmp_path) as cold, closing(database.connect()) as other:
        session(cold.keeper.contract.spark)  # So that nothing below has to wait for its start.
        cold.at["planned"] = wait
        running = Background(cold.one)
        assert planned.wait(PATIENCE_SECONDS)
        if database.store == "postgres":
            other.execute("BEGIN")
            other.execute("LOCK TABLE event IN ACCESS EXCLUSIVE MODE")
        go.set()
        killed: list[int] = []
        while running.running and not killed:
            killed = at_work(database)
            time.sleep(0.005)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        if database.store == "postgres":
            other.execute("ROLLBACK")
        done = running.result(PATIENCE_SECONDS)
        assert killed
        assert done.outcome is Outcome.DONE, done.message
        assert done.evicted["event"] == ROWS
        assert cold.cold() == list(range(1, ROWS + 1))
        assert len(cold.cold("event_read")) == len(set(cold.cold("event_read")))


@pytest.mark.on_spark
@pytest.mark.sampled("postgres-followers, with pauses")
@pytest.mark.parametrize("kind", ["plain", "followers, with pauses"])
def test_a_killed_task_that_evicts_is_rerun_and_goes_on(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All tasks are killed while they wait for a lock that the application holds; ranges that had left stay
    finished."""
    monkeypatch.setattr(evictors, "ROWS_EACH", 1)
    contract, pace, staying = (SEVERAL, PACE, []) if kind == "plain" else (FOLLOWING, PAUSING, STAYING)
    if kind == "plain":
        fill(postgres_database)
    else:
        events(postgres_database, FOLLOWED)
    held, go = threading.Event(), threading.Event()
    with cold_keeper(postgres_database, tmp_path, contract) as cold, closing(postgres_database.connect()) as other:

        def hold() -> None:
            other.execute("BEGIN")
            other.execute("LOCK TABLE event IN EXCLUSIVE MODE")
            held.set()
            assert go.wait(PATIENCE_SECONDS)

        session(cold.keeper.contract.spark)
        cold.at["committed"] = hold
        running = Background(lambda: cold.one(pace=pace))
        assert held.wait(PATIENCE_SECONDS)
        go.set()
        killed: list[int] = []
        while running.running and not killed:
            killed = at_work(postgres_database, "wane")
            time.sleep(0.005)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        other.execute("ROLLBACK")
        done = running.result(PATIENCE_SECONDS)
        assert killed
        assert (done.outcome, done.evicted["event"], done.stale) == (Outcome.DONE, 100, 0), done.message
        assert (cold.hot(), cold.cold()) == (staying, list(range(1, 101)))
        assert done.evicted.get("event_read", 0) == len(cold.cold("event_read"))
        entries = cold.keeper.audit(kind="archive")
        assert [entry.counts["event"] for entry in entries] == [20] * 5
