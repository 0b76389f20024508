"""Any sequence of operations does what a model in plain Python does: the same answers, the same messages, the same
wakeups."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

from queueing import START, Clock
from servers import Database
from wane._db import Store
from wane.queue import Answer, Draft, MessageState, Queue, Reservation, RetryPolicy

LEASE = timedelta(seconds=30)
POOLS = ("p", "q")
KINDS = ("a", "b", "c")
QUEUES = ("x", "y")
_examples = itertools.count()


@dataclass
class Known:
    """A message as the model knows it."""

    pool: str
    name: str
    key: str
    kind: str
    queue: str | None
    state: str
    deliveries: int = 0
    token: str | None = None
    due: datetime | None = None
    finished: datetime | None = None
    forget: datetime | None = None
    release_reason: str | None = None
    resolved: bool = False


class Model:
    """The queue in plain Python: every message in the order of its birth."""

    def __init__(self) -> None:
        self.messages: list[Known] = []
        self.sequences = dict.fromkeys(POOLS, 0)
        self.policy = RetryPolicy()
        self.now = START

    def find(self, pool: str, name: str) -> Known | None:
        return next((one for one in self.messages if (one.pool, one.name) == (pool, name)), None)

    def by_key(self, pool: str, key: str) -> Known | None:
        return next((one for one in self.messages if (one.pool, one.key) == (pool, key)), None)

    def enqueue(self, pool: str, name: str, key: str, kind: str, queue: str | None, delay: timedelta) -> Known | None:
        """Return the message, new or known; None if the id belongs to another key."""
        for _ in range(3):
            known = self.find(pool, name) or self.by_key(pool, key)
            if known is None:
                break
            if known.state == "done" and known.forget is not None and known.forget <= self.now:
                self.messages.remove(known)
                continue
            if known.name == name and known.key != key:
                return None
            if known.state == "ready":
                self.sequences[pool] += 1
            return known
        due = self.now + delay if delay else None
        known = Known(pool, name, key, kind, queue, "delayed" if delay else "ready", due=due)
        self.messages.append(known)
        self.sequences[pool] += not delay
        return known

    def overdue(self, pools: Collection[str]) -> list[Known]:
        waiting = [one for one in self.messages if one.pool in pools and one.due is not None and one.due <= self.now]
        return sorted(waiting, key=lambda one: (one.pool, one.state != "reserved", one.due))  # Leases first.

    def ready(self, one: Known) -> None:
        one.state, one.due, one.token = "ready", None, None
        self.sequences[one.pool] += 1

    def give_back(self, one: Known, reason: str | None = None) -> None:
        one.token, one.due = None, None
        one.release_reason = reason or one.release_reason
        if one.deliveries >= self.policy.attempts:
            one.state, one.finished = "dead", self.now
        elif self.policy.backoff:
            pause = min(self.policy.backoff * 2 ** (one.deliveries - 1), self.policy.most_backoff)
            one.state, one.due = "delayed", self.now + pause
        else:
            self.ready(one)

    def expire(self, pools: Collection[str], limit: int) -> int:
        found = self.overdue(pools)[:limit]
        for one in found:
            if one.state == "delayed":
                self.ready(one)
            else:
                self.give_back(one)
        return len(found)

    def reserve(
        self, pool: str, limit: int, kinds: Collection[str] | None, preferred: Collection[str] | None, fallback: bool
    ) -> list[Known]:
        if kinds == [] or (preferred == [] and not fallback):
            return []
        taken: list[Known] = []
        passes: list[Collection[str] | None] = [preferred] if preferred else []
        if preferred is None or fallback:
            passes.append(None)
        self._take(taken, pool, limit, kinds, passes)
        if self.overdue([pool]) and self.expire([pool], 100) and not taken:
            self._take(taken, pool, limit, kinds, passes)
        return taken

    def _take(
        self,
        taken: list[Known],
        pool: str,
        limit: int,
        kinds: Collection[str] | None,
        passes: Iterable[Collection[str] | None],
    ) -> None:
        for queues in passes:
            for one in self.messages:
                if len(taken) >= limit:
                    return
                if one.pool != pool or one.state != "ready":
                    continue
                if (kinds is not None and one.kind not in kinds) or (queues is not None and one.queue not in queues):
                    continue
                if one.deliveries >= self.policy.attempts:
                    one.state, one.finished = "dead", self.now
                    continue
                one.state, one.due = "reserved", self.now + LEASE
                one.deliveries += 1
                taken.append(one)

    def use(self, pool: str, name: str, token: str, operation: str) -> Answer:
        one = self.find(pool, name)
        if one is None or one.state in ("done", "dead"):
            return Answer.NOT_FOUND
        if one.state != "reserved":
            return Answer.NOT_CURRENT
        if one.token != token:
            return Answer.INVALID_TOKEN
        assert one.due is not None
        ended = one.due <= self.now
        if ended:
            self.give_back(one)
        elif operation == "renew":
            one.due = self.now + LEASE
        elif operation == "ack":
            one.state, one.finished, one.token, one.due = "done", self.now, None, None
            one.forget = None if self.policy.remember is None else self.now + self.policy.remember
        else:
            self.give_back(one, operation)
        if one.state == "dead":
            return Answer.DEAD_LETTERED
        return Answer.EXPIRED if ended else Answer.ACCEPTED

    def settle(self, pool: str, name: str, *, requeue: bool) -> Answer:
        one = self.find(pool, name)
        if one is None or one.state != "dead":
            return Answer.NOT_FOUND
        if one.resolved:
            return Answer.NOT_CURRENT
        if requeue:
            one.deliveries, one.finished, one.release_reason = 0, None, None
            self.ready(one)
        else:
            one.resolved = True
        return Answer.ACCEPTED


POOL = st.sampled_from(POOLS)
FEW_KINDS = st.none() | st.lists(st.sampled_from(KINDS), max_size=3)
FEW_QUEUES = st.none() | st.lists(st.sampled_from(QUEUES), max_size=2)
NAMES = st.none() | st.sampled_from(["m1", "m2", "m3"])
KEYS = st.none() | st.sampled_from(["k1", "k2", "m1"])
DELAYS = st.sampled_from([0, 0, 0, 5, 60])
DRAFTS = st.tuples(NAMES, KEYS, st.sampled_from(KINDS), st.none() | st.sampled_from(QUEUES), DELAYS)


class QueueMachine(RuleBasedStateMachine):
    """Does everything twice: with the queue and with the model."""

    tokens = Bundle("tokens")

    def __init__(self, database: Database, store: Store) -> None:
        super().__init__()
        self.store = store
        self.clock = Clock()
        self.model = Model()
        self.example = next(_examples)  # Each example has pools of its own, in the same database.
        self.queues = {pool: Queue(store, f"{pool}{self.example}", clock=self.clock) for pool in POOLS}
        self.table = "wane_message" if database.store == "sqlite" else "wane.message"
        self.query = database.query

    def teardown(self) -> None:
        for queue in self.queues.values():
            queue.close()

    @rule(pool=POOL, draft=DRAFTS)
    def enqueue(self, pool: str, draft: tuple[str | None, str | None, str, str | None, int]) -> None:
        name, key, kind, queue, delay = draft
        try:
            sent = self.queues[pool].enqueue(
                kind, message_id=name, key=key, work_queue_id=queue, delay=timedelta(seconds=delay)
            )
        except ValueError:
            assert name is not None
            assert self.model.enqueue(pool, name, key or name, kind, queue, timedelta(seconds=delay)) is None
            return
        known = self.model.enqueue(
            pool, name or sent.message_id, key or name or sent.message_id, kind, queue, timedelta(seconds=delay)
        )
        assert known is not None
        assert (sent.message_id, sent.state.value, sent.deliveries) == (known.name, known.state, known.deliveries)

    @rule(pool=POOL, kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    def enqueue_many(self, pool: str, kinds: list[str]) -> None:
        sent = self.queues[pool].enqueue_many([Draft(kind) for kind in kinds])
        for one, kind in zip(sent, kinds, strict=True):
            self.model.enqueue(pool, one.message_id, one.message_id, kind, None, timedelta(0))

    @rule(
        target=tokens,
        pool=POOL,
        limit=st.integers(1, 4),
        kinds=FEW_KINDS,
        preferred=FEW_QUEUES,
        fallback=st.booleans(),
    )
    def reserve(
        self, pool: str, limit: int, kinds: list[str] | None, preferred: list[str] | None, fallback: bool
    ) -> object:
        found = self.queues[pool].reserve_many(
            limit, kinds=kinds, preferred_work_queue_ids=preferred, allow_fallback_to_any_queue=fallback
        )
        taken = self.model.reserve(pool, limit, kinds, preferred, fallback)
        assert [one.message_id for one in found] == [one.name for one in taken]
        for reservation, known in zip(found, taken, strict=True):
            assert reservation.message.deliveries == known.deliveries
            assert reservation.lease_expires_at == known.due
            known.token = reservation.token
        return multiple(*((pool, reservation) for reservation in found))

    @rule(
        pool=POOL,
        which=tokens,
        right=st.booleans(),
        operation=st.sampled_from(["ack", "renew", "it failed", "later", "ack"]),
    )
    def use(self, pool: str, which: tuple[str, Reservation], right: bool, operation: str) -> None:
        own, reservation = which
        pool = own if right else pool
        queue, name, token = self.queues[pool], reservation.message_id, reservation.token
        if operation == "ack":
            answered = queue.ack(name, token)
        elif operation == "renew":
            answered = queue.renew(name, token)
        else:
            answered = queue.release(name, token, operation)
        assert answered.answer is self.model.use(pool, name, token, operation)

    @rule(pool=POOL, limit=st.integers(1, 5), everywhere=st.booleans())
    def expire(self, pool: str, limit: int, everywhere: bool) -> None:
        if everywhere:
            while self.queues[pool].expire_leases(1000, everywhere=True).count:
                pass  # Pools of earlier examples have overdue messages too.
            self.model.expire(POOLS, 10_000)
            assert all(queue.expire_leases(1000).count == 0 for queue in self.queues.values())
            return
        expired = self.queues[pool].expire_leases(limit)
        assert expired.count == self.model.expire([pool], limit)

    @rule(pool=POOL, requeue=st.booleans(), number=st.integers(0, 5))
    def settle(self, pool: str, requeue: bool, number: int) -> None:
        letters = [one for one in self.model.messages if one.state == "dead"]
        name = letters[number % len(letters)].name if letters else "m1"
        queue = self.queues[pool]
        answered = queue.requeue(name) if requeue else queue.resolve(name, by="anna")
        assert answered.answer is self.model.settle(pool, name, requeue=requeue)

    @rule(seconds=st.sampled_from([0.000001, 1, 5, 29.999999, 30, 61, 700_000]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        self.model.now = self.clock.now

    @rule(attempts=st.integers(1, 4), backoff=st.sampled_from([0, 0, 7]), remember=st.sampled_from([None, 0, 60]))
    def change_policy(self, attempts: int, backoff: int, remember: int | None) -> None:
        self.model.policy = RetryPolicy(
            attempts=attempts,
            backoff=timedelta(seconds=backoff),
            most_backoff=timedelta(seconds=20),
            remember=None if remember is None else timedelta(seconds=remember),
        )
        for queue in self.queues.values():
            queue.policy = self.model.policy

    @rule(pool=POOL)
    def notify(self, pool: str) -> None:
        self.model.sequences[pool] += 1
        assert self.queues[pool].notify() == self.model.sequences[pool]

    @rule(pool=POOL)
    def read(self, pool: str) -> None:
        queue = self.queues[pool]
        own = [one for one in self.model.messages if one.pool == pool]
        unfinished = {one.name for one in own if one.state not in ("done", "dead")}
        assert {one.message_id for one in queue.messages(limit=1000)} == unfinished
        letters = [one.name for one in own if one.state == "dead"]
        assert [one.message.message_id for one in queue.dead_letters(resolved=True, limit=1000)] == letters[::-1]
        dues = [one.due for one in own if one.due is not None]
        assert queue.next_due() == min(dues, default=None)
        assert queue.wait_for_wakeup(self.model.sequences[pool] - 1, 0) == (self.model.sequences[pool])
        assert queue.wait_for_wakeup(self.model.sequences[pool], 0) is None

    @invariant()
    def the_database_has_what_the_model_has(self) -> None:
        for pool, queue in self.queues.items():
            found = self.query(
                "SELECT message_id, idempotency_key, kind, work_queue_id, state, deliveries, token_hash IS NOT NULL,"
                " due_at IS NOT NULL, finished_at IS NOT NULL, reason, release_reason, resolved_at IS NOT NULL"
                f" FROM {self.table} WHERE pool = ? ORDER BY seq",
                (queue.pool,),
            )
            assert found == [
                (
                    *(one.name, one.key, one.kind, one.queue, one.state, one.deliveries),
                    *(one.state == "reserved", one.due is not None, one.state in ("done", "dead")),
                    *("max_delivery_attempts_reached" if one.state == "dead" else None, one.release_reason),
                    one.resolved,
                )
                for one in self.model.messages
                if one.pool == pool
            ]
            assert queue.read_wakeup_sequence() == self.model.sequences[pool]

    @invariant()
    def exactly_one_token_is_valid_for_each_reserved_message(self) -> None:
        for one in self.model.messages:
            if one.state == "reserved":
                assert one.token is not None
                message = self.queues[one.pool].read_message(one.name)
                assert message is not None
                assert message.state is MessageState.RESERVED
                assert message.due_at == one.due


def test_any_sequence_of_operations_does_what_the_model_does(database: Database, store: Store) -> None:
    run_state_machine_as_test(
        lambda: QueueMachine(database, store),  # type: ignore[arg-type]
        settings=settings(max_examples=12, stateful_step_count=30),
    )
