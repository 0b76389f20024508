"""Messages on PostgreSQL: one statement per operation, the database's clock inside it, and rows that others hold are stepped over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from wane.store.messages import COLUMNS, EXHAUSTED, WAITING, Message, Messages, NewMessage, Wanted
from wane.store.own import Execute

# In a subquery, so that it is asked once and may be compared with an index.
_NOW = "(SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))"
_MOST_BUMPS = 64
"""How many rows of wakeups a pool may have before somebody folds them."""
_MOST_FOLDED = 10_000

_INSERT = f"""
INSERT INTO wane.message
  (pool, message_id, idempotency_key, work_queue_id, kind, target, data, state, created_at, updated_at, due_at)
SELECT %(pool)s, n.id, n.key, n.queue, n.kind, n.target::json, n.data::json,
  CASE WHEN n.delay > 0 THEN 'delayed' ELSE 'ready' END, t.now, t.now,
  CASE WHEN n.delay > 0 THEN t.now + make_interval(secs => n.delay) END
FROM (SELECT {_NOW} AS now) AS t,
  unnest(%(ids)s::text[], %(keys)s::text[], %(queues)s::text[], %(kinds)s::text[], %(targets)s::text[],
         %(datas)s::text[], %(delays)s::float8[]) WITH ORDINALITY AS n(id, key, queue, kind, target, data, delay, place)
ORDER BY n.place
ON CONFLICT DO NOTHING RETURNING {COLUMNS}
"""

_READY = "SELECT message_id, seq FROM wane.message WHERE pool = %(pool)s AND state = 'ready'"
_PICK = f"{_READY} ORDER BY seq LIMIT %(most)s FOR UPDATE SKIP LOCKED"


def _pick_each(names: str, column: str, also: str = "") -> str:
    """The oldest ready messages of several kinds or work queues.

    Only what is taken is locked: the limit outside ends the walk. First come those that were among the oldest of all when this
    statement began; if others hold some of them, the walk goes on behind.
    """
    given = f"unnest({names}) AS given(name)"
    ready = f"FROM wane.message WHERE pool = %(pool)s AND state = 'ready' AND {column} = given.name{also}"
    last = (
        f"coalesce((SELECT oldest.seq FROM {given} CROSS JOIN LATERAL (SELECT seq {ready} ORDER BY seq LIMIT %(most)s)"
        f" AS oldest ORDER BY oldest.seq LIMIT 1 OFFSET %(most)s - 1), {2**63 - 1})"
    )
    walk = (
        f"SELECT picked.message_id, picked.seq FROM (SELECT name FROM {given}"
        f" ORDER BY (SELECT seq {ready} ORDER BY seq LIMIT 1) NULLS LAST) AS given"
        f" CROSS JOIN LATERAL (SELECT message_id, seq {ready} AND seq {{side}} (SELECT last.seq FROM last)"
        f" ORDER BY seq LIMIT %(most)s FOR UPDATE SKIP LOCKED) AS picked"
    )
    return (
        f"WITH last AS MATERIALIZED (SELECT {last} AS seq) SELECT message_id, seq FROM"
        f" ({walk.format(side='<=')} UNION ALL {walk.format(side='>')}) AS walked LIMIT %(most)s"
    )


_PICKS = {
    (False, False): _PICK,
    (True, False): _pick_each("%(kinds)s::text[]", "kind"),
    (False, True): _pick_each("%(queues)s::text[]", "work_queue_id"),
    (True, True): _pick_each("%(queues)s::text[]", "work_queue_id", " AND kind = ANY(%(kinds)s::text[])"),
}

_RESERVE = {
    which: f"""
WITH t AS MATERIALIZED (SELECT {_NOW} AS now),
picked AS MATERIALIZED ({pick}),
numbered AS (SELECT message_id, row_number() OVER (ORDER BY seq) AS number FROM picked),
taken AS (
  UPDATE wane.message AS m SET
    state = CASE WHEN m.deliveries < %(attempts)s THEN 'reserved' ELSE 'dead' END,
    deliveries = m.deliveries + CASE WHEN m.deliveries < %(attempts)s THEN 1 ELSE 0 END,
    token_hash = CASE WHEN m.deliveries < %(attempts)s THEN (%(hashes)s::text[])[n.number] END,
    due_at = CASE WHEN m.deliveries < %(attempts)s THEN t.now + make_interval(secs => %(lease)s) END,
    finished_at = CASE WHEN m.deliveries < %(attempts)s THEN NULL ELSE t.now END,
    reason = CASE WHEN m.deliveries < %(attempts)s THEN NULL ELSE '{EXHAUSTED}' END,
    updated_at = t.now
  FROM numbered AS n, t WHERE m.pool = %(pool)s AND m.message_id = n.message_id
  RETURNING {", ".join(f"m.{name}" for name in COLUMNS.split(", "))})
