"""The runner: schedulers and workers in one process, until a stop is requested; what fails is reported and tried again,
and never ends the loop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from conftest import POSTGRES_IDS
from prune.keeping import table
from races.racing import Background, await_true
from schedule.scheduling import ALL, SLOWLY, World, beside, contract_of, create_jobs, world
from servers import Database, SqliteDatabase
from wane._async_keeper import AsyncKeeper
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract, Scheduler
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._prune.pace import Pace
from wane._schedule import Chore, Ran, Runner, executor, runner
from wane._schedule.adoption import adopt, require_in_force
from wane._schedule.sql import Timetable
from wane.errors import NotInForce, NotMigrated, WaneError, WrongArgument, WrongArgumentType
from wane.events import BatchTaken, Event, HeartbeatWritten, RuleFailed, SweepsEnqueued, TickFailed, WorkFailed

SECOND = Scheduler("tick", timedelta(seconds=1))
DAILY = Scheduler("tick", timedelta(days=1))


def contract(*tables: Any, every: Scheduler = DAILY, **settings: Any) -> Contract:
    return contract_of(*tables, schedulers=(every,), **settings)


@contextmanager
def running(one: World, **options: Any) -> Iterator[tuple[Background[Ran], threading.Event]]:
    """Yield a runner in the background, which is stopped in the end."""
    stop = threading.Event()
    run = Background(one.runner(stop=stop, **options).run)
    try:
        yield run, stop
    finally:
        stop.set()
        if run.running:
            run.result()


# --- A whole run ------------------------------------------------------------------------------------------------------


def test_a_run_ends_after_its_windows_when_their_sweeps_are_done(database: Database) -> None:
    create_jobs(database, 700)
    create_jobs(database, 10, "note")
    with world(database, contract(table("job"), table("note"))) as one:
        ran = one.runner(workers=2, max_runs=1).run()
        assert ran == Ran(ticks=1, sweeps=2, failures=0)
        assert (one.count("job"), one.count("note")) == (1, 1)
        assert one.states() == ["done", "done"]
        assert one.keeper.status().executors == (), "who leaves on purpose is not missed"
        assert {heartbeat.role for heartbeat in one.reported(HeartbeatWritten)} == {"scheduler", "worker"}


def test_windows_follow_each_other(database: Database) -> None:
    create_jobs(database, 10)
    with world(database, contract(every=SECOND)) as one:
        ran = one.runner(max_runs=2).run()
        assert (ran.ticks, ran.failures) == (2, 0)
        assert 1 <= ran.sweeps <= 2, "a sweep that is still at work does the next window's work too"
        assert len({event.window for event in one.reported(SweepsEnqueued)}) == 2


def test_schedulers_only_and_workers_only(database: Database) -> None:
    create_jobs(database, 10)
    with world(database, contract()) as one, beside(one) as two:
        assert one.runner(workers=0, max_runs=1).run() == Ran(ticks=1)
        assert one.states() == ["ready"]
        assert two.runner(schedulers=[], max_runs=1).run() == Ran(sweeps=1)
        assert one.states() == ["done"]
        assert {heartbeat.role for heartbeat in one.reported(HeartbeatWritten)} == {"scheduler"}
        assert {heartbeat.role for heartbeat in two.reported(HeartbeatWritten)} == {"worker"}


def test_named_schedulers(database: Database) -> None:
    create_jobs(database, 10)
    create_jobs(database, 10, "note")
    schedulers = (Scheduler("tick", timedelta(days=1)), Scheduler("slow", timedelta(days=2)))
    with world(database, contract_of(table("job"), table("note", scheduler="slow"), schedulers=schedulers)) as one:
        assert one.runner(schedulers=["slow"], max_runs=1).run() == Ran(ticks=1, sweeps=1)
        assert (one.count("job"), one.count("note")) == (11, 1)


def test_a_run_of_some_windows_does_not_spin_while_a_sweep_waits_for_its_next_attempt(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is not there: the sweep fails, and comes back after a pause in which nothing is to do."""
    with world(database, contract(attempts=2, backoff=timedelta(seconds=1))) as one:
        polls = 0
        original = type(one.queue).messages

        def counting(this: Any, **options: Any) -> Any:
            nonlocal polls
            polls += 1
            return original(this, **options)

        monkeypatch.setattr(type(one.queue), "messages", counting)
        ran = one.runner(max_runs=1).run()
        assert (ran.ticks, ran.sweeps, ran.failures) == (1, 0, 2)
        assert one.states() == ["dead"]
        assert polls < 40


