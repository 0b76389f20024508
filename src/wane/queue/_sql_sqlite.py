"""Messages on SQLite: one statement per operation, which holds the write lock for as long as it runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta

from wane._db.sqlite.clock import SAME_MARK, UNMARKED
from wane._db.statement import Execute
from wane.queue._sql import (
    COLUMNS,
    EXHAUSTED,
    RESERVED,
    WAITING,
    Message,
    Messages,
    MessageState,
    NewMessage,
    Wanted,
    read_json,
)

# Two indexes have the keys: that of ids has those of messages that are their own key.
_BY_KEY = (
    "wane_message INDEXED BY wane_message_key"
    " WHERE pool = :pool AND idempotency_key = {key} AND idempotency_key <> message_id"
)
_BY_OWN_KEY = (
    "wane_message INDEXED BY wane_message_id WHERE pool = :pool AND message_id = {key} AND idempotency_key = {key}"
)
_FREE_KEY = " AND ".join(f"NOT EXISTS (SELECT 1 FROM {which.format(key=':key')})" for which in (_BY_KEY, _BY_OWN_KEY))
_FIND_BY_KEY = " UNION ALL ".join(
    f"SELECT {COLUMNS} FROM {which.format(key=':name')}" for which in (_BY_KEY, _BY_OWN_KEY)
)
_INSERT = (
    "INSERT INTO wane_message (pool, message_id, idempotency_key, work_queue_id, kind, target, data, state, created_at,"
    " updated_at, due_at) SELECT :pool, :id, :key, :queue, :kind, :target, :data, :state, :now, :now, :due"
    f" WHERE {SAME_MARK} AND {_FREE_KEY} ON CONFLICT DO NOTHING RETURNING seq"
)


def _late(state: str, pool: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM wane_message AS m INDEXED BY wane_message_{state}"
        f" WHERE m.pool = {pool} AND m.state = '{state}' AND m.due_at <= :now)"
    )


def _first_pool(behind: str = "") -> str:
    """Write the query for the next pool with messages that wait; each state alone where the other has none."""
    firsts = [
        f"(SELECT m.pool FROM wane_message AS m INDEXED BY wane_message_{state} WHERE m.state = '{state}'{behind}"
        " ORDER BY m.pool LIMIT 1)"
        for state in WAITING
    ]
    return f"coalesce(min({', '.join(firsts)}), {', '.join(firsts)})"


_HAS_OVERDUE = f"SELECT {' OR '.join(_late(state, ':pool') for state in WAITING)}"
_READY = "WHERE pool = :pool AND state = 'ready'"
_ALIVE = "deliveries < :attempts"
# Named indexes: no other may ever be chosen, whatever SQLite's statistics are.
_PICK = f"SELECT seq FROM wane_message INDEXED BY wane_message_ready {_READY} ORDER BY seq LIMIT :most"
_TAKE = f"""
UPDATE wane_message SET
  state = CASE WHEN {_ALIVE} THEN 'reserved' ELSE 'dead' END,
  deliveries = deliveries + ({_ALIVE}),
  token_hash = CASE WHEN {_ALIVE} THEN {{hash}} END,
  due_at = CASE WHEN {_ALIVE} THEN :until END,
  finished_at = CASE WHEN {_ALIVE} THEN NULL ELSE :now END,
  reason = CASE WHEN {_ALIVE} THEN NULL ELSE '{EXHAUSTED}' END,
  updated_at = :now
{{which}} AND {SAME_MARK} RETURNING {", ".join(RESERVED)}
"""
_TAKE_ONE = _TAKE.format(hash=":hash", which=f"WHERE seq = ({_PICK})")
"""The statement for one message of any kind and work queue, as one text, which the driver finds among its prepared
ones."""
_CURRENT = (
    "pool = :pool AND message_id = :message_id AND state = 'reserved' AND token_hash = :token_hash AND due_at > :now"
)
_COMPLETE = (
    "UPDATE wane_message SET state = 'done', finished_at = :now, updated_at = :now, due_at = NULL, token_hash = NULL,"
    f" forget_at = :forget WHERE {_CURRENT} AND {SAME_MARK} RETURNING 1"
)
_EXTEND = f"UPDATE wane_message SET due_at = :until, updated_at = :now WHERE {_CURRENT} RETURNING due_at"
_OVERDUE = {
    state: f"SELECT {COLUMNS} FROM wane_message INDEXED BY wane_message_{state}"
    f" WHERE pool = :pool AND state = '{state}' AND due_at <= :now ORDER BY due_at, seq LIMIT :most"
    for state in WAITING
}
_POOLS_OVERDUE = f"""
WITH RECURSIVE hop(pool) AS (
  SELECT {_first_pool()} UNION ALL SELECT {_first_pool(" AND m.pool > hop.pool")} FROM hop WHERE hop.pool IS NOT NULL)