SELECT late.some, taken.* FROM
  (SELECT EXISTS (SELECT FROM wane.message WHERE pool = %(pool)s AND {WAITING} AND due_at <= (SELECT now FROM t)) AS some) AS late
  LEFT JOIN taken ON true ORDER BY taken.seq
"""
    for which, pick in _PICKS.items()
}

# The state is written so that no index knows it: there is one message of the id, but others may be reserved by the thousand.
_CURRENT = (
    "pool = %(pool)s AND message_id = %(message_id)s AND state || '' = 'reserved' AND token_hash = %(token_hash)s"
    f" AND due_at > {_NOW}"
)
_COMPLETE = (
    f"UPDATE wane.message SET state = 'done', finished_at = {_NOW}, updated_at = {_NOW}, due_at = NULL, token_hash = NULL"
    f" WHERE {_CURRENT} RETURNING 1"
)
_EXTEND = (
    f"UPDATE wane.message SET due_at = {_NOW} + make_interval(secs => %(lease)s), updated_at = {_NOW}"
    f" WHERE {_CURRENT} RETURNING due_at"
)
_OVERDUE = (
    f"SELECT {COLUMNS} FROM wane.message WHERE pool = %(pool)s AND {WAITING} AND due_at <= %(now)s"
    " ORDER BY due_at, seq LIMIT %(most)s FOR UPDATE SKIP LOCKED"
)
_POOLS_OVERDUE = f"""
WITH RECURSIVE hop(pool) AS (
  (SELECT min(pool) FROM wane.message WHERE {WAITING})
  UNION ALL
  SELECT (SELECT min(m.pool) FROM wane.message AS m WHERE m.{WAITING} AND m.pool > hop.pool) FROM hop WHERE hop.pool IS NOT NULL)
SELECT pool FROM hop WHERE pool IS NOT NULL
  AND EXISTS (SELECT FROM wane.message AS m WHERE m.pool = hop.pool AND m.{WAITING} AND m.due_at <= %(now)s)
LIMIT %(most)s
"""
_FIND_LOCKED = (
    f"SELECT {COLUMNS} FROM wane.message WHERE pool = %(pool)s AND message_id = %(message_id)s FOR NO KEY UPDATE"
)
_BUMP = (
    "WITH bumped AS (INSERT INTO wane.wakeup (pool, bumps) VALUES (%(pool)s, 1))"
    " SELECT pg_notify('wane_wakeup', %(pool)s)"
)
# Whoever folds at the same time takes other rows; what is not yet committed is not seen and stays as it is.
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
        return [self._message(row) for row in run(_INSERT, values)]

    def reserve(self, run: Execute, wanted: Wanted, now: datetime | None) -> tuple[list[Message], bool]:
        values: dict[str, object] = {
            "pool": wanted.pool,
            "now": now,
            "most": len(wanted.token_hashes),
            "hashes": list(wanted.token_hashes),
            "lease": wanted.lease_seconds,
            "attempts": wanted.attempts,
        }
        if wanted.kinds is not None:
            values["kinds"] = list(wanted.kinds)
        if wanted.work_queue_ids is not None:
            values["queues"] = list(wanted.work_queue_ids)
        found = run(_RESERVE[wanted.kinds is not None, wanted.work_queue_ids is not None], values)
        return [self._message(row[1:]) for row in found if row[1] is not None], bool(found[0][0])

    def complete(self, run: Execute, pool: str, message_id: str, token_hash: str, now: datetime | None) -> bool:
        values: dict[str, object] = {"pool": pool, "message_id": message_id, "token_hash": token_hash, "now": now}
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

    def overdue(self, run: Execute, pool: str, limit: int, now: datetime) -> list[Message]:
        return [self._message(row) for row in run(_OVERDUE, {"pool": pool, "now": now, "most": limit})]

    def pools_overdue(self, run: Execute, limit: int, now: datetime) -> list[str]:
        return [pool for (pool,) in run(_POOLS_OVERDUE, {"now": now, "most": limit})]

    def find_locked(self, run: Execute, pool: str, message_id: str) -> Message | None:
        return self._one(run(_FIND_LOCKED, {"pool": pool, "message_id": message_id}))

    def bump(self, run: Execute, pool: str) -> None:
        run(_BUMP, {"pool": pool})

    def fold(self, run: Execute, pool: str) -> None:
        run(_FOLD, {"pool": pool})
