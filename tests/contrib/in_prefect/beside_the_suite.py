"""What Prefect's suite does not ask of a cleanup queue, over the database of `WANE_PREFECT_URL`."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.worker_channel import CANCELLING_TIMEOUT_TEARDOWN, PENDING_CLAIM_TEARDOWN
from prefect.server.services import cleanup_reconciler
from prefect.server.services.cleanup_reconciler import reconcile_cleanup_delivery
from prefect.server.worker_communication.cleanup_queue import get_worker_cleanup_queue
from prefect.settings import (
    PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_COMPLETED_IDEMPOTENCY_RETENTION_SECONDS,
    PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_LEASE_SECONDS,
    PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_MAX_DELIVERY_ATTEMPTS,
    temporary_settings,
)
from prometheus_client import REGISTRY

from wane._db import Store, open_store
from wane._db.url import resolve_url
from wane.contrib._shared import shared_database
from wane.contrib.prefect import MIGRATE_VARIABLE, URL_VARIABLE, WorkerCleanupQueue
from wane.errors import NotMigrated, Unreachable, UrlError, WrongArgument
from wane.queue import MessageState, Queue
from wane.queue._dialects import messages_of

ATTEMPTS = PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_MAX_DELIVERY_ATTEMPTS
LEASE = PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_LEASE_SECONDS
RETENTION = PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_COMPLETED_IDEMPOTENCY_RETENTION_SECONDS


class Clock:
    """A clock that stands still until it is reported."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(resolve_url(URL_VARIABLE)) as opened:
        with opened.transaction() as transaction:
            transaction.execute(f"DELETE FROM {messages_of(opened).table}", {})
        yield opened


@pytest.fixture
async def queue(store: Store, clock: Clock) -> AsyncIterator[WorkerCleanupQueue]:
    made = WorkerCleanupQueue(clock=clock)
    yield made
    await made.close()


@pytest.fixture
def pool() -> UUID:
    return uuid4()


async def enqueue(queue: WorkerCleanupQueue, pool: UUID, **options: Any) -> UUID:
    given = {
        "message_id": uuid4(),
        "idempotency_key": str(uuid4()),
        "kind": CANCELLING_TIMEOUT_TEARDOWN,
        "target": {},
        **options,
    }
    stored = await queue.enqueue(work_pool_id=pool, **given)
    return UUID(str(stored.message_id))


class Counted:
    """How much Prefect's counters have grown since."""

    def __init__(self) -> None:
        self._before = self._read()

    @staticmethod
    def _read() -> dict[tuple[str, ...], float]:
        prefix = "prefect_worker_cleanup_queue_"
        return {
            (sample.name.removeprefix(prefix).removesuffix("_total"), *sample.labels.values()): sample.value
            for metric in REGISTRY.collect()
            for sample in metric.samples
            if sample.name.startswith(prefix) and sample.name.endswith("_total")
        }

    def grown(self) -> dict[tuple[str, ...], float]:
        after = self._read()
        return {key: more for key, value in after.items() if (more := value - self._before.get(key, 0.0))}


async def test_prefects_setting_loads_it(store: Store, pool: UUID) -> None:
    loaded = get_worker_cleanup_queue()
    assert type(loaded) is WorkerCleanupQueue
    message_id = await enqueue(loaded, pool)
    found = await get_worker_cleanup_queue().reserve(work_pool_id=pool)
    assert found is not None
    assert found.message_id == message_id
    await loaded.close()


async def test_prefects_own_service_gives_back_what_is_overdue(store: Store, pool: UUID) -> None:
    queue = get_worker_cleanup_queue()
    message_id = await enqueue(queue, pool)
    with temporary_settings({LEASE: 0.001}):
        taken = await queue.reserve(work_pool_id=pool)
    assert taken is not None
    sequence = await queue.read_wakeup_sequence(pool)
    await asyncio.sleep(0.01)
    result = await reconcile_cleanup_delivery(cleanup_queue=cleanup_reconciler._get_service_worker_cleanup_queue())
    assert [one.message_id for one in result.redelivered] == [message_id]
    wakeup = await queue.wait_for_wakeup(pool, after=sequence, timeout=20)
    assert wakeup is not None
    await queue.close()


