"""Wane's own tables are kept by a contract of its own: finished messages, resolved dead letters, executors that fell
silent."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from races.racing import Background, await_true
from schedule.scheduling import Clock, World, contract_of, create_jobs, world
from servers import Database
from wane._contract.duration import FOREVER
from wane._schedule import runner
from wane._schedule.executor import Executor
from wane._schedule.own_tables import clean_own_tables, own_contract
from wane._schedule.scheduler import KIND
from wane.errors import WaneError
from wane.events import RowsPruned

DAY = timedelta(days=1)


def finish(one: World, name: str) -> None:
    one.queue.enqueue("k", message_id=name)
    taken = one.queue.reserve()
    assert taken is not None
    one.queue.ack(taken.message_id, taken.token)


def bury(one: World, name: str, *, resolve: bool) -> None:
    one.queue.enqueue("k", message_id=name)
    taken = one.queue.reserve()
    assert taken is not None
    one.queue.release(taken.message_id, taken.token, "no")
    if resolve:
        one.queue.resolve(name, by="tester")


def names(one: World) -> list[str]:
    return [message.message_id for message in one.messages()]


def clean(one: World) -> dict[str, int]:
    pruned = clean_own_tables(one.store, one.contract, actor="tester", listener=one.events.append)
    return {f"{entry.table}.{entry.rule}": entry.rows for entry in pruned}


def own(database: Database, name: str) -> str:
    return f"wane_{name}" if database.store == "sqlite" else f"wane.{name}"


def test_finished_messages_resolved_dead_letters_and_silent_executors_leave_after_their_windows(
    database: Database, clock: Clock
) -> None:
    settings = contract_of(attempts=1, remember=7 * DAY, dead_letters=365 * DAY)
    message, heartbeat, snapshot = (own(database, name) for name in ("message", "heartbeat", "snapshot"))
    with world(database, settings) as one:
        finish(one, "done")
        bury(one, "resolved", resolve=True)
        bury(one, "unresolved", resolve=False)
        one.queue.enqueue("k", message_id="reserved")
        one.queue.reserve()
        one.queue.enqueue("k", message_id="delayed", delay=3640 * DAY)
        one.queue.enqueue("k", message_id="ready")
        Executor("worker", "0" * 16, one.events.append).heartbeat(one.store, "waiting")
        clock.now += 7 * DAY
        Executor("worker", "0" * 16, one.events.append).heartbeat(one.store, "waiting")
        clock.now += timedelta(seconds=-1)
        none = {f"{message}.done": 0, f"{message}.resolved": 0, f"{heartbeat}.silent": 0}
        none |= {f"{snapshot}.fine": 0, f"{snapshot}.day": 0}
        assert clean(one) == {**none, f"{heartbeat}.silent": 1}
        assert one.count(heartbeat) == 1, "who beats stays"
        clock.now += timedelta(seconds=2)
        assert clean(one) == {**none, f"{message}.done": 1}
        assert "done" not in names(one)
        clock.now += 358 * DAY
        assert clean(one) == {**none, f"{message}.resolved": 1, f"{heartbeat}.silent": 1}
        clock.now += 3000 * DAY
        assert clean(one) == none
        assert names(one) == ["unresolved", "reserved", "delayed", "ready"]
        trail = one.keeper.audit()
        assert len(trail) == 20, "one row for each rule and call, also where nothing left"
        assert sum(entry.rows for entry in trail) == 4
        assert {entry.table for entry in trail} == {message, heartbeat, snapshot}
        assert {entry.actor for entry in trail} == {"tester"}
        assert len(one.reported(RowsPruned)) == 20


def test_forever_is_a_word(database: Database, clock: Clock) -> None:
    with world(database, contract_of(attempts=1, dead_letters=FOREVER)) as one:
        bury(one, "resolved", resolve=True)
        clock.now += 5000 * DAY
        assert f"{own(database, 'message')}.resolved" not in clean(one)
        assert names(one) == ["resolved"]


def test_no_contract_prunes_wanes_own_tables(database: Database) -> None:
    with world(database) as one:
        with pytest.raises(WaneError):
            one.keeper.prune(own(database, "message"), rule="done", limit=10)
        assert not {str(table.name) for table in own_contract(one.store, one.contract).tables} & {
            own(database, name) for name in ("lease", "schedule", "contract", "audit")
        }


def test_a_runner_keeps_house_and_expires_leases_of_its_own_pool_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_EXPIRE_SECONDS", 0.05)
    monkeypatch.setattr(runner, "_CHECK_CLEANING_SECONDS", 0.1)
    monkeypatch.setattr(runner, "_CLEAN_EVERY", timedelta(seconds=0.2))
    create_jobs(database)
    lease = timedelta(milliseconds=50)
    with world(database, contract_of(remember=timedelta(milliseconds=100), lease=lease, attempts=1)) as one:
        theirs = one.keeper.queue("theirs", policy=one.queue.policy)
        theirs.enqueue("k", message_id="theirs")
        assert theirs.reserve() is not None
        for number in range(3):
            one.queue.enqueue(KIND.format("gone"), message_id=f"gone{number}", target={"table": "gone"})
            assert one.queue.reserve() is not None
        finish(one, "old")
        going = one.runner(workers=0)
        run = Background(going.run)
        try:
            await_true(lambda: "old" not in names(one), "finished messages leave")
            await_true(lambda: len(one.queue.dead_letters()) == 1, "one dead letter speaks for all")
        finally:
            going.stop.set()
        run.result()
        assert database.query(f"SELECT state FROM {own(database, 'message')} WHERE pool = 'theirs'") == [("reserved",)]
        theirs.close()


def test_keeping_house_takes_some_thousand_rows_at_a_time(database: Database, clock: Clock) -> None:
    from wane._schedule import own_tables

    with world(database) as one, pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_tables, "_ROWS", 3)
        for number in range(5):
            finish(one, f"m{number}")
        clock.now = datetime.fromtimestamp(clock.now.timestamp(), clock.now.tzinfo) + 30 * DAY
        rule = f"{own(database, 'message')}.done"
        assert [clean(one)[rule] for _ in range(3)] == [3, 2, 0]


def test_of_several_runners_one_keeps_house(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_CHECK_CLEANING_SECONDS", 0.05)
    create_jobs(database)
    with world(database) as one:
        going = [one.runner(workers=0) for _ in range(2)]
        runs = [Background(each.run) for each in going]
        try:
            beats = f"SELECT count(*) FROM {own(database, 'heartbeat')}"
            await_true(lambda: database.query(beats) == [(2,)], "both are alive")
            await_true(lambda: any(entry.table == own(database, "heartbeat") for entry in one.keeper.audit()), "kept")
            going[0].stop.wait(0.5)  # Time for several polls of the other.
        finally:
            for each in going:
                each.stop.set()
        for run in runs:
            run.result()
        own_rules = [entry.rule for entry in one.keeper.audit() if entry.table.startswith("wane")]
        assert sorted(own_rules, key=str) == ["day", "done", "fine", "resolved", "silent"]
