"""Prefect's cleanup queue, stored in SQLite or PostgreSQL: messages, leases and dead letters survive a restart, and
servers share them.

Prefect's server loads this module by its own setting,
`PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_QUEUE_STORAGE=wane.contrib.prefect`, and creates a `WorkerCleanupQueue` whenever
it needs one. `WANE_PREFECT_URL` names the database. Leases, attempts and how long a completed message is remembered are
Prefect's own settings, read at every call.

A message belongs to its work pool: for every other pool it does not exist.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID

from prefect.client.schemas.worker_channel import CleanupKind
from prefect.server.worker_communication.cleanup_queue import (
    CleanupQueueDeadLetter,
    CleanupQueueLeaseExpiryResult,
    CleanupQueueMessage,
    CleanupQueueOperation,
    CleanupQueueOperationResult,
    CleanupQueueReservation,
    CleanupQueueWakeup,
    record_cleanup_queue_dead_letter,
    record_cleanup_queue_lease_expiry_result,
    record_cleanup_queue_operation,
)
from prefect.server.worker_communication.cleanup_queue import WorkerCleanupQueue as Interface
from prefect.settings.context import get_current_settings

from wane._aio import on_thread
from wane._arguments import require_at_least_one
from wane._db import Store
from wane._db.url import DatabaseUrl, resolve_url
from wane.contrib._shared import SharedDatabase, close_database, shared_database
from wane.errors import StoreError, UrlError, WrongArgument
from wane.events import Event, MessageDead
from wane.queue import Answered, AsyncQueue, DeadLetter, Expired, Message, MessageState, Queue, Reservation, RetryPolicy
from wane.queue._dialects import messages_of
from wane.queue._queue import Clock
from wane.queue._wakeups import Wakeups

_R = TypeVar("_R")

URL_VARIABLE = "WANE_PREFECT_URL"
MIGRATE_VARIABLE = "WANE_PREFECT_MIGRATE"

_SOURCE = "wane_cleanup_queue"
"""The source of a dead letter, in Prefect's log."""
_POOL_PREFIX = "prefect:"
"""Other queues may use the same database, under policies of their own: a query over all pools reads Prefect's alone."""
_CANCELLED = "reservation_cancelled"

_LONGEST_SECONDS = timedelta(days=3650).total_seconds()
_SHORTEST_LEASE_SECONDS = 0.001
_MOST_ATTEMPTS = 1_000_000
_MOST_POOLS = 1_000
_MOST_EXPIRED = 1_000
_MOST_PREFERRED = 100
_MOST_REASON_BYTES = 10_000