async def test_what_is_missing_is_stated_until_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pool: UUID
) -> None:
    monkeypatch.delenv(URL_VARIABLE)
    with pytest.raises(UrlError, match=f"{URL_VARIABLE} is not set"):
        get_worker_cleanup_queue()
    monkeypatch.setenv(URL_VARIABLE, "postgresql+asyncpg://somewhere/prefect")
    with pytest.raises(UrlError, match="no database URL that Wane knows"):
        get_worker_cleanup_queue()
    file = tmp_path / "cleanup.db"
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{file}")
    queue = get_worker_cleanup_queue()
    with pytest.raises(Unreachable, match="there is no database"):
        await queue.reserve(work_pool_id=pool)
    file.touch()
    with pytest.raises(NotMigrated, match="wane migrate"):
        await queue.reserve(work_pool_id=pool)
    with pytest.raises(NotMigrated, match="wane migrate"):
        await queue.wait_for_wakeup(pool, timeout=1)
    with open_store(resolve_url(URL_VARIABLE)) as store:
        store.migrate()
    assert await queue.reserve(work_pool_id=pool) is None
    await queue.close()


async def test_it_migrates_when_it_is_reported_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pool: UUID) -> None:
    file = tmp_path / "cleanup.db"
    file.touch()
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{file}")
    monkeypatch.setenv(MIGRATE_VARIABLE, "maybe")
    with pytest.raises(WrongArgument, match=MIGRATE_VARIABLE):
        get_worker_cleanup_queue()
    monkeypatch.setenv(MIGRATE_VARIABLE, "off")
    with pytest.raises(NotMigrated):
        await get_worker_cleanup_queue().reserve(work_pool_id=pool)
    monkeypatch.setenv(MIGRATE_VARIABLE, "True")
    queue = get_worker_cleanup_queue()
    assert await queue.reserve(work_pool_id=pool) is None
    await queue.close()


async def test_prefect_counts_what_happens(queue: WorkerCleanupQueue, pool: UUID, clock: Clock) -> None:
    counted = Counted()
    first = uuid4()
    await enqueue(queue, pool, message_id=first, idempotency_key="k")
    await enqueue(queue, pool, message_id=first, idempotency_key="k")
    await enqueue(queue, pool, idempotency_key="k")
    taken = await queue.reserve(work_pool_id=pool)
    assert taken is not None
    token = taken.reservation_token
    assert await queue.reserve(work_pool_id=pool) is None
    await enqueue(queue, pool, message_id=first, idempotency_key="k")
    await queue.renew(work_pool_id=pool, message_id=first, reservation_token=token)
    await queue.ack(work_pool_id=uuid4(), message_id=first, reservation_token=token)
    await queue.ack(work_pool_id=pool, message_id=first, reservation_token="wrong")
    await queue.ack(work_pool_id=pool, message_id=first, reservation_token=token)
    assert counted.grown() == {
        ("operations", "enqueue", "accepted"): 1,
        ("operations", "enqueue", "duplicate"): 3,
        ("operations", "reserve", "accepted"): 1,
        ("operations", "renew", "accepted"): 1,
        ("operations", "ack", "not_found"): 1,
        ("operations", "ack", "invalid_token"): 1,
        ("operations", "ack", "accepted"): 1,
    }


async def test_prefect_counts_leases_that_end_and_letters_that_die(
    queue: WorkerCleanupQueue, pool: UUID, clock: Clock
) -> None:
    dead = ("dead_letters", CANCELLING_TIMEOUT_TEARDOWN, "max_delivery_attempts_reached")
    message_id = await enqueue(queue, pool)
    with temporary_settings({ATTEMPTS: 2, LEASE: 10.0}):
        assert await queue.reserve(work_pool_id=pool) is not None
        clock.now += timedelta(seconds=10)
        counted = Counted()
        assert await queue.reserve(work_pool_id=pool) is not None
        assert counted.grown() == {("lease_expirations", "redelivered"): 1, ("operations", "reserve", "accepted"): 1}
        clock.now += timedelta(seconds=10)
        counted = Counted()
        assert await queue.reserve(work_pool_id=pool) is None
        assert counted.grown() == {("lease_expirations", "dead_lettered"): 1, dead: 1}
        letter = await queue.read_dead_letter(work_pool_id=pool, message_id=message_id)
        assert letter is not None
        assert (letter.final_delivery_count, letter.moved_at, letter.reservation_token) == (2, clock.now, None)

    with temporary_settings({ATTEMPTS: 1, LEASE: 10.0}):
        expiring = await enqueue(queue, pool)
        assert await queue.reserve(work_pool_id=pool) is not None
        clock.now += timedelta(seconds=10)
        counted = Counted()
        result = await queue.expire_leases()
        assert [one.message.message_id for one in result.dead_lettered] == [expiring]
        assert counted.grown() == {("lease_expirations", "dead_lettered"): 1, dead: 1}

        late = await enqueue(queue, pool)
        taken = await queue.reserve(work_pool_id=pool)
        assert taken is not None
        clock.now += timedelta(seconds=10)
        counted = Counted()
        result = await queue.ack(work_pool_id=pool, message_id=late, reservation_token=taken.reservation_token)
        assert result.status == "dead_lettered"
        assert result.dead_letter is not None
        assert counted.grown() == {("operations", "ack", "dead_lettered"): 1, dead: 1}

    released = await enqueue(queue, pool)
    taken = await queue.reserve(work_pool_id=pool)
    assert taken is not None
    await queue.release(
        work_pool_id=pool, message_id=released, reservation_token=taken.reservation_token, reason="not_now"
    )
    with temporary_settings({ATTEMPTS: 1}):
        counted = Counted()
        assert await queue.reserve(work_pool_id=pool) is None
        assert counted.grown() == {dead: 1}


