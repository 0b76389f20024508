"""Messages on PostgreSQL: one statement per operation, with the database's clock inside it; locked rows are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

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

# In a subquery, so that it is evaluated once and may be compared with an index.
_NOW = "(SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))"
# A reservation that is lost with the server is delivered again, like one whose holder died; its commit need not wait
# for the disk.
_NOT_WAITING = "set_config('synchronous_commit', 'off', true) AS waiting"
_MOST_BUMPS = 64
"""How many rows of wakeups a pool may have before they are folded."""
_MOST_FOLDED = 10_000

_INSERT = f"""
INSERT INTO wane.message
  (pool, message_id, idempotency_key, work_queue_id, kind, target, data, state, created_at, updated_at, due_at)
SELECT %(pool)s, n.id, n.key, n.queue, n.kind, n.target::json, n.data::json,
  CASE WHEN n.delay > 0 THEN 'delayed' ELSE 'ready' END, t.now, t.now,
  CASE WHEN n.delay > 0 THEN t.now + make_interval(secs => n.delay) END
FROM (SELECT {_NOW} AS now) AS t,
  unnest(%(ids)s::text[], %(keys)s::text[], %(queues)s::text[], %(kinds)s::text[], %(targets)s::text[],
         %(datas)s::text[], %(delays)s::float8[]) WITH ORDINALITY AS n(id, key, queue, kind, target, data, delay, ordinal)
ORDER BY n.ordinal
ON CONFLICT DO NOTHING RETURNING {COLUMNS}
"""

# One message needs no arrays, and all of it but what the database decides is known already.
_INSERT_ONE = f"""
INSERT INTO wane.message
  (pool, message_id, idempotency_key, work_queue_id, kind, target, data, state, created_at, updated_at, due_at)
SELECT %(pool)s, %(id)s, %(key)s, %(queue)s, %(kind)s, %(target)s::json, %(data)s::json, %(state)s, t.now, t.now,
  t.now + make_interval(secs => %(delay)s::float8)
FROM (SELECT {_NOW} AS now) AS t
ON CONFLICT DO NOTHING RETURNING created_at, due_at, seq
"""

_READY = "SELECT message_id, seq, ctid AS row_ctid FROM wane.message WHERE pool = %(pool)s AND state = 'ready'"
_PICK = f"{_READY} ORDER BY seq LIMIT %(most)s FOR UPDATE SKIP LOCKED"


def _in_state(state: MessageState, columns: int) -> str:
    """Write the condition of `Messages._state` as the indexes have it: see the migration `queue_indexes`."""
    name = state.value
    if columns == 0:
        return f"state = '{name}'"
    return f"state COLLATE \"C\" BETWEEN '{name if columns == 1 else name[:-1]}' AND '{name}'"


def _pick_each(given: str, *which: str) -> str:
    """Write the query for the oldest ready messages of several kinds or work queues.

    Only what is taken is locked: the limit outside ends the walk. First come those that were among the oldest of all
    when this statement began; if others hold some of them, the walk goes on behind.
    """
    named = " AND ".join(which)
    ready = f"FROM wane.message WHERE pool = %(pool)s AND {named} AND {_in_state(MessageState.READY, len(which))}"
    last = (
        f"coalesce((SELECT oldest.seq FROM {given} CROSS JOIN LATERAL (SELECT seq {ready} ORDER BY seq LIMIT %(most)s)"
        f" AS oldest ORDER BY oldest.seq LIMIT 1 OFFSET %(most)s - 1), {2**63 - 1})"
    )
    walk = (
        f"SELECT picked.* FROM (SELECT * FROM {given}"
        f" ORDER BY (SELECT seq {ready} ORDER BY seq LIMIT 1) NULLS LAST) AS given"
        f" CROSS JOIN LATERAL (SELECT message_id, seq, ctid AS row_ctid {ready} AND seq {{side}} (SELECT last.seq FROM last)"
        f" ORDER BY seq LIMIT %(most)s FOR UPDATE SKIP LOCKED) AS picked"
    )
    return (
        f"WITH last AS MATERIALIZED (SELECT {last} AS seq) SELECT * FROM"
        f" ({walk.format(side='<=')} UNION ALL {walk.format(side='>')}) AS walked LIMIT %(most)s"
    )


_PICKS = {
    (False, False): _PICK,
    (True, False): _pick_each("unnest(%(kinds)s::text[]) AS given(kind)", "kind = given.kind"),
    (False, True): _pick_each("unnest(%(queues)s::text[]) AS given(queue)", "work_queue_id = given.queue"),
    (True, True): _pick_each(
        "(SELECT * FROM unnest(%(queues)s::text[]) AS q(queue) CROSS JOIN unnest(%(kinds)s::text[]) AS k(kind)) AS given",
        "work_queue_id = given.queue",
        "kind = given.kind",
    ),
}


_PAYLOADS = ("target", "data")
"""What is read as a text: the driver's own decoding takes several times as long."""


def _late(state: str, pool: str, now: str) -> str:
    return f"EXISTS (SELECT FROM wane.message AS w WHERE w.pool = {pool} AND w.state = '{state}' AND w.due_at <= {now})"