class WorkerCleanupQueue(Interface):
    """The cleanup queue of a Prefect server. All that are created in one process for one database share its
    connections."""

    def __init__(self, url: str | None = None, *, migrate: bool | None = None, clock: Clock | None = None) -> None:
        """Set up the queue without opening anything.

        Prefect gives no arguments; what is not given is read from the environment. A database that cannot be used is
        the error of a call, and of no call after it can. With `migrate` the first call creates Wane's own tables if
        they are missing. `clock` replaces the database's, for tests.
        """
        self._url = _database_url(url)
        self._migrate = _migrates() if migrate is None else migrate
        self._clock = clock

    async def enqueue(
        self,
        *,
        message_id: UUID,
        idempotency_key: str,
        work_pool_id: UUID,
        kind: CleanupKind,
        target: Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        work_queue_id: UUID | None = None,
    ) -> CleanupQueueMessage:
        def store(queue: Queue) -> tuple[Message, bool]:
            known = queue.read_message(str(message_id)) is not None
            stored = queue.enqueue(
                kind,
                message_id=str(message_id),
                key=idempotency_key,
                target=target,
                data=data,
                work_queue_id=None if work_queue_id is None else str(work_queue_id),
            )
            untouched = stored.state is MessageState.READY and stored.deliveries == 0
            return stored, not known and untouched and stored.message_id == str(message_id)

        stored, new = await self._run(work_pool_id, store)
        record_cleanup_queue_operation(
            "enqueue",
            status="accepted" if new else "duplicate",
            work_pool_id=work_pool_id,
            message_id=message_id,
            cleanup_kind=str(kind),
        )
        return CleanupQueueMessage(**_fields(stored))

    async def reserve(
        self,
        *,
        work_pool_id: UUID,
        cleanup_kinds: Iterable[CleanupKind] | None = None,
        preferred_work_queue_ids: Iterable[UUID] | None = None,
        allow_fallback_to_any_queue: bool = True,
    ) -> CleanupQueueReservation | None:
        kinds = None if cleanup_kinds is None else set(cleanup_kinds)
        preferred = None if preferred_work_queue_ids is None else [str(one) for one in preferred_work_queue_ids]
        passes = _passes(preferred, fallback=allow_fallback_to_any_queue)

        def take(queue: Queue) -> Reservation | None:
            for queues in passes:
                found = queue.reserve(
                    kinds=kinds, preferred_work_queue_ids=queues, allow_fallback_to_any_queue=queues is None
                )
                if found is not None:
                    return found
            return None

        taken = await self._run(work_pool_id, take, undo=_give_back)
        if taken is None:
            return None
        reservation = CleanupQueueReservation(
            **_fields(taken.message), reservation_token=taken.token, lease_expires_at=taken.lease_expires_at
        )
        record_cleanup_queue_operation(
            "reserve",
            status="accepted",
            work_pool_id=work_pool_id,
            message_id=reservation.message_id,
            cleanup_kind=str(reservation.kind),
        )
        return reservation

    async def ack(self, *, work_pool_id: UUID, message_id: UUID, reservation_token: str) -> CleanupQueueOperationResult:
        answered = await self._run(work_pool_id, lambda queue: queue.ack(str(message_id), reservation_token))
        return _result("ack", work_pool_id, message_id, answered)

    async def release(
        self, *, work_pool_id: UUID, message_id: UUID, reservation_token: str, reason: str
    ) -> CleanupQueueOperationResult:
        why = _storable(reason)
        answered = await self._run(work_pool_id, lambda queue: queue.release(str(message_id), reservation_token, why))
        return _result("release", work_pool_id, message_id, answered)

    async def renew(
        self, *, work_pool_id: UUID, message_id: UUID, reservation_token: str
    ) -> CleanupQueueOperationResult:
        answered = await self._run(work_pool_id, lambda queue: queue.renew(str(message_id), reservation_token))
        return _result("renew", work_pool_id, message_id, answered)

    async def expire_leases(
        self, *, limit: int = 100, work_pool_id: UUID | None = None
    ) -> CleanupQueueLeaseExpiryResult:
        require_at_least_one("limit", limit)
        most = min(limit, _MOST_EXPIRED)
        pools = [_pool(work_pool_id)] if work_pool_id is not None else await self._pools_overdue()
        redelivered: list[CleanupQueueMessage] = []
        dead_lettered: list[CleanupQueueDeadLetter] = []
        for pool in pools:
            left = most - len(redelivered) - len(dead_lettered)
            if left < 1:
                break
            expired = await self._run(_work_pool_id(pool), _expiring(left))
            redelivered += [CleanupQueueMessage(**_fields(message)) for message in expired.redelivered]
            dead_lettered += [_dead_letter(letter) for letter in expired.dead_lettered]
        return CleanupQueueLeaseExpiryResult(redelivered=redelivered, dead_lettered=dead_lettered)

    async def read_message(self, *, work_pool_id: UUID, message_id: UUID) -> CleanupQueueMessage | None:
        found = await self._run(work_pool_id, lambda queue: queue.read_message(str(message_id)))
        return None if found is None else CleanupQueueMessage(**_fields(found))

    async def read_dead_letter(self, *, work_pool_id: UUID, message_id: UUID) -> CleanupQueueDeadLetter | None:
        found = await self._run(work_pool_id, lambda queue: queue.read_dead_letter(str(message_id)))
        return None if found is None else _dead_letter(found)

    async def wake_dispatchers(self, work_pool_id: UUID) -> CleanupQueueWakeup:
        sequence = await self._run(work_pool_id, Queue.notify)
        return CleanupQueueWakeup(work_pool_id=work_pool_id, sequence=sequence)

    async def read_wakeup_sequence(self, work_pool_id: UUID) -> int:
        return await self._run(work_pool_id, Queue.read_wakeup_sequence)

    async def wait_for_wakeup(
        self, work_pool_id: UUID, *, after: int = 0, timeout: float | None = None
    ) -> CleanupQueueWakeup | None:
        shared, queue = await self._open(work_pool_id)
        sequence = await AsyncQueue(queue, on_thread(shared.thread), shared.waiting).wait_for_wakeup(after, timeout)
        return None if sequence is None else CleanupQueueWakeup(work_pool_id=work_pool_id, sequence=sequence)

    async def close(self) -> None:
        """Close the connections that this process shares for this database; the next call opens them again."""
        await asyncio.to_thread(close_database, self._url)

    async def _open(self, work_pool_id: UUID) -> tuple[SharedDatabase, _RecordedQueue]:
        policy = _policy()  # Here: Prefect's settings belong to the caller's context.
        shared = shared_database(self._url)
        store, wakeups = await shared.open(migrate=self._migrate)
        return shared, _RecordedQueue(store, _pool(work_pool_id), policy, self._clock, wakeups)

    async def _run(
        self, work_pool_id: UUID, work: Callable[[Queue], _R], *, undo: Callable[[Queue, _R], object] | None = None
    ) -> _R:
        """Run work on a pool's queue, on the store's thread.

        Report dead letters and expired leases to Prefect's metrics. If the caller is cancelled meanwhile, `undo` is
        called with the result.
        """
        shared, queue = await self._open(work_pool_id)
        running = shared.thread.submit(queue.recorded, work)
        try:
            done = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if undo is not None:
                running.add_done_callback(partial(_undo, shared, queue, undo))
            raise
        for letter in done.dead_letters:
            record_cleanup_queue_dead_letter(_dead_letter(letter), source=_SOURCE)
        for expired in done.expired:
            record_cleanup_queue_lease_expiry_result(
                CleanupQueueLeaseExpiryResult(
                    redelivered=[CleanupQueueMessage(**_fields(message)) for message in expired.redelivered],
                    dead_lettered=[_dead_letter(letter) for letter in expired.dead_lettered],
                )
            )
        return done.result

    async def _pools_overdue(self) -> list[str]:
        """Return Prefect's pools in which a lease has ended."""
        shared = shared_database(self._url)
        store, _ = await shared.open(migrate=self._migrate)

        def read() -> list[str]:
            now = (self._clock or store.clock)() or store.now()
            return messages_of(store).pools_overdue(store.run, _MOST_POOLS, now)

        pools = await asyncio.wrap_future(shared.thread.submit(read))
        return [pool for pool in pools if pool.startswith(_POOL_PREFIX)]


