"""A transaction on PostgreSQL, at READ COMMITTED: every statement sees what was committed before it began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from wane.contract.model import Mark, Shelve
from wane.errors import StoreError
from wane.store.due import hold_names, qualified
from wane.store.postgres.cold import Shelf, shelves
from wane.store.postgres.reflect import LOCKS_PARENT
from wane.store.postgres.relied import read_stamps
from wane.store.postgres.settings import SAFE_SETTINGS, set_locally
from wane.store.rows import Rows
from wane.store.schema import TableInfo
from wane.store.selection import BoundFollower, BoundReference, Selection, follower_paths, locked_paths
from wane.store.statement import Statement
from wane.store.transaction import (
    MOST_LOST,
    Batch,
    Key,
    Opening,
    Position,
    Taken,
    Transaction,
    schema_changed,
    unwritten,
)

_GATE = 0x77616E65
"""The space of advisory locks that Wane uses; they end with the transaction, so connection poolers do not disturb them."""

_LOCAL_SETTINGS = {
    **SAFE_SETTINGS,
    "lock_timeout": "200ms",
    "statement_timeout": "30s",
    # Batches are short; compiling them would take longer than running them.
    "jit": "off",
}
_ENTER = "SELECT pg_advisory_xact_lock_shared(%(gate)s, hashtext(name)) FROM unnest(%(tables)s::text[]) AS gates(name)"
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
"""The columns of a table. `xmin` does not change in its rows when a column is dropped and added again, two columns swap their names, an
enum's label or a composite type changes, or a column's expression does; what stands here does. The catalogue's own `xmin` sees what was
changed and changed back."""
_UNPROTECTED = f"""
WITH RECURSIVE referring AS (
    SELECT to_regclass(%(child)s)::oid AS relation
  UNION
    SELECT heir.inhrelid FROM referring JOIN pg_catalog.pg_inherits AS heir ON heir.inhparent = referring.relation
)
SELECT 1 FROM referring WHERE NOT EXISTS (
  SELECT FROM pg_catalog.pg_constraint AS key
  WHERE key.contype = 'f' AND key.conrelid = referring.relation AND key.confrelid = to_regclass(%(parent)s)
    AND {LOCKS_PARENT}
    AND %(pairs)s::text[] = ARRAY(
      SELECT (mine.attname || ' to ' || theirs.attname)::text COLLATE "C"
      FROM unnest(key.conkey, key.confkey) AS pair(mine, theirs)
      JOIN pg_catalog.pg_attribute AS mine ON mine.attrelid = key.conrelid AND mine.attnum = pair.mine
      JOIN pg_catalog.pg_attribute AS theirs ON theirs.attrelid = key.confrelid AND theirs.attnum = pair.theirs
      ORDER BY 1))
"""
"""A row if the referring table, or one of its partitions or heirs, has no foreign key over these pairs of columns that locks the parent.

