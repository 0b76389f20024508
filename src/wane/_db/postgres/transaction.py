"""A transaction on PostgreSQL, at READ COMMITTED: every statement sees what was committed before it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from wane._db.postgres.bounded import BoundedConnection, run_together
from wane._db.postgres.dialect import PostgresDialect
from wane._db.postgres.gate import ENTER, GATE, gates
from wane._db.postgres.settings import SAFE_SETTINGS, set_locally
from wane._db.schema import TableInfo, qualified
from wane._db.statement import Statement
from wane._db.transaction import Transaction, unwritten
from wane.errors import StoreError

LOCAL_SETTINGS = {
    **SAFE_SETTINGS,
    "lock_timeout": "200ms",
    "statement_timeout": "30s",
    # Batches are short; compiling them would take longer than running them.
    "jit": "off",
}
_LAYOUT = """
WITH RECURSIVE reached (attnum, type) AS (
  SELECT attnum, atttypid FROM pg_catalog.pg_attribute
  WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
  UNION
  SELECT reached.attnum, inner_type.oid FROM reached JOIN pg_catalog.pg_type AS t ON t.oid = reached.type
  CROSS JOIN LATERAL (
    VALUES (t.typelem), (t.typbasetype), ((SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngtypid = t.oid))
    UNION ALL SELECT atttypid FROM pg_catalog.pg_attribute WHERE attrelid = t.typrelid AND attnum > 0
  ) AS inner_type (oid) WHERE inner_type.oid <> 0
)
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), md5(concat_ws(' ', a.attrelid, a.attnum, a.xmin, d.oid,
  (SELECT string_agg(concat_ws(':', e.oid, e.xmin, e.enumlabel), ',' ORDER BY e.oid)
   FROM reached JOIN pg_catalog.pg_enum AS e ON e.enumtypid = reached.type WHERE reached.attnum = a.attnum),
  (SELECT string_agg(concat_ws(':', m.attrelid, m.attnum, m.xmin), ',' ORDER BY m.attrelid, m.attnum)
   FROM reached JOIN pg_catalog.pg_type AS t ON t.oid = reached.type
   JOIN pg_catalog.pg_attribute AS m ON m.attrelid = t.typrelid AND m.attnum > 0 WHERE reached.attnum = a.attnum)))
FROM pg_catalog.pg_attribute AS a LEFT JOIN pg_catalog.pg_attrdef AS d
  ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated <> ''
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
"""The columns of a table. The `xmin` of its rows does not change when a column is dropped and added again, two columns
swap their names, an enum's label or a composite type changes, or a column's expression does; this digest does. The
catalog's own `xmin` detects what was changed and changed back."""
# Under any other level the second read would see what the first one saw.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_MOST_IDLE = "60s"
"""A pause between two statements after which the server ends a transaction, so that its locks are not held for ever by
a process that was stopped or cut off."""
_GATE_WAIT = "10s"
"""How long a hold waits for the batches inside the gate to end: longer than any of them waits for others."""


