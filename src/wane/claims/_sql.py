"""Work claims, as statements. A claim is one UPDATE that checks all it depends on, so of several at once one wins.

Whether a claim has expired is compared with the database's clock inside the statement that depends on it, after any
wait for a lock. A fence is drawn by the statement that takes the row, under the row's lock: of two claims of one task
the later has the larger fence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from wane._contract.model import Time, Unit
from wane._db.statement import Dialect, Parameters, Statement
from wane._db.store import Store
from wane._db.timestamps import read_time
from wane._db.transaction import Transaction

CLAIMS = "work_claims"
TOMBSTONES = "work_claim_tombstones"
_ORDER = {
    "available": "created_at",
    "claimed": "expires_at",
    "completed": "completed_at",
    "abandoned": "abandoned_at",
}
"""The column that the rows of a state are ordered by, oldest first; an index has that order."""
_TEXTS = ("task_id", "state", "owner", "fence", "reason")
_TIMES = ("created_at", "claimed_at", "expires_at", "completed_at", "abandoned_at", "remembered_until")


def add_column(table: str, name: str, type_: str) -> str:
    """Write the statement that adds a column to one of the tables of work claims."""
    return f"ALTER TABLE {table} ADD COLUMN {name} {type_}"


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A row of `work_claims`, and whether its claim had expired when it was read."""

    task_id: str
    state: str
    owner: str | None
    fence: int
    reason: str | None
    created_at: datetime | None
    claimed_at: datetime | None
    expires_at: datetime | None
    completed_at: datetime | None
    abandoned_at: datetime | None
    remembered_until: datetime | None
    expired: bool


@dataclass(frozen=True, slots=True)
class TombstoneRow:
    """The tombstone of a finished piece of work."""

    task_id: str
    owner: str | None
    fence: int
    outcome: str
    finished_at: datetime | None
    remembered_until: datetime | None


