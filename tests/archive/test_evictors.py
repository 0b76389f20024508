"""Ranges leave over several connections at a time, each with its own audit row; what one may not take, none does.

Tasks run in this process one after the other, and are retried as Spark retries them; `test_killed_task.py` has them on
Spark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from archive.cold import PACE, cold_keeper
from archive.inline import InlineExecutor, without_spark
from archive.test_plain_rows import CHANGES, PLAIN, ROWS, fill
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._archive.delta.failure import TransientFailure
from wane._archive.journal import Journal
from wane._archive.pipeline import evictors
from wane._archive.pipeline.evict import Eviction
from wane._archive.spark.executor import Progress, unseen
from wane._prune.pace import FAST, Pace
from wane._prune.sweep import Outcome
from wane.errors import ArchiveBusy, Locked, Unreachable
from wane.events import BatchTaken, SlowedDown, ignore_event

SEVERAL = PLAIN.replace("range_rows = 60", "range_rows = 20\nevictors = 3")
ALL = list(range(1, ROWS + 1))


RANGES = ROWS // 20
ATTEMPTS = 4


class RetryingExecutor(InlineExecutor):
    """Retries a task that raises, and reports progress, as Spark does."""

    def run(self, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
        for number in range(count):
            answer = ""
            for _ in range(ATTEMPTS):
                try:
                    answer = task(number)
                    break
                except TransientFailure as problem:
                    answer = str(problem)
            progress(number + 1, count)
            yield answer


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictors, "ROWS_EACH", 1)
    without_spark(monkeypatch, RetryingExecutor)


def test_every_range_accounts_for_what_it_took(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted, done.stale) == (Outcome.DONE, {"event": ROWS}, 0), done.message
        assert (cold.hot(), cold.cold()) == ([], ALL)
        entries = cold.keeper.audit(kind="archive")
        assert [entry.counts["event"] for entry in entries] == [20] * RANGES
        assert {entry.inputs["sweep"] for entry in entries} == {1}
        assert sorted(entry.inputs["range"] for entry in entries) == list(range(RANGES))
        taken = [event for event in cold.events if isinstance(event, BatchTaken)]
        assert sum(event.counts["event"] for event in taken) == ROWS, "what tasks took is reported"
        [status] = cold.keeper.archive.status()
        assert (status.evicted, status.stale, status.absent) == ({"event": ROWS}, 0, 0)


@pytest.mark.sampled("postgres-10-updated", "postgres-30-revived", "postgres-50-younger")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("row", [10, 30, 50])
def test_rows_that_changed_stay_whichever_evictor_finds_them(
    postgres_database: PostgresDatabase, tmp_path: Path, change: str, row: int
) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["committed"] = lambda: postgres_database.execute(CHANGES[change].replace("70", str(row)))
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 1), done.message
        assert (cold.hot(), cold.cold()) == ([row], [one for one in ALL if one != row])
        [status] = cold.keeper.archive.status()
        assert (status.evicted, status.stale) == ({"event": ROWS - 1}, 1)
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS - 1


def failing(problem: Exception, attempts: int) -> Callable[..., None]:
    """Let the batch after the first one of a range fail, a number of times."""
    progress, calls, failed = Journal.progress, [0], [0]

    def fail(self: Journal, *arguments: Any) -> None:
        progress(self, *arguments)
        calls[0] += 1
        if calls[0] > 1 and failed[0] < attempts:
            failed[0] += 1
            raise problem

    return fail


def test_a_task_that_loses_its_connection_is_rerun_and_checks_no_copy_twice(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        monkeypatch.setattr(Journal, "progress", failing(Unreachable("the connection was lost"), 2))
        done = cold.one()
        assert (done.outcome, done.evicted, done.stale) == (Outcome.DONE, {"event": ROWS}, 0), done.message
        assert (cold.hot(), cold.cold()) == ([], ALL)
        [status] = cold.keeper.archive.status()
        assert (status.evicted, status.absent) == ({"event": ROWS}, 0), "what had left was not missed"
        assert [entry.counts["event"] for entry in cold.keeper.audit(kind="archive")] == [20] * RANGES


def test_a_task_that_fails_leaves_the_others_and_the_next_run_goes_on(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "progress", failing(Unreachable("the connection was lost"), ATTEMPTS))
            failed = cold.one()
        assert (failed.outcome, "lost" in failed.message) == (Outcome.FAILED, True)
        hot = cold.hot()
        assert hot == list(range(61, 81)), "the first task's second range"
        assert failed.evicted == {"event": ROWS - len(hot)}
        [status] = cold.keeper.archive.status()
        assert (status.state, status.evicted) == ("committed", failed.evicted), "what is gone is shown"
        opened: list[Path] = []
        monkeypatch.setattr(Eviction, "_page", _noting(opened))
        assert cold.one().outcome is Outcome.DONE
        assert len(opened) == 1, "finished ranges are not read"
        assert (cold.hot(), cold.cold()) == ([], ALL)
        [status] = cold.keeper.archive.status()
        assert status.evicted == {"event": ROWS}
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS


def _noting(pages: list[Any]) -> Callable[..., None]:
    page = Eviction._page

    def note(self: Eviction, copies: Any) -> None:
        pages.append(copies)
        page(self, copies)

    return note


def test_an_earlier_attempt_that_still_runs_judges_no_copy(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark took it for dead and ran its task again; then the application used a key again that had left.

    To the earlier attempt, the copy of the row that left would be of a row that has changed since.
    """
    fill(database)
    transaction, waking = Eviction._transaction, [True]

    def overtaken(self: Eviction, *arguments: Any) -> Any:
        if waking:
            waking.clear()
            with self.store.clone() as store:
                Eviction(store, self.job, threading.Event(), ignore_event).run([self.range.number])
            database.execute("INSERT INTO event (id, status, at_ms, body) VALUES (7, 'open', 1, 'new')")
        return transaction(self, *arguments)

    monkeypatch.setattr(Eviction, "_transaction", overtaken)
    with cold_keeper(database, tmp_path, SEVERAL) as cold:
        failed = cold.one()
        assert (failed.outcome, "another attempt evicts range 0" in failed.message) == (Outcome.FAILED, True)
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([7], ALL)
        [status] = cold.keeper.archive.status()
        assert (status.evicted, status.stale, status.absent) == ({"event": ROWS}, 0, 0)


