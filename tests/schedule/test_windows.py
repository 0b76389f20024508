"""Windows: due times live in the database, and each window's sweeps are enqueued once, by whichever process comes
first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from prune.keeping import KEEP_WEEK, rule, table
from races.racing import Background, Paused, await_true, await_waiting, backend
from schedule.scheduling import EVERY, NOON, Clock, World, beside, contract_of, create_jobs, world
from servers import Database, PostgresDatabase
from wane._contract.cron import Cron
from wane._contract.duration import FOREVER
from wane._contract.maintenance import Within
from wane._contract.model import Scheduler, ToArchive
from wane._db.postgres.transaction import PostgresTransaction
from wane._schedule.adoption import adopt
from wane._schedule.scheduler import swept_tables
from wane._schedule.sql import Timetable
from wane._schedule.status import read_status
from wane._schedule.timing import window_start
from wane.errors import NotInForce
from wane.events import SweepsEnqueued
from wane.queue import MessageState

MINUTE = timedelta(minutes=1)


def finish(one: World) -> None:
    """Complete every message that waits."""
    while reservation := one.queue.reserve():
        assert one.queue.ack(reservation.message_id, reservation.token).accepted


def keys(one: World) -> list[str]:
    return [message.idempotency_key for message in one.messages()]


# --- Due times --------------------------------------------------------------------------------------------------------


def test_a_new_scheduler_is_due_at_once_and_then_once_per_window(database: Database, clock: Clock) -> None:
    clock.advance(minutes=2)
    with world(database) as one:
        first = one.tick()
        assert first is not None
        assert (first.window, first.next_at, first.now) == (NOON, NOON + EVERY, NOON + 2 * MINUTE)
        assert first.enqueued == ("retention_sweep_job",)
        finish(one)
        for _ in range(3):
            repeated = one.tick()
            assert repeated is not None
            assert (repeated.window, repeated.enqueued, repeated.next_at) == (None, (), NOON + EVERY)
        clock.now = NOON + EVERY - timedelta(microseconds=1)
        assert one.opened() is None
        clock.now = NOON + EVERY
        assert one.opened() == NOON + EVERY
        assert keys(one) == [
            "retention_sweep_job@2100-06-01T12:00:00+00:00",
            "retention_sweep_job@2100-06-01T12:05:00+00:00",
        ]


def test_a_restart_more_often_than_the_interval_neither_starves_nor_doubles(database: Database, clock: Clock) -> None:
    opened = []
    with world(database):
        pass
    for _ in range(21):
        with world(database) as one:  # A process that lives for a second, every minute.
            opened += [window] if (window := one.opened()) else []
            finish(one)
        clock.advance(minutes=1)
    assert opened == [NOON + number * EVERY for number in range(5)]


def test_missed_windows_run_once(database: Database, clock: Clock) -> None:
    with world(database) as one:
        assert one.opened() == NOON
        finish(one)
        clock.advance(hours=7, minutes=3)
        assert one.opened() == NOON + timedelta(hours=7)
        assert one.opened() is None
        assert len(one.messages()) == 2


@pytest.mark.parametrize(("every", "due"), [(timedelta(minutes=1), 1), (timedelta(hours=1), 5)])
def test_a_changed_interval(database: Database, clock: Clock, every: timedelta, due: int) -> None:
    """A shorter one counts at once; a longer one after the window that is open."""
    with world(database) as one:
        assert one.opened() == NOON
        finish(one)
        changed = contract_of(schedulers=(Scheduler("tick", every),))
        adopt(one.store, changed, by="tester")
        with beside(one, changed) as other:
            for minute in range(1, due):
                clock.now = NOON + minute * MINUTE
                assert other.opened() is None
            clock.now = NOON + due * MINUTE
            assert other.opened() == window_start(clock.now, every)
            ticked = other.tick()
            assert ticked is not None
            assert ticked.next_at == window_start(clock.now, every) + every


def test_a_clock_far_ahead_that_is_corrected_stops_nothing(database: Database, clock: Clock) -> None:
    with world(database) as one:
        assert one.opened() == NOON
        finish(one)
        clock.now = datetime(2199, 1, 1, tzinfo=UTC)
        assert one.opened() == clock.now
        finish(one)
        clock.now = NOON + EVERY + MINUTE
        assert one.opened() == NOON + EVERY
        finish(one)
        clock.now = NOON + 2 * EVERY
        assert one.opened() == NOON + 2 * EVERY


def test_a_clock_that_is_set_back_enqueues_no_window_twice(database: Database, clock: Clock) -> None:
    with world(database) as one:
        one.tick()
        clock.advance(minutes=5)
        one.tick()
        finish(one)
        clock.advance(minutes=-5)
        for _ in range(3):
            one.tick()
        assert len(keys(one)) == len(set(keys(one)))
        assert one.states() == ["done"] * len(one.states())


# --- Times of day -----------------------------------------------------------------------------------------------------

DAY = timedelta(days=1)
DAILY = (Scheduler("tick", DAY, Cron("15 14 * * *", "Europe/Berlin")),)
QUARTER = NOON + timedelta(minutes=15)
"""14:15 in Berlin."""


def test_a_cron_expression_waits_for_its_time_and_is_opened_once(database: Database, clock: Clock) -> None:
    with world(database, contract_of(schedulers=DAILY)) as one, beside(one) as two:
        for process in (one, two):
            ticked = process.tick()
            assert ticked is not None
            assert (ticked.window, ticked.next_at) == (None, QUARTER)
        clock.now = QUARTER - timedelta(microseconds=1)
        assert one.opened() is None
        clock.now = QUARTER + timedelta(seconds=2)
        assert [process.opened() for process in (two, one)] == [QUARTER, None]
        finish(one)
        clock.now = QUARTER + DAY - timedelta(microseconds=1)
        assert one.opened() is None
        clock.now = QUARTER + 3 * DAY + timedelta(hours=7)
        assert one.opened() == QUARTER + 3 * DAY, "what was missed runs once"
        assert one.opened() is None
        finish(one)
        clock.now = QUARTER + 4 * DAY
        assert one.opened() == QUARTER + 4 * DAY


def test_an_interval_that_becomes_a_cron_expression_waits_for_its_time(database: Database, clock: Clock) -> None:
    with world(database) as one:
        assert one.opened() == NOON
        finish(one)
        adopt(one.store, changed := contract_of(schedulers=DAILY), by="tester")
        with beside(one, changed) as other:
            clock.now = NOON + 2 * EVERY
            assert other.opened() is None
            clock.now = QUARTER
            assert other.opened() == QUARTER


def test_a_cron_window_that_a_wrong_clock_opened_is_forgotten(database: Database, clock: Clock) -> None:
    with world(database, contract_of(schedulers=DAILY)) as one:
        clock.now = datetime(2199, 1, 1, tzinfo=UTC)
        assert one.opened() is None
        clock.now = NOON
        ticked = one.tick()
        assert ticked is not None
        assert (ticked.window, ticked.next_at) == (None, QUARTER)


def test_outside_its_maintenance_window_nothing_is_opened(database: Database, clock: Clock) -> None:
    hours = (Scheduler("tick", EVERY, within=Within("14:08", "14:20", "Europe/Berlin")),)
    opening = NOON + 8 * MINUTE
    with world(database, contract_of(schedulers=hours)) as one:
        ticked = one.tick()
        assert ticked is not None
        assert (ticked.window, ticked.next_at) == (None, opening)
        clock.now = opening
        assert one.opened() == NOON + EVERY, "the window of five minutes that it is in"
        finish(one)
        ticked = one.tick()
        assert ticked is not None
        assert ticked.next_at == NOON + 2 * EVERY
        clock.now = NOON + 3 * EVERY
        ticked = one.tick()
        assert ticked is not None
        assert (ticked.window, ticked.next_at) == (NOON + 3 * EVERY, opening + DAY)
        finish(one)
        clock.now = NOON + timedelta(hours=9)
        ticked = one.tick()
        assert ticked is not None
        assert (ticked.window, ticked.next_at) == (None, opening + DAY)


def test_the_status_states_when_the_next_window_begins(database: Database, clock: Clock) -> None:
    schedulers = (*DAILY, Scheduler("often", EVERY, within=Within("01:00", "05:00")))
    with world(database, contract_of(schedulers=schedulers)) as one:
        before = {found.name: found.next_at for found in read_status(one.store, one.contract).schedulers}
        assert before == {"tick": QUARTER, "often": None}
        one.tick()
        one.tick("often")
        found = read_status(one.store, one.contract).schedulers
        assert [one.next_at for one in found] == [QUARTER, NOON + timedelta(hours=13)]
        assert [one.when for one in found] == ["at 15 14 * * * Europe/Berlin", "every 5m, only 01:00–05:00 UTC"]
        assert [one.every_seconds for one in found] == [86_400, 20 * 3_600 + 300]


@pytest.mark.parametrize("seconds", [1, 7, 86_400, 90_061])
def test_windows_are_the_same_in_all_processes(seconds: int) -> None:
    every = timedelta(seconds=seconds)
    start = window_start(NOON + timedelta(seconds=3), every)
    assert start <= NOON + timedelta(seconds=3) < start + every
    assert window_start(start, every) == start
    assert window_start(start - timedelta(microseconds=1), every) == start - every


# --- What is enqueued -------------------------------------------------------------------------------------------------


def test_one_message_per_table_and_window_names_table_scheduler_and_window(database: Database, clock: Clock) -> None:
    tables = (table("job"), table("ns.note"), table("other", scheduler="slow"))
    schedulers = (Scheduler("tick", EVERY), Scheduler("slow", timedelta(hours=1)))
    with world(database, contract_of(*tables, schedulers=schedulers)) as one:
        assert one.opened() == NOON
        assert [message.kind for message in one.messages()] == ["retention_sweep_job", "retention_sweep_ns.note"]
        assert [message.target for message in one.messages()] == [
            {"table": name, "scheduler": "tick", "window": "2100-06-01T12:00:00+00:00"} for name in ("job", "ns.note")
        ]
        [reported] = one.reported(SweepsEnqueued)
        assert reported == SweepsEnqueued("tick", NOON.isoformat(), ("retention_sweep_job", "retention_sweep_ns.note"))
        assert one.opened("slow") == NOON
        assert [message.kind for message in one.messages()][2:] == ["retention_sweep_other"]


def test_what_no_sweep_takes_is_not_enqueued(database: Database, clock: Clock) -> None:
    tables = (
        table("never", rule(bound=FOREVER)),
        table("appended", append_only=True),
        table("archived", rule(then=ToArchive())),
        table("both", rule("cold", then=ToArchive()), rule("gone", KEEP_WEEK, when=["gone"])),
        table("elsewhere", scheduler=None),
    )
    contract = contract_of(*tables)
    assert [str(one.name) for one in swept_tables(contract, "tick")] == ["archived", "both"]
    with world(database, contract) as one:
        one.tick()
        assert [message.kind for message in one.messages()] == ["retention_sweep_archived", "retention_sweep_both"]


def test_a_scheduler_without_tables_opens_its_windows_all_the_same(database: Database, clock: Clock) -> None:
    with world(database, contract_of(table(scheduler=None))) as one:
        assert one.opened() == NOON
        assert one.messages() == []
        assert one.opened() is None


@pytest.mark.parametrize("state", ["ready", "reserved", "delayed"])
def test_a_sweep_that_waits_or_is_at_work_swallows_the_next_window(
    database: Database, clock: Clock, state: str
) -> None:
    with world(database) as one:
        one.tick()
        if state != "ready":
            reservation = one.queue.reserve()
            assert reservation is not None
            if state == "delayed":
                one.queue.release(reservation.message_id, reservation.token, "no")
        assert one.states() == [state]
        clock.advance(minutes=5)
        ticked = one.tick()
        assert ticked is not None
        assert (ticked.window, ticked.enqueued) == (NOON + EVERY, ())
        assert len(one.messages()) == 1
        clock.advance(minutes=5)
        one.queue.expire_leases()
        clock.advance(minutes=1)
        finish(one)
        assert one.opened() == NOON + 2 * EVERY
        assert len(one.messages()) == 2


def test_a_dead_letter_does_not_swallow_windows(database: Database, clock: Clock) -> None:
    with world(database, contract_of(attempts=1)) as one:
        one.tick()
        reservation = one.queue.reserve()
        assert reservation is not None
        one.queue.release(reservation.message_id, reservation.token, "no")
        clock.advance(minutes=5)
        one.tick()
        assert one.states() == ["dead", "ready"]


def test_hundreds_of_tables_are_enqueued_together(database: Database, clock: Clock) -> None:
    tables = [table(f"t{number}") for number in range(520)]
    with world(database, contract_of(*tables)) as one:
        one.tick()
        kinds = [kind for (kind,) in database.query(f"SELECT kind FROM {one.own('message')} ORDER BY seq")]
        assert kinds == [f"retention_sweep_{declared.name}" for declared in tables]


def test_a_window_is_enqueued_as_a_whole_or_not_at_all(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(database) as one:

        def broken(*arguments: object) -> None:
            raise RuntimeError("the process is gone")

        with monkeypatch.context() as patch:
            patch.setattr(Timetable, "write_window", broken)
            with pytest.raises(RuntimeError):
                one.tick()
        assert one.messages() == []
        assert Timetable(one.store.dialect).windows(one.store.run) == []
        assert one.opened() == NOON


# --- Several processes ------------------------------------------------------------------------------------------------


def test_processes_that_tick_one_window_enqueue_once(database: Database) -> None:
    """With the real clock: an hour's window does not end while this runs, but for one in ten thousand."""
    contract = contract_of(*(table(f"t{n}") for n in range(20)), schedulers=(Scheduler("tick", timedelta(days=1)),))
    with world(database, contract) as one, beside(one) as two, beside(one) as three:
        racing = [Background(process.opened) for process in (one, two, three)]
        windows = [thread.result() for thread in racing]
        assert len([window for window in windows if window is not None]) == 1
        assert len(one.messages()) == 20