# --- Stopping ---------------------------------------------------------------------------------------------------------


def test_a_stop_ends_a_sweep_within_one_batch(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the pause after a batch, which lasts for longer here than a test may take."""
    monkeypatch.setattr(Pace, "pause_seconds", lambda *_: 3_600.0)
    create_jobs(database, 5_000)
    with world(database, contract(sweep=SLOWLY)) as one:
        with running(one) as (run, stop):
            await_true(lambda: bool(one.reported(BatchTaken)), "a batch was taken")
            stop.set()
            assert run.result() == Ran(ticks=1, sweeps=0, failures=0), "a stop is no failure"
        [batch] = one.reported(BatchTaken)
        assert one.count("job") == 5_001 - batch.counts["job"]
        [message] = one.messages()
        assert message.release_reason == "job.old: stop requested"
        assert one.keeper.status().executors == ()


def test_a_runner_that_waits_stops_at_once(database: Database) -> None:
    """Its next window begins tomorrow, and no loop waits for longer than a second before it checks for a stop."""
    create_jobs(database)
    with world(database, contract()) as one, running(one, workers=3) as (run, stop):
        await_true(lambda: one.states() == ["done"], "the window is done")
        stop.set()
        run.result()
    assert runner._LONGEST_WAIT_SECONDS <= 1


def test_a_stop_that_was_set_before_does_nothing(database: Database) -> None:
    create_jobs(database, 5)
    stop = threading.Event()
    stop.set()
    with world(database, contract()) as one:
        assert one.runner(stop=stop).run() == Ran()
        assert one.count("job") == 6


def test_an_interrupt_in_the_calling_thread_stops_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(database, 5_000)
    with world(database, contract(sweep=SLOWLY)) as one:
        runner = one.runner()
        original = runner._wait

        def interrupted(self: Runner, threads: list[threading.Thread]) -> None:
            if not one.reported(BatchTaken):
                await_true(lambda: bool(one.reported(BatchTaken)), "a batch was taken")
                raise KeyboardInterrupt
            original(threads)

        monkeypatch.setattr(Runner, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner.run()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("wane-")]
        assert one.count("job") > 1


# --- What fails -------------------------------------------------------------------------------------------------------


def test_a_failing_scheduler_is_reported_and_counted_with_growing_pauses(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(database, 5)
    schedulers = (Scheduler("broken", timedelta(days=1)), Scheduler("tick", timedelta(days=1)))
    with world(database, contract_of(table("job"), schedulers=schedulers)) as one:
        timestamps: list[float] = []
        original = Timetable(one.store.dialect).__class__.lock_window

        def failing(this: Any, run: Any, scheduler: str, now: Any) -> Any:
            if scheduler == "broken":
                timestamps.append(time.monotonic())
                raise OSError("out of paper\nmore")
            return original(this, run, scheduler, now)

        monkeypatch.setattr(Timetable(one.store.dialect).__class__, "lock_window", failing)
        with running(one) as (run, stop):
            await_true(lambda: one.states() == ["done"], "the other scheduler works")
            await_true(lambda: len(timestamps) == 3, "the broken one is tried again")
            stop.set()
            ran = run.result()
        reported = one.reported(TickFailed)
        assert {(event.scheduler, event.error) for event in reported} == {("broken", "out of paper")}
        assert ran.failures == len(reported) == len(timestamps)
        assert ran.sweeps == 1
        assert timestamps[2] - timestamps[1] > 0.45, "half a second, then a second, half of it random"


def test_a_worker_that_fails_before_its_sweep_is_reported_and_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(database, 5)
    with world(database, contract()) as one:
        failures = iter([ValueError("a bug"), WaneError("a refusal", "a hint")])
        original = type(one.queue).reserve

        def failing(this: Any, **options: Any) -> Any:
            for problem in failures:
                raise problem
            return original(this, **options)

        monkeypatch.setattr(type(one.queue), "reserve", failing)
        ran = one.runner(max_runs=1).run()
        assert (ran.sweeps, ran.failures) == (1, 2)
        assert [event.error for event in one.reported(WorkFailed)] == ["a bug", "a refusal"]


def test_a_listener_that_fails_ends_nothing(database: Database) -> None:
    create_jobs(database, 5)
    received: list[Event] = []

    def listener(event: Event) -> None:
        received.append(event)
        if len(received) < 7:
            raise RuntimeError("nobody listens to the listener")

    with world(database, contract(lease=timedelta(seconds=1), attempts=99)) as one:
        runner = Runner(one.store, one.contract, listener=listener, stop=threading.Event())
        run = Background(runner.run)
        try:
            await_true(lambda: one.states() == ["done"], "the sweep is done in the end")
        finally:
            runner.stop.set()
        run.result()
        assert one.count("job") == 1


def test_a_table_that_is_dropped_and_recreated_is_swept_after_that(database: Database) -> None:
    create_jobs(database, 5)
    with world(database, contract(every=SECOND, attempts=1)) as one, running(one):
        await_true(lambda: one.count("job") == 1, "it sweeps")
        database.execute("DROP TABLE job")
        await_true(lambda: bool(one.reported(RuleFailed)), "it fails")
        create_jobs(database, 7)
        await_true(lambda: one.count("job") == 1, "it sweeps again")
        await_true(lambda: not one.queue.dead_letters(), "and the dead letter is dealt with")


# --- The contract in force --------------------------------------------------------------------------------------------


def test_the_first_runner_puts_its_contract_in_force_and_another_is_refused(database: Database) -> None:
    create_jobs(database, 5)
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        first = contract(every=SECOND)
        second = contract(table("job", scheduler=None), every=SECOND)
        keeper = Keeper(first, store, actor="anna")
        assert keeper.status().in_force is None
        keeper.run(max_runs=1)
        found = keeper.status().in_force
        assert found is not None
        assert (found.fingerprint, found.adopted_by) == (fingerprint(first), "anna")
        other = Keeper(second, store, actor="ben")
        with pytest.raises(NotInForce, match=r"is .*, adopted by anna on .* this one is") as refused:
            other.run(max_runs=1)
        assert "wane adopt" in refused.value.hint
        adopted = other.adopt()
        assert adopted.adopted_by == "ben"
        assert Keeper(second, store, actor="carl").adopt() == adopted, "it was in force already"
        other.run(max_runs=1)
        with pytest.raises(NotInForce):
            keeper.run(max_runs=1)


def test_prose_and_pace_make_no_other_contract(database: Database) -> None:
    with world(database, contract()) as one:
        require_in_force(one.store, contract(sweep=SLOWLY, pool="another"), by="tester")


def test_two_first_runners_agree_on_one_contract(database: Database) -> None:
    contracts = [contract(), contract(table("job", scheduler=None))]
    with open_store(resolve_url(database.url)) as store:
        store.migrate()

        def try_it(mine: Contract) -> str:
            with store.clone() as own:
                try:
                    return require_in_force(own, mine, by="tester").fingerprint
                except NotInForce:
                    return "refused"

        answers = [Background(lambda mine=mine: try_it(mine)) for mine in contracts]  # type: ignore[misc]
        reported = sorted(answer.result() for answer in answers)
        assert reported.count("refused") == 1


def test_a_runner_stops_when_another_contract_is_adopted(database: Database) -> None:
    create_jobs(database, 5_000)
    other = contract(table("other"))
    with world(database, contract(sweep=SLOWLY)) as one, beside(one, other) as two:
        stop = threading.Event()
        run = Background(one.runner(stop=stop).run)
        await_true(lambda: bool(one.reported(BatchTaken)), "it sweeps")
        adopt(two.store, other, by="two")
        with pytest.raises(NotInForce):
            run.result()
        assert not stop.is_set(), "what belongs to the caller is left as it was"
        assert one.count("job") > 1
        assert one.keeper.status().executors == ()


# --- Heartbeats -------------------------------------------------------------------------------------------------------


def test_every_executor_updates_its_heartbeat_and_its_silence_is_noticed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(database)
    monkeypatch.setattr(executor, "HEARTBEAT_SECONDS", 0.05)
    with world(database, contract()) as one:
        with running(one, workers=2):
            await_true(lambda: len(one.keeper.status().executors) == 3, "all are there")
            first = {found.heartbeat.executor: found.heartbeat for found in one.keeper.status().executors}
            await_true(
                lambda: all(
                    found.heartbeat.beat_at > first[found.heartbeat.executor].beat_at
                    for found in one.keeper.status().executors
                ),
                "all send heartbeats again",
            )
            found = one.keeper.status()
            assert [one.heartbeat.role for one in found.executors] == ["scheduler", "worker", "worker"]
            assert {one.heartbeat.started_at for one in found.executors} == {
                heartbeat.started_at for heartbeat in first.values()
            }
            assert not any(one.other_contract for one in found.executors)
            assert one.count(one.own("heartbeat")) == 3
        beats = one.reported(HeartbeatWritten)
        assert len(beats) > 6
        assert one.count(one.own("heartbeat")) == 0


def test_silence_is_noticed_after_three_beats(database: Database) -> None:
    with world(database, contract()) as one:
        mine = executor.Executor("worker", "0" * 16, one.events.append)
        mine.heartbeat(one.store, "sweeping job")
        [found] = one.keeper.status().executors
        assert (found.silent, found.other_contract, found.heartbeat.doing) == (False, True, "sweeping job")
        for seconds, silent in ((29, False), (31, True)):
            timestamp = one.store.now() - timedelta(seconds=seconds)
            stamp = one.store.dialect.encode_time(timestamp)
            database.execute(f"UPDATE {one.own('heartbeat')} SET beat_at = ?", (stamp,))
            [found] = one.keeper.status().executors
            assert found.silent is silent
        assert not one.keeper.status().alive


def test_a_heartbeat_is_written_when_something_changed_or_after_a_while(database: Database) -> None:
    with world(database, contract()) as one:
        mine = executor.Executor("worker", "0" * 16, one.events.append)
        for doing in ("waiting", "waiting", None, "sweeping job", "waiting"):
            mine.heartbeat(one.store, doing)
        assert [heartbeat.doing for heartbeat in one.reported(HeartbeatWritten)] == [
            "waiting",
            "sweeping job",
            "waiting",
        ]
        mine.leave(one.store)
        assert one.count(one.own("heartbeat")) == 0


# --- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "reported"),
    [
        ({"workers": -1}, WrongArgument, "workers must be from 0 to 64, not -1"),
        ({"workers": 65}, WrongArgument, "workers must be from 0 to 64"),
        ({"workers": True}, WrongArgumentType, "workers must be a whole number"),
        ({"workers": 1.5}, WrongArgumentType, "workers must be a whole number"),
        ({"workers": "2"}, WrongArgumentType, "workers must be a whole number"),
        ({"max_runs": 0}, WrongArgument, "max_runs must be from 1"),
        ({"max_runs": "1"}, WrongArgumentType, "max_runs must be a whole number"),
        ({"max_runs": 10**10}, WrongArgument, "max_runs must be from 1"),
        ({"schedulers": "tick"}, WrongArgumentType, "schedulers must be a list of names"),
        ({"schedulers": 5}, WrongArgumentType, "schedulers must be a list of names"),
        ({"schedulers": ["tik"]}, WrongArgument, "no scheduler 'tik'"),
        ({"schedulers": [None]}, WrongArgument, "no scheduler None"),
        ({"schedulers": [], "workers": 0}, WrongArgument, "nothing to run"),
        ({"stop": 5}, WrongArgumentType, "stop must be a threading.Event"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    sqlite_database: SqliteDatabase, options: dict[str, Any], error: type[Exception], reported: str
) -> None:
    with world(sqlite_database, contract()) as one:
        with pytest.raises(error, match=reported):
            one.keeper.run(**{"max_runs": 1, **options})
        assert one.messages() == []


@pytest.mark.unmigrated
def test_a_database_without_wanes_tables_is_refused(database: Database) -> None:
    with open_store(resolve_url(database.url)) as store:
        keeper = Keeper(contract(), store)
        for call in (lambda: keeper.run(max_runs=1), keeper.adopt, keeper.status):
            with pytest.raises(NotMigrated):
                call()


# --- asyncio ----------------------------------------------------------------------------------------------------------


def awaited(one: World, work: Callable[[AsyncKeeper], Any]) -> Any:
    async def go() -> Any:
        return await work(AsyncKeeper(one.keeper))

    return asyncio.run(go())


def test_a_run_can_be_awaited(database: Database) -> None:
    create_jobs(database, 5)
    with world(database, contract()) as one:
        assert awaited(one, lambda keeper: keeper.run(max_runs=1)) == Ran(ticks=1, sweeps=1)
        assert one.count("job") == 1
        with pytest.raises(WrongArgument):
            awaited(one, lambda keeper: keeper.run(workers=99))
        with pytest.raises(WrongArgumentType, match=r"asyncio\.Event"):
            awaited(one, lambda keeper: keeper.run(stop=threading.Event()))  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["event", "cancel"])
def test_an_awaited_run_stops_within_a_batch_and_other_calls_go_on_beside_it(database: Database, how: str) -> None:
    create_jobs(database, 5_000)
    with world(database, contract(sweep=SLOWLY)) as one:

        async def go() -> Any:
            keeper = AsyncKeeper(one.keeper)
            stop = asyncio.Event()
            run = asyncio.ensure_future(keeper.run(stop=stop))
            while not one.reported(BatchTaken):
                assert (await keeper.status()).enabled
                await asyncio.sleep(0.01)
            if how == "event":
                stop.set()
                return await run
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            return None

        began = time.monotonic()
        asyncio.run(go())
        assert time.monotonic() - began < 10
        assert one.count("job") > 1
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("wane-work")]
        assert one.keeper.status().executors == ()


# --- Clocks of clients ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server_id", POSTGRES_IDS[:1])
def test_clients_whose_clocks_are_hours_wrong_do_not_matter_on_postgres(postgres_database: Database) -> None:
    """One is five hours ahead, one five hours behind; windows, leases and messages go by the server's clock."""
    from pathlib import Path

    create_jobs(postgres_database, 2_000)
    program = str(Path(__file__).with_name("skewed.py"))
    with world(postgres_database, contract(every=SECOND, sweep=ALL)) as one:
        processes = [
            subprocess.Popen(
                [sys.executable, program, postgres_database.url, str(hours)], stdout=subprocess.PIPE, text=True
            )
            for hours in (5, -5)
        ]
        try:
            for process in processes:
                out, _ = process.communicate(timeout=60)
                assert process.returncode == 0, out
                assert "clock is wrong" in out
        finally:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    process.communicate()
        now = one.store.now()
        windows = [message.target["window"] for message in one.messages()]
        assert 1 <= len(windows) == len(set(windows)) <= 2, "each opened one; a sweep at work swallows the next"
        assert set(one.states()) == {"done"}
        for message in one.messages():
            assert message.finished_at is not None
            assert abs(now - message.created_at) < timedelta(minutes=2)
            assert abs(now - message.finished_at) < timedelta(minutes=2)
            assert message.deliveries == 1
        assert one.count("job") == 1
        assert sum(entry.rows for entry in one.keeper.audit()) == 2_000


def test_a_chore_that_takes_long_delays_no_window(database: Database) -> None:
    create_jobs(database, 10)
    enqueued = threading.Event()
    seen: list[bool] = []

    def report(event: Event) -> None:
        if isinstance(event, SweepsEnqueued):
            enqueued.set()

    with world(database, contract(table(), every=SECOND)) as one:
        chore = Chore(3_600, lambda *_: seen.append(enqueued.wait(30)))
        runner = Runner(one.store, one.contract, listener=report, max_runs=1, workers=0, chores=[chore])
        assert runner.run() == Ran(ticks=1)
    assert seen == [True]


def test_a_chore_is_due_at_once_and_then_when_its_interval_is_over() -> None:
    hourly, always = Chore(3_600, lambda *_: None), Chore(0, lambda *_: None)
    assert [hourly.is_due() for _ in range(2)] == [True, False]
    assert [always.is_due() for _ in range(2)] == [True, True]
