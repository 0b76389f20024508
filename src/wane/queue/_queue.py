"""The cleanup delivery queue: leased messages with retries and dead letters, scoped by work pool.

Each operation is one transaction, and the usual ones are one statement. Exactly one reservation of a message is valid
at a time: that of the holder of its token, until its lease ends by the database's clock. Nothing here ever returns or
changes a message of another pool.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from secrets import token_urlsafe
from typing import Any, TypeVar

from wane._arguments import require_count, require_duration, require_flag, require_name, require_text, require_timeout
from wane._db import Store
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Execute
from wane._db.transaction import Transaction
from wane.errors import StoreError, WrongArgument, WrongArgumentType
from wane.events import Listener, MessageDead, ignore_event
from wane.queue._dialects import messages_of
from wane.queue._model import Answer, Answered, DeadLetter, Draft, Expired, Reservation, RetryPolicy
from wane.queue._sql import CROWDED, Message, MessageState, NewMessage, Wanted
from wane.queue._wakeups import Wakeups

_MOST_NAMES = 100
_MOST_PAYLOAD = 1_000_000
"""Characters of JSON: a message is a signal, not a store of data."""
_JSON = json.JSONEncoder(allow_nan=False)
_MOST_SEQ = 2**63 - 1
_48_BITS = 2**48 - 1
_VERSION_BITS, _VERSION_7 = 0xF << 76 | 0b11 << 62, 7 << 76 | 0b10 << 62
_TRIES = 5
_EXPIRED_BESIDE_RESERVING = 100
_MOST_UNCHECKED_SECONDS = 1.0
"""How long reserving may go on without a check for overdue messages, as long as it finds others."""

Clock = Callable[[], datetime | None]
R = TypeVar("R")


class Queue:
    """The messages of one pool."""

    def __init__(
        self,
        store: Store,
        pool: str,
        *,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        listener: Listener = ignore_event,
        wakeups: Wakeups | None = None,
    ) -> None:
        """Open the queue of a pool; `clock` replaces the database's, for tests.

        Queues of several pools may share their wakeups, and with it a connection.
        """
        store.require_migrated()
        self.store = store
        self.pool = require_name("pool", pool)
        if policy is not None and not isinstance(policy, RetryPolicy):
            raise WrongArgumentType(f"policy must be a RetryPolicy, not {policy!r}")
        self.policy = policy or RetryPolicy()
        self.listener = listener
        self._clock = clock
        self._messages = messages_of(store)
        self._wakeups = wakeups or Wakeups(store)
        self._shares_wakeups = wakeups is not None
        self._next_check = 0.0
        """When reserving checks for overdue messages again, by the monotonic clock, although it finds others."""

    # Producing

    def enqueue(
        self,
        kind: str,
        *,
        message_id: str | None = None,
        key: str | None = None,
        target: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        work_queue_id: str | None = None,
        delay: timedelta = timedelta(0),
        connection: object | None = None,
    ) -> Message:
        """Store a message, once: if its id or its key exists in this pool, return that message, whatever its state.

        With a connection, inside its transaction: the message, and the wakeup, appear when that commits.
        """
        new = _drafted(
            Draft(
                kind,
                message_id,
                key,
                {} if target is None else target,
                {} if data is None else data,
                work_queue_id,
                delay,
            )
        )
        stored = self._at_once(lambda run, now: self._messages.insert(run, self.pool, [new], now), connection)
        if stored:
            return stored[0]
        with self._running(connection) as (run, now):
            return self._stored(run, new, now)

    def enqueue_many(self, drafts: Sequence[Draft], *, connection: object | None = None) -> list[Message]:
        """Store up to 1,000 messages in one transaction, all or nothing; return them in the order of the drafts."""
        if not _is_list_of_drafts(drafts):
            raise WrongArgumentType("enqueue_many takes a list of Draft")
        require_count("drafts", len(drafts))
        with self.store.transaction(connection) as transaction:
            return self.enqueue_within(transaction, drafts)

    def enqueue_within(self, transaction: Transaction, drafts: Sequence[Draft]) -> list[Message]:
        """Store messages like `enqueue_many`, inside a transaction of the store."""
        new = [_drafted(one) for one in drafts]
        run = transaction.execute
        now = self._now(transaction.clock)
        stored = {one.message_id: one for one in self._messages.insert(run, self.pool, new, now)}
        return [
            known
            if (known := stored.pop(one.message_id, None)) and known.idempotency_key == one.idempotency_key
            else self._stored(run, one, now)
            for one in new
        ]

    def _stored(self, run: Execute, new: NewMessage, now: datetime | None) -> Message:
        for _ in range(_TRIES):
            stored = self._messages.insert(run, self.pool, [new], now)
            if stored:
                return stored[0]
            existing = self._messages.find(run, self.pool, new.message_id) or self._messages.find_by_key(
                run, self.pool, new.idempotency_key
            )
            if existing is None:
                continue  # The message with the id or the key was deleted, or is not committed yet.
            clock = now or self.store.now()
            if existing.state is MessageState.DONE and existing.forget_at is not None and existing.forget_at <= clock:
                self._messages.forget(run, self.pool, existing.message_id, clock)
                continue
            if existing.message_id == new.message_id and existing.idempotency_key != new.idempotency_key:
                raise WrongArgument(
                    f"message {new.message_id!r} exists with another key: {existing.idempotency_key!r},"
                    f" not {new.idempotency_key!r}",
                    "an id belongs to one key; give a new message a new id",
                )
            if existing.state is MessageState.READY:
                self._messages.bump(run, self.pool)
            return existing
        raise StoreError(
            f"message {new.message_id!r} could not be enqueued: others enqueued and completed the same one at every attempt",
            "try again",
        )

    # Consuming

    def reserve(
        self,
        *,
        kinds: Collection[str] | None = None,
        preferred_work_queue_ids: Collection[str] | None = None,
        allow_fallback_to_any_queue: bool = True,
    ) -> Reservation | None:
        """Reserve the oldest ready message: of the kinds named, and first of the preferred work queues.

        Without a fallback, of those alone.
        """
        found = self.reserve_many(
            1,
            kinds=kinds,
            preferred_work_queue_ids=preferred_work_queue_ids,
            allow_fallback_to_any_queue=allow_fallback_to_any_queue,
        )
        return found[0] if found else None

    def reserve_many(
        self,
        limit: int,
        *,
        kinds: Collection[str] | None = None,
        preferred_work_queue_ids: Collection[str] | None = None,
        allow_fallback_to_any_queue: bool = True,
    ) -> list[Reservation]:
        """Reserve at most `limit` messages, oldest first, each with a token of its own."""
        require_count("limit", limit)
        chosen = _names("kinds", kinds)
        preferred = _names("preferred_work_queue_ids", preferred_work_queue_ids)
        fallback = require_flag("allow_fallback_to_any_queue", allow_fallback_to_any_queue)
        passes: list[tuple[str, ...] | None] = [preferred] if preferred else []
        if preferred is None or fallback:
            passes.append(None)
        if chosen == () or not passes:
            return []  # Nothing is of no kind, and nothing is in no queue.
        taken: list[Reservation] = []
        for may_retry in (True, False):
            # Before reserving: what is reserved now is not overdue, however short its lease is.
            late = self._must_check() and self._has_overdue()
            self._take(taken, limit, chosen, passes)
            late = late or (not taken and self._has_overdue())
            # Overdue messages return to their pool; if there was nothing else, they are reserved instead.
            if not late or not self.expire_leases(_EXPIRED_BESIDE_RESERVING).count or taken or not may_retry:
                break
        return taken

    def _must_check(self) -> bool:
        """Return whether to check for overdue messages: always by a clock for tests, else from time to time."""
        now = time.monotonic()
        if self._clock is None and now < self._next_check:
            return False
        self._next_check = now + _MOST_UNCHECKED_SECONDS
        return True

    def _has_overdue(self) -> bool:
        return self._messages.has_overdue(self.store.run, self.pool, self._now(self.store.clock))

    def _take(
        self,
        taken: list[Reservation],
        limit: int,
        kinds: tuple[str, ...] | None,
        passes: Sequence[tuple[str, ...] | None],
    ) -> None:
        """Add reservations to those taken."""
        for queues in passes:
            while len(taken) < limit:
                tokens = _new_tokens(limit - len(taken))
                lease = self.policy.lease.total_seconds()
                wanted = Wanted(self.pool, tuple(tokens), lease, self.policy.attempts, kinds, queues)
                died = False
                for message in self._reserve(wanted):
                    if message.state is MessageState.DEAD:
                        self._emit_dead(message)
                        died = True
                    else:
                        assert message.token_hash is not None
                        assert message.due_at is not None
                        taken.append(Reservation(message, tokens[message.token_hash], message.due_at))
                if not died:
                    break

    def _reserve(self, wanted: Wanted) -> list[Message]:
        """Reserve messages. What is lost with the machine is delivered again: this need not wait for the disk."""
        found = self._at_once(lambda run, now: self._messages.reserve(run, wanted, now), durable=False)
        if found:
            return found
        with self._running(durable=False) as (run, now):
            return self._messages.reserve(run, wanted, now)

    def ack(self, message_id: str, token: str, *, connection: object | None = None) -> Answered:
        """Complete a message whose work is done. With a connection, it is done when that transaction commits."""
        message_id, digest = require_name("message_id", message_id), _hash(require_text("token", token))
        if connection is None:
            remember = self.policy.remember
            seconds = None if remember is None else remember.total_seconds()

            def complete(run: Execute, now: datetime | None) -> bool:
                return self._messages.complete(run, self.pool, message_id, digest, seconds, now)

            completed = self._at_once(complete)
            if not completed:
                with self._running() as (run, now):
                    completed = complete(run, now)
            if completed:
                return Answered(Answer.ACCEPTED)

        return self._change(message_id, digest, self.policy.done, connection)

    def renew(self, message_id: str, token: str) -> Answered:
        """Start the lease again; this does not count as a delivery."""
        message_id, digest = require_name("message_id", message_id), _hash(require_text("token", token))
        lease = self.policy.lease
        with self._running() as (run, now):
            end = self._messages.extend(run, self.pool, message_id, digest, lease.total_seconds(), now)
        if end is not None:
            return Answered(Answer.ACCEPTED, lease_expires_at=end)
        return self._change(
            message_id, digest, lambda message, now: replace(message, due_at=now + lease, updated_at=now), None
        )

    def release(self, message_id: str, token: str, reason: str, *, connection: object | None = None) -> Answered:
        """Give the reservation back with a reason: the message is delivered again.

        If that was its last delivery, it is a dead letter.
        """
        message_id, digest = require_name("message_id", message_id), _hash(require_text("token", token))
        why = require_text("reason", reason, most=10_000)

        def given_back(message: Message, now: datetime) -> Message:
            return self.policy.given_back(message, now, why)

        return self._change(message_id, digest, given_back, connection)

    def _change(
        self, message_id: str, digest: str, change: Callable[[Message, datetime], Message], connection: object | None
    ) -> Answered:
        """Change a message if that is its current reservation; if its lease has ended, expire it instead."""
        with self.store.transaction(connection) as transaction:
            run = transaction.execute
            message = self._messages.find_locked(run, self.pool, message_id)
            now = self._now(transaction.clock) or transaction.now()
            if message is None or not message.active:
                return Answered(Answer.NOT_FOUND, "message_not_found")
            if message.state is not MessageState.RESERVED:
                return Answered(Answer.NOT_CURRENT, "no_active_reservation")
            assert message.token_hash is not None
            assert message.due_at is not None
            if not hmac.compare_digest(message.token_hash, digest):
                return Answered(Answer.INVALID_TOKEN, "reservation_token_mismatch")
            ended = message.due_at <= now
            changed = self.policy.given_back(message, now) if ended else change(message, now)
            self._messages.write(run, changed)
        if changed.state is MessageState.DEAD:
            self._emit_dead(changed)
            return Answered(Answer.DEAD_LETTERED, changed.reason, dead_letter=DeadLetter.of(changed))
        if ended:
            return Answered(Answer.EXPIRED, "lease_expired")
        renewed = changed.due_at if changed.state is MessageState.RESERVED else None
        return Answered(Answer.ACCEPTED, lease_expires_at=renewed)

    def expire_leases(self, limit: int = 100, *, everywhere: bool = False) -> Expired:
        """Give back at most `limit` messages whose lease has ended, and make delayed ones ready that are due.

        Of this pool, or of all pools, by this queue's policy.
        """
        require_count("limit", limit)
        pools = [self.pool]
        if require_flag("everywhere", everywhere):
            now = self._now(self.store.clock) or self.store.now()
            pools = self._messages.pools_overdue(self.store.run, limit, now)
        found: list[tuple[Message, Message]] = []
        for pool in pools:
            if len(found) < limit:
                found += self._expire(pool, limit - len(found))
        dead = [after for _, after in found if after.state is MessageState.DEAD]
        for message in dead:
            self._emit_dead(message)
        return Expired(
            tuple(after for before, after in found if before.state is MessageState.RESERVED and after.active),
            tuple(DeadLetter.of(message) for message in dead),
            tuple(after for before, after in found if before.state is MessageState.DELAYED),
        )

    def _expire(self, pool: str, limit: int) -> list[tuple[Message, Message]]:
        with self.store.transaction() as transaction:
            now = self._now(transaction.clock) or transaction.now()
            changed = []
            for message in self._messages.overdue(transaction.execute, pool, limit, now):
                if message.state is MessageState.DELAYED:
                    after = replace(message, state=MessageState.READY, due_at=None, updated_at=now)
                else:
                    after = self.policy.given_back(message, now)
                self._messages.write(transaction.execute, after)
                changed.append((message, after))
            self._messages.fold(transaction.execute, pool)
        return changed

    # Reading

    def read_message(self, message_id: str) -> Message | None:
        """Return a message that is neither done nor dead; None if there is none."""
        message = self._messages.find(self.store.run, self.pool, require_name("message_id", message_id))
        return message if message is not None and message.active else None

    def messages(
        self, *, state: MessageState | str | None = None, kind: str | None = None, limit: int = 100
    ) -> list[Message]:
        """Return messages that are neither done nor dead.

        Ready ones, the oldest first, then reserved and delayed ones, the next due first.
        """
        require_count("limit", limit)
        chosen = None if state is None else _unfinished(state)
        return self._messages.listed(self.store.run, self.pool, chosen, _kind(kind), limit)

    # Dead letters

    def read_dead_letter(self, message_id: str) -> DeadLetter | None:
        message = self._messages.find(self.store.run, self.pool, require_name("message_id", message_id))
        return DeadLetter.of(message) if message is not None and message.state is MessageState.DEAD else None

    def dead_letters(
        self, *, kind: str | None = None, resolved: bool = False, before: int | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Return dead letters, newest first; with `resolved` also those that were dealt with.

        `before` is the number (`message.seq`) of the last one of the page before.
        """
        require_count("limit", limit)
        found = self._messages.dead_letters(
            self.store.run,
            self.pool,
            kind=_kind(kind),
            resolved=require_flag("resolved", resolved),
            before=None if before is None else require_count("before", before, _MOST_SEQ),
            limit=limit,
        )
        return [DeadLetter.of(message) for message in found]

    def resolve(self, message_id: str, *, by: str) -> Answered:
        """Mark a dead letter as dealt with: from now on it may be pruned."""
        who = require_text("by", by)
        return self._settle(message_id, lambda message, now: replace(message, resolved_at=now, resolved_by=who))

    def requeue(self, message_id: str) -> Answered:
        """Deliver a dead letter again, as if it had never been delivered."""

        def anew(message: Message, now: datetime) -> Message:
            return replace(
                message,
                state=MessageState.READY,
                deliveries=0,
                updated_at=now,
                finished_at=None,
                reason=None,
                release_reason=None,
                resolved_at=None,
                resolved_by=None,
            )

        return self._settle(message_id, anew)

    def _settle(self, message_id: str, change: Callable[[Message, datetime], Message]) -> Answered:
        message_id = require_name("message_id", message_id)
        with self.store.transaction() as transaction:
            message = self._messages.find_locked(transaction.execute, self.pool, message_id)
            if message is None or message.state is not MessageState.DEAD:
                return Answered(Answer.NOT_FOUND, "dead_letter_not_found")
            if message.resolved_at is not None:
                return Answered(Answer.NOT_CURRENT, "already_resolved")
            now = self._now(transaction.clock) or transaction.now()
            self._messages.write(transaction.execute, change(message, now))
        return Answered(Answer.ACCEPTED)

    # Wakeups

    def notify(self) -> int:
        """Wake the readers that wait for this pool, and return the new sequence."""
        with self.store.transaction() as transaction:
            self._messages.bump(transaction.execute, self.pool)
            return self._messages.sequences(transaction.execute, [self.pool])[self.pool]

    def read_wakeup_sequence(self) -> int:
        """Return how many wakeups this pool has had: the sequence to wait after."""
        sequence, rows = self._messages.bumps(self.store.run, [self.pool])[self.pool]
        if rows > CROWDED:
            with suppress(StoreError):  # It saves the next reader work; a read-only store cannot do it.
                self._messages.fold(self.store.run, self.pool)
        return sequence

    def wait_for_wakeup(self, after: int, timeout: float | None = None) -> int | None:
        """Wait for a sequence newer than `after` and return it, or None when `timeout` seconds are over."""
        if isinstance(after, bool) or not isinstance(after, int):
            raise WrongArgumentType(f"after must be a sequence, not {after!r}")
        return self._wakeups.wait(self.pool, after, require_timeout("timeout", timeout))

    def next_due(self) -> datetime | None:
        """Return when the next lease ends or the next delayed message becomes ready: neither causes a wakeup."""
        return self._messages.next_due(self.store.run, self.pool)

    def close(self) -> None:
        """Close the connection that waits for wakeups, unless it is shared; the store stays open.

        A thread that still waits gets an error.
        """
        if not self._shares_wakeups:
            self._wakeups.close()

    def _now(self, clock: Clock) -> datetime | None:
        return (self._clock or clock)()

    def _at_once(
        self,
        work: Callable[[Execute, datetime | None], R],
        connection: object | None = None,
        *,
        durable: bool = True,
    ) -> R | None:
        """Run one statement as SqliteStore.at_once does; not inside the caller's transaction, nor by a clock for
        tests."""
        if connection is not None or self._clock is not None or not isinstance(self.store, SqliteStore):
            return None
        return self.store.at_once(work, durable=durable)

    def _running(
        self, connection: object | None = None, *, durable: bool = True
    ) -> AbstractContextManager[tuple[Execute, datetime | None]]:
        """Yield what runs statements, and the time to use, as Store.write does; or inside the caller's transaction."""
        if connection is None and self._clock is None:
            return self.store.write(durable=durable)
        return self._running_otherwise(connection, durable=durable)

    @contextmanager
    def _running_otherwise(
        self, connection: object | None, *, durable: bool
    ) -> Iterator[tuple[Execute, datetime | None]]:
        """Yield the same by a clock for tests, or inside the caller's transaction."""
        if connection is None:
            with self.store.write(durable=durable) as (run, clock):
                yield run, self._now(lambda: clock)
            return
        with self.store.transaction(connection) as transaction:
            yield transaction.execute, self._now(transaction.clock)

    def _emit_dead(self, message: Message) -> None:
        self.listener(MessageDead(message.pool, message.message_id, message.kind, message.reason or ""))