class PostgresTransaction(Transaction):
    """One transaction on a psycopg connection."""

    kind = "postgres"
    dialect = PostgresDialect()

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.final_statement: Statement | None = None
        """The statement that is still to be run, together with the commit."""
        self._cursor = connection.cursor(row_factory=tuple_row)
        self._may_prepare = isinstance(connection, BoundedConnection) and connection.may_prepare

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        self._cursor.execute(text.encode(), parameters)
        # Of a description, the driver would write every column.
        found = self._cursor.pgresult
        return self._cursor.fetchall() if found is not None and found.nfields else []

    def read_often(self, statement: Statement) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement.text.encode(), statement.parameters, prepare=self._may_prepare)
        return self._cursor.fetchall()

    def change(self, statement: Statement) -> int:
        return self._cursor.execute(statement.text.encode(), statement.parameters).rowcount

    def limit(self, seconds: float) -> None:
        del seconds  # Each statement has a limit already: `LOCAL_SETTINGS`.

    def run_final_statement(self) -> None:
        self.require_recorded()
        if self.final_statement is not None:
            self.change(self.final_statement)
            self.final_statement = None

    def commit(self, connection: psycopg.Connection[Any]) -> None:
        self.require_recorded()
        last, self.final_statement = self.final_statement, None
        if last is None:
            connection.commit()
            return
        try:
            run_together(connection, [(last.text, last.parameters), ("COMMIT", {})])
        except psycopg.errors.DivisionByZero as problem:
            raise unwritten() from problem

    def now(self) -> datetime:
        [(now,)] = self.execute("SELECT clock_timestamp()", {})
        assert isinstance(now, datetime)
        return now.astimezone(UTC)

    def clock(self) -> datetime | None:
        return None

    def columns(self, table: TableInfo) -> list[tuple[str, str]]:
        found = self.execute(
            "SELECT attname::text, pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute"
            " WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            {"table": self.dialect.table(table).replace("%%", "%")},
        )
        return [(name, kind) for name, kind in found]

    def layout(self, table: TableInfo) -> list[list[str]]:
        name = self.dialect.table(table).replace("%%", "%")
        return [list(column) for column in self.execute(_LAYOUT, {"table": name})]

    def enter(self, tables: Sequence[TableInfo]) -> None:
        self.execute(ENTER, gates(tables))

    def finish(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        # It fails if there is nothing to change: a server that crashed may have lost what earlier batches wrote.
        self.final_statement = Statement(
            f"WITH changed AS ({text} RETURNING 1) SELECT 1 / count(*) FROM changed", dict(parameters)
        )
        return []

    def close_gate(self, table: TableInfo) -> None:
        self.execute("SELECT set_config('lock_timeout', %(wait)s, true)", {"wait": _GATE_WAIT})
        self.execute(
            "SELECT pg_advisory_xact_lock(%(gate)s, hashtext(%(table)s))", {"gate": GATE, "table": qualified(table)}
        )


@contextmanager
def opened(connection: psycopg.Connection[Any], begin: str) -> Iterator[None]:
    """Begin a transaction with its settings, in one round trip; commit it, or roll it back if anything fails."""
    connection.execute(begin.encode())
    try:
        yield
        connection.commit()
    except BaseException:
        # A broken connection has ended it already.
        if not connection.closed:
            connection.rollback()
        raise


@contextmanager
def beginning(connection: psycopg.Connection[Any], *, durable: bool, read_only: bool) -> Iterator[PostgresTransaction]:
    """Run a transaction of its own: all or nothing.

    Statements that can be sent together are: a batch is short compared with a round trip.
    """
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        with connection.transaction():
            transaction = PostgresTransaction(connection)
            yield transaction
            transaction.run_final_statement()
        return
    access = "READ ONLY" if read_only else "READ WRITE"
    settings = {**LOCAL_SETTINGS, "idle_in_transaction_session_timeout": _MOST_IDLE}
    if not durable:
        settings["synchronous_commit"] = "off"
    with opened(connection, f"{_BEGIN} {access}; {set_locally(settings)}"):
        transaction = PostgresTransaction(connection)
        yield transaction
        transaction.commit(connection)


@contextmanager
def inside(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Open a savepoint inside the caller's transaction, and restore its settings at the end."""
    if not connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        # The caller's connection opens transactions by itself: let it, so that the caller commits.
        connection.execute("SELECT 1")
    with connection.transaction():
        cursor = connection.cursor(row_factory=tuple_row)
        names = list(LOCAL_SETTINGS)
        _require_read_committed(cursor)
        requested = ", ".join(f"pg_catalog.current_setting('{name}')" for name in names)
        [before] = cursor.execute(f"SELECT {requested}".encode()).fetchall()
        cursor.execute(set_locally(LOCAL_SETTINGS).encode())
        yield
        back = ", ".join(f"pg_catalog.set_config('{name}', %s, true)" for name in names)
        cursor.execute(f"SELECT {back}".encode(), before)


def _require_read_committed(cursor: psycopg.Cursor[Any]) -> None:
    [(level,)] = cursor.execute("SHOW transaction_isolation").fetchall()
    if level not in ("read committed", "read uncommitted"):
        raise StoreError(
            f"the transaction is {level}: it would not see what others committed since it began",
            "use a READ COMMITTED transaction",
        )
