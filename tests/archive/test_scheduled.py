"""`wane run` archives what is due and cares for the archive, under the same leases and fences as every sweep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, STAYING, Cold, cold_keeper, events, insert_events
from archive.test_expire import EXPIRING, GOING, ROWS, archived, more_events
from servers import Database, SqliteDatabase
from wane._archive.maintenance.compact import Compaction
from wane._archive.scheduled import ScheduledArchive
from wane._archive.spark import executor
from wane._db.transaction import Transaction
from wane._prune.sweep import Outcome
from wane._schedule import Ran
from wane.errors import LeaseLost, SparkError
from wane.events import ArchiveMaintained, BatchTaken, BudgetExhausted, RuleFailed


def run(cold: Cold) -> Ran:
    """Run one window of every scheduler, and everything that it began."""
    table = "wane_schedule" if cold.database.store == "sqlite" else "wane.schedule"
    cold.database.execute(f"DELETE FROM {table}")
    messages = "wane_message" if cold.database.store == "sqlite" else "wane.message"
    cold.database.execute(f"DELETE FROM {messages}")
    return cold.keeper.run(max_runs=1)


def work(
    cold: Cold,
    fence: Callable[[Transaction], None] = lambda _: None,
    stop: threading.Event | None = None,
    scheduled: ScheduledArchive | None = None,
) -> Any:
    keeper = cold.keeper
    [table] = keeper.contract.tables
    return (scheduled or ScheduledArchive(keeper.contract)).work(
        keeper.store, table, actor="worker", listener=cold.listen, fence=fence, stop=stop or threading.Event()
    )


@pytest.mark.on_spark
@pytest.mark.sampled("postgres")
def test_a_worker_archives_what_is_due(database: Database, tmp_path: Path) -> None:
    events(database, 70)
    with cold_keeper(database, tmp_path) as cold:
        ran = run(cold)
        assert (ran.sweeps, ran.failures) == (1, 0)
        assert cold.hot() == STAYING
        assert cold.cold() == list(range(1, 71))
        [entry] = cold.keeper.audit(kind="archive", limit=1)
        assert entry.actor.startswith("worker-1@")


WAITING = CONTRACT.replace('keep = "forever"\n', 'keep = "forever"\nleast_rows = 50\nlongest_wait = "200d"\n')


def test_workers_wait_until_a_sweep_is_worth_a_commit(database: Database, tmp_path: Path) -> None:
    events(database, 30)
    with cold_keeper(database, tmp_path, WAITING) as cold:
        [waited] = work(cold)
        assert (waited.outcome, waited.counts) == (Outcome.DONE, {"event": 0})
        assert waited.message == "waits until 50 rows are due, or one has been due for 200d"
        assert (cold.cold(), cold.keeper.archive.status()) == ([], [])
        [entry] = cold.keeper.audit(kind="archive")
        assert entry.counts == {"event": 0}, "the trail says that it was swept"
        [step] = cold.keeper.plan("event.cold").steps
        assert step.waits is not None
        assert (step.waits.least_rows, step.waits.longest_seconds) == (50, 200 * 86_400)
        assert not [one for one in cold.keeper.health().findings if one.code == "overdue"]
        insert_events(database, range(31, 51))
        assert cold.keeper.plan("event.cold").steps[0].waits is None
        [moved] = work(cold)
        assert (moved.counts["event"], cold.cold()) == (50, list(range(1, 51)))


RULES = """
[table.event.rule.cold]
when = ["done"]
where = {{ amount = {{ ">=" = 5 }} }}
keep = "90d"
then = "archive"
with = ["event_read.event_id"]
unless = [{{ referenced_by = "event_guard.event_id" }}]
least_rows = 20
[table.event.rule.small]
when = ["done"]
where = {{ amount = {{ "<" = 5 }} }}
keep = "90d"
then = "archive"
with = ["event_read.event_id"]
unless = [{{ referenced_by = "event_guard.event_id" }}]
least_rows = 1
[table.event.rule.rest]
when = ["failed"]
keep = "90d"
then = "archive"
with = ["event_read.event_id"]
unless = [{{ referenced_by = "event_guard.event_id" }}]
longest_wait = "100d"
"""


def test_each_rule_waits_as_it_declares(database: Database, tmp_path: Path) -> None:
    events(database, 30)
    start, end = WAITING.index("[table.event.rule.cold]"), WAITING.index("[spark]")
    database.execute("UPDATE event SET status = 'failed' WHERE id = 2")
    with cold_keeper(database, tmp_path, WAITING[:start] + RULES + WAITING[end:]) as cold:
        # Rows 20 to 30 are too few, 1 to 19 but 2 wait for none, and the failed one has waited for its 100 days.
        found = {one.rule: (one.counts["event"], one.message) for one in work(cold)}
        assert found["cold"] == (0, "waits until 20 rows are due, or one has been due for 200d")
        assert (found["small"], found["rest"]) == ((18, ""), (1, ""))
        assert cold.cold() == list(range(1, 20))
        waits = {
            one.rule: one.waits and (one.waits.least_rows, one.waits.longest_seconds)
            for one in cold.keeper.plan().steps
        }
        assert waits == {"cold": (20, 200 * 86_400), "small": None, "rest": None}, "nothing is due under the others"
        contract = cold.keeper.contract
        assert [contract.archive_wait("event", rule).days for rule in ("cold", "small", "rest")] == [200, 0, 100]
        insert_events(database, range(31, 41))
        assert {one.rule: one.counts["event"] for one in work(cold)} == {"cold": 21, "small": 0, "rest": 0}


def test_a_row_waits_for_others_no_longer_than_it_may(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 30)
    # The oldest row is 200 days old, and due after 90.
    with cold_keeper(sqlite_database, tmp_path, WAITING.replace('"200d"', '"109d"')) as cold:
        assert work(cold)[0].counts["event"] == 30
        insert_events(sqlite_database, [31])
        assert work(cold)[0].counts["event"] == 0, "it is 31 hours younger than the oldest was"


def test_a_run_by_hand_and_an_unfinished_sweep_do_not_wait(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 30)
    with cold_keeper(sqlite_database, tmp_path, WAITING) as cold:
        cold.at["committed"] = cold.keeper.disable
        assert cold.one().outcome is Outcome.OFF
        cold.keeper.enable()
        assert work(cold)[0].counts["event"] == 30, "what was begun is finished"
        insert_events(sqlite_database, [31])
        assert work(cold)[0].counts["event"] == 0
        assert cold.one().evicted["event"] == 1


@pytest.mark.frames_on_spark
def test_a_worker_lets_the_archive_expire_once_in_a_while(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path, EXPIRING + "[upkeep]\nfiles = 2\n") as cold:
        assert run(cold).failures == 0
        left = sorted(set(range(1, ROWS + 1)) - GOING)
        assert cold.cold() == left
        reported = [event.action for event in cold.events if isinstance(event, ArchiveMaintained)]
        assert set(reported) == {"expire", "compact", "tidy"}
        more_events(sqlite_database, range(1001, 1011))
        assert run(cold).failures == 0
        assert len(cold.cold()) == len(left) + 10, "they expire the next day"
        sqlite_database.execute("UPDATE wane_audit SET executed_at = '2020-01-01T00:00:00.000000Z'")
        assert run(cold).failures == 0
        assert cold.cold() == left


@pytest.mark.frames_on_spark
@pytest.mark.sampled
def test_a_step_of_maintenance_that_fails_stops_no_other(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with archived(sqlite_database, tmp_path, EXPIRING + "[upkeep]\nfiles = 2\n") as cold:
        with monkeypatch.context() as patch:
            patch.setattr(
                executor.SparkExecutor, "spark", _no_spark
            )  # Expiring and compacting need it, tidying does not.
            scheduled = ScheduledArchive(cold.keeper.contract)
            for _ in range(2):  # Again in the next window, and not the next day.
                cold.events.clear()
                done = work(cold, scheduled=scheduled)
                failed = [one.message for one in done if one.outcome is Outcome.FAILED]
                assert failed, done
                assert all("no Spark" in message for message in failed)
                assert len([event for event in cold.events if isinstance(event, RuleFailed)]) == len(failed)
                maintained = [event for event in cold.events if isinstance(event, ArchiveMaintained)]
                assert [event.table for event in maintained if event.action == "tidy"] == ["event_read", "event"]
        done = work(cold, scheduled=scheduled)
        assert [one.outcome for one in done] == [Outcome.DONE]
        assert cold.cold() == sorted(set(range(1, ROWS + 1)) - GOING)


def test_a_step_of_maintenance_that_fails_unexpectedly_stops_no_other(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a mistake of ours\nand a page of Java")

    monkeypatch.setattr(Compaction, "compact", broken)
    with archived(database, tmp_path, EXPIRING) as cold:
        scheduled = ScheduledArchive(cold.keeper.contract)
        for _ in range(2):  # Again in the next window, and not the next day.
            cold.events.clear()
            failed = [one.message for one in work(cold, scheduled=scheduled) if one.outcome is Outcome.FAILED]
            assert len(failed) == 2, "one for each table of the archive"
            assert all("KeyError" in message and "a mistake of ours" in message for message in failed)
            assert len([event for event in cold.events if isinstance(event, RuleFailed)]) == 2
            maintained = [event for event in cold.events if isinstance(event, ArchiveMaintained)]
            assert [event.table for event in maintained if event.action == "tidy"] == ["event_read", "event"]
        assert cold.cold() == sorted(set(range(1, ROWS + 1)) - GOING)


def _no_spark(_: Any) -> None:
    raise SparkError("no Spark")


def test_a_worker_moves_one_sweep_and_leaves_the_rest_to_the_next_window(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    events(sqlite_database, 140)
    with cold_keeper(sqlite_database, tmp_path, CONTRACT + "sweep_rows = 70\n") as cold:
        assert run(cold).failures == 0
        assert len(cold.cold()) == 70
        assert len([event for event in cold.events if isinstance(event, BudgetExhausted)]) == 1
        [swept, *_] = work(cold)
        assert (swept.outcome, swept.counts["event"]) == (Outcome.DONE, 70), (
            "as many as it may move, and no more are due"
        )
        assert len([event for event in cold.events if isinstance(event, BudgetExhausted)]) == 1


@pytest.mark.on_spark
def test_a_worker_with_nothing_to_archive_never_starts_spark(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(executor, "session", start)
    events(sqlite_database, 0)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        assert run(cold).failures == 0


def test_a_worker_that_lost_its_lease_lets_nothing_go(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 100)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        lost: list[bool] = []
        cold.at["committed"] = lambda: lost.append(True)

        def fence(_: Transaction) -> None:
            if lost:
                raise LeaseLost("another's")

        [swept] = work(cold, fence)
        assert swept.outcome is Outcome.STOPPED
        assert not [event for event in cold.events if isinstance(event, BatchTaken)]
        assert len(cold.hot()) == 100 + len(STAYING)
        lost.clear()
        assert work(cold)[0].outcome is Outcome.DONE
        assert cold.hot() == STAYING


def test_a_worker_lets_go_no_batch_after_it_lost_its_lease(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 100)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        lost: list[bool] = []
        cold.at["batch"] = lambda: lost.append(True)

        def fence(_: Transaction) -> None:
            if lost:
                raise LeaseLost("another's")

        cold.keeper.contract = replace(cold.keeper.contract, sweep=replace(cold.keeper.contract.sweep, batch_ms=1))
        [swept] = work(cold, fence)
        assert swept.outcome is Outcome.STOPPED
        [batch] = [event for event in cold.events if isinstance(event, BatchTaken)]
        assert len(cold.hot()) == 100 - batch.counts["event"] + len(STAYING)


def test_a_worker_that_is_reported_to_stop_stops(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 100)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        stop = threading.Event()
        cold.at["committed"] = stop.set
        [swept] = work(cold, stop=stop)
        assert swept.outcome is Outcome.STOPPED
        assert len(cold.hot()) == 100 + len(STAYING)


def test_a_manual_archive_run_is_not_disturbed(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        seen: list[Any] = []
        cold.at["written"] = lambda: seen.extend(work(cold))
        assert cold.one().outcome is Outcome.DONE
        assert [one.outcome for one in seen] == [Outcome.OFF]
        assert "writes to its archive" in seen[0].message


def test_a_worker_that_cannot_archive_reports_it_and_retries(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path, CONTRACT + '[queue]\nattempts = 2\nbackoff = "1s"\n') as cold:
        (tmp_path / "cold").write_text("a file where the archive should be")
        ran = run(cold)
        assert ran.failures > 0
        assert [letter.message.kind for letter in cold.keeper.queue("retention").dead_letters()] == [
            "retention_sweep_event"
        ]
        assert len(cold.hot()) == 20 + len(STAYING)
        (tmp_path / "cold").unlink()
        insert_events(sqlite_database, range(30, 40))
        assert run(cold).failures == 0
        assert cold.hot() == STAYING


FUSED = CONTRACT + "sweep_rows = 30\n[sweep]\nfuse_rows = 20\n"


def test_a_worker_that_would_archive_most_of_a_table_waits_for_a_person(database: Database, tmp_path: Path) -> None:
    events(database, 70)
    with cold_keeper(database, tmp_path, FUSED) as cold:
        assert run(cold).failures == 1
        [swept] = work(cold)
        assert (swept.outcome, swept.rows) == (Outcome.FUSED, 0)
        assert "70 of 73 rows are due (95.9%)" in swept.message
        assert "approve it with `wane approve event.cold`" in swept.message
        assert (len(cold.hot()), cold.cold(), cold.keeper.archive.status()) == (73, [], [])
        assert cold.one().outcome is Outcome.DONE, "a person asked for it"
        assert cold.hot() == STAYING
        insert_events(database, range(101, 119))
        [swept, *_] = work(cold)
        assert (swept.outcome, swept.counts["event"]) == (Outcome.DONE, 18), "fewer are never too many"


def test_a_sweep_that_was_begun_is_finished_whatever_its_share(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 70)
    stop = threading.Event()
    with cold_keeper(sqlite_database, tmp_path, FUSED) as cold:
        cold.at["committed"] = stop.set
        assert cold.one(stop=stop).outcome is Outcome.STOPPED
        assert len(cold.hot()) == 73
        [swept] = work(cold)
        assert (swept.outcome, swept.counts["event"]) == (Outcome.FUSED, 30), "the next one waits"
        assert len(cold.hot()) == 43


def test_an_approved_plan_is_archived_window_by_window(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 70)
    with cold_keeper(sqlite_database, tmp_path, FUSED) as cold:
        assert work(cold)[0].outcome is Outcome.FUSED
        assert [one.code for one in cold.keeper.check_live() if one.code == "fused-rule"] == ["fused-rule"]
        [approval] = cold.keeper.approve(cold.keeper.review())
        assert (approval.rule, approval.rows) == ("cold", 70)
        assert [work(cold)[0].counts["event"] for _ in range(3)] == [30, 30, 10]
        assert (cold.hot(), cold.keeper.approvals()) == (STAYING, [])