async def test_completed_messages_are_remembered_for_as_long_as_prefect_states(
    queue: WorkerCleanupQueue, pool: UUID, clock: Clock
) -> None:
    # Without a setting for ever; with one, at most for ten years, which is the queue's own limit.
    for key, settings, remembered in (("a", {}, True), ("b", {RETENTION: 20 * 365 * 86_400.0}, False)):
        first = await enqueue(queue, pool, idempotency_key=key)
        taken = await queue.reserve(work_pool_id=pool)
        assert taken is not None
        with temporary_settings(settings):
            await queue.ack(work_pool_id=pool, message_id=first, reservation_token=taken.reservation_token)
        clock.now += timedelta(days=3649)
        assert await enqueue(queue, pool, idempotency_key=key) == first
        clock.now += timedelta(days=1)
        assert (await enqueue(queue, pool, idempotency_key=key) == first) is remembered


async def test_settings_beyond_what_a_queue_allows_are_limited(
    queue: WorkerCleanupQueue, pool: UUID, clock: Clock
) -> None:
    await enqueue(queue, pool)
    with temporary_settings({LEASE: 1e30, ATTEMPTS: 10**12, RETENTION: 1e30}):
        taken = await queue.reserve(work_pool_id=pool)
    assert taken is not None
    assert taken.lease_expires_at == clock.now + timedelta(days=3650)
    await enqueue(queue, pool)
    with temporary_settings({LEASE: 1e-9}):
        taken = await queue.reserve(work_pool_id=pool)
    assert taken is not None
    assert taken.lease_expires_at == clock.now + timedelta(milliseconds=1)


async def test_more_work_queues_may_be_preferred_than_one_question_takes(queue: WorkerCleanupQueue, pool: UUID) -> None:
    wanted = uuid4()
    await enqueue(queue, pool, work_queue_id=uuid4())
    chosen = await enqueue(queue, pool, work_queue_id=wanted)
    preferred = [*(uuid4() for _ in range(250)), wanted]
    options: dict[str, Any] = {"work_pool_id": pool, "preferred_work_queue_ids": preferred}
    taken = await queue.reserve(**options, allow_fallback_to_any_queue=False)
    assert taken is not None
    assert (taken.message_id, taken.work_queue_id) == (chosen, wanted)
    assert await queue.reserve(**options, allow_fallback_to_any_queue=False) is None
    nothing: dict[str, Any] = {"work_pool_id": pool, "preferred_work_queue_ids": []}
    assert await queue.reserve(**nothing, allow_fallback_to_any_queue=False) is None
    assert await queue.reserve(work_pool_id=pool, cleanup_kinds=[PENDING_CLAIM_TEARDOWN]) is None
    assert await queue.reserve(work_pool_id=pool, cleanup_kinds=[]) is None
    assert await queue.reserve(**nothing) is not None


async def test_leases_of_other_queues_in_the_database_are_not_its_business(
    queue: WorkerCleanupQueue, pool: UUID, store: Store, clock: Clock
) -> None:
    others = Queue(store, "retention", clock=clock)
    others.enqueue("sweep", message_id="m")
    assert others.reserve() is not None
    mine = await enqueue(queue, pool)
    assert await queue.reserve(work_pool_id=pool) is not None
    clock.now += timedelta(hours=1)
    with temporary_settings({ATTEMPTS: 1}):
        result = await queue.expire_leases(limit=1_000_000)
    assert [one.message.message_id for one in result.dead_lettered] == [mine]
    remaining = others.read_message("m")
    assert remaining is not None
    assert remaining.state is MessageState.RESERVED
    others.close()