def _drafted(draft: Draft) -> NewMessage:
    message_id = _new_id() if draft.message_id is None else require_name("message_id", draft.message_id)
    return NewMessage(
        message_id=message_id,
        idempotency_key=message_id if draft.key is None else require_name("key", draft.key),
        kind=require_name("kind", draft.kind),
        target=_payload("target", draft.target),
        data=_payload("data", draft.data),
        work_queue_id=None if draft.work_queue_id is None else require_name("work_queue_id", draft.work_queue_id),
        delay_seconds=require_duration("delay", draft.delay).total_seconds(),
    )


def _new_id() -> str:
    """Return a UUID of version 7: new ids are neighbours in the indexes, where random ones change a page each.

    The time in it decides nothing.
    """
    milliseconds, chance = time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10))
    number = (milliseconds & _48_BITS) << 80 | chance & ~_VERSION_BITS | _VERSION_7
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _payload(name: str, value: object) -> str:
    if not isinstance(value, Mapping):
        raise WrongArgumentType(f"{name} must be a mapping, not {value!r}")
    try:
        text = _JSON.encode(dict(value)) if value else "{}"
    except (TypeError, ValueError, RecursionError) as problem:
        raise WrongArgument(f"{name} cannot be written as JSON: {problem}") from problem
    if len(text) > _MOST_PAYLOAD:
        raise WrongArgument(
            f"{name} has {len(text):,} characters of JSON; at most {_MOST_PAYLOAD:,} fit",
            "keep the data in a table and name it in the message",
        )
    return text


