"""Work claims on SQLite: a transaction is the only writer, so its time is the clock, and the fence counter is a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from wane._db.sqlite.store import statements
from wane._db.statement import Parameters, Statement
from wane._db.transaction import Transaction
from wane.claims._schema import ClaimSchema, SchemaPart
from wane.claims._sql import ClaimStatements

_COUNTER = "main.wane_claim_fence"


class SqliteClaims(ClaimStatements):
    """Times are texts that sort chronologically: a second, or a second and its fraction."""

    def clock(self, p: Parameters, now: datetime) -> str:
        return p.bind("now", self.encode_time(now))

    def later(self, p: Parameters, now: datetime, wait: timedelta) -> str:
        return p.bind("later", self.encode_time(now + wait))

    def locked(self, p: Parameters, task_id: str) -> str:
        return p.bind("task", task_id)

    def encode_time(self, time: datetime | None) -> object:
        return None if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

    def read(self, column: str) -> str:
        # A bare column would pass through the converters that a caller's connection may have for its type.
        return f"+{column}"

    def larger(self, one: str, other: str) -> str:
        return f"max({one}, {other})"

    def next_fence(self, p: Parameters) -> str:
        # Without its row the counter is NULL, which is not a valid fence.
        return f"max(fence, (SELECT last FROM {_COUNTER} WHERE id = 1)) + 1"

    def fence_given(self, fence: int) -> list[Statement]:
        p = Parameters(self.dialect)
        given = p.bind("fence", fence)
        return [p.statement(f"UPDATE {_COUNTER} SET last = {given} WHERE last < {given}")]

    def return_expired(self, now: datetime, limit: int) -> list[Statement]:
        p = Parameters(self.dialect)
        oldest = (
            f"SELECT task_id FROM {self.claims} WHERE {self._expired_by(p, now)} ORDER BY expires_at, task_id"
            f" LIMIT {p.bind('limit', limit)}"
        )
        change = (
            f"UPDATE {self.claims} SET state = 'available', owner = NULL, claimed_at = NULL, expires_at = NULL"
            f" WHERE task_id IN ({oldest})"
        )
        return [self.expired(now, limit), p.statement(change)]

    def wait_patiently(self, transaction: Transaction) -> None:
        """Do nothing: there is one writer at a time, and that is this transaction."""


class SqliteClaimSchema(ClaimSchema):
    """The tables are in the main database."""

    def schema_name(self) -> str:
        return "main"

    def statements(self, script: str) -> list[str]:
        return list(statements(script))

    def present(self) -> set[SchemaPart]:
        kinds = {"table", "index", "trigger"}
        found = self.store.read(Statement("SELECT type, name FROM main.sqlite_master", {}), self.seconds)
        parts = {SchemaPart(kind, name) for kind, name in found if kind in kinds}
        if SchemaPart("table", "wane_claim_fence") in parts and self._read(f"SELECT 1 FROM {_COUNTER} WHERE id = 1"):
            parts.add(SchemaPart("row", "wane_claim_fence"))
        return parts

    def columns(self, table: str) -> set[str]:
        return {name for (name,) in self._read(f"SELECT name FROM pragma_table_info('{table}', 'main')")}

    def prepare(self, transaction: Transaction) -> None:
        """Do nothing: the transaction is the only writer."""

    def enter(self, transaction: Transaction) -> None:
        """Do nothing: a file has one schema."""

    def _read(self, text: str) -> list[tuple[Any, ...]]:
        return self.store.read(Statement(text, {}), self.seconds)