async def test_a_worker_may_give_any_reason(queue: WorkerCleanupQueue, pool: UUID) -> None:
    message_id = await enqueue(queue, pool)
    taken = await queue.reserve(work_pool_id=pool)
    assert taken is not None
    with temporary_settings({ATTEMPTS: 1}):
        result = await queue.release(
            work_pool_id=pool,
            message_id=message_id,
            reservation_token=taken.reservation_token,
            reason="\0\ud800" + "🌒" * 20_000,
        )
    assert result.status == "dead_lettered"
    letter = await queue.read_dead_letter(work_pool_id=pool, message_id=message_id)
    assert letter is not None
    assert letter.release_reason == "??" + "🌒" * 2_499


async def test_a_reservation_of_a_cancelled_consumer_is_released(store: Store, pool: UUID) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def clock() -> datetime:
        begun.set()
        assert may_go_on.wait(20)
        return datetime(2026, 3, 1, tzinfo=UTC)

    queue, slow = WorkerCleanupQueue(), WorkerCleanupQueue(clock=clock)
    await enqueue(queue, pool)
    running = asyncio.create_task(slow.reserve(work_pool_id=pool))
    assert await asyncio.to_thread(begun.wait, 20)
    queued = asyncio.create_task(queue.reserve(work_pool_id=pool))
    await asyncio.sleep(0.01)
    for task in (running, queued):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    may_go_on.set()
    await queue.read_wakeup_sequence(pool)  # Comes after the reservation, and may come before it is given back.
    await queue.read_wakeup_sequence(pool)
    taken = await queue.reserve(work_pool_id=pool)
    assert taken is not None
    assert taken.delivery_count == 2
    await queue.close()


async def test_closing_ends_what_is_shared_and_the_next_call_begins_anew(store: Store, pool: UUID) -> None:
    one, other = WorkerCleanupQueue(), WorkerCleanupQueue()
    url = resolve_url(URL_VARIABLE)
    await enqueue(one, pool)
    assert await other.wait_for_wakeup(pool, after=0, timeout=20) is not None
    shared = shared_database(url)
    await other.close()
    await other.close()
    assert shared_database(url) is not shared
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("wane")]
    assert await one.reserve(work_pool_id=pool) is not None
    await one.close()


async def test_more_may_wait_than_there_are_threads(store: Store) -> None:
    queue = WorkerCleanupQueue()
    pools = [uuid4() for _ in range(150)]
    waiting = [asyncio.create_task(queue.wait_for_wakeup(pool, timeout=0.5)) for pool in pools]
    assert await asyncio.wait_for(asyncio.gather(*waiting), 30) == [None] * 150
    waiting = [asyncio.create_task(queue.wait_for_wakeup(pool, timeout=20)) for pool in pools[:50]]
    for pool in pools[:50]:
        await queue.wake_dispatchers(pool)
    woken = await asyncio.wait_for(asyncio.gather(*waiting), 15)
    assert [(wakeup.work_pool_id, wakeup.sequence) for wakeup in woken if wakeup] == [(pool, 1) for pool in pools[:50]]
    await queue.close()


def test_event_loops_share_it(store: Store, pool: UUID) -> None:
    sent = 40
    taken: list[UUID] = []

    async def fill() -> None:
        queue = WorkerCleanupQueue()
        await asyncio.gather(*(enqueue(queue, pool) for _ in range(sent)))

    async def empty() -> None:
        while found := await WorkerCleanupQueue().reserve(work_pool_id=pool):
            taken.append(found.message_id)

    asyncio.run(fill())
    loops = [threading.Thread(target=asyncio.run, args=(empty(),)) for _ in range(3)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert len(taken) == len(set(taken)) == sent
    asyncio.run(WorkerCleanupQueue().close())


def test_a_forked_process_has_connections_of_its_own(store: Store, pool: UUID) -> None:
    queue = WorkerCleanupQueue()
    message_id = asyncio.run(enqueue(queue, pool))
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def child() -> None:
        taken = asyncio.run(queue.reserve(work_pool_id=pool))
        there.send(None if taken is None else taken.reservation_token)
        asyncio.run(queue.close())

    process = context.Process(target=child)
    process.start()
    assert here.poll(30)
    token = here.recv()
    process.join(30)
    assert process.exitcode == 0
    result = asyncio.run(queue.ack(work_pool_id=pool, message_id=message_id, reservation_token=token))
    assert result.status == "accepted"
    asyncio.run(queue.close())