def _is_list_of_drafts(drafts: object) -> bool:
    return isinstance(drafts, Sequence) and all(isinstance(one, Draft) for one in drafts)


def _kind(kind: object) -> str | None:
    return None if kind is None else require_name("kind", kind)


def _unfinished(state: object) -> MessageState:
    known = (MessageState.READY, MessageState.DELAYED, MessageState.RESERVED)
    for one in known:
        if state == one:
            return one
    raise WrongArgument(f"state must be one of {', '.join(known)}, not {state!r}")


def _names(name: str, values: Collection[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Collection):
        raise WrongArgumentType(f"{name} must be a list of texts, not {values!r}")
    if len(values) > _MOST_NAMES:
        raise WrongArgument(f"{name} has {len(values)} entries; at most {_MOST_NAMES} fit")
    return tuple(dict.fromkeys(require_name(f"an entry of {name}", value) for value in values))


def _new_tokens(count: int) -> dict[str, str]:
    """Make tokens, and return them by their hashes."""
    tokens = {}
    for _ in range(count):
        token = token_urlsafe(32)
        tokens[_hash(token)] = token
    return tokens


def _hash(token: str) -> str:
    """Return what the database stores of a token: a reader of the table cannot use it."""
    return hashlib.sha256(token.encode()).hexdigest()
