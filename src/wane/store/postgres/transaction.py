"""A transaction on PostgreSQL, at READ COMMITTED: every statement sees what was committed before it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from wane.contract.model import Mark
from wane.errors import StoreError
from wane.store.rows import Rows, Statement, qualified
from wane.store.schema import TableInfo
from wane.store.selection import Selection
from wane.store.transaction import Batch, Key, Taken, Transaction

_GATE = 0x77616E65
"""The space of advisory locks that Wane uses; they end with the transaction, so connection poolers do not disturb them."""

TEXT_SETTINGS = {
    # Holds know rows by the text of their keys, and keys travel as texts: it must be the same text on every connection.
    "bytea_output": "hex",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "timezone": "UTC",
}
_LOCAL_SETTINGS = {
    **TEXT_SETTINGS,
    # Policies would hide rows silently; off means that they raise instead.
    "row_security": "off",
    "lock_timeout": "200ms",
    "statement_timeout": "30s",
}
_GATE_WAIT = "10s"
"""How long a hold waits for the batches inside the gate to end: longer than any of them waits for others."""


class PostgresTransaction(Transaction):
    """One transaction on a psycopg connection."""

    def __init__(self, connection: psycopg.Connection[Any], rows: Rows) -> None:
        self.rows = rows
        self._cursor = connection.cursor(row_factory=tuple_row)

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        self._cursor.execute(text.encode(), parameters)
        return self._cursor.fetchall() if self._cursor.description else []

    def change(self, statement: Statement) -> int:
        return self._cursor.execute(statement.text.encode(), statement.parameters).rowcount

    def now(self) -> datetime:
        [(moment,)] = self.execute("SELECT clock_timestamp()", {})
        assert isinstance(moment, datetime)
        return moment.astimezone(UTC)

    def clock(self) -> datetime | None:
        return None

    def enter(self, tables: Sequence[TableInfo]) -> None:
        self.execute(
            "SELECT pg_advisory_xact_lock_shared(%(gate)s, hashtext(name)) FROM unnest(%(tables)s::text[]) AS gates(name)",
            {"gate": _GATE, "tables": [qualified(table) for table in tables]},
        )

    def close_gate(self, table: TableInfo) -> None:
        self.execute("SELECT set_config('lock_timeout', %(wait)s, true)", {"wait": _GATE_WAIT})
        self.execute(
            "SELECT pg_advisory_xact_lock(%(gate)s, hashtext(%(table)s))", {"gate": _GATE, "table": qualified(table)}
        )

    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        p = self.rows.parameters()
        where = self.rows.among(p, selection, keys)
        outputs = ", ".join(self.rows.dialect.out(self.rows.column(column)) for column in selection.key)
        how = "FOR UPDATE OF t SKIP LOCKED" if skip_locked else "FOR UPDATE OF t"
        # Everybody locks in the same order, so that two pruners wait for each other at the most once.
        order = ", ".join(self.rows.position(selection, "t"))
        return self.execute(
            f"SELECT {outputs} FROM {self.rows.dialect.table(selection.table)} AS t WHERE {where} ORDER BY {order} {how}",
            p.values,
        )

    def take(self, batch: Batch) -> Taken:
        selection = batch.selection
        most = min(batch.limit, batch.most)
        unenforced = [guard for guard in selection.saved_by if not guard.enforced]
        if unenforced:
            # Nothing but a lock on their table keeps others from referring to a row while it leaves.
            tables = sorted({self.rows.dialect.table(guard.table) for guard in unenforced})
            self.execute(f"LOCK TABLE {', '.join(tables)} IN SHARE MODE", {})
        if takes_by_key(selection) or batch.skip_locked:
            skip = batch.skip_locked or bool(unenforced)
            return self._take_locked(replace(batch, limit=most, skip_locked=skip))
        statement = self.rows.take_range(selection, batch.now, most, batch.floor)
        [(count, *end)] = self.execute(statement.text, statement.parameters)
        if end[0] is None:
            return Taken({str(selection.name): count}, batch.floor, done=True)
        return Taken({str(selection.name): count}, tuple(end), done=False)


def takes_by_key(selection: Selection) -> bool:
    """Whether a rule's rows are looked up and locked before they are taken: see Transaction._take_locked.

    Marks too: a trigger may keep a row as it was, and only who knows which rows were meant notices.
    """
    marks = isinstance(selection.rule.action, Mark)
    return marks or bool(selection.followers or selection.saved_by or selection.watched)


@contextmanager
def writing(connection: psycopg.Connection[Any], *, caller: bool) -> Iterator[None]:
    """All or nothing: a transaction of its own, or a savepoint inside the caller's, whose settings come back as they were."""
    if caller and not connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        # The caller's connection opens transactions by itself: let it, so that the commit is the caller's.
        connection.execute("SELECT 1")
    with connection.transaction():
        cursor = connection.cursor(row_factory=tuple_row)
        names = list(_LOCAL_SETTINGS)
        if not caller:
            _set(cursor, names, list(_LOCAL_SETTINGS.values()))
            yield
            return
        _require_read_committed(cursor)
        cursor.execute("SELECT current_setting(name) FROM unnest(%s::text[]) AS names(name)", [names])
        before = [value for (value,) in cursor.fetchall()]
        _set(cursor, names, list(_LOCAL_SETTINGS.values()))
        yield
        _set(cursor, names, before)


def _set(cursor: psycopg.Cursor[Any], names: list[str], values: list[str]) -> None:
    cursor.execute(
        "SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) AS s(name, value)", [names, values]
    )


def _require_read_committed(cursor: psycopg.Cursor[Any]) -> None:
    [(level,)] = cursor.execute("SHOW transaction_isolation").fetchall()
    if level not in ("read committed", "read uncommitted"):
        raise StoreError(
            f"the transaction is {level}: it would not see what others committed since it began",
            "prune in a READ COMMITTED transaction",
        )
