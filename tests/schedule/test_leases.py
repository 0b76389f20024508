"""Leases: a timed right with a fence that never repeats, measured by the database's clock and asked inside every
deleting transaction."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest

from prune.keeping import follower, notes, referenced_by, rule, table
from races.racing import Background, Paused, await_true, await_waiting, backend
from schedule.scheduling import (
    ALL,
    NOON,
    Clock,
    World,
    beside,
    contract_of,
    create_jobs,
    world,
)
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.fingerprint import fingerprint
from wane._contract.settings import SweepSettings
from wane._db.postgres.transaction import PostgresTransaction
from wane._db.sqlite import clock as sqlite_clock
from wane._leases import Lease, Leases
from wane._schedule.adoption import adopt
from wane._schedule.worker import Worked
from wane.events import BatchTaken, Event, RuleSwept, WorkFailed

SHAPES = {
    "plain": rule(),
    "guarded": rule(unless=[referenced_by("note.job_id")]),
    "followed": rule(followers=[follower("note.job_id")]),
}
LEASE = timedelta(seconds=30)
STEP = timedelta(microseconds=1)


def take(one: World, holder: str, until: datetime, name: str = "sweep:job") -> tuple[bool, Lease]:
    return Leases(one.store.dialect).take(one.store.run, name, holder, until, one.store.clock())


def renew(one: World, lease: Lease, until: datetime) -> bool:
    return Leases(one.store.dialect).renew(one.store.run, lease, until, one.store.clock())


def end(one: World, lease: Lease) -> None:
    Leases(one.store.dialect).end(one.store.run, lease, one.store.clock())


def holds(one: World, lease: Lease, mark: str | None = None) -> bool:
    with one.store.transaction() as transaction:
        return Leases(one.store.dialect).is_held(
            transaction.execute,
            lease,
            mark or fingerprint(one.contract),
            transaction.clock(),
            most_seconds=20,
        )


# --- The row ----------------------------------------------------------------------------------------------------------


def test_a_lease_is_taken_over_when_it_has_ended_and_not_before(database: Database, clock: Clock) -> None:
    with world(database) as one:
        mine, lease = take(one, "a", NOON + LEASE)
        assert (mine, lease) == (True, Lease("sweep:job", "a", 1, NOON + LEASE))
        clock.now = NOON + LEASE - STEP
        for holder in ("b", "a"):
            assert take(one, holder, clock.now + LEASE) == (False, lease), "also not by a process of the same name"
        assert holds(one, lease)
        clock.now = NOON + LEASE
        assert not holds(one, lease)
        assert not renew(one, lease, clock.now + LEASE), "what has ended cannot be renewed, even if nobody took it"
        mine, other = take(one, "b", clock.now + LEASE)
        assert (mine, other.holder, other.fence) == (True, "b", 2)
        assert holds(one, other)
        assert not holds(one, lease)


def test_renewing_moves_the_end_and_not_the_fence(database: Database, clock: Clock) -> None:
    with world(database) as one:
        _, lease = take(one, "a", NOON + LEASE)
        for _ in range(5):
            clock.advance(seconds=29)
            assert renew(one, lease, clock.now + LEASE)
        assert take(one, "b", clock.now + LEASE)[0] is False
        assert one.fence() == 1
        assert not renew(one, Lease(lease.name, "a", 2, lease.until), clock.now + LEASE)


def test_only_its_holder_ends_a_lease(database: Database, clock: Clock) -> None:
    with world(database) as one:
        _, first = take(one, "a", NOON + LEASE)
        end(one, first)
        _, second = take(one, "b", NOON + LEASE)
        end(one, first)
        assert holds(one, second)
        assert second.fence == 2
        clock.advance(seconds=30)
        end(one, second)
        [(until,)] = database.query(f"SELECT until FROM {one.own('lease')}")
        assert one.store.dialect.decode_time(until) == NOON + LEASE, "what has ended stays as it is"


def test_fences_rise_and_never_repeat(database: Database, clock: Clock) -> None:
    seen = []
    with world(database) as one, beside(one) as two:
        for number in range(60):
            mine, lease = take((one, two)[number % 2], f"h{number}", clock.now + LEASE)
            assert mine
            seen.append(lease.fence)
            if number % 3 == 0:
                end(one, lease)
            elif number % 3 == 1:
                clock.advance(seconds=30)
            else:
                clock.advance(days=4000)
                one.runner().store.run("SELECT 1", {})
        assert seen == list(range(1, 61))
        # Wane's own housekeeping leaves leases alone, however old they are.
        from wane._schedule.own_tables import clean_own_tables, own_contract

        assert "lease" not in " ".join(str(declared.name) for declared in own_contract(one.store, one.contract).tables)
        clean_own_tables(one.store, one.contract, actor="tester")
        assert take(one, "last", clock.now + LEASE)[1].fence == 61


def test_many_that_want_one_lease_get_it_once(database: Database) -> None:
    with world(database) as one, beside(one) as two, beside(one) as three, beside(one) as four:
        until = datetime.now(UTC) + timedelta(minutes=5)
        worlds = (one, two, three, four)
        for name in ("sweep:a", "sweep:b", "sweep:c"):
            wanting = [Background(lambda each=each, name=name: take(each, "x", until, name)) for each in worlds]  # type: ignore[misc]
            answers = [thread.result() for thread in wanting]
            assert sorted(mine for mine, _ in answers) == [False, False, False, True]
            assert {lease.fence for _, lease in answers} == {1}


def test_leases_of_tables_are_apart(database: Database, clock: Clock) -> None:
    with world(database) as one:
        assert take(one, "a", NOON + LEASE)[0]
        assert take(one, "b", NOON + LEASE, "sweep:other")[0]
        assert [lease.name for lease in Leases(one.store.dialect).current(one.store.run, clock.now)] == [
            "sweep:job",
            "sweep:other",
        ]
        clock.advance(seconds=30)
        assert Leases(one.store.dialect).current(one.store.run, clock.now) == []


# --- Clocks -----------------------------------------------------------------------------------------------------------


def test_on_postgres_no_time_of_a_lease_comes_from_the_client(postgres_database: PostgresDatabase) -> None:
    with world(postgres_database) as one:
        assert one.store.clock() is None
        with one.store.transaction() as transaction:
            assert transaction.clock() is None


class Host(datetime):
    """A host's clock that can be set."""

    shift = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.now(tz) + cls.shift


