"""Work claims on PostgreSQL: the clock advances while a statement waits, and fences come from a sequence."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from wane._db.postgres.settings import SEARCH_PATH
from wane._db.postgres.store import PostgresStore
from wane._db.statement import Parameters, Statement
from wane._db.transaction import Transaction
from wane.claims._schema import ClaimSchema, SchemaPart
from wane.claims._sql import ClaimStatements

_FENCES = "work_claim_fences"
_WAIT = "5s"
_INSTALL_WAIT = "60s"
_INSTALL_LOCK = 0x77616E66
"""Serialises installations; held only inside one transaction, so connection poolers do not disturb it."""

_SCHEMA = """
SELECT s.name FROM unnest(%(schemas)s::text[]) WITH ORDINALITY AS s(name, position)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid
WHERE c.relname = 'work_claims' ORDER BY s.position LIMIT 1
"""
_PRESENT = """
SELECT CASE c.relkind WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname::text
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p', 'i', 'S') AND c.relname::text LIKE 'work_claim%%'
UNION ALL
SELECT 'function', f.proname::text
FROM pg_catalog.pg_proc AS f JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
WHERE n.nspname = %(schema)s AND f.proname::text LIKE 'work_claims%%' AND %(path)s = ANY (f.proconfig)
UNION ALL
SELECT 'trigger', t.tgname::text
FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = 'work_claims' AND NOT t.tgisinternal
"""
_COLUMNS = """
SELECT a.attname::text FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
"""


class PostgresClaims(ClaimStatements):
    """Every condition on time reads the running clock, so that it also holds after a wait for a lock."""

    text = "::text"

    def clock(self, p: Parameters, now: datetime) -> str:
        return "clock_timestamp()"

    def later(self, p: Parameters, now: datetime, wait: timedelta) -> str:
        return f"clock_timestamp() + {p.bind('wait', wait)}"

    def locked(self, p: Parameters, task_id: str) -> str:
        # An UPDATE evaluates its conditions before it waits, and again only if the row was changed meanwhile, not if it
        # was locked.
        return f"(SELECT l.task_id FROM {self.claims} AS l WHERE l.task_id = {p.bind('task', task_id)} FOR UPDATE)"

    def encode_time(self, time: datetime | None) -> object:
        return time

    def read(self, column: str) -> str:
        # A program cannot represent infinity, nor times beyond the year 9999.
        return f"CASE WHEN {column} BETWEEN '1900-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00' THEN {column} END"

    def larger(self, one: str, other: str) -> str:
        return f"greatest({one}, {other})"

    def next_fence(self, p: Parameters) -> str:
        return f"greatest(fence + 1, nextval({p.bind('fences', self._named(_FENCES).replace('%%', '%'))}::regclass))"

    def fence_given(self, fence: int) -> list[Statement]:
        return []

    def return_expired(self, now: datetime, limit: int) -> list[Statement]:
        p = Parameters(self.dialect)
        # The conditions are checked again under the lock: a claim that was extended meanwhile stays.
        oldest = (
            f"SELECT task_id AS id, {self._columns(p, now)} FROM {self.claims} WHERE {self._expired_by(p, now)}"
            f" ORDER BY expires_at, task_id LIMIT {p.bind('limit', limit)} FOR UPDATE SKIP LOCKED"
        )
        names = "task_id, state, owner, fence, reason, m1, m2, m3, m4, m5, m6, expired"
        return [
            p.statement(
                f"WITH gone (id, {names}) AS MATERIALIZED ({oldest})"
                f" UPDATE {self.claims} AS w SET state = 'available', owner = NULL, claimed_at = NULL, expires_at = NULL"
                f" FROM gone WHERE w.task_id = gone.id RETURNING {', '.join(f'gone.{n}' for n in names.split(', '))}"
            )
        ]

    def wait_patiently(self, transaction: Transaction) -> None:
        transaction.execute("SELECT set_config('lock_timeout', %(wait)s, true)", {"wait": _WAIT})


class PostgresClaimSchema(ClaimSchema):
    """The tables are in the schema that the contract names, else where the search path finds them, else in its first
    one."""

    def schema_name(self) -> str:
        if self.schema is not None:
            return self.schema
        assert isinstance(self.store, PostgresStore)
        schemas = self.store.schemas()
        found = self._read(_SCHEMA, {"schemas": schemas})
        return str(found[0][0]) if found else next(iter(schemas), "public")

    def statements(self, script: str) -> list[str]:
        found: list[str] = []
        collected, inside = "", False
        for line in script.splitlines(keepends=True):
            collected += line
            inside ^= line.count("$$") % 2 == 1
            if not inside and line.rstrip().endswith(";"):
                found.append(collected.strip().replace("%", "%%"))
                collected = ""
        return found

    def present(self) -> set[SchemaPart]:
        # Functions whose unqualified names could resolve to other objects are replaced.
        given: dict[str, object] = {"schema": self.schema_name(), "path": f"search_path={SEARCH_PATH}"}
        return {SchemaPart(kind, name) for kind, name in self._read(_PRESENT, given)}

    def columns(self, table: str) -> set[str]:
        return {name for (name,) in self._read(_COLUMNS, {"schema": self.schema_name(), "table": table})}

    def prepare(self, transaction: Transaction) -> None:
        # A second installation waits for the first, for longer than for any other lock.
        for name, value in (("lock_timeout", _INSTALL_WAIT), ("statement_timeout", "0")):
            transaction.execute("SELECT set_config(%(name)s, %(value)s, true)", {"name": name, "value": value})
        transaction.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": _INSTALL_LOCK})

    def enter(self, transaction: Transaction) -> None:
        # New objects go to the first schema named; PostgreSQL's own is searched before it nevertheless.
        path = "SELECT set_config('search_path', quote_ident(%(schema)s) || ', pg_temp', true)"
        transaction.execute(path, {"schema": self.schema_name()})

    def _read(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return self.store.read(Statement(text, parameters), self.seconds)
