"""The queue for asyncio, and the queues that a keeper gives: the same calls with the same results."""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from queueing import opened
from servers import Database, PostgresDatabase
from wane._async_keeper import AsyncKeeper
from wane._keeper import open_keeper
from wane.errors import StoreError, WrongArgument
from wane.queue import Answer, AsyncQueue, Draft, Queue, RetryPolicy

CONTRACT = """
[scheduler]
night = { every = "1h" }
"""
PUBLIC = {name for name, value in vars(Queue).items() if inspect.isfunction(value) and not name.startswith("_")}
INSIDE = {"enqueue_within"}
"""Takes a transaction of the store, which belongs to a thread."""


@pytest.fixture
def contract(database: Database, tmp_path: Path) -> Path:
    with opened(database) as store:
        store.migrate()
    file = tmp_path / "wane.toml"
    file.write_text(CONTRACT)
    return file


def test_the_async_queue_has_every_call_of_the_queue() -> None:
    assert {name for name in vars(AsyncQueue) if not name.startswith("_")} == PUBLIC - INSIDE


@pytest.mark.parametrize("name", sorted(PUBLIC - INSIDE))
def test_an_awaited_call_is_a_coroutine_with_the_same_words(name: str) -> None:
    call = getattr(AsyncQueue, name)
    assert inspect.iscoroutinefunction(call)
    assert call.__doc__ == getattr(Queue, name).__doc__


def test_awaited_operations_do_the_same(database: Database, contract: Path) -> None:
    async def use() -> None:
        async with await AsyncKeeper.open(database.url, contract=contract) as keeper:
            queue = await keeper.queue("pool", policy=RetryPolicy(attempts=1, lease=timedelta(minutes=5)))
            assert queue.wrapped.pool == "pool"
            sent = await queue.enqueue("k", key="k")
            await queue.enqueue_many([Draft("k"), Draft("other")])
            assert [one.kind for one in await queue.messages(kind="other")] == ["other"]
            reservation = await queue.reserve(kinds=["k"])
            assert reservation is not None
            assert (await queue.renew(sent.message_id, reservation.token)).accepted
            assert (await queue.release(sent.message_id, reservation.token, "no")).answer is Answer.DEAD_LETTERED
            assert await queue.read_message(sent.message_id) is None
            assert await queue.read_dead_letter(sent.message_id) is not None
            assert len(await queue.dead_letters()) == 1
            assert (await queue.requeue(sent.message_id)).accepted
            [first, second] = await queue.reserve_many(2)
            assert (await queue.ack(first.message_id, first.token)).accepted
            assert await queue.next_due() == second.lease_expires_at
            assert (await queue.expire_leases(10, everywhere=True)).count == 0
            assert await queue.notify() == await queue.read_wakeup_sequence() == await queue.wait_for_wakeup(0, 5)
            with pytest.raises(WrongArgument):
                await queue.resolve("", by="anna")
            await queue.close()

    asyncio.run(use())


def test_waiting_blocks_no_other_call(database: Database, contract: Path) -> None:
    async def use() -> None:
        async with await AsyncKeeper.open(database.url, contract=contract) as keeper:
            queues = [await keeper.queue(f"pool{number % 3}") for number in range(12)]
            waiting = [asyncio.create_task(queue.wait_for_wakeup(0, 20)) for queue in queues]
            await asyncio.sleep(0.05)
            began = time.monotonic()
            assert not any(one.done() for one in waiting)
            for number in range(3):
                await queues[number].enqueue("k")
            assert await asyncio.gather(*waiting) == [1] * 12
            assert time.monotonic() - began < 10

    asyncio.run(use())


def test_a_wait_that_is_cancelled_lets_the_next_one_work(database: Database, contract: Path) -> None:
    async def use() -> None:
        async with await AsyncKeeper.open(database.url, contract=contract) as keeper:
            queue = await keeper.queue("pool")
            waiting = asyncio.create_task(queue.wait_for_wakeup(0))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            await queue.enqueue("k")
            assert await queue.wait_for_wakeup(0, 10) == 1
            began = time.monotonic()
            assert await queue.wait_for_wakeup(1, 0.05) is None
            assert time.monotonic() - began < 5

    asyncio.run(use())


def test_closing_the_keeper_ends_a_wait_with_an_error(database: Database, contract: Path) -> None:
    async def use() -> None:
        async with await AsyncKeeper.open(database.url, contract=contract) as keeper:
            queue = await keeper.queue("pool")
            waiting = asyncio.create_task(queue.wait_for_wakeup(0))
            await asyncio.sleep(0.05)
        with pytest.raises(StoreError, match="the queue is closed"):
            await waiting

    asyncio.run(use())


def test_the_queues_of_a_keeper_share_one_connection_to_wait_with(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    file = tmp_path / "wane.toml"
    file.write_text(CONTRACT)
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'wane'"
    with open_keeper(postgres_database.url, contract=file) as keeper:
        keeper.migrate()
        first, second = keeper.queue("a"), keeper.queue("b", policy=RetryPolicy(attempts=7))
        assert second.policy.attempts == 7
        first.notify()
        assert (first.wait_for_wakeup(0, 5), second.wait_for_wakeup(0, 0)) == (1, None)
        first.close()  # The keeper's, not the queue's.
        assert first.wait_for_wakeup(0, 5) == 1
        assert postgres_database.query(count) == [(2,)]
    with pytest.raises(StoreError):
        first.enqueue("k")