def test_on_sqlite_a_clock_that_is_set_back_gives_no_lease_its_life_back_and_lets_it_end(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_clock, "datetime", Host)
    monkeypatch.setattr(Host, "shift", timedelta(0))
    with world(sqlite_database) as one:
        began = one.store.clock()
        assert began is not None
        _, ended = take(one, "a", began + timedelta(milliseconds=20))
        time.sleep(0.03)
        assert not holds(one, ended)
        _, lease = take(one, "b", began + timedelta(milliseconds=400))
        Host.shift = timedelta(hours=-5)
        timestamps = [one.store.clock() for _ in range(50)]
        assert timestamps == sorted(timestamps, key=lambda timestamp: timestamp or began)
        assert timestamps[0] is not None
        assert timestamps[0] >= began
        assert not holds(one, ended)
        await_true(lambda: not holds(one, lease), "the lease ends though the host's clock is behind")
        mine, _ = take(one, "c", began + timedelta(hours=1))
        assert mine


# --- The deleting transaction -----------------------------------------------------------------------------------------


def steal(one: World, other: World) -> Lease:
    """Let the lease on `job` end as if its time were over, and take it, as another process would."""
    with other.store.transaction() as transaction:
        past = other.store.dialect.encode_time(datetime(2020, 1, 1, tzinfo=UTC))
        transaction.execute(
            f"UPDATE {other.own('lease')} SET until = {other.store.dialect.placeholder('past')}", {"past": past}
        )
    mine, lease = take(other, "thief", datetime.now(UTC) + timedelta(hours=1))
    assert mine
    return lease


class AfterBatch:
    """Does something once, after the first batch of a sweep."""

    def __init__(self, one: World, act: Any) -> None:
        self.acted = False
        self._act = act
        self._record = one.events.append
        one.events = _Recording(self)
        self.events = one.events

    def listen(self, event: Event) -> None:
        if isinstance(event, BatchTaken) and not self.acted:
            self.acted = True
            self._act()


class _Recording(list[Event]):
    def __init__(self, after: AfterBatch) -> None:
        super().__init__()
        self._after = after

    def append(self, event: Event) -> None:
        super().append(event)
        self._after.listen(event)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_worker_whose_lease_was_taken_between_two_batches_takes_nothing_more(database: Database, shape: str) -> None:
    create_jobs(database, 1_200)
    notes(database)
    with world(database, contract_of(table("job", SHAPES[shape]))) as one, beside(one) as two:
        one.tick()
        stolen = AfterBatch(one, lambda: steal(one, two))
        assert one.worker().work() is Worked.FAILED
        assert stolen.acted
        [batch] = one.reported(BatchTaken)
        assert 0 < batch.counts["job"] < 1_200
        assert one.count("job") == 1_201 - batch.counts["job"]
        [entry] = one.keeper.audit()
        assert entry.counts["job"] == batch.counts["job"]
        assert [swept.outcome for swept in one.reported(RuleSwept)] == ["stopped"]
        assert one.fence() == 2
        [message] = one.messages()
        assert message.release_reason is not None
        assert "lost its lease" in message.release_reason
        [reported] = one.reported(WorkFailed)
        assert (reported.scheduler, reported.error) == ("tick", message.release_reason)
        [(holder, until)] = database.query(f"SELECT holder, until FROM {one.own('lease')}")
        assert holder == "thief"
        assert one.store.dialect.decode_time(until) > datetime.now(UTC), "the loser did not end the other's lease"


