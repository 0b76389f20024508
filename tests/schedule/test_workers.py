"""Workers: reserve, sweep, renew, and say how it ended; what failed comes back, and what failed too often is a dead
letter."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from prune.keeping import rule, table
from races.racing import Background, await_true
from schedule.scheduling import (
    ALL,
    NOON,
    SLOWLY,
    Clock,
    World,
    beside,
    contract_of,
    create_jobs,
    world,
)
from schedule.test_leases import AfterBatch, steal
from servers import Database
from wane._contract.maintenance import Within
from wane._contract.model import Scheduler, Table
from wane._contract.settings import Budget, SweepSettings
from wane._db.postgres.store import PostgresStore
from wane._db.postgres.transaction import PostgresTransaction
from wane._db.sqlite.store import SqliteStore
from wane._db.sqlite.transaction import SqliteTransaction
from wane._leases import Leases
from wane._schedule.own_tables import keep_one_dead_letter
from wane._schedule.worker import Worked, Worker
from wane.events import (
    BatchTaken,
    BudgetExhausted,
    Event,
    HeartbeatWritten,
    MessageDead,
    RuleFailed,
    RuleSwept,
    WorkFailed,
)

BACKOFF = timedelta(seconds=10)


def window(one: World, clock: Clock) -> Worked | None:
    """Open the next window, and work on it once."""
    clock.advance(minutes=5)
    one.tick()
    return one.worker().work()


# --- Success ----------------------------------------------------------------------------------------------------------


def test_a_sweep_that_succeeds_is_acked_and_gives_its_lease_back(database: Database) -> None:
    create_jobs(database, 40)
    with world(database) as one:
        assert one.worker().work() is None
        one.tick()
        worker = one.worker()
        assert worker.work() is Worked.DONE
        assert one.count("job") == 1
        [message] = one.messages()
        assert (message.state.value, message.deliveries) == ("done", 1)
        [entry] = one.keeper.audit()
        assert (entry.counts, entry.run, entry.actor) == (
            {"job": 40},
            message.idempotency_key,
            worker.executor.name,
        )
        assert Leases(one.store.dialect).current(one.store.run, one.store.clock()) == []
        assert [heartbeat.doing for heartbeat in one.reported(HeartbeatWritten)] == ["sweeping job", "waiting"]
        assert worker.work() is None


def test_a_budget_that_is_spent_is_no_failure(database: Database) -> None:
    create_jobs(database, 40)
    with world(database, contract_of(table("job", rule(budget=Budget(rows=15))))) as one:
        one.tick()
        assert one.worker().work() is Worked.DONE
        assert one.states() == ["done"]
        assert one.count("job") == 26
        assert len(one.reported(BudgetExhausted)) == 1


class Statements:
    """Every statement that a store or a transaction runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        for kind, names in (
            (SqliteStore, ("run", "read")),
            (PostgresStore, ("run", "read")),
            (SqliteTransaction, ("execute", "change")),
            (PostgresTransaction, ("execute", "change")),
        ):
            for name in names:
                self._record(monkeypatch, kind, name)

    def _record(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        original = getattr(kind, name)

        def recording(this: Any, *arguments: Any, **options: Any) -> Any:
            self.texts.append(arguments[0] if isinstance(arguments[0], str) else arguments[0].text)
            return original(this, *arguments, **options)

        monkeypatch.setattr(kind, name, recording)

    def about(self, *words: str) -> list[str]:
        return [text for text in self.texts if all(word in text for word in words)]


def test_nothing_due_costs_one_probe_and_one_audit_row_per_rule(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(database)
    declared = table("job", rule("done"), rule("failed", when=["failed"]))
    with world(database, contract_of(declared)) as one:
        window(one, clock)
        one.tick()
        clock.advance(minutes=5)
        one.tick()
        worker = one.worker()
        statements = Statements(monkeypatch)
        assert worker.work() is Worked.DONE
        assert len(statements.about('"job"')) == 2, "one read of the table for each rule"
        assert len(statements.about("INSERT INTO", "audit")) == 2
        assert len(statements.texts) < 40
        entries = [entry for entry in one.keeper.audit() if entry.run == one.messages()[-1].idempotency_key]
        assert [(entry.rule, entry.rows) for entry in entries] == [("failed", 0), ("done", 0)]


def test_what_is_marked_is_read_once_too(database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from wane._contract.duration import FOREVER
    from wane._contract.model import Mark

    create_jobs(database)
    declared = table("job", rule("old", then=Mark("seen")), rule("seen", FOREVER, when=["seen"]))
    with world(database, contract_of(declared)) as one:
        one.tick()
        worker = one.worker()
        statements = Statements(monkeypatch)
        assert worker.work() is Worked.DONE
        assert len(statements.about('"job"')) == 1
        assert len(statements.about("INSERT INTO", "audit")) == 1


# --- Failure ----------------------------------------------------------------------------------------------------------


def break_table(one: World) -> None:
    one.database.execute("ALTER TABLE job RENAME TO elsewhere")


def repair_table(one: World) -> None:
    one.database.execute("ALTER TABLE elsewhere RENAME TO job")


def test_a_sweep_that_fails_comes_back_after_a_pause_that_doubles_and_ends_as_a_dead_letter(
    database: Database, clock: Clock
) -> None:
    create_jobs(database, 5)
    with world(database, contract_of(attempts=3, backoff=BACKOFF)) as one:
        break_table(one)
        one.tick()
        for pause in (10, 20):
            assert one.worker().work() is Worked.FAILED
            [message] = one.messages()
            assert (message.state.value, message.due_at) == ("delayed", clock.now + timedelta(seconds=pause))
            assert message.release_reason is not None
            assert "job" in message.release_reason
            clock.advance(seconds=pause - 1)
            assert one.worker().work() is None
            clock.advance(seconds=1)
        assert one.worker().work() is Worked.FAILED
        assert one.states() == ["dead"]
        assert len(one.reported(RuleFailed)) == 3
        assert [event.kind for event in one.reported(MessageDead)] == ["retention_sweep_job"]
        [letter] = one.queue.dead_letters()
        assert letter.reason == "max_delivery_attempts_reached"
        assert letter.release_reason is not None
        assert one.worker().work() is None
        assert one.keeper.audit() == []


def test_one_rule_that_fails_does_not_keep_the_others_from_their_work(database: Database) -> None:
    create_jobs(database, 5)
    create_jobs(database, 5, "note")
    broken = rule("broken", when=["failed"], followers=())
    declared = table("job", broken, rule("done"))
    with world(database, contract_of(declared)) as one:
        one.tick()
        with pytest.MonkeyPatch.context() as patch:
            from wane._prune.binding import Bindings
            from wane.errors import StoreError

            original = Bindings.selection

            def failing(this: Bindings, of: Any, which: Any) -> Any:
                if which.name == "broken":
                    raise StoreError("no such thing")
                return original(this, of, which)

            patch.setattr(Bindings, "selection", failing)
            assert one.worker().work() is Worked.FAILED
        assert one.count("job") == 1
        [message] = one.messages()
        assert message.release_reason == "job.broken: no such thing"


def test_a_table_that_fails_for_days_has_one_unresolved_dead_letter_and_a_success_resolves_it(
    database: Database, clock: Clock
) -> None:
    create_jobs(database, 5)
    with world(database, contract_of(attempts=1)) as one:
        break_table(one)
        for _ in range(4):
            assert window(one, clock) is Worked.FAILED
            assert len(one.queue.dead_letters()) == 1
        assert one.states() == ["dead"] * 4
        [letter] = one.queue.dead_letters()
        assert letter.message.message_id == one.messages()[-1].message_id
        repair_table(one)
        assert window(one, clock) is Worked.DONE
        assert one.queue.dead_letters() == []
        resolved = one.queue.dead_letters(resolved=True)
        assert len(resolved) == 4
        assert all(one.resolved_by and "sweep succeeded" in one.resolved_by for one in resolved[:1])


def test_dead_letters_of_workers_that_died_are_limited_to_one_as_well(database: Database, clock: Clock) -> None:
    with world(database, contract_of(attempts=1)) as one:
        one.queue.enqueue("mine", message_id="mine")
        for _ in range(3):
            clock.advance(minutes=5)
            one.queue.expire_leases()
            one.tick()
            while one.queue.reserve() is not None:
                pass  # And nobody ever hears of it again.
        one.queue.enqueue("mine", message_id="mine too")
        one.queue.reserve()
        clock.advance(minutes=5)
        one.queue.expire_leases()
        assert len(one.queue.dead_letters()) == 5
        keep_one_dead_letter(one.queue, by="tester")
        left = {letter.message.message_id for letter in one.queue.dead_letters()}
        assert len(left) == 3
        assert {"mine", "mine too"} < left, "messages that are none of Wane's are another application's business"


def test_a_sweep_of_another_table_resolves_nothing(database: Database, clock: Clock) -> None:
    create_jobs(database, 5)
    create_jobs(database, 5, "note")
    with world(database, contract_of(table("job"), table("note"), attempts=1)) as one:
        break_table(one)
        one.tick()
        assert {one.worker().work(), one.worker().work()} == {Worked.DONE, Worked.FAILED}
        assert [letter.message.kind for letter in one.queue.dead_letters()] == ["retention_sweep_job"]


def test_an_unknown_table_is_reported_and_ends_as_a_dead_letter(database: Database) -> None:
    with world(database, contract_of(attempts=2, backoff=timedelta(0))) as one:
        one.queue.enqueue("retention_sweep_gone", target={"table": "gone", "scheduler": "old"})
        one.queue.enqueue("something else")
        for _ in range(4):
            assert one.worker().work() is Worked.FAILED
        assert one.states() == ["dead", "dead"]
        reported = one.reported(WorkFailed)
        assert {event.scheduler for event in reported} == {"old", None}
        assert "the contract has no table 'gone'" in reported[0].error


def test_a_table_that_another_sweeps_is_left_to_it(database: Database, clock: Clock) -> None:
    create_jobs(database, 5)
    with world(database) as one:
        one.tick()
        Leases(one.store.dialect).take(
            one.store.run, "sweep:job", "somebody@there", clock.now + timedelta(seconds=25), clock.now
        )
        assert one.worker().work() is Worked.FAILED
        [reported] = one.reported(WorkFailed)
        assert "somebody@there sweeps job" in reported.error
        assert one.count("job") == 6
        clock.advance(seconds=30)
        assert one.worker().work() is Worked.DONE


# --- Gates and the fuse -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [None, "job"])
def test_flags_that_are_off_mean_no_rows_an_ack_and_a_word(database: Database, clock: Clock, which: str | None) -> None:
    create_jobs(database, 5)
    with world(database, contract_of(attempts=1)) as one:
        break_table(one)
        assert window(one, clock) is Worked.FAILED
        repair_table(one)
        one.keeper.disable(which)
        assert window(one, clock) is Worked.DONE
        assert one.states() == ["dead", "done"]
        assert one.count("job") == 6
        assert [event.outcome for event in one.reported(RuleSwept)] == ["failed", "off"]
        assert one.keeper.audit() == []
        assert len(one.queue.dead_letters()) == 1, "a sweep that was off proves nothing"
        one.keeper.enable(which)
        assert window(one, clock) is Worked.DONE
        assert one.count("job") == 1
        assert one.queue.dead_letters() == []


def test_a_flag_turned_off_in_the_middle_stops_the_sweep_at_its_next_batch(database: Database) -> None:
    create_jobs(database, 1_200)
    with world(database) as one, beside(one) as two:
        one.tick()
        AfterBatch(one, lambda: two.keeper.disable())
        assert one.worker().work() is Worked.DONE
        assert 1 < one.count("job") < 1_201
        assert [event.outcome for event in one.reported(RuleSwept)] == ["off"]


def test_the_fuse_is_reported_in_every_window_and_makes_no_dead_letters(database: Database, clock: Clock) -> None:
    create_jobs(database, 60)
    fused = SweepSettings(fuse_rows=50)
    with world(database, contract_of(attempts=1, sweep=fused)) as one:
        for number in (1, 2, 3):
            assert window(one, clock) is Worked.FAILED
            reported = one.reported(WorkFailed)
            assert len(reported) == number
            assert "`wane approve job.old`" in reported[-1].error
        assert one.states() == ["done"] * 3
        assert one.count("job") == 61
        assert one.queue.dead_letters() == []
        one.keeper.sweep("job", approve=["job.old"])
        assert window(one, clock) is Worked.DONE
        assert len(one.reported(WorkFailed)) == 3


# --- Takeover ---------------------------------------------------------------------------------------------------------


def dies(*_: object, **__: object) -> None:
    """End the work at once, like a signal that cannot be caught."""
    raise KeyboardInterrupt


def test_a_dead_worker_is_replaced_when_its_lease_has_ended(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(database, 5)
    with world(database, contract_of(lease=timedelta(seconds=30), backoff=BACKOFF)) as one, beside(one) as two:
        one.tick()
        with monkeypatch.context() as patch:
            patch.setattr(Worker, "_sweep", dies)
            patch.setattr(Leases, "end", lambda *_: None)
            with pytest.raises(KeyboardInterrupt):
                one.worker().work()
        assert one.fence() == 1
        clock.now = NOON + timedelta(seconds=30, microseconds=-1)
        assert two.worker().work() is None
        clock.now = NOON + timedelta(seconds=30)
        assert two.worker().work() is Worked.DONE, "the message and the table are free at the same time"
        assert two.fence() == 2
        assert [message.deliveries for message in two.messages()] == [2]


def test_a_sweep_that_lasts_several_leases_keeps_its_message_and_its_table(database: Database) -> None:
    create_jobs(database, 500)
    lease = timedelta(seconds=2)
    with world(database, contract_of(lease=lease)) as one, beside(one) as two:
        one.tick()
        slow = one.worker()

        def listen(event: Event) -> None:
            first = not one.reported(BatchTaken)
            one.events.append(event)
            if first and isinstance(event, BatchTaken):
                time.sleep(2.5 * lease.total_seconds())

        slow.listener = listen
        working = Background(slow.work)
        await_true(lambda: two.count("job") < 501, "it has begun")
        began = two.store.now()
        others = []
        while working.running:
            others.append(two.worker().work())
            assert two.store.now() - began < timedelta(seconds=60)
            time.sleep(0.01)
        assert working.result() is Worked.DONE
        assert two.store.now() - began > 2 * lease, "that was no long sweep"
        assert set(others) <= {None}
        assert one.fence() == 1
        [message] = one.messages()
        assert (message.state.value, message.deliveries) == ("done", 1)
        [entry] = one.keeper.audit()
        assert entry.counts == {"job": 500}


def test_a_worker_that_lost_its_reservation_stops_and_does_not_ack(database: Database) -> None:
    create_jobs(database, 3_000)
    lease = timedelta(milliseconds=600)
    with world(database, contract_of(sweep=SLOWLY, lease=lease, attempts=9)) as one, beside(one) as two:
        one.tick()
        taken: list[Any] = []

        def rob() -> None:
            with two.store.transaction() as transaction:
                past = two.store.dialect.encode_time(datetime(2020, 1, 1, tzinfo=UTC))
                transaction.execute(
                    f"UPDATE {two.own('message')} SET due_at = {two.store.dialect.placeholder('past')}",
                    {"past": past},
                )
            two.queue.expire_leases()
            taken.append(two.queue.reserve())

        AfterBatch(one, rob)
        assert one.worker().work() is Worked.FAILED
        assert taken[0] is not None
        assert one.count("job") > 1
        assert two.queue.renew(taken[0].message_id, taken[0].token).accepted, "the other's reservation stands"
        assert two.queue.ack(taken[0].message_id, taken[0].token).accepted


def test_attempts_of_one_window_add_to_one_audit_row_per_rule(database: Database, clock: Clock) -> None:
    create_jobs(database, 1_200)
    declared = table("job", rule("none", when=["none"]), rule("done"), rule("failed", when=["failed"]))
    with world(database, contract_of(declared)) as one, beside(one) as two:
        one.tick()
        robbed = AfterBatch(one, lambda: None)

        def act() -> None:
            if len(one.reported(type(one.events[-1]))) == 2:
                robbed.acted = True
                steal(one, two)
            else:
                robbed.acted = False

        robbed._act = act
        assert one.worker().work() is Worked.FAILED
        first = one.keeper.audit()[::-1]
        assert [entry.rule for entry in first] == ["none", "done"]
        assert 0 < first[1].rows < 1_200
        clock.advance(hours=2000)
        assert two.worker().work() is Worked.DONE
        trail = two.keeper.audit()[::-1]
        assert [(entry.rule, entry.rows) for entry in trail] == [("none", 0), ("done", 1_200), ("failed", 0)]
        assert [entry.id for entry in trail[:2]] == [entry.id for entry in first]
        assert trail[1].batches > first[1].batches
        assert len({entry.run for entry in trail}) == 1


# --- Stopped ----------------------------------------------------------------------------------------------------------


@contextmanager
def stopped_in_the_middle(database: Database, **settings: Any) -> Iterator[tuple[World, Worked | None]]:
    create_jobs(database, 3_000)
    stop = threading.Event()
    with world(database, contract_of(sweep=SLOWLY, **settings)) as one:
        one.tick()
        AfterBatch(one, stop.set)
        yield one, one.worker(stop).work()


def test_a_worker_that_is_reported_to_stop_gives_its_sweep_back(database: Database) -> None:
    with stopped_in_the_middle(database) as (one, ended):
        assert ended is Worked.STOPPED
        [message] = one.messages()
        assert (message.state.value, message.release_reason) == ("delayed", "job.old: stop requested")
        assert 1 < one.count("job") < 3_001
        assert not one.reported(WorkFailed)
        assert not one.reported(RuleFailed)


def test_being_reported_to_stop_makes_no_dead_letter(database: Database) -> None:
    """What is left leaves with the next window, as when a budget is spent."""
    with stopped_in_the_middle(database, attempts=1) as (one, ended):
        assert ended is Worked.STOPPED
        assert one.states() == ["done"]
        assert one.queue.dead_letters() == []
        [entry] = one.keeper.audit()
        assert entry.rows == 3_001 - one.count("job")


NIGHT = (Scheduler("tick", timedelta(minutes=5), within=Within("11:00", "12:05")),)


def test_a_sweep_stops_at_the_end_of_the_maintenance_window(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(database, 3_000)
    find = Worker._hours
    found: list[Any] = []

    def note(self: Worker, of: Table) -> Any:
        found.append(find(self, of))
        return found[-1]

    monkeypatch.setattr(Worker, "_hours", note)
    with world(database, contract_of(schedulers=NIGHT, sweep=SLOWLY, attempts=1)) as one:
        one.tick()

        def end() -> None:
            assert found[0].seconds == 300
            found[0].seconds = 0.0

        AfterBatch(one, end)
        assert one.worker().work() is Worked.STOPPED
        assert one.states() == ["done"], "what is left leaves in the next one"
        assert 1 < one.count("job") < 3_001
        assert not one.reported(WorkFailed)
        assert one.queue.dead_letters() == []


def test_a_sweep_that_comes_after_the_maintenance_window_does_not_begin(database: Database, clock: Clock) -> None:
    create_jobs(database, 30)
    with world(database, contract_of(schedulers=NIGHT)) as one:
        one.tick()
        clock.now = NOON + timedelta(minutes=5)
        assert one.worker().work() is Worked.STOPPED
        assert one.states() == ["done"]
        assert one.count("job") == 31
        clock.now = NOON + timedelta(hours=23)
        assert one.opened() is not None
        assert one.worker().work() is Worked.DONE
        assert one.count("job") == 1


def test_settings_of_the_contract_reach_the_queue(database: Database) -> None:
    contract = contract_of(pool="p", lease=timedelta(seconds=7), attempts=5, backoff=timedelta(hours=2), sweep=ALL)
    with world(database, contract) as one:
        one.tick()
        reservation = one.queue.reserve()
        assert reservation is not None
        assert reservation.message.pool == "p"
        assert one.queue.policy.attempts == 5
        assert one.queue.policy.most_backoff == timedelta(hours=2)
        assert not one.queue.policy.pause_after_expiry
