"""Messages on SQLite: one statement per operation, which holds the write lock for as long as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from wane.store.messages import COLUMNS, EXHAUSTED, WAITING, Message, Messages, NewMessage, Wanted
from wane.store.own import Execute

_INSERT = (
    "INSERT INTO wane_message (pool, message_id, idempotency_key, work_queue_id, kind, target, data, state, created_at,"
    " updated_at, due_at) VALUES (:pool, :id, :key, :queue, :kind, :target, :data, :state, :now, :now, :due)"
    f" ON CONFLICT DO NOTHING RETURNING {COLUMNS}"
)
_LATE = f"SELECT EXISTS (SELECT 1 FROM wane_message INDEXED BY wane_message_due WHERE pool = :pool AND {WAITING} AND due_at <= :now)"
_READY = "WHERE pool = :pool AND state = 'ready'"
_ALIVE = "deliveries < :attempts"
# Named indexes: nothing else may ever be chosen, whatever SQLite believes about the table.
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
{{which}} RETURNING {COLUMNS}
"""
_CURRENT = (
    "pool = :pool AND message_id = :message_id AND state = 'reserved' AND token_hash = :token_hash AND due_at > :now"
)
_COMPLETE = (
    "UPDATE wane_message SET state = 'done', finished_at = :now, updated_at = :now, due_at = NULL, token_hash = NULL"
    f" WHERE {_CURRENT} RETURNING 1"
)
_EXTEND = f"UPDATE wane_message SET due_at = :until, updated_at = :now WHERE {_CURRENT} RETURNING due_at"
_OVERDUE = (
    f"SELECT {COLUMNS} FROM wane_message INDEXED BY wane_message_due WHERE pool = :pool AND {WAITING} AND due_at <= :now"
    " ORDER BY due_at, seq LIMIT :most"
)
_POOLS_OVERDUE = f"""
WITH RECURSIVE hop(pool) AS (
  SELECT * FROM (SELECT min(pool) FROM wane_message INDEXED BY wane_message_due WHERE {WAITING})
  UNION ALL
  SELECT (SELECT min(pool) FROM wane_message INDEXED BY wane_message_due WHERE {WAITING} AND pool > hop.pool)
    FROM hop WHERE hop.pool IS NOT NULL)
SELECT pool FROM hop WHERE pool IS NOT NULL
  AND EXISTS (SELECT 1 FROM wane_message AS m INDEXED BY wane_message_due
              WHERE m.pool = hop.pool AND m.{WAITING} AND m.due_at <= :now)
LIMIT :most
"""
_BUMP = "INSERT INTO wane_wakeup (pool, bumps) VALUES (:pool, 1) ON CONFLICT (pool) DO UPDATE SET bumps = bumps + 1"


class SqliteMessages(Messages):
    """The messages of a SQLite database. The moment is always the caller's: SQLite has no clock of its own."""

    def insert(self, run: Execute, pool: str, new: Sequence[NewMessage], now: datetime | None) -> list[Message]:
        assert now is not None
        stored: list[Message] = []
        for one in new:
            delayed = one.delay_seconds > 0
            due = self._stored(now + timedelta(seconds=one.delay_seconds)) if delayed else None
            values: dict[str, object] = {
                "pool": pool,
                "id": one.message_id,
                "key": one.idempotency_key,
                "queue": one.work_queue_id,
                "kind": one.kind,
                "target": one.target,
                "data": one.data,
                "state": "delayed" if delayed else "ready",
                "now": self._stored(now),
                "due": due,
            }
            stored += [self._message(row) for row in run(_INSERT, values)]
        return stored

    def reserve(self, run: Execute, wanted: Wanted, now: datetime | None) -> tuple[list[Message], bool]:
        assert now is not None
        many = len(wanted.token_hashes)
        values: dict[str, object] = {
            "pool": wanted.pool,
            "now": self._stored(now),
            "until": self._stored(now + timedelta(seconds=wanted.lease_seconds)),
            "most": many,
            "attempts": wanted.attempts,
        }
        [(late,)] = run(_LATE, {"pool": wanted.pool, "now": values["now"]})
        pick = self._pick(wanted, values)
        if many == 1:
            values["hash"] = wanted.token_hashes[0]
            text = _TAKE.format(hash=":hash", which=f"WHERE seq = ({pick})")
        else:
            values |= {f"hash{number}": one for number, one in enumerate(wanted.token_hashes, 1)}
            chosen = " ".join(f"WHEN {number} THEN :hash{number}" for number in range(1, many + 1))
            numbered = f"FROM (SELECT seq AS picked, row_number() OVER (ORDER BY seq) AS number FROM ({pick})) AS n"
            text = _TAKE.format(hash=f"CASE n.number {chosen} END", which=f"{numbered} WHERE seq = n.picked")
        taken = [self._message(row) for row in run(text, values)]
        return sorted(taken, key=lambda message: message.seq), bool(late)

    def _pick(self, wanted: Wanted, values: dict[str, object]) -> str:
        """The oldest ready messages; of several kinds or work queues, the oldest of each, and of those the oldest."""
        kinds, queues = wanted.kinds, wanted.work_queue_ids
        if kinds is None and queues is None:
            return _PICK
        column, names = ("kind", kinds) if queues is None else ("work_queue_id", queues)
        also = ""
        if queues is not None and kinds is not None:
            values |= {f"kind{number}": one for number, one in enumerate(kinds)}
            also = f" AND kind IN ({', '.join(f':kind{number}' for number in range(len(kinds)))})"
        index = "wane_message_ready_kind" if queues is None else "wane_message_ready_queue"
        parts = []
        for number, name in enumerate(names or ()):
            values[f"name{number}"] = name
            parts.append(
                f"SELECT * FROM (SELECT seq FROM wane_message INDEXED BY {index} {_READY}"
                f" AND {column} = :name{number}{also} ORDER BY seq LIMIT :most)"
            )
        return f"{' UNION ALL '.join(parts)} ORDER BY seq LIMIT :most"

    def complete(self, run: Execute, pool: str, message_id: str, token_hash: str, now: datetime | None) -> bool:
        values = {"pool": pool, "message_id": message_id, "token_hash": token_hash, "now": self._stored(now)}
        return bool(run(_COMPLETE, values))

    def extend(
        self, run: Execute, pool: str, message_id: str, token_hash: str, lease_seconds: float, now: datetime | None
    ) -> datetime | None:
        assert now is not None
        until = self._stored(now + timedelta(seconds=lease_seconds))
        values = {"pool": pool, "message_id": message_id, "token_hash": token_hash, "now": self._stored(now)}
        return self._end(run(_EXTEND, {**values, "until": until}))

    def overdue(self, run: Execute, pool: str, limit: int, now: datetime) -> list[Message]:
        return [self._message(row) for row in run(_OVERDUE, {"pool": pool, "now": self._stored(now), "most": limit})]

    def pools_overdue(self, run: Execute, limit: int, now: datetime) -> list[str]:
        return [pool for (pool,) in run(_POOLS_OVERDUE, {"now": self._stored(now), "most": limit})]

    def find_locked(self, run: Execute, pool: str, message_id: str) -> Message | None:
        return self.find(run, pool, message_id=message_id)  # There is one writer at a time.

    def bump(self, run: Execute, pool: str) -> None:
        run(_BUMP, {"pool": pool})

    def fold(self, run: Execute, pool: str) -> None:
        """A pool has one row."""

    def _by(self, index: str) -> str:
        return f"{self.table} INDEXED BY wane_{index}"