def test_a_flag_that_closes_stops_all_tasks(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["batch"] = lambda: cold.keeper.disable("event")
        half = cold.one()
        assert half.outcome is Outcome.OFF
        assert half.evicted == {"event": ROWS - len(cold.hot())} == {"event": 40}
        cold.keeper.enable("event")
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([], ALL)


def test_a_run_that_stops_waits_for_no_task(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    fill(postgres_database)
    stop = threading.Event()
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["batch"] = stop.set
        stopped = cold.one(stop=stop)
        assert (stopped.outcome, stopped.evicted) == (Outcome.STOPPED, {"event": 40})
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([], ALL)


def test_a_task_that_outlives_its_run_takes_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark cancels tasks without waiting for their ends; a run that has stopped has given up its lease."""
    fill(postgres_database)
    stop = threading.Event()
    late: list[Callable[[], str]] = []

    class Abandoning(InlineExecutor):
        def run(self, task: Any, count: int, progress: Progress = unseen) -> Iterator[str]:
            if task.func is not evictors.evict_share:
                yield from super().run(task, count)
                return
            [given] = task.args
            source = replace(given.source, at=None, secret=postgres_database.url)
            late.append(partial(evictors.evict_share, replace(given, source=source), 0))
            stop.set()
            progress(0, count)

    without_spark(monkeypatch, Abandoning)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        assert cold.one(stop=stop).outcome is Outcome.STOPPED
        [task] = late
        assert json.loads(task())["error"] == ArchiveBusy.__name__
        assert cold.hot() == ALL


def test_what_slows_a_task_down_is_reported(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        monkeypatch.setattr(Journal, "progress", failing(Locked("rows are locked"), 1))
        assert cold.one().outcome is Outcome.DONE
        [slowed] = [event for event in cold.events if isinstance(event, SlowedDown)]
        assert (slowed.table, slowed.rule, slowed.cause) == ("event", "cold", "lock contention")
        assert (cold.hot(), cold.cold()) == ([], ALL)


def test_a_reference_that_is_added_meanwhile_is_found_by_tasks(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """A rule is bound anew when its schema changes; here it must not take rows any more, so nothing leaves."""
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["committed"] = lambda: postgres_database.execute(
            "CREATE TABLE note (event_id bigint REFERENCES event (id) ON DELETE CASCADE)"
        )
        failed = cold.one()
        assert (failed.outcome, "cannot take rows" in failed.message) == (Outcome.FAILED, True)
        assert cold.hot() == ALL
        postgres_database.execute("DROP TABLE note")
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([], ALL)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.sampled("sqlite-1-False", "postgres-3-True", "sqlite-5-True", "postgres-5-False")
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 5])
def test_a_process_that_ends_in_a_batch_leaves_every_row_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, committed: bool
) -> None:
    """Before a batch is committed it never was; afterwards its rows are gone, its copies checked, and both counted."""
    fill(database)
    calls, progress, run = [0], Journal.progress, Eviction._transaction

    def die(when: bool) -> None:
        if when is committed:
            calls[0] += 1
            if calls[0] >= batch:
                raise Killed

    def before(self: Journal, *arguments: Any) -> None:
        progress(self, *arguments)
        die(False)

    def after(self: Eviction, *arguments: Any) -> Any:
        done = run(self, *arguments)
        die(True)
        return done

    with cold_keeper(database, tmp_path, SEVERAL) as cold:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "progress", before)
            patch.setattr(Eviction, "_transaction", after)
            with pytest.raises(Killed):
                cold.one()
        hot = cold.hot()
        assert len(hot) < ROWS or not committed
        assert (set(hot) | set(cold.cold()), cold.cold()) == (set(ALL), ALL)
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS - len(hot)
        [status] = cold.keeper.archive.status()
        assert status.evicted.get("event", 0) == ROWS - len(hot)
        database.execute("UPDATE event SET body = 'later' WHERE id = 100")
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([], ALL)
        bodies = {row["id"]: row["body"] for row in cold.archived()}
        assert bodies[100] == ("later" if 100 in hot else "body 100"), "what changed is archived as it is now"
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS


def test_a_writer_who_was_replaced_lets_nothing_go_over_any_connection(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["committed"] = lambda: postgres_database.execute(
            "UPDATE wane.lease SET fence = fence + 1, holder = 'another' WHERE name = 'archive event'"
        )
        done = cold.one()
        assert done.outcome is not Outcome.DONE
        assert cold.hot() == ALL


def test_sqlite_has_one_evictor_because_one_connection_writes_at_a_time(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_database)
    monkeypatch.delattr(evictors, "opened")
    with cold_keeper(sqlite_database, tmp_path, SEVERAL) as cold:
        assert cold.one().evicted == {"event": ROWS}
        assert len(cold.keeper.audit(kind="archive")) == RANGES


def test_a_pace_with_pauses_has_one_evictor(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database)
    monkeypatch.delattr(evictors, "opened")
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        [done] = cold.keeper.archive.run(pace=replace(PACE, duty=0.9)).rules
        assert done.evicted == {"event": ROWS}


@pytest.mark.parametrize("evictors", [1, 2, 4, 8])
@pytest.mark.parametrize("pace", [Pace(), Pace().when_idle(), Pace(duty=0.5)], ids=["default", "idle", "half"])
def test_evictors_that_shared_a_duty_would_take_no_more_rows_than_one(pace: Pace, evictors: int) -> None:
    """Why a pace with pauses has one: a duty is used up by one connection, whichever part of it others would have."""
    seconds, rows = pace.target_seconds, pace.first_batch

    def rate(one: Pace) -> float:
        return rows / (seconds + one.pause_seconds(seconds))

    shared = replace(pace, duty=pace.duty / evictors)
    assert evictors * rate(shared) == pytest.approx(rate(pace))
    assert rate(pace) <= rate(FAST)
