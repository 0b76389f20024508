"""Ranges leave over several connections at a time, each with its own audit row; what one may not take, none does.

Tasks run in this process one after the other, and are retried as Spark retries them; `test_killed_task.py` has them on
Spark.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, PACE, STAYING, cold_keeper, events
from archive.inline import InlineExecutor, without_spark
from archive.test_plain_rows import CHANGES, PLAIN, ROWS, fill
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._archive.delta.failure import TransientFailure
from wane._archive.journal import Journal, batches_of
from wane._archive.pipeline import evictors
from wane._archive.pipeline.evict import Eviction
from wane._archive.spark.executor import Progress, unseen
from wane._prune.batches import Batches
from wane._prune.other_users import OtherUsers
from wane._prune.pace import Pace
from wane._prune.sql_activity import ActivityCounters, activity_of
from wane._prune.sweep import Outcome
from wane.errors import ArchiveBusy, Locked, Unreachable
from wane.events import BatchTaken, SlowedDown, ignore_event

SHORT = "range_rows = 20\nevictors = 3"
SEVERAL = PLAIN.replace("range_rows = 60", SHORT)
FOLLOWING = CONTRACT.replace("range_rows = 60", SHORT)
FOLLOWED = 100
PAUSING = replace(PACE, duty=0.9)
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


@pytest.mark.parametrize("pace", [PACE, PAUSING], ids=["without pauses", "with pauses"])
def test_a_flag_that_closes_stops_all_tasks(postgres_database: PostgresDatabase, tmp_path: Path, pace: Pace) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["batch"] = lambda: cold.keeper.disable("event")
        half = cold.one(pace=pace)
        assert half.outcome is Outcome.OFF
        assert half.evicted == {"event": ROWS - len(cold.hot())} == {"event": 40}
        cold.keeper.enable("event")
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([], ALL)


@pytest.mark.parametrize("pace", [PACE, PAUSING], ids=["without pauses", "with pauses"])
def test_a_run_that_stops_waits_for_no_task(postgres_database: PostgresDatabase, tmp_path: Path, pace: Pace) -> None:
    fill(postgres_database)
    stop = threading.Event()
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["batch"] = stop.set
        stopped = cold.one(stop=stop, pace=pace)
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


class Pauses(threading.Event):
    """Waits for nothing, and knows how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


@pytest.mark.parametrize("others", [True, False])
def test_evictors_share_a_duty_beside_others_and_work_as_one_does_where_there_are_none(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    fill(postgres_database)
    # The sessions of other databases of this server count as others too.
    monkeypatch.setattr(OtherUsers, "quiet_seconds", lambda *_, **__: 0.0 if others else 60.0)
    paused: list[float] = []
    pause = Batches.pause

    def measured(self: Batches) -> None:
        self.seconds, self.stop = 0.02, Pauses()
        pause(self)
        paused.extend(self.stop.seconds)

    monkeypatch.setattr(Batches, "pause", measured)
    small = replace(PACE, duty=0.1, first_batch=4, least_batch=4, most_batch=4)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        done = cold.one(pace=small)
        assert (done.outcome, done.evicted) == (Outcome.DONE, {"event": ROWS}), done.message
        assert (cold.hot(), cold.cold()) == ([], ALL)
    usual = sorted(paused)[len(paused) // 2]
    assert usual == pytest.approx(0.02 * (1 / (0.02 / 3) - 1) if others else 0.02 * (1 / 0.9 - 1), rel=0.01)


@pytest.mark.parametrize("evictors", [1, 2, 4, 8])
@pytest.mark.parametrize("seconds", [0.005, 0.5, 5.0])
def test_evictors_take_as_much_of_the_database_as_one_beside_others(evictors: int, seconds: float) -> None:
    """Each pauses as many times as long, also where a pause is as long as it may be."""

    def share(connections: int) -> float:
        pace = Pace(connections=connections).after_quiet(0.0)
        return connections * seconds / (seconds + pace.pause_seconds(seconds))

    assert share(evictors) == pytest.approx(share(1))


def test_what_evictors_commit_is_no_use_by_others(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    """Also of a batch that is under way while another evictor counts."""
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["committed"] = cold.keeper.disable
        cold.one()
        store = cold.keeper.store
        counters = activity_of(store, batches_of(store.dialect, 1))
        with closing(postgres_database.connect()) as fellow:

            def begin() -> None:
                fellow.execute("BEGIN")
                fellow.execute(
                    "UPDATE wane.archive_range SET gone = jsonb_build_object('batches',"
                    " coalesce((gone->>'batches')::int, 0) + 1) WHERE sweep_id = 1 AND number = 2"
                )

            def commit() -> None:
                fellow.execute("COMMIT")

            def use() -> None:
                postgres_database.execute("UPDATE event SET body = 'of the application' WHERE id = 1")

            def seen() -> list[int]:
                changes = [counted(counters)]
                for step in (begin, commit, begin, use, commit):
                    step()
                    changes.append(counted(counters))
                return [two - one for one, two in pairwise(changes)]

            # Transactions of other databases of the server count too.
            assert [0, 0, 0, 1, 0] in [seen() for _ in range(40)]


def counted(counters: ActivityCounters) -> int:
    found = counters.read()
    assert found is not None
    return found.changes


def test_rows_that_others_follow_leave_in_tasks(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    events(postgres_database, FOLLOWED)
    with cold_keeper(postgres_database, tmp_path, FOLLOWING) as cold:
        cold.at["committed"] = lambda: postgres_database.execute("DELETE FROM event_read WHERE id = 500")
        done = cold.one()
        expected = list(range(1, FOLLOWED + 1))
        assert (done.outcome, done.stale) == (Outcome.DONE, 1), done.message
        reads = sum(n % 3 for n in expected) - 50 % 3
        assert done.evicted == {"event": FOLLOWED - 1, "event_read": reads}
        assert cold.hot() == [50, *STAYING]
        assert cold.cold() == [one for one in expected if one != 50]
        entries = cold.keeper.audit(kind="archive")
        assert len(entries) == FOLLOWED // 20
        assert sum((Counter(entry.counts) for entry in entries), Counter()) == done.evicted


@pytest.mark.parametrize("reason", ["a table is locked", "rows are spared"])
def test_a_rule_whose_batches_would_wait_for_each_other_has_one_evictor(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    events(postgres_database, FOLLOWED)
    spared = reason == "rows are spared"
    if spared:
        postgres_database.execute("DELETE FROM event_guard; DELETE FROM event WHERE id > 10000")
    else:
        postgres_database.execute("ALTER TABLE event_guard DROP CONSTRAINT event_guard_event_id_fkey")
    monkeypatch.delattr(evictors, "opened")
    contract = FOLLOWING.replace('keep = "90d"', 'keep = "90d"\nspare = {{ newest = 2 }}') if spared else FOLLOWING
    with cold_keeper(postgres_database, tmp_path, contract) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted["event"]) == (Outcome.DONE, FOLLOWED - 2 * spared), done.message