SELECT pool FROM hop WHERE pool IS NOT NULL AND ({" OR ".join(_late(state, "hop.pool") for state in WAITING)})
LIMIT :most
"""
_MOST_PARTS = 200
"""The limit of one statement: SQLite combines at most 500."""
_BUMP = "INSERT INTO wane_wakeup (pool, bumps) VALUES (:pool, 1) ON CONFLICT (pool) DO UPDATE SET bumps = bumps + 1"


class SqliteMessages(Messages):
    """The messages of a SQLite database. The time is always the caller's: SQLite has no clock of its own."""

    def insert(self, run: Execute, pool: str, new: Sequence[NewMessage], now: datetime | None) -> list[Message]:
        assert now is not None
        stored: list[Message] = []
        for one in new:
            due_at = now + timedelta(seconds=one.delay_seconds) if one.delay_seconds > 0 else None
            state = MessageState.READY if due_at is None else MessageState.DELAYED
            values: dict[str, object] = {
                "pool": pool,
                "id": one.message_id,
                "key": one.idempotency_key,
                "queue": one.work_queue_id,
                "kind": one.kind,
                "target": one.target,
                "data": one.data,
                "state": state.value,
                "now": self.dialect.encode_time(now),
                "due": self._stored(due_at),
                **UNMARKED,
            }
            stored += [self._new(pool, one, state, now, due_at, seq) for (seq,) in run(_INSERT, values)]
        return stored

    def _new(
        self, pool: str, new: NewMessage, state: MessageState, now: datetime, due_at: datetime | None, seq: int
    ) -> Message:
        """Return a message that was stored."""
        return Message(
            pool,
            new.message_id,
            new.idempotency_key,
            new.work_queue_id,
            new.kind,
            read_json(new.target),
            read_json(new.data),
            state,
            deliveries=0,
            created_at=now,
            updated_at=now,
            due_at=due_at,
            seq=seq,
        )

    def reserve(self, run: Execute, wanted: Wanted, now: datetime | None) -> list[Message]:
        assert now is not None
        many = len(wanted.token_hashes)
        values: dict[str, object] = {
            "pool": wanted.pool,
            "now": self.dialect.encode_time(now),
            "until": self.dialect.encode_time(now + timedelta(seconds=wanted.lease_seconds)),
            "most": many,
            "attempts": wanted.attempts,
            **UNMARKED,
        }
        pick = self._pick(wanted, values)
        if many == 1:
            values["hash"] = wanted.token_hashes[0]
            text = _TAKE_ONE if pick is _PICK else _TAKE.format(hash=":hash", which=f"WHERE seq = ({pick})")
        else:
            values |= {f"hash{number}": one for number, one in enumerate(wanted.token_hashes, 1)}
            chosen = " ".join(f"WHEN {number} THEN :hash{number}" for number in range(1, many + 1))
            numbered = f"FROM (SELECT seq AS picked, row_number() OVER (ORDER BY seq) AS number FROM ({pick})) AS n"
            text = _TAKE.format(hash=f"CASE n.number {chosen} END", which=f"{numbered} WHERE seq = n.picked")
        return sorted((self._reserved(wanted.pool, row) for row in run(text, values)), key=lambda message: message.seq)

    def _pick(self, wanted: Wanted, values: dict[str, object]) -> str:
        """Write the query for the oldest ready messages, across all wanted kinds and work queues."""
        kinds, queues = wanted.kinds, wanted.work_queue_ids
        if kinds is None and queues is None:
            return _PICK
        chosen = list(itertools.product(queues or (None,), kinds or (None,)))
        also = ""
        if len(chosen) > _MOST_PARTS:  # More than SQLite combines: then each work queue is walked until a kind fits.
            assert kinds is not None
            values |= {f"any{number}": one for number, one in enumerate(kinds)}
            also = f" AND kind IN ({', '.join(f':any{number}' for number in range(len(kinds)))})"
            chosen = [(queue, None) for queue in queues or ()]
        parts = []
        for number, (queue, kind) in enumerate(chosen):
            values |= {f"queue{number}": queue, f"kind{number}": kind}
            index = "_queue" * (queue is not None) + "_kind" * (kind is not None)
            which = [f"work_queue_id = :queue{number}"] * (queue is not None) + [f"kind = :kind{number}"] * (
                kind is not None
            )
            parts.append(
                f"SELECT * FROM (SELECT seq FROM wane_message INDEXED BY wane_message_ready{index} {_READY}"
                f" AND {' AND '.join(which)}{also} ORDER BY seq LIMIT :most)"
            )
        return f"{' UNION ALL '.join(parts)} ORDER BY seq LIMIT :most"

    def complete(
        self,
        run: Execute,
        pool: str,
        message_id: str,
        token_hash: str,
        remember_seconds: float | None,
        now: datetime | None,
    ) -> bool:
        assert now is not None
        forget = (
            None if remember_seconds is None else self.dialect.encode_time(now + timedelta(seconds=remember_seconds))
        )
        values = {
            "pool": pool,
            "message_id": message_id,
            "token_hash": token_hash,
            "now": self.dialect.encode_time(now),
        }
        return bool(run(_COMPLETE, {**values, "forget": forget, **UNMARKED}))

    def extend(
        self, run: Execute, pool: str, message_id: str, token_hash: str, lease_seconds: float, now: datetime | None
    ) -> datetime | None:
        assert now is not None
        until = self._stored(now + timedelta(seconds=lease_seconds))
        values = {
            "pool": pool,
            "message_id": message_id,
            "token_hash": token_hash,
            "now": self.dialect.encode_time(now),
        }
        return self._end(run(_EXTEND, {**values, "until": until}))

    def has_overdue(self, run: Execute, pool: str, now: datetime | None) -> bool:
        [(found,)] = run(_HAS_OVERDUE, {"pool": pool, "now": self._stored(now)})
        return bool(found)

    def overdue(self, run: Execute, pool: str, limit: int, now: datetime) -> list[Message]:
        found: list[Message] = []
        for text in _OVERDUE.values():
            values = {"pool": pool, "now": self.dialect.encode_time(now), "most": limit - len(found)}
            found += [self._stored_message(row) for row in run(text, values)] if len(found) < limit else []
        return found

    def pools_overdue(self, run: Execute, limit: int, now: datetime) -> list[str]:
        return [pool for (pool,) in run(_POOLS_OVERDUE, {"now": self.dialect.encode_time(now), "most": limit})]

    def find_locked(self, run: Execute, pool: str, message_id: str) -> Message | None:
        return self.find(run, pool, message_id)  # There is one writer at a time.

    def bump(self, run: Execute, pool: str) -> None:
        run(_BUMP, {"pool": pool})

    def fold(self, run: Execute, pool: str) -> None:
        """Do nothing: a pool has one row."""

    def find_by_key(self, run: Execute, pool: str, key: str) -> Message | None:
        return self._one(run(_FIND_BY_KEY, {"pool": pool, "name": key}))

    def _by(self, index: str) -> str:
        return f"{self.table} INDEXED BY wane_{index}"