@dataclass(frozen=True, slots=True)
class _Done(Generic[_R]):
    result: _R
    dead_letters: tuple[DeadLetter, ...]
    expired: tuple[Expired, ...]


class _RecordedQueue(Queue):
    """A queue that also records which leases ended and which messages died during its work."""

    def __init__(self, store: Store, pool: str, policy: RetryPolicy, clock: Clock | None, wakeups: Wakeups) -> None:
        super().__init__(store, pool, policy=policy, clock=clock, listener=self._on_event, wakeups=wakeups)
        self._dead: list[str] = []
        self._expired: list[Expired] = []

    def recorded(self, work: Callable[[Queue], _R]) -> _Done[_R]:
        result = work(self)
        letters: list[DeadLetter] = []
        with suppress(StoreError):  # The work is done and reported; a missing metric does no harm.
            letters = [letter for one in self._dead if (letter := self.read_dead_letter(one)) is not None]
        return _Done(result, tuple(letters), tuple(self._expired))

    def expire_leases(self, limit: int = 100, *, everywhere: bool = False) -> Expired:
        expired = super().expire_leases(limit, everywhere=everywhere)
        self._expired.append(expired)
        return expired

    def _on_event(self, event: Event) -> None:
        if isinstance(event, MessageDead):
            self._dead.append(event.message_id)


def _expiring(limit: int) -> Callable[[Queue], Expired]:
    return lambda queue: queue.expire_leases(limit)