def test_adopting_another_contract_stops_a_running_sweep_at_its_next_batch(database: Database) -> None:
    create_jobs(database, 1_200)
    other = contract_of(table("other"))
    with world(database) as one, beside(one, other) as two:
        one.tick()
        AfterBatch(one, lambda: adopt(two.store, other, by="two"))
        assert one.worker().work() is Worked.FAILED
        [batch] = one.reported(BatchTaken)
        assert one.count("job") == 1_201 - batch.counts["job"]
        assert one.states() == ["delayed"]


def test_a_takeover_waits_for_the_batch_that_is_under_way(postgres_database: PostgresDatabase) -> None:
    create_jobs(postgres_database, 10)
    with world(postgres_database) as one, beside(one) as two:
        _, lease = take(one, "a", one.store.now() + timedelta(milliseconds=150))
        with one.store.transaction() as transaction:
            assert Leases(one.store.dialect).is_held(
                transaction.execute, lease, fingerprint(one.contract), None, most_seconds=20
            )
            await_true(lambda: two.store.now() > lease.until, "its time is over")
            taking = Background(lambda: take(two, "b", two.store.now() + LEASE))
            await_waiting(postgres_database, backend(two.store._connection), backend(one.store._connection))  # type: ignore[attr-defined]
            transaction.execute("DELETE FROM public.job WHERE id = 1", {})
            assert taking.running
        mine, taken = taking.result()
        assert (mine, taken.fence) == (True, 2)
        assert not holds(one, lease)


def test_a_takeover_on_sqlite_waits_for_the_transaction_that_is_under_way(sqlite_database: SqliteDatabase) -> None:
    with world(sqlite_database) as one, beside(one) as two:
        _, lease = take(one, "a", datetime.now(UTC) + timedelta(milliseconds=150))
        with one.store.transaction() as transaction:
            assert Leases(one.store.dialect).is_held(
                transaction.execute, lease, fingerprint(one.contract), transaction.clock(), most_seconds=20
            )
            await_true(lambda: datetime.now(UTC) > lease.until, "its time is over")
            taking = Background(lambda: take(two, "b", datetime.now(UTC) + LEASE))
            time.sleep(0.2)
            assert taking.running
        assert taking.result()[1].fence == 2


def test_the_server_ends_the_transaction_of_a_holder_that_was_stopped_inside_it(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped between the deletion and the audit row. Others wait for less than a lease, and nothing of it
    remains."""
    create_jobs(postgres_database, 10)
    lease = 1.5
    with world(postgres_database, contract_of(lease=timedelta(seconds=lease))) as one, beside(one) as two:
        one.tick()
        pause = Paused(monkeypatch, PostgresTransaction, "execute", "INSERT INTO wane.audit")
        monkeypatch.setattr(type(one.worker()), "_keep", lambda *_: None)  # A stopped process renews nothing either.
        working = Background(one.worker().work)
        pause.await_reached()
        # Much earlier than the server would end a transaction without a lease, which may be idle for a minute.
        await_true(lambda: two.worker().work() is not None, "another worker takes over", seconds=30)
        assert two.count("job") == 1
        assert two.states() == ["done"]
        pause.go_on.set()
        assert working.result() is Worked.FAILED
        [entry] = two.keeper.audit()
        assert entry.counts == {"job": 10}
        assert two.fence() == 2


def test_the_limits_inside_a_batch_are_below_the_lease(postgres_database: PostgresDatabase) -> None:
    with world(postgres_database) as one:
        _, lease = take(one, "a", one.store.now() + LEASE)
        with one.store.transaction() as transaction:
            Leases(one.store.dialect).is_held(
                transaction.execute, lease, fingerprint(one.contract), None, most_seconds=20
            )
            for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
                assert transaction.execute(f"SHOW {setting}", {}) == [("20s",)]
        with one.store.transaction() as transaction:
            assert transaction.execute("SHOW idle_in_transaction_session_timeout", {}) == [("1min",)]
        with one.store.snapshot() as transaction:
            assert transaction.execute("SHOW idle_in_transaction_session_timeout", {}) == [("0",)]


def test_a_worker_is_not_slowed_down_by_its_own_renewals(database: Database) -> None:
    """Renewing waits for the batch, and the batch for renewing; both are short."""
    create_jobs(database, 3_000)
    quick = SweepSettings(batch_ms=1, duty=1.0, fuse_rows=ALL.fuse_rows)
    with world(database, contract_of(sweep=quick, lease=timedelta(milliseconds=900))) as one, beside(one) as two:
        stop = threading.Event()

        def renew_all_the_time() -> int:
            renewed = 0
            while not stop.wait(0.005):
                for lease in Leases(two.store.dialect).current(two.store.run, two.store.clock()):
                    renewed += renew(two, lease, datetime.now(UTC) + LEASE)
            return renewed

        one.tick()
        renewing = Background(renew_all_the_time)
        assert one.worker().work() is Worked.DONE
        stop.set()
        assert renewing.result() > 0
        assert one.count("job") == 1