Partitions have a copy of their parent's key; tables that inherit do not.
"""
# Under any other level the second look would see what the first one saw.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_LOSING = "SHARE ROW EXCLUSIVE"
"""The lock on a table that loses rows itself: two transactions that both have a SHARE lock cannot both go on to delete."""
_GATE_WAIT = "10s"
"""How long a hold waits for the batches inside the gate to end: longer than any of them waits for others."""


class PostgresTransaction(Transaction):
    """One transaction on a psycopg connection."""

    def __init__(self, connection: psycopg.Connection[Any], rows: Rows) -> None:
        self.rows = rows
        self.last_words: Statement | None = None
        """What is still to be run, with the commit."""
        self._cursor = connection.cursor(row_factory=tuple_row)
        self._shelf: Shelf | None = None
        """Where rows go that are taken now; None if they go for good."""

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        self._cursor.execute(text.encode(), parameters)
        return self._cursor.fetchall() if self._cursor.description else []

    def change(self, statement: Statement) -> int:
        return self._cursor.execute(statement.text.encode(), statement.parameters).rowcount

    def run_last_words(self) -> None:
        if self.last_words is not None:
            self.change(self.last_words)
            self.last_words = None

    def commit(self, connection: psycopg.Connection[Any]) -> None:
        if self.last_words is None or not psycopg.Pipeline.is_supported():
            self.run_last_words()
            connection.commit()
            return
        try:
            with connection.pipeline():
                # If the first fails, the server does not look at the second.
                self.run_last_words()
                connection.commit()
        except psycopg.errors.DivisionByZero as problem:
            raise unwritten() from problem

    def now(self) -> datetime:
        [(moment,)] = self.execute("SELECT clock_timestamp()", {})
        assert isinstance(moment, datetime)
        return moment.astimezone(UTC)

    def clock(self) -> datetime | None:
        return None

    def columns(self, table: TableInfo) -> list[tuple[str, str]]:
        found = self.execute(
            "SELECT attname::text, pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute"
            " WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            {"table": self.rows.dialect.table(table).replace("%%", "%")},
        )
        return [(name, kind) for name, kind in found]

    def layout(self, table: TableInfo) -> list[list[str]]:
        name = self.rows.dialect.table(table).replace("%%", "%")
        return [list(column) for column in self.execute(_LAYOUT, {"table": name})]

    def enter(self, tables: Sequence[TableInfo]) -> None:
        self.execute(_ENTER, _gates(tables))

    def open_batch(self, tables: Sequence[TableInfo]) -> Opening:
        """All of it in one statement. The flags are read before it waits at the gate, as if they were read first."""
        own = self.own
        found = self.execute(
            f"WITH gate AS MATERIALIZED ({_ENTER}) SELECT clock_timestamp(), flag.* FROM (SELECT count(*) FROM gate) AS entered"
            f" LEFT JOIN ({own.all_flags}) AS flag ON true",
            _gates(tables),
        )
        clock = found[0][0]
        assert isinstance(clock, datetime)
        return Opening(own.read_flags(row[1:] for row in found if row[1] is not None), clock.astimezone(UTC))

    def finish(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        # It fails if there is nothing to change: a server that crashed may have lost what earlier batches wrote.
        self.last_words = Statement(
            f"WITH changed AS ({text} RETURNING 1) SELECT 1 / count(*) FROM changed", dict(parameters)
        )
        return []

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

    def lock_followers(self, selection: Selection, keys: list[Key]) -> bool:
        paths = locked_paths(selection)
        self.close(_steps(selection, paths), _LOSING)
        for path in paths:
            self._read(self.rows.lock_followers(selection, path, keys))
        return bool(paths)

    def close_references(self, selection: Selection) -> bool:
        closed = self.close([(selection.table, guard) for guard in selection.saved_by], "SHARE")
        # Before any row is locked: whoever writes a live follower may have to lock its row in order to commit.
        return (
            self.close(_steps(selection, [path for path in follower_paths(selection) if path[-1].live]), _LOSING)
            or closed
        )

    def close(self, references: Sequence[tuple[TableInfo, BoundReference]], mode: str) -> bool:
        """Lock the referring tables of references, each with what it refers to, that no foreign key protects; return whether there are any.

        Nothing but a lock on its table keeps others from referring to a row while it leaves.
        """
        tables = sorted(
            {
                self.rows.dialect.table(reference.table)
                for parent, reference in references
                if not (reference.enforced and self._is_protected(parent, reference))
            }
        )
        if tables:
            self.execute(f"LOCK TABLE {', '.join(tables)} IN {mode} MODE", {})
        return bool(tables)

    def _is_protected(self, parent: TableInfo, reference: BoundReference) -> bool:
        protection = self.protection(parent, reference)
        [(_, protected)] = self.execute(protection.text, protection.parameters)
        return bool(protected)

    def protection(self, parent: TableInfo, reference: BoundReference) -> Statement:
        """Whether the foreign key that the schema had when it was read still protects, as the second output; if so, it stays until the
        transaction has ended."""
        pairs = zip(reference.columns, reference.to, strict=True)
        child, above = (self.rows.dialect.table(table) for table in (reference.table, parent))
        # Naming the table takes a lock before the catalog is read, and no key can be dropped against that.
        return Statement(
            f"SELECT (SELECT count(*) FROM (SELECT 1 FROM {child} LIMIT 0) AS kept), NOT EXISTS ({_UNPROTECTED})",
            {
                "child": child.replace("%%", "%"),
                "parent": above.replace("%%", "%"),
                "pairs": sorted(f"{mine.name} to {theirs.name}" for mine, theirs in pairs),
            },
        )

    def require_bound(self, selection: Selection) -> None:
        if set(self._read(read_stamps(selection))) != selection.relied.stamps:
            raise schema_changed(selection, "columns, keys, triggers or heirs were added, changed or dropped")

    def take(self, batch: Batch) -> Taken:
        selection = batch.selection
        most = min(batch.limit, batch.most)
        closed = self.close_references(selection)
        if takes_by_key(selection) or batch.skip_locked:
            skip = batch.skip_locked or closed
            return self._take_locked(replace(batch, limit=most, skip_locked=skip))
        taken, floor, done = 0, batch.floor, False
        for _ in range(MOST_LOST):
            count, found, end = self._take_range(selection, batch.now, most - taken, floor)
            done = found < most - taken
            taken, floor = taken + count, end
            if done or taken == most:
                break
        return Taken({str(selection.name): taken}, floor, done=done)

    def _take_range(
        self, selection: Selection, now: datetime, limit: int, floor: Position | None
    ) -> tuple[int, int, Position | None]:
        """Take the oldest due rows behind a position: how many it took, how many it found, and where they end.

        It takes fewer than it found if another transaction was faster: its own snapshot is from before that one's commit.
        """
        # Holds are rare, and asking of every row whether one is on it is dear: first as if there were none, and if there are, or nothing
        # is due, again.
        for held in (False, True):
            statement = self.rows.take_range(selection, now, limit, floor, held=held)
            [(count, found, *end)] = self.execute(statement.text, statement.parameters)
            if found:
                return count, found, tuple(end)
        return 0, 0, floor

    def take_chosen(self, selection: Selection, now: datetime, keys: list[Key], *, held: bool = True) -> dict[str, int]:
        if not isinstance(selection.rule.action, Shelve):
            return super().take_chosen(selection, now, keys, held=held)
        counts: Counter[str] = Counter()
        for shelf, some in shelves(self, selection, keys):
            with self._onto(shelf):
                counts.update(super().take_chosen(selection, now, some, held=held))
        return dict(counts)

    def take_some_followers(self, batch: Batch, key: Key) -> dict[str, int]:
        if not isinstance(batch.selection.rule.action, Shelve):
            return super().take_some_followers(batch, key)
        [(shelf, _)] = shelves(self, batch.selection, [key])
        with self._onto(shelf):
            return super().take_some_followers(batch, key)

    @contextmanager
    def _onto(self, shelf: Shelf) -> Iterator[None]:
        self._shelf = shelf
        try:
            yield
        finally:
            self._shelf = None

    def let_go(self, table: TableInfo, statement: Statement) -> int:
        return self.change(statement if self._shelf is None else self._shelf.copying(table, statement))


def takes_by_key(selection: Selection) -> bool:
    """Whether a rule's rows are looked up and locked before they are taken: see Transaction._take_locked.

    Marks too: a trigger may keep a row as it was, and only who knows which rows were meant notices.
    """
    moves = isinstance(selection.rule.action, Mark | Shelve)
    return moves or bool(selection.followers or selection.saved_by or selection.watched)


def _steps(selection: Selection, paths: Sequence[Sequence[BoundFollower]]) -> list[tuple[TableInfo, BoundReference]]:
    """Every reference on the way to some followers, with the table that it refers to."""
    steps = [
        (path[number - 1].reference.table if number else selection.table, one.reference)
        for path in paths
        for number, one in enumerate(path)
    ]
    return list(dict.fromkeys(steps))


def _gates(tables: Sequence[TableInfo]) -> dict[str, object]:
    names = dict.fromkeys(name for table in tables for name in hold_names(table))
    return {"gate": _GATE, "tables": sorted(names)}


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
def beginning(
    connection: psycopg.Connection[Any], rows: Rows, *, durable: bool, read_only: bool
) -> Iterator[PostgresTransaction]:
    """A transaction of its own: all or nothing. What can go to the server together does: a batch is short, and the way there is not."""
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        with connection.transaction():
            transaction = PostgresTransaction(connection, rows)
            yield transaction
            transaction.run_last_words()
        return
    access = "READ ONLY" if read_only else "READ WRITE"
    settings = _LOCAL_SETTINGS if durable else {**_LOCAL_SETTINGS, "synchronous_commit": "off"}
    with opened(connection, f"{_BEGIN} {access}; {set_locally(settings)}"):
        transaction = PostgresTransaction(connection, rows)
        yield transaction
        transaction.commit(connection)


@contextmanager
def inside(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """A savepoint inside the caller's transaction, whose settings come back as they were."""
    if not connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        # The caller's connection opens transactions by itself: let it, so that the commit is the caller's.
        connection.execute("SELECT 1")
    with connection.transaction():
        cursor = connection.cursor(row_factory=tuple_row)
        names = list(_LOCAL_SETTINGS)
        _require_read_committed(cursor)
        asked = ", ".join(f"pg_catalog.current_setting('{name}')" for name in names)
        [before] = cursor.execute(f"SELECT {asked}".encode()).fetchall()
        cursor.execute(set_locally(_LOCAL_SETTINGS).encode())
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