def _undo(shared: SharedDatabase, queue: Queue, undo: Callable[[Queue, _R], object], done: Future[_Done[_R]]) -> None:
    if not done.cancelled() and done.exception() is None:
        shared.thread.submit(undo, queue, done.result().result)


def _give_back(queue: Queue, taken: Reservation | None) -> None:
    """Release a message that a worker which went away never saw."""
    if taken is not None:
        queue.release(taken.message_id, taken.token, _CANCELLED)


def _database_url(url: str | None) -> DatabaseUrl:
    if url is None and not os.environ.get(URL_VARIABLE):
        raise UrlError(
            f"Prefect's cleanup queue has no database: the environment variable {URL_VARIABLE} is not set",
            'set it to "sqlite:////path/to/cleanup.db" or "postgresql://user@host/database"',
        )
    return resolve_url(url or URL_VARIABLE, base=Path.cwd())


def _migrates() -> bool:
    text = os.environ.get(MIGRATE_VARIABLE, "").lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("", "0", "false", "no", "off"):
        return False
    raise WrongArgument(f"{MIGRATE_VARIABLE} is {text!r}", "write true or false")


def _policy() -> RetryPolicy:
    """Build Prefect's policy, within what a queue allows."""
    settings = get_current_settings().server.worker_channel
    retention = settings.cleanup_completed_idempotency_retention_seconds
    lease = max(min(settings.cleanup_lease_seconds, _LONGEST_SECONDS), _SHORTEST_LEASE_SECONDS)
    return RetryPolicy(
        attempts=min(settings.cleanup_max_delivery_attempts, _MOST_ATTEMPTS),
        lease=timedelta(seconds=lease),
        remember=None if retention is None else timedelta(seconds=min(retention, _LONGEST_SECONDS)),
    )


def _passes(preferred: list[str] | None, *, fallback: bool) -> list[Collection[str] | None]:
    """Split the preferred work queues into passes; None means any queue.

    A worker may prefer more of them than one query takes.
    """
    if preferred is None:
        return [None]
    parts = [preferred[start : start + _MOST_PREFERRED] for start in range(0, len(preferred), _MOST_PREFERRED)]
    return [*parts, None] if fallback else [*parts]


def _pool(work_pool_id: UUID) -> str:
    return f"{_POOL_PREFIX}{work_pool_id}"


def _work_pool_id(pool: str) -> UUID:
    return UUID(pool.removeprefix(_POOL_PREFIX))


def _storable(reason: str) -> str:
    """Replace and cut what a database cannot store of a worker's reason."""
    return reason.replace("\0", "?").encode(errors="replace")[:_MOST_REASON_BYTES].decode(errors="ignore")


def _fields(message: Message) -> dict[str, Any]:
    return {
        "message_id": UUID(message.message_id),
        "idempotency_key": message.idempotency_key,
        "work_pool_id": _work_pool_id(message.pool),
        "work_queue_id": None if message.work_queue_id is None else UUID(message.work_queue_id),
        "kind": message.kind,
        "target": message.target,
        "data": message.data,
        "created_at": message.created_at,
        "updated_at": message.updated_at,
        "delivery_count": message.deliveries,
    }


def _dead_letter(letter: DeadLetter) -> CleanupQueueDeadLetter:
    """Convert a dead letter, without the last reservation's token: the database never stores it."""
    return CleanupQueueDeadLetter(
        message=CleanupQueueMessage(**_fields(letter.message)),
        reason=letter.reason,
        final_delivery_count=letter.final_delivery_count,
        moved_at=letter.moved_at,
        release_reason=letter.release_reason,
    )


def _result(
    operation: CleanupQueueOperation, work_pool_id: UUID, message_id: UUID, answered: Answered
) -> CleanupQueueOperationResult:
    record_cleanup_queue_operation(
        operation, status=answered.answer.value, work_pool_id=work_pool_id, message_id=message_id
    )
    return CleanupQueueOperationResult(
        message_id=message_id,
        operation=operation,
        status=answered.answer.value,
        lease_expires_at=answered.lease_expires_at,
        reason=answered.reason,
        dead_letter=None if answered.dead_letter is None else _dead_letter(answered.dead_letter),
    )