def _reserve(pick: str, token: str, which: str, ids: str = "") -> str:
    """Write the statement that reserves what `pick` finds: neither a join nor by their ids, because a plan that was
    made for a small table could as well begin with the whole pool."""
    return f"""
WITH t AS MATERIALIZED (SELECT {_NOW} AS now, {_NOT_WAITING}),
picked AS MATERIALIZED ({pick}){ids}
UPDATE wane.message AS m SET
  state = CASE WHEN m.deliveries < %(attempts)s THEN 'reserved' ELSE 'dead' END,
  deliveries = m.deliveries + CASE WHEN m.deliveries < %(attempts)s THEN 1 ELSE 0 END,
  token_hash = CASE WHEN m.deliveries < %(attempts)s THEN {token} END,
  due_at = CASE WHEN m.deliveries < %(attempts)s THEN (SELECT now FROM t) + make_interval(secs => %(lease)s) END,
  finished_at = CASE WHEN m.deliveries < %(attempts)s THEN NULL ELSE (SELECT now FROM t) END,
  reason = CASE WHEN m.deliveries < %(attempts)s THEN NULL ELSE '{EXHAUSTED}' END,
  updated_at = (SELECT now FROM t)
WHERE m.ctid = {which}
RETURNING {", ".join(f"m.{name}{'::text' if name in _PAYLOADS else ''}" for name in RESERVED)}
"""


_RESERVE_ONE = _reserve(_PICK, "%(hash)s", "(SELECT row_ctid FROM picked)")
_RESERVE = {
    which: _reserve(
        pick,
        "(%(hashes)s::text[])[array_position((SELECT list FROM ids), m.message_id)]",
        "ANY (ARRAY(SELECT row_ctid FROM picked))",
        ",\nids AS MATERIALIZED (SELECT array_agg(message_id ORDER BY seq) AS list FROM picked)",
    )
    for which, pick in _PICKS.items()
}

# The state is written so that no index matches it: there is one message of the id, but others may be reserved by the
# thousand.
_CURRENT = (
    "pool = %(pool)s AND message_id = %(message_id)s AND state || '' = 'reserved' AND token_hash = %(token_hash)s"
    f" AND due_at > {_NOW}"
)
_COMPLETE = (
    f"UPDATE wane.message SET state = 'done', finished_at = {_NOW}, updated_at = {_NOW}, due_at = NULL, token_hash = NULL,"
    f" forget_at = {_NOW} + make_interval(secs => %(remember)s::float8)"
    f" WHERE {_CURRENT} RETURNING 1"
)
_EXTEND = (
    f"UPDATE wane.message SET due_at = {_NOW} + make_interval(secs => %(lease)s), updated_at = {_NOW}"
    f" WHERE {_CURRENT} RETURNING due_at"
)
_HAS_OVERDUE = f"SELECT {' OR '.join(_late(state, '%(pool)s', _NOW) for state in WAITING)}"
_OVERDUE = {
    state: f"SELECT {COLUMNS} FROM wane.message WHERE pool = %(pool)s AND state = '{state}' AND due_at <= %(now)s"
    " ORDER BY due_at, seq LIMIT %(most)s FOR UPDATE SKIP LOCKED"
    for state in WAITING
}


def _first_pool(behind: str = "") -> str:
    """Write the query for the next pool with messages that wait."""
    firsts = (
        f"(SELECT m.pool FROM wane.message AS m WHERE m.state = '{state}'{behind} ORDER BY m.pool LIMIT 1)"
        for state in WAITING
    )
    return f"least({', '.join(firsts)})"


_POOLS_OVERDUE = f"""
WITH RECURSIVE hop(pool) AS (
  SELECT {_first_pool()} UNION ALL SELECT {_first_pool(" AND m.pool > hop.pool")} FROM hop WHERE hop.pool IS NOT NULL)
SELECT pool FROM hop WHERE pool IS NOT NULL AND ({" OR ".join(_late(state, "hop.pool", "%(now)s") for state in WAITING)})
LIMIT %(most)s
"""
# The pool is written so that no index begins with it.
_FIND_BY_KEY = f"SELECT {COLUMNS} FROM wane.message WHERE idempotency_key = %(key)s AND pool || '' = %(pool)s"
_FIND_LOCKED = (
    f"SELECT {COLUMNS} FROM wane.message WHERE pool = %(pool)s AND message_id = %(message_id)s FOR NO KEY UPDATE"
)
_BUMP = (
    "WITH bumped AS (INSERT INTO wane.wakeup (pool, bumps) VALUES (%(pool)s, 1))"
    " SELECT pg_notify('wane_wakeup', %(pool)s)"
)
# Concurrent folds take different rows; what is not yet committed is not seen and stays as it is.
_FOLD = f"""
WITH many AS (SELECT FROM wane.wakeup WHERE pool = %(pool)s LIMIT 1 OFFSET {_MOST_BUMPS}),
old AS (SELECT ctid FROM wane.wakeup WHERE pool = %(pool)s AND EXISTS (SELECT FROM many)
  LIMIT {_MOST_FOLDED} FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM wane.wakeup WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING bumps)
INSERT INTO wane.wakeup (pool, bumps) SELECT %(pool)s, sum(bumps) FROM gone HAVING count(*) > 0
"""


