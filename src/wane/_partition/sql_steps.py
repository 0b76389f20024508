"""The building blocks of the steps of partitioning: transactions that request their locks within a limit, and reads of
the catalogs.

Whatever makes the application wait takes its lock within a set time or gives up and retries, and reports how long it
held it.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from wane._contract.model import State
from wane._contract.names import join_name
from wane._db.schema import Column, TableInfo
from wane._db.statement import Execute
from wane._db.transaction import Transaction
from wane._partition.anatomy import Anatomy, functions_with_conflicts, quote, read_anatomy, read_partitioned
from wane._partition.journal import PartitionJournal
from wane._partition.records import Leaf, Range
from wane._partition.sql_ddl import qualified_name
from wane._rules.rows import rows_of
from wane.errors import Locked, StoreError

if TYPE_CHECKING:
    from wane._db.postgres.store import PostgresStore

R = TypeVar("R")

PATIENCE_SECONDS = 600
"""How long a statement may wait for locks that nothing else queues behind."""
_LEAVES = """
SELECT n.nspname::text, c.relname::text, pg_get_expr(c.relpartbound, c.oid), i.inhdetachpending, c.reltuples::bigint
FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE i.inhparent = to_regclass(%(table)s) ORDER BY c.relname
"""
_KEY = """
SELECT p.partstrat::text, p.partnatts, a.attname::text, p.partdefid <> 0
FROM pg_partitioned_table AS p
LEFT JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
WHERE p.partrelid = to_regclass(%(table)s)
"""
_DEFAULT = """
SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_partitioned_table AS p JOIN pg_class AS c ON c.oid = p.partdefid
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE p.partrelid = to_regclass(%(table)s)
"""
_BOUND = re.compile(r"FOR VALUES FROM \((?P<lower>.+)\) TO \((?P<upper>.+)\)")
_COLUMNS = """
SELECT attname::text FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_TRIGGERS = """
SELECT tgname::text, tgenabled::text FROM pg_trigger
WHERE tgrelid = to_regclass(%(table)s) AND tgenabled <> 'D' AND NOT tgisinternal
"""
_TRIGGER_STATES = {"O": "ENABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}

Note = Callable[[Execute], None]
"""Writes into the journal that a step was done, in the step's own transaction."""


@dataclass(frozen=True, slots=True)
class LockPatience:
    """How a lock that makes the application wait is requested: with this timeout, and this number of attempts."""

    lock_seconds: float
    attempts: int = 100
    pause_seconds: float = 0.2
    refused: Callable[[int], None] = lambda _: None
    """Called with the number of failed attempts so far."""


@dataclass(slots=True)
class LockHeld:
    """The longest time that a step held its strongest lock."""

    seconds: float = 0.0
    waits: int = 0
    _since: float | None = field(default=None, init=False)

    def begin(self) -> None:
        self._since = time.monotonic()

    def end(self) -> None:
        if self._since is not None:
            self.seconds = max(self.seconds, time.monotonic() - self._since)
            self._since = None


class Steps:
    """Runs steps over a connection of their own: a step may take long, and leases are renewed beside it."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.held = LockHeld()

    def close(self) -> None:
        self.store.close()

    def read(self, schema: str, name: str, time_column: str) -> tuple[Anatomy | None, list[tuple[str, str]], list[str]]:
        """Read the definition of a table, what prevents partitioning it, and functions that may no longer work."""
        with self.store.transaction() as transaction:
            anatomy, refused = read_anatomy(transaction.execute, schema, name, time_column)
            return anatomy, refused, functions_with_conflicts(transaction.execute, name)

    def read_partitioned(self, schema: str, name: str, time_column: str) -> Anatomy:
        """Read the definition of a table whose partitions the application makes."""
        with self.store.transaction() as transaction:
            return read_partitioned(transaction.execute, schema, name, time_column)

    def leaves(self, schema: str, name: str) -> list[Leaf]:
        """Return the partitions of a table, without the DEFAULT one, ordered by name."""
        with self.store.transaction() as transaction:
            return read_leaves(transaction.execute, schema, name)

    def default_leaf(self, schema: str, name: str) -> str | None:
        """Return the DEFAULT partition of a table, as SQL writes it."""
        with self.store.transaction() as transaction:
            return default_leaf(transaction.execute, f"{quote(schema)}.{quote(name)}")

    def partition_key(self, schema: str, name: str) -> str | None:
        """Return the one column by whose ranges a table is partitioned; None if it is not partitioned.

        Raise StoreError if it is partitioned in another way or has a DEFAULT partition.
        """
        with self.store.transaction() as transaction:
            found = transaction.execute(_KEY, {"table": f"{quote(schema)}.{quote(name)}"})
        if not found:
            return None
        [(strategy, width, column, default)] = found
        if strategy != "r" or width != 1 or column is None:
            raise StoreError(f"{schema}.{name} is not partitioned by ranges of one column", "Wane leaves it alone")
        if default:
            raise StoreError(
                f"{schema}.{name} has a DEFAULT partition, which prevents detaching others concurrently",
                "move its rows, and detach it",
            )
        return str(column)

    def edges(self, table: str, column: str) -> tuple[Any, Any]:
        """Return the earliest and the latest value of a column, as text."""
        with self.store.transaction() as transaction:
            limit_statements(transaction.execute)
            [(first, last)] = transaction.execute(
                doubled(f"SELECT min({quote(column)})::text, max({quote(column)})::text FROM {table}"), {}
            )
        return first, last

    def is_there(self, table: str) -> bool:
        with self.store.transaction() as transaction:
            return self._there(transaction.execute, table)

    def holds_rows(self, table: str) -> bool:
        with self.store.transaction() as transaction:
            return self._holds_rows(transaction.execute, table)

    def count(self, table: str) -> int:
        """Count the rows of a table that is not in use; 0 if it does not exist."""
        with self.store.transaction() as transaction:
            run = transaction.execute
            if not self._there(run, table):
                return 0
            limit_statements(run)
            [(rows,)] = run(doubled(f"SELECT count(*) FROM {table}"), {})
        return int(rows)

    def estimate_beside(self, table: TableInfo, column: Column, states: Sequence[State]) -> int | None:
        """Estimate the number of rows that are in none of some states."""
        rows = rows_of(self.store)
        p = rows.parameters()
        inside = rows.dialect.one_of(p, "states", rows.column(column), column, states) if states else "false"
        text = f"SELECT 1 FROM {rows.dialect.table(table)} AS t WHERE NOT ({inside})"
        return self.store.planner.estimate(p.statement(text))

    def patiently(self, work: Callable[[Transaction], R], patience: LockPatience) -> R:
        """Run one transaction whose locks are requested within a limit; retry on lock contention.

        Raise Locked after the last attempt.
        """
        for attempt in range(1, patience.attempts + 1):
            try:
                with self.store.transaction() as transaction:
                    self._limit(transaction.execute, patience)
                    return work(transaction)
            except Locked:
                if attempt == patience.attempts:
                    raise
                self.held.waits += 1
                patience.refused(attempt)
                # Give the holder of the lock time to finish, and those who queued behind us time to proceed.
                time.sleep(patience.pause_seconds * random.uniform(0.5, 1.5))
            finally:
                self.held.end()
        raise AssertionError("unreachable")

    @contextmanager
    def journaling(self) -> Iterator[PartitionJournal]:
        with self.store.transaction() as transaction:
            yield PartitionJournal(transaction.execute)

    def _limit(self, run: Execute, patience: LockPatience) -> None:
        limit = f"{max(1, round(patience.lock_seconds * 1000))}ms"
        run("SELECT set_config('lock_timeout', %(limit)s, true)", {"limit": limit})

    def _lock(self, transaction: Transaction, tables: Sequence[str], mode: str) -> None:
        for table in dict.fromkeys(tables):
            transaction.execute(doubled(f"LOCK TABLE {table} IN {mode} MODE"), {})
            if self.held._since is None:
                self.held.begin()

    def _position(self, run: Execute, a: Anatomy) -> tuple[Any, ...] | None:
        if a.identity is None:
            return None
        [found] = run(doubled(f"SELECT last_value, is_called FROM {a.identity.name}"), {})
        return found

    def _set_position(self, run: Execute, a: Anatomy, position: tuple[Any, ...] | None) -> None:
        if a.identity is not None and position is not None:
            run(
                "SELECT setval(%(sequence)s::regclass, %(last)s, %(called)s)",
                {"sequence": a.identity.name, "last": position[0], "called": position[1]},
            )

    def _largest(self, run: Execute, a: Anatomy, leaves: Sequence[str]) -> str:
        sizes = [
            (run("SELECT pg_relation_size(%(leaf)s::regclass)", {"leaf": qualified_name(a, leaf)})[0][0], leaf)
            for leaf in leaves
        ]
        return max(sizes)[1]

    def _holds_rows(self, run: Execute, table: str) -> bool:
        return bool(run(doubled(f"SELECT 1 FROM ONLY {table} LIMIT 1"), {}))

    def _there(self, run: Execute, table: str) -> bool:
        return bool(run("SELECT 1 WHERE to_regclass(%(table)s) IS NOT NULL", {"table": table}))

    @contextmanager
    def _quietly(self, run: Execute, *tables: str) -> Iterator[None]:
        """Disable triggers while rows only move between tables.

        The tables are locked, so no one else writes meanwhile.
        """
        switched = [(table, name, enabled) for table in tables for name, enabled in run(_TRIGGERS, {"table": table})]
        for table, name, _ in switched:
            run(doubled(f"ALTER TABLE {table} DISABLE TRIGGER {quote(name)}"), {})
        yield
        for table, name, enabled in switched:
            run(doubled(f"ALTER TABLE {table} {_TRIGGER_STATES[enabled]} TRIGGER {quote(name)}"), {})

    def _columns(self, run: Execute, table: str) -> str:
        """Return the columns that can be written now, quoted."""
        return ", ".join(quote(name) for (name,) in run(_COLUMNS, {"table": table}))

    def _one(self, text: str, parameters: dict[str, object]) -> tuple[Any, ...] | None:
        with self.store.transaction() as transaction:
            found = transaction.execute(text, parameters)
        return found[0] if found else None


def read_leaves(run: Execute, schema: str, name: str) -> list[Leaf]:
    found = run(_LEAVES, {"table": f"{quote(schema)}.{quote(name)}"})
    leaves = []
    for schema_, leaf, bound, pending, rows in found:
        if bound == "DEFAULT":
            continue
        match = _BOUND.fullmatch(bound or "")
        if match is None:
            raise StoreError(f"{schema_}.{leaf} is a partition of another kind: {bound}", "Wane leaves it alone")
        ends = (_literal(end) for end in match.group("lower", "upper"))
        leaves.append(Leaf(schema_, leaf, Range(*ends), pending, None if rows < 0 else rows))
    return leaves


def _literal(end: str) -> str:
    """Return the value of a range's end: PostgreSQL quotes all but MINVALUE, MAXVALUE and small numbers."""
    return end[1:-1].replace("''", "'") if end.startswith("'") else end


def limit_statements(run: Execute, limit: str = "0") -> None:
    """Set how long each statement of a transaction may take; without a limit, as long as it needs."""
    run("SELECT set_config('statement_timeout', %(limit)s, true)", {"limit": limit})


def default_leaf(run: Execute, table: str) -> str | None:
    """Return the DEFAULT partition of a table, as SQL writes it."""
    return next((name for (name,) in run(_DEFAULT, {"table": table})), None)


def named(schema: str, name: str) -> str:
    """Return a table's full name, as holds and the journal write it."""
    return join_name([schema, name])


def doubled(text: str) -> str:
    """Escape percent signs in a text without parameters, for a driver that searches it for placeholders."""
    return text.replace("%", "%%")