class ClaimStatements(ABC):
    """The statements of one store, for tables in one schema. `now` is the time of the call, by the store's clock."""

    text = ""
    """The cast that makes a bound value a text where its type is ambiguous."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        self.dialect = dialect
        self.schema = schema
        self.claims = self._named(CLAIMS)
        self.tombstones = self._named(TOMBSTONES)

    def _named(self, name: str) -> str:
        return f"{self.dialect.quote(self.schema)}.{self.dialect.quote(name)}"

    # Implemented by each store

    @abstractmethod
    def clock(self, p: Parameters, now: datetime) -> str:
        """Write the clock's value at the time when a row is read."""

    @abstractmethod
    def later(self, p: Parameters, now: datetime, wait: timedelta) -> str:
        """Write the clock's value plus a duration."""

    @abstractmethod
    def locked(self, p: Parameters, task_id: str) -> str:
        """Write a task's id so that its row is locked first: the conditions beside it are evaluated after the wait."""

    @abstractmethod
    def encode_time(self, time: datetime | None) -> object:
        """Encode a time as these tables store it."""

    @abstractmethod
    def read(self, column: str) -> str:
        """Write how a column with a time is read."""

    @abstractmethod
    def larger(self, one: str, other: str) -> str:
        """Write the larger of two values, or NULL if one is NULL and the store cannot compare."""

    @abstractmethod
    def next_fence(self, p: Parameters) -> str:
        """Write a fence that was never issued, larger than all before it."""

    @abstractmethod
    def fence_given(self, fence: int) -> list[Statement]:
        """Return the statements to run after a fence was issued, in the same transaction."""

    @abstractmethod
    def return_expired(self, now: datetime, limit: int) -> list[Statement]:
        """Make the claims that expired longest ago available; the first statement returns them as they were."""

    @abstractmethod
    def wait_patiently(self, transaction: Transaction) -> None:
        """Raise the lock timeout to what a claim is worth: others lock a task's row for one short transaction."""

    # Reading

    def _columns(self, p: Parameters, now: datetime, alias: str = "") -> str:
        dot = f"{alias}." if alias else ""
        texts = [f"{dot}{name}" for name in _TEXTS]
        return ", ".join([*texts, *(self.read(f"{dot}{name}") for name in _TIMES), self._is_expired(p, now, dot)])

    def _is_expired(self, p: Parameters, now: datetime, dot: str = "") -> str:
        return f"coalesce({dot}state = 'claimed' AND {dot}expires_at <= {self.clock(p, now)}, {self._no()})"

    def _no(self) -> str:
        return "(1 = 0)"

    def _in_force(self, p: Parameters, now: datetime, dot: str = "") -> str:
        """Write the condition that a tombstone is still in force."""
        return f"({dot}remembered_until IS NULL OR {dot}remembered_until > {self.clock(p, now)})"

    def _not_remembered(self, p: Parameters, task_id: str, now: datetime) -> str:
        memory = f"SELECT 1 FROM {self.tombstones} AS m WHERE m.task_id = {p.bind('task', task_id)}"
        return f"NOT EXISTS ({memory} AND {self._in_force(p, now, 'm.')})"

    def find(self, task_id: str, now: datetime) -> Statement:
        p = Parameters(self.dialect)
        where = f"task_id = {p.bind('task', task_id)}"
        return p.statement(f"SELECT {self._columns(p, now)} FROM {self.claims} WHERE {where}")

    def remembered(self, task_id: str, now: datetime) -> Statement:
        """Read the tombstone of a task, if it is still in force."""
        p = Parameters(self.dialect)
        times = f"{self.read('finished_at')}, {self.read('remembered_until')}"
        return p.statement(
            f"SELECT task_id, owner, fence, outcome, {times} FROM {self.tombstones}"
            f" WHERE task_id = {p.bind('task', task_id)} AND {self._in_force(p, now)}"
        )

    def written(self, task_id: str, fence: int) -> Statement:
        """Check whether there is a tombstone of this very claim, in force or not."""
        p = Parameters(self.dialect)
        return p.statement(
            f"SELECT 1 FROM {self.tombstones} WHERE task_id = {p.bind('task', task_id)}"
            f" AND fence = {p.bind('fence', fence)}"
        )

    def in_state(self, state: str, now: datetime, limit: int) -> Statement:
        p = Parameters(self.dialect)
        # The state is a literal: a partial index serves only a statement that contains its condition.
        return p.statement(
            f"SELECT {self._columns(p, now)} FROM {self.claims} WHERE state = '{state}'"
            f" ORDER BY {_ORDER[state]}, task_id LIMIT {p.bind('limit', limit)}"
        )

    def expired(self, now: datetime, limit: int) -> Statement:
        p = Parameters(self.dialect)
        return p.statement(
            f"SELECT {self._columns(p, now)} FROM {self.claims} WHERE {self._expired_by(p, now)}"
            f" ORDER BY expires_at, task_id LIMIT {p.bind('limit', limit)}"
        )

    def _expired_by(self, p: Parameters, now: datetime) -> str:
        # A bound time, not the running clock: no index serves a value that may change from row to row.
        return f"state = 'claimed' AND expires_at <= {p.bind('time', self.encode_time(now))}"

    def row(self, values: Sequence[Any]) -> ClaimRow:
        task_id, state, owner, fence, reason, *times, expired = values
        created, claimed, expires, completed, abandoned, remembered = map(_time, times)
        return ClaimRow(
            task_id=task_id,
            state=state,
            owner=owner,
            fence=int(fence),
            reason=reason,
            created_at=created,
            claimed_at=claimed,
            expires_at=expires,
            completed_at=completed,
            abandoned_at=abandoned,
            remembered_until=remembered,
            expired=bool(expired),
        )

    def tombstone(self, values: Sequence[Any]) -> TombstoneRow:
        task_id, owner, fence, outcome, finished, remembered = values
        return TombstoneRow(task_id, owner, int(fence), outcome, _time(finished), _time(remembered))

    # Changing

    def submit(self, task_id: str, now: datetime) -> Statement:
        """Insert a new task as available, unless there is one of that id, or one is remembered as finished."""
        p = Parameters(self.dialect)
        values = f"{p.bind('task', task_id)}{self.text}, 'available', {self.clock(p, now)}"
        return p.statement(
            f"INSERT INTO {self.claims} (task_id, state, created_at) SELECT {values}"
            f" WHERE {self._not_remembered(p, task_id, now)} ON CONFLICT (task_id) DO NOTHING"
        )

    def take(self, task_id: str, owner: str, now: datetime, ttl: timedelta) -> Statement:
        """Claim a task that is available, or whose claim has expired, unless it is remembered as finished."""
        p = Parameters(self.dialect)
        return p.statement(
            f"UPDATE {self.claims} SET state = 'claimed', owner = {p.bind('owner', owner)},"
            f" fence = {self.next_fence(p)}, claimed_at = {self.clock(p, now)}, expires_at = {self.later(p, now, ttl)},"
            " completed_at = NULL, abandoned_at = NULL, reason = NULL, remembered_until = NULL"
            f" WHERE task_id = {self.locked(p, task_id)}"
            f" AND (state = 'available' OR (state = 'claimed' AND expires_at <= {self.clock(p, now)}))"
            f" AND {self._not_remembered(p, task_id, now)}"
            f" RETURNING {self._columns(p, now)}"
        )

    def reopen(self, task_id: str, state: str, fence: int, now: datetime) -> Statement:
        """Make a finished task available again, if it is still the one that was read."""
        p = Parameters(self.dialect)
        return p.statement(
            f"UPDATE {self.claims} SET state = 'available', owner = NULL, created_at = {self.clock(p, now)},"
            " claimed_at = NULL, expires_at = NULL, completed_at = NULL, abandoned_at = NULL, reason = NULL,"
            f" remembered_until = NULL WHERE task_id = {p.bind('task', task_id)} AND state = {p.bind('state', state)}"
            f" AND fence = {p.bind('fence', fence)}"
        )

    def forget(self, task_id: str, fence: int) -> Statement:
        """Delete the tombstone of a task, if it is still the one that was read."""
        p = Parameters(self.dialect)
        return p.statement(
            f"DELETE FROM {self.tombstones} WHERE task_id = {p.bind('task', task_id)} AND fence = {p.bind('fence', fence)}"
        )

    def extend(self, task_id: str, owner: str, fence: int, now: datetime, ttl: timedelta) -> Statement:
        p = Parameters(self.dialect)
        return p.statement(
            f"UPDATE {self.claims} SET expires_at = {self.larger('expires_at', self.later(p, now, ttl))}"
            f" WHERE {self._held(p, task_id, owner, fence, now)} RETURNING {self._columns(p, now)}"
        )

    def finish(
        self,
        task_id: str,
        owner: str,
        fence: int,
        *,
        state: str,
        now: datetime,
        remembered_until: datetime | None,
        reason: str | None,
    ) -> Statement:
        """Complete or abandon a task; the triggers of its table write its tombstone."""
        p = Parameters(self.dialect)
        return p.statement(
            f"UPDATE {self.claims} SET state = {p.bind('state', state)},"
            f" {_ORDER[state]} = {p.bind('time', self.encode_time(now))}, reason = {p.bind('reason', reason)},"
            f" remembered_until = {p.bind('remembered_until', self.encode_time(remembered_until))}"
            f" WHERE {self._held(p, task_id, owner, fence, now)} RETURNING {self._columns(p, now)}"
        )

    def _held(self, p: Parameters, task_id: str, owner: str, fence: int, now: datetime) -> str:
        """Write the whole condition under which a claim is held now."""
        return " AND ".join(
            [
                f"task_id = {self.locked(p, task_id)}",
                "state = 'claimed'",
                f"owner = {p.bind('owner', owner)}",
                f"fence = {p.bind('fence', fence)}",
                f"expires_at > {self.clock(p, now)}",
            ]
        )


_NATIVE = Time("time", Unit.NATIVE)


def _time(value: object) -> datetime | None:
    return read_time(value, _NATIVE)


def claim_statements(store: Store, schema: str) -> ClaimStatements:
    """Return the statements for tables in a schema of a store."""
    if store.kind == "sqlite":
        from wane.claims._sql_sqlite import SqliteClaims

        return SqliteClaims(store.dialect, schema)
    from wane.claims._sql_postgres import PostgresClaims

    return PostgresClaims(store.dialect, schema)
