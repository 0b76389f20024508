"""The messages of the cleanup queue, as the database stores them: one row each, from enqueue until it is deleted.

Every statement here touches a number of rows that does not depend on how many messages are waiting or done. What a
message may do next is decided in `wane.queue`; this module finds, locks and writes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from wane._db.statement import Dialect, Execute
from wane._frozen import frozen


class MessageState(StrEnum):
    """The state of a message."""

    READY = "ready"
    DELAYED = "delayed"
    RESERVED = "reserved"
    DONE = "done"
    DEAD = "dead"


@frozen
class Message:
    """A message. `deliveries` is how often it was reserved."""

    pool: str
    message_id: str
    idempotency_key: str
    work_queue_id: str | None
    kind: str
    target: dict[str, Any]
    data: dict[str, Any]
    state: MessageState
    deliveries: int
    created_at: datetime
    updated_at: datetime
    due_at: datetime | None = None
    """Reserved: the end of its lease. Delayed: when it becomes ready."""
    token_hash: str | None = field(default=None, repr=False)
    finished_at: datetime | None = None
    forget_at: datetime | None = None
    """Done: when its id and its key may be taken again; None: never."""
    reason: str | None = None
    """Why it is dead."""
    release_reason: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    seq: int = 0

    @property
    def active(self) -> bool:
        """Return whether the message is neither done nor dead."""
        return self.state not in (MessageState.DONE, MessageState.DEAD)


@frozen
class NewMessage:
    """What an enqueue stores. `target` and `data` are JSON."""

    message_id: str
    idempotency_key: str
    kind: str
    target: str
    data: str
    work_queue_id: str | None = None
    delay_seconds: float = 0.0


@frozen
class Wanted:
    """Which messages a reservation may take: of any kind or of some, of any work queue or of some."""

    pool: str
    token_hashes: tuple[str, ...]
    """One for each wanted message."""
    lease_seconds: float
    attempts: int
    kinds: tuple[str, ...] | None = None
    work_queue_ids: tuple[str, ...] | None = None


EXHAUSTED = "max_delivery_attempts_reached"
"""Why a message is dead that was delivered as often as it may be."""
RESERVED = (
    "message_id",
    "idempotency_key",
    "work_queue_id",
    "kind",
    "target",
    "data",
    "state",
    "deliveries",
    "created_at",
    "updated_at",
    "due_at",
    "token_hash",
    "release_reason",
    "seq",
)
"""What is read of a message that was reserved, or is dead instead: the rest is known."""
_ENDED = ("finished_at", "reason", "resolved_at", "resolved_by", "forget_at")
COLUMNS = ", ".join(("pool", *RESERVED, *_ENDED))
WAITING = ("reserved", "delayed")
"""States of messages that become due at a time. Each has an index, by that time."""
CROWDED = 1_000
"""Rows of wakeups that a pool may have before a reader folds them."""
_MOST_POOLS = 1_000
_MOST_COUNTED = 10_000
_CHANGING = (
    "state",
    "deliveries",
    "updated_at",
    "due_at",
    "token_hash",
    "finished_at",
    "forget_at",
    "reason",
    "release_reason",
    "resolved_at",
    "resolved_by",
)

_decode_json = json.JSONDecoder().decode


class Messages(ABC):
    """Reads and writes messages through a function that runs statements, inside a caller's transaction or not.

    `now` may be None where the database's clock can be read inside the statement.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.table = dialect.own_table("message")
        self.wakeups = dialect.own_table("wakeup")

    @abstractmethod
    def insert(self, run: Execute, pool: str, new: Sequence[NewMessage], now: datetime | None) -> list[Message]:
        """Store messages; return those that were stored, without those whose id or key is taken."""

    @abstractmethod
    def reserve(self, run: Execute, wanted: Wanted, now: datetime | None) -> list[Message]:
        """Reserve the oldest ready messages, and return them.

        A message that has used up its deliveries becomes dead instead; it is returned too.
        """

    @abstractmethod
    def complete(
        self,
        run: Execute,
        pool: str,
        message_id: str,
        token_hash: str,
        remember_seconds: float | None,
        now: datetime | None,
    ) -> bool:
        """Complete a message if that is its current reservation, else change nothing; return whether it was."""

    @abstractmethod
    def extend(
        self, run: Execute, pool: str, message_id: str, token_hash: str, lease_seconds: float, now: datetime | None
    ) -> datetime | None:
        """Extend the lease if that is the current reservation, and return its new end; else return None."""

    @abstractmethod
    def has_overdue(self, run: Execute, pool: str, now: datetime | None) -> bool:
        """Check whether messages of a pool are due."""

    @abstractmethod
    def overdue(self, run: Execute, pool: str, limit: int, now: datetime) -> list[Message]:
        """Return and lock messages that are due; those that others have locked are left out."""

    @abstractmethod
    def pools_overdue(self, run: Execute, limit: int, now: datetime) -> list[str]:
        """Return pools with messages that are due."""

    @abstractmethod
    def find_by_key(self, run: Execute, pool: str, key: str) -> Message | None:
        """Return a message in any state, by its key."""

    @abstractmethod
    def find_locked(self, run: Execute, pool: str, message_id: str) -> Message | None:
        """Return a message in any state, locked."""

    @abstractmethod
    def bump(self, run: Execute, pool: str) -> None:
        """Wake the readers that wait for the pool."""

    @abstractmethod
    def fold(self, run: Execute, pool: str) -> None:
        """Make reading the pool's sequence cheap again; the sequence does not change."""

    # What all stores share

    def find(self, run: Execute, pool: str, message_id: str) -> Message | None:
        """Return a message in any state, by its id."""
        text = f"SELECT {COLUMNS} FROM {self.table} WHERE pool = {self._('pool')} AND message_id = {self._('name')}"
        return self._one(run(text, {"pool": pool, "name": message_id}))

    def write(self, run: Execute, message: Message) -> None:
        """Write back the changeable columns of a locked message."""
        sets = ", ".join(f"{name} = {self._(name)}" for name in _CHANGING)
        values = {name: self._stored(getattr(message, name)) for name in _CHANGING}
        text = f"UPDATE {self.table} SET {sets} WHERE pool = {self._('pool')} AND message_id = {self._('message_id')}"
        run(text, {**values, "pool": message.pool, "message_id": message.message_id})

    def forget(self, run: Execute, pool: str, message_id: str, now: datetime) -> None:
        """Delete a message that is done and whose id and key may be taken again."""
        run(
            f"DELETE FROM {self.table} WHERE pool = {self._('pool')} AND message_id = {self._('message_id')}"
            f" AND state || '' = 'done' AND forget_at <= {self._('now')}",
            {"pool": pool, "message_id": message_id, "now": self._stored(now)},
        )

    def dead_letters(
        self, run: Execute, pool: str, *, kind: str | None, resolved: bool, before: int | None, limit: int
    ) -> list[Message]:
        """Return dead letters, newest first; without `resolved` only those that were not dealt with."""
        conditions = [f"pool = {self._('pool')}"]
        values: dict[str, object] = {"pool": pool, "limit": limit}
        index = "message_dead"
        if not resolved:
            index = "message_open"
            conditions.append("resolved_at IS NULL")
        if kind is not None:
            index += "_kind"
            conditions.append(f"kind = {self._('kind')}")
            values["kind"] = kind
        conditions.append(self._state(MessageState.DEAD, len(conditions) - 1))
        if before is not None:
            conditions.append(f"seq < {self._('before')}")
            values["before"] = before
        text = (
            f"SELECT {COLUMNS} FROM {self._by(index)} WHERE {' AND '.join(conditions)}"
            f" ORDER BY seq DESC LIMIT {self._('limit')}"
        )
        return [self._stored_message(row) for row in run(text, values)]

    def unfinished(self, run: Execute, pool: str, kind: str) -> bool:
        """Check whether a message of the kind is neither done nor dead."""
        of_kind = f"pool = {self._('pool')} AND kind = {self._('kind')}"
        ready = f"{of_kind} AND {self._state(MessageState.READY, 1)}"
        waiting = (f"{of_kind} AND state = '{state}'" for state in WAITING)
        text = "SELECT " + " OR ".join(
            f"EXISTS (SELECT 1 FROM {self.table} WHERE {which})" for which in (ready, *waiting)
        )
        [(found,)] = run(text, {"pool": pool, "kind": kind})
        return bool(found)

    def listed(
        self, run: Execute, pool: str, state: MessageState | None, kind: str | None, limit: int
    ) -> list[Message]:
        """Return unfinished messages: ready ones, the oldest first, then waiting ones, the next due first.

        Each state has an index in its own order, so no list has to read more than it shows.
        """
        of_kind = "" if kind is None else f" AND kind = {self._('kind')}"
        ready = self._state(MessageState.READY, 0 if kind is None else 1)
        which = [
            ("message_ready" if kind is None else "message_ready_kind", ready, "ready", "seq"),
            *((f"message_{one}", f"state = '{one}'", one, "due_at, seq") for one in WAITING),
        ]
        parts = [
            f"SELECT * FROM (SELECT {COLUMNS} FROM {self._by(index)} WHERE pool = {self._('pool')}{of_kind} AND {condition}"
            f" ORDER BY {order} LIMIT {self._('limit')}) AS {index}_part"
            for index, condition, one, order in which
            if state is None or state.value == one
        ]
        values = {"pool": pool, "limit": limit, **({} if kind is None else {"kind": kind})}
        found = [self._stored_message(row) for row in run(" UNION ALL ".join(parts), values)]
        return sorted(found, key=_listing_order)[:limit]

    def counts(self, run: Execute) -> list[tuple[str, str, int, datetime | None]]:
        """Count messages by pool and state, up to 10,000 each, with the time of the oldest.

        This covers the first 1,000 pools, and unfinished and dead messages.
        """
        return [
            (pool, state.value, many, oldest)
            for pool in self.pools(run, _MOST_POOLS)
            for state, (many, oldest) in self.depths(run, pool, _MOST_COUNTED).items()
            if many
        ]

    def pools(self, run: Execute, limit: int) -> list[str]:
        """Return pools that have messages in any state, hopping from one to the next, however many messages exist."""
        first = f"SELECT pool FROM {self.table}"
        text = (
            f"WITH RECURSIVE hop(pool) AS (SELECT * FROM ({first} ORDER BY pool LIMIT 1) AS f UNION ALL"
            f" SELECT ({first} WHERE {self.table}.pool > hop.pool ORDER BY {self.table}.pool LIMIT 1) FROM hop"
            f" WHERE hop.pool IS NOT NULL) SELECT pool FROM hop WHERE pool IS NOT NULL LIMIT {self._('limit')}"
        )
        return [pool for (pool,) in run(text, {"limit": limit})]

    def depths(self, run: Execute, pool: str, most: int) -> dict[MessageState, tuple[int, datetime | None]]:
        """Count a pool's messages that are ready, delayed, reserved or open dead letters, each up to `most`.

        Each count comes with the time of the oldest of those counted.
        """
        which = {
            MessageState.READY: (self._state(MessageState.READY, 0), "seq"),
            MessageState.DELAYED: ("state = 'delayed'", "due_at"),
            MessageState.RESERVED: ("state = 'reserved'", "due_at"),
            MessageState.DEAD: (f"{self._state(MessageState.DEAD, 1)} AND resolved_at IS NULL", "seq"),
        }
        parts = [
            f"SELECT '{state.value}' AS state, count(*) AS many, min(created_at) AS oldest FROM (SELECT created_at FROM {self.table}"
            f" WHERE pool = {self._('pool')} AND {condition} ORDER BY {order} LIMIT {self._('most')}) AS {state.value}_ones"
            for state, (condition, order) in which.items()
        ]
        found = run(" UNION ALL ".join(parts), {"pool": pool, "most": most})
        return {
            MessageState(state): (many, None if oldest is None else self.dialect.decode_time(oldest))
            for state, many, oldest in found
        }

    def count_stale(self, run: Execute, pool: str, before: datetime, most: int) -> int:
        """Count the messages reserved under leases that ended before a time, up to `most`."""
        text = (
            f"SELECT count(*) FROM (SELECT 1 FROM {self._by('message_reserved')} WHERE pool = {self._('pool')}"
            f" AND state = 'reserved' AND due_at < {self._('before')} LIMIT {self._('most')}) AS stale"
        )
        [(many,)] = run(text, {"pool": pool, "before": self.dialect.encode_time(before), "most": most})
        return int(many)

    def next_due(self, run: Execute, pool: str) -> datetime | None:
        """Return when the next lease ends or the next delayed message becomes ready."""
        parts = (
            f"SELECT * FROM (SELECT due_at FROM {self._by(f'message_{state}')} WHERE pool = {self._('pool')}"
            f" AND state = '{state}' ORDER BY due_at LIMIT 1) AS {state}_first"
            for state in WAITING
        )
        due_at = min((one for (one,) in run(" UNION ALL ".join(parts), {"pool": pool})), default=None)
        return None if due_at is None else self.dialect.decode_time(due_at)

    def sequences(self, run: Execute, pools: Sequence[str]) -> dict[str, int]:
        """Return how many wakeups some pools have had."""
        return {pool: bumps for pool, (bumps, _) in self.bumps(run, pools).items()}

    def bumps(self, run: Execute, pools: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the wakeups of some pools, each with its number of rows: more than CROWDED ought to be folded."""
        marks = ", ".join(self._(f"pool{number}") for number in range(len(pools)))
        text = f"SELECT pool, sum(bumps), count(*) FROM {self.wakeups} WHERE pool IN ({marks}) GROUP BY pool"
        found = run(text, {f"pool{number}": pool for number, pool in enumerate(pools)})
        return {**dict.fromkeys(pools, (0, 0)), **{pool: (int(bumps), rows) for pool, bumps, rows in found}}

    def _state(self, state: MessageState, columns: int) -> str:
        """Write the condition that messages are ready or dead, for a search by the pool and so many more columns.

        It is written so that only the index of these columns serves the search.
        """
        del columns
        return f"state = '{state.value}'"

    def _by(self, index: str) -> str:
        """Return the table, to be read by an index, where a store accepts such a hint."""
        return self.table

    def _(self, name: str) -> str:
        return self.dialect.placeholder(name)

    def _stored(self, value: object) -> object:
        if isinstance(value, datetime):
            return self.dialect.encode_time(value)
        return value.value if isinstance(value, MessageState) else value

    def _end(self, found: Sequence[tuple[Any, ...]]) -> datetime | None:
        return self.dialect.decode_time(found[0][0]) if found else None

    def _one(self, found: Sequence[tuple[Any, ...]]) -> Message | None:
        return self._stored_message(found[0]) if found else None

    def _reserved(self, pool: str, row: Sequence[Any]) -> Message:
        """Read a message that was reserved, or is dead instead."""
        if row[6] == MessageState.DEAD.value:
            return self._message(pool, row, (row[9], EXHAUSTED, None, None, None))
        return self._message(pool, row)

    def _stored_message(self, row: Sequence[Any]) -> Message:
        return self._message(row[0], row[1:15], row[15:])

    def _message(self, pool: str, row: Sequence[Any], ended: Sequence[Any] = (None, None, None, None, None)) -> Message:
        """Read a message of a pool: the columns RESERVED, and those that say how it ended."""
        (
            message_id,
            key,
            queue,
            kind,
            target,
            data,
            state,
            deliveries,
            created,
            updated,
            due,
            token_hash,
            release_reason,
            seq,
        ) = row
        decode = self.dialect.decode_time
        finished, reason, resolved, resolved_by, forget = ended
        return Message(
            pool,
            message_id,
            key,
            queue,
            kind,
            read_json(target),
            read_json(data),
            MessageState(state),
            deliveries,
            decode(created),
            decode(updated),
            None if due is None else decode(due),
            token_hash,
            None if finished is None else decode(finished),
            None if forget is None else decode(forget),
            reason,
            release_reason,
            None if resolved is None else decode(resolved),
            resolved_by,
            seq,
        )


def _listing_order(message: Message) -> tuple[bool, float, int]:
    waits = message.due_at is not None
    return waits, message.due_at.timestamp() if message.due_at else 0.0, message.seq


def read_json(value: Any) -> Any:
    """Decode a payload; the driver may have done it already. Most targets are empty, and a parser takes its time."""
    if value == "{}":
        return {}
    return _decode_json(value) if isinstance(value, str) else value