def test_a_process_skips_a_scheduler_whose_first_row_another_writes(postgres_database: PostgresDatabase) -> None:
    with world(postgres_database) as one:
        other = postgres_database.connect()
        other.execute("BEGIN")
        other.execute("INSERT INTO wane.schedule (scheduler, due_at) VALUES ('tick', now())")
        assert one.tick() is None
        assert one.messages() == []
        other.execute("ROLLBACK")
        assert one.opened() is not None


def test_a_process_skips_a_window_that_another_is_opening(
    postgres_database: PostgresDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(postgres_database) as one, beside(one) as two:
        one.tick()
        finish(one)
        clock.advance(minutes=5)
        pause = Paused(monkeypatch, PostgresTransaction, "execute", "UPDATE wane.schedule")
        ticking = Background(one.opened)
        pause.await_reached()
        # Without the row's lock it would go on, and wait for the key of a message.
        monkeypatch.setattr(two.queue, "enqueue_within", lambda *_: pytest.fail("it did not skip the window"))
        assert two.tick() is None, "the row is locked: another process is at it"
        assert len(two.messages()) == 1
        pause.go_on.set()
        assert ticking.result() == NOON + EVERY
        assert two.opened() is None
        assert len(one.messages()) == 2


def test_a_process_waits_for_another_that_opens_the_first_window(
    postgres_database: PostgresDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch, patient: object
) -> None:
    with world(postgres_database) as one, beside(one) as two:
        pause = Paused(monkeypatch, PostgresTransaction, "execute", "UPDATE wane.schedule")
        ticking = Background(one.opened)
        pause.await_reached()
        waiting = Background(two.opened)
        await_waiting(postgres_database, backend(two.store._connection), backend(one.store._connection))  # type: ignore[attr-defined]
        pause.go_on.set()
        assert [ticking.result(), waiting.result()] == [NOON, None]
        assert len(one.messages()) == 1


# --- The contract in force --------------------------------------------------------------------------------------------


def test_a_tick_of_another_contract_is_refused(database: Database, clock: Clock) -> None:
    with world(database) as one:
        adopt(one.store, contract_of(table("other")), by="somebody")
        with pytest.raises(NotInForce):
            one.tick()
        assert one.messages() == []


def test_adoption_waits_for_a_tick_that_is_under_way(
    postgres_database: PostgresDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch, patient: object
) -> None:
    """After a contract was adopted, nothing is enqueued by the old one."""
    changed = contract_of(table("other"))
    with world(postgres_database) as one, beside(one, changed) as two:
        pause = Paused(monkeypatch, PostgresTransaction, "execute", "UPDATE wane.schedule")
        ticking = Background(one.opened)
        pause.await_reached()
        adopting = Background(lambda: adopt(two.store, changed, by="two"))
        await_waiting(postgres_database, backend(two.store._connection), backend(one.store._connection))  # type: ignore[attr-defined]
        pause.go_on.set()
        assert ticking.result() == NOON
        adopting.result()
        with pytest.raises(NotInForce):
            one.tick()


def test_a_schema_qualified_table_is_swept_by_its_name(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute("CREATE SCHEMA iu_core")
    create_jobs(postgres_database, 3, "iu_core.job")
    with world(postgres_database, contract_of(table("iu_core.job"))) as one:
        one.tick()
        assert [message.kind for message in one.messages()] == ["retention_sweep_iu_core.job"]
        one.worker().work()
        assert one.states() == [MessageState.DONE]
        assert one.count("iu_core.job") == 1
        assert one.fence("iu_core.job") == 1


def test_the_rules_of_a_table_are_swept_in_the_order_of_the_contract(database: Database) -> None:
    create_jobs(database, 2)
    declared = table("job", *(rule(name, when=[name]) for name in ("late", "done", "early")))
    with world(database, contract_of(declared)) as one:
        one.tick()
        one.worker().work()
        [message] = one.messages()
        trail = one.keeper.audit()[::-1]
        assert [entry.rule for entry in trail] == ["late", "done", "early"]
        assert {entry.run for entry in trail} == {message.idempotency_key}
        await_true(lambda: one.count("job") == 1, "what was due is gone")