class PostgresMessages(Messages):
    """The messages of a PostgreSQL database."""

    def insert(self, run: Execute, pool: str, new: Sequence[NewMessage], now: datetime | None) -> list[Message]:
        if len(new) == 1:
            return self._insert_one(run, pool, new[0], now)
        values: dict[str, object] = {
            "pool": pool,
            "now": now,
            "ids": [one.message_id for one in new],
            "keys": [one.idempotency_key for one in new],
            "queues": [one.work_queue_id for one in new],
            "kinds": [one.kind for one in new],
            "targets": [one.target for one in new],
            "datas": [one.data for one in new],
            "delays": [one.delay_seconds for one in new],
        }
        return [self._stored_message(row) for row in run(_INSERT, values)]

    def _insert_one(self, run: Execute, pool: str, new: NewMessage, now: datetime | None) -> list[Message]:
        state = MessageState.DELAYED if new.delay_seconds > 0 else MessageState.READY
        values: dict[str, object] = {
            "pool": pool,
            "now": now,
            "id": new.message_id,
            "key": new.idempotency_key,
            "queue": new.work_queue_id,
            "kind": new.kind,
            "target": new.target,
            "data": new.data,
            "state": state.value,
            "delay": new.delay_seconds if state is MessageState.DELAYED else None,
        }
        return [
            Message(
                pool,
                new.message_id,
                new.idempotency_key,
                new.work_queue_id,
                new.kind,
                read_json(new.target),
                read_json(new.data),
                state,
                0,
                self.dialect.decode_time(created_at),
                self.dialect.decode_time(created_at),
                due_at=None if due_at is None else self.dialect.decode_time(due_at),
                seq=seq,
            )
            for created_at, due_at, seq in run(_INSERT_ONE, values)
        ]

    def reserve(self, run: Execute, wanted: Wanted, now: datetime | None) -> list[Message]:
        values: dict[str, object] = {
            "pool": wanted.pool,
            "now": now,
            "most": len(wanted.token_hashes),
            "lease": wanted.lease_seconds,
            "attempts": wanted.attempts,
        }
        if len(wanted.token_hashes) == 1 and wanted.kinds is None and wanted.work_queue_ids is None:
            found = run(_RESERVE_ONE, {**values, "hash": wanted.token_hashes[0]})
        else:
            values["hashes"] = list(wanted.token_hashes)
            values["kinds"] = None if wanted.kinds is None else list(wanted.kinds)
            values["queues"] = None if wanted.work_queue_ids is None else list(wanted.work_queue_ids)
            found = run(_RESERVE[wanted.kinds is not None, wanted.work_queue_ids is not None], values)
        return sorted((self._reserved(wanted.pool, row) for row in found), key=lambda message: message.seq)

    def complete(
        self,
        run: Execute,
        pool: str,
        message_id: str,
        token_hash: str,
        remember_seconds: float | None,
        now: datetime | None,
    ) -> bool:
        values: dict[str, object] = {
            "pool": pool,
            "message_id": message_id,
            "token_hash": token_hash,
            "remember": remember_seconds,
            "now": now,
        }
        return bool(run(_COMPLETE, values))

    def extend(
        self, run: Execute, pool: str, message_id: str, token_hash: str, lease_seconds: float, now: datetime | None
    ) -> datetime | None:
        values: dict[str, object] = {
            "pool": pool,
            "message_id": message_id,
            "token_hash": token_hash,
            "now": now,
            "lease": lease_seconds,
        }
        return self._end(run(_EXTEND, values))

    def has_overdue(self, run: Execute, pool: str, now: datetime | None) -> bool:
        [(found,)] = run(_HAS_OVERDUE, {"pool": pool, "now": now})
        return bool(found)

    def overdue(self, run: Execute, pool: str, limit: int, now: datetime) -> list[Message]:
        found: list[Message] = []
        for text in _OVERDUE.values():
            values: dict[str, object] = {"pool": pool, "now": now, "most": limit - len(found)}
            found += [self._stored_message(row) for row in run(text, values)] if len(found) < limit else []
        return found

    def pools_overdue(self, run: Execute, limit: int, now: datetime) -> list[str]:
        return [pool for (pool,) in run(_POOLS_OVERDUE, {"now": now, "most": limit})]

    def find_by_key(self, run: Execute, pool: str, key: str) -> Message | None:
        return self._one(run(_FIND_BY_KEY, {"pool": pool, "key": key}))

    def find_locked(self, run: Execute, pool: str, message_id: str) -> Message | None:
        return self._one(run(_FIND_LOCKED, {"pool": pool, "message_id": message_id}))

    def bump(self, run: Execute, pool: str) -> None:
        run(_BUMP, {"pool": pool})

    def fold(self, run: Execute, pool: str) -> None:
        run(_FOLD, {"pool": pool})

    def _state(self, state: MessageState, columns: int) -> str:
        return _in_state(state, columns)
