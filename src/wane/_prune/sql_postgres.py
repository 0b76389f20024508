"""Taking rows on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from wane._contract.model import ToColdTier
from wane._db.postgres.catalog import LOCKS_PARENT
from wane._db.postgres.gate import ENTER, gates
from wane._db.schema import TableInfo
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._frozen import frozen
from wane._ledger import Ledger
from wane._prune.sql_cold_tier import MonthTable, month_tables
from wane._prune.take import MOST_LOST, Batch, CapEdge, Key, Opening, RowTaker, Taken, gated
from wane._rules.batch_statements import KnownEdgeStatements
from wane._rules.dependencies_postgres import read_stamps
from wane._rules.rows import Rows
from wane._rules.selection import (
    BoundFollower,
    BoundReference,
    Selection,
    follower_paths,
    locked_paths,
    schema_changed,
)
from wane.errors import Locked

_UNPROTECTED = f"""
WITH RECURSIVE referring AS (
    SELECT to_regclass(%(child)s)::oid AS relation
  UNION
    SELECT descendant.inhrelid FROM referring JOIN pg_catalog.pg_inherits AS descendant ON descendant.inhparent = referring.relation
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
"""Returns a row if the referring table, or one of its partitions or inheriting tables, has no foreign key over these
pairs of columns that locks the parent.

Partitions have a copy of their parent's key; tables that inherit do not.
"""
_LOSING = "SHARE ROW EXCLUSIVE"
"""The lock on a table that loses rows itself: two transactions that both have a SHARE lock cannot both go on to
delete."""


class PostgresRowTaker(RowTaker):
    """Takes rows of a PostgreSQL database."""

    def __init__(self, transaction: Transaction, rows: Rows) -> None:
        super().__init__(transaction, rows)
        self._month_table: MonthTable | None = None
        """Where rows are moved that are taken now; None if they are deleted for good."""

    def open_batch(self, selection: Selection) -> Opening:
        """Open a batch in one statement.

        The flags are read before it waits at the gate, as if they were read first.
        """
        ledger = Ledger.of(self.transaction)
        found = self.transaction.execute(
            f"WITH gate AS MATERIALIZED ({ENTER}) SELECT clock_timestamp(), flag.* FROM (SELECT count(*) FROM gate) AS entered"
            f" LEFT JOIN ({ledger.all_flags}) AS flag ON true",
            gates(gated(selection)),
        )
        clock = found[0][0]
        assert isinstance(clock, datetime)
        return Opening(ledger.read_flags(row[1:] for row in found if row[1] is not None), clock.astimezone(UTC))

    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        rule = self.statements(selection)
        lock = rule.lock_unlocked if skip_locked else rule.lock
        assert lock is not None
        locked = self.transaction.read(rule.fill(lock, selection, keys=keys))
        for one in rule.lock_times if locked else ():
            self.transaction.read(rule.fill(one, selection, keys=locked))
        return locked

    def lock_spared(self, selection: Selection, keys: list[Key]) -> set[Key]:
        rule = self.statements(selection)
        if rule.lock_spared is None:
            return set()
        statement, before = rule.fill(rule.lock_spared, selection, keys=keys), None
        for _ in range(MOST_LOST):
            found = self.transaction.read(statement)
            # What a statement locked after waiting may have changed since it was read. Once two agree, all are locked.
            if found == before:
                return {tuple(key) for key in found}
            before = found
        raise Locked(
            f"{selection.name}: the newest rows of it, which stay, changed at every attempt", "try again later"
        )

    def lock_followers(self, selection: Selection, keys: list[Key]) -> bool:
        rule, paths = self.statements(selection), locked_paths(selection)
        self._close(closing_followers(self.rows, selection))
        for one in sorted(rule.followers, key=lambda one: len(one.path)):
            if one.lock is not None:
                self.transaction.read(rule.fill(one.lock, selection, keys=keys))
        return bool(paths)

    def close_references(self, selection: Selection) -> bool:
        return self._close(closing_references(self.rows, selection))

    def _close(self, closings: Sequence[Closing]) -> bool:
        """Lock the referring tables of references that no foreign key protects; return whether there are any."""
        locks = {one.lock.text: one.lock for one in self._unprotected(closings)}
        for lock in locks.values():
            self.transaction.read(lock)
        return bool(locks)

    def locks_tables(self, selection: Selection) -> bool:
        return bool(self._unprotected(closing_references(self.rows, selection)))

    def _unprotected(self, closings: Sequence[Closing]) -> list[Closing]:
        return [one for one in closings if one.protected is None or not self.transaction.read(one.protected)[0][1]]

    def require_bound(self, selection: Selection) -> None:
        if set(self.transaction.read_often(read_stamps(selection))) != selection.dependencies.stamps:
            raise schema_changed(selection, "columns, keys, triggers or descendants were added, changed or dropped")

    def take(self, batch: Batch) -> Taken:
        selection, rule = batch.selection, self.statements(batch.selection)
        most, taken = min(batch.limit, batch.most), 0
        closed = self.close_references(selection)
        if batch.slice_rows:
            return self._take_slice(replace(batch, skip_locked=batch.skip_locked or closed))
        if rule.take_range is None or batch.skip_locked:
            skip = batch.skip_locked or closed
            return self._take_locked(replace(batch, limit=most, skip_locked=skip))
        if rule.edge is not None and rule.known_edge is not None and batch.swept:
            known = self._take_before_edge(replace(batch, limit=most), rule.edge, rule.known_edge)
            if isinstance(known, Taken):
                return known
            taken = known
        floor, done = batch.floor, False
        for _ in range(MOST_LOST):
            limit = most - taken
            [(count, found, *end)] = self.transaction.read(
                rule.fill(rule.take_range, selection, batch.now, limit=limit, floor=floor)
            )
            # It takes fewer than it found if another transaction was faster: its own snapshot is from before that one's
            # commit.
            done = found < limit
            taken, floor = taken + count, tuple(end) if found else floor
            if done or taken == most:
                break
        return Taken({str(selection.name): taken}, floor, done=done)

    def _take_before_edge(self, batch: Batch, find: Statement, known: KnownEdgeStatements) -> Taken | int:
        """Take rows beyond a cap, whose edge is found only once while no other transaction ends.

        If one has ended since it was found, return how many rows were taken: then a statement that finds it decides
        about the rest of the batch.
        """
        selection, rule = batch.selection, self.statements(batch.selection)
        [(ended,)], edge = self.transaction.read(known.ended), batch.edge
        if edge is None or edge.version != ended:
            found = self.transaction.read(rule.fill(find, selection, batch.now))
            if not found:
                return Taken({str(selection.name): 0}, batch.floor, done=True)
            edge = CapEdge(found[0][:-1], ended := found[0][-1])
        position = edge.position
        ends = self.transaction.read(
            rule.fill(known.end, selection, batch.now, limit=batch.limit, floor=batch.floor, edge=position)
        )
        end = ends[0] if ends else position
        last = not ends or end == position
        taken = self.transaction.change(
            rule.fill(known.take, selection, batch.now, floor=batch.floor, end=end, edge=position, ended=ended)
        )
        if taken > batch.limit:
            raise Locked(f"{selection.name}: a hold ended while rows were taken; nothing was changed", "try again")
        if (last or taken < batch.limit) and self.transaction.read(known.ended) != [(ended,)]:
            return taken
        # This transaction will have ended too.
        return Taken({str(selection.name): taken}, end, done=last, edge=CapEdge(position, ended + 1, end))

    def take_chosen(self, selection: Selection, now: datetime, keys: list[Key]) -> dict[str, int]:
        if not isinstance(selection.rule.action, ToColdTier):
            return super().take_chosen(selection, now, keys)
        counts: Counter[str] = Counter()
        for month_table, some in month_tables(self.transaction, self.rows, selection, keys):
            with self._moving_to(month_table):
                counts.update(super().take_chosen(selection, now, some))
        return dict(counts)

    def take_some_followers(self, batch: Batch, key: Key) -> dict[str, int]:
        if not isinstance(batch.selection.rule.action, ToColdTier):
            return super().take_some_followers(batch, key)
        [(month_table, _)] = month_tables(self.transaction, self.rows, batch.selection, [key])
        with self._moving_to(month_table):
            return super().take_some_followers(batch, key)

    @contextmanager
    def _moving_to(self, month_table: MonthTable) -> Iterator[None]:
        self._month_table = month_table
        try:
            yield
        finally:
            self._month_table = None

    def delete_rows(self, table: TableInfo, statement: Statement) -> int:
        if self._month_table is not None:
            statement = self._month_table.copying(table, statement)
        return self.transaction.change(statement)


@frozen
class Closing:
    """A lock on a table whose rows refer to rows that leave: only that prevents new references where no key does."""

    protected: Statement | None
    """Whether the foreign key that was reflected still protects, as the second output; if so, it stays until the
    transaction has ended. None: there was none."""
    lock: Statement


def closing_references(rows: Rows, selection: Selection) -> list[Closing]:
    """Return what prevents new references to the rule's rows, before any row is locked."""
    guards = [(selection.table, guard) for guard in selection.guards]
    other = selection.other_time
    if other is not None and other.in_child:
        guards.append((selection.table, other.reference))
    # A transaction that writes a live follower may have to lock its row in order to commit.
    live = _steps(selection, [path for path in follower_paths(selection) if path[-1].live])
    return [*_closings(rows, guards, "SHARE"), *_closings(rows, live, _LOSING)]


def closing_followers(rows: Rows, selection: Selection) -> list[Closing]:
    """Return what prevents new references to followers, before those are locked."""
    return _closings(rows, _steps(selection, locked_paths(selection)), _LOSING)


def _closings(rows: Rows, references: Sequence[tuple[TableInfo, BoundReference]], mode: str) -> list[Closing]:
    return [
        Closing(
            _protection(rows, parent, reference) if reference.enforced else None,
            Statement(f"LOCK TABLE {rows.dialect.table(reference.table)} IN {mode} MODE", {}),
        )
        for parent, reference in sorted(references, key=lambda one: one[1].table.qualified)
    ]


def _protection(rows: Rows, parent: TableInfo, reference: BoundReference) -> Statement:
    pairs = zip(reference.columns, reference.to, strict=True)
    child, above = (rows.dialect.table(table) for table in (reference.table, parent))
    # Naming the table takes a lock before the catalog is read, and no key can be dropped under that lock.
    return Statement(
        f"SELECT (SELECT count(*) FROM (SELECT 1 FROM {child} LIMIT 0) AS kept), NOT EXISTS ({_UNPROTECTED})",
        {
            "child": child.replace("%%", "%"),
            "parent": above.replace("%%", "%"),
            "pairs": sorted(f"{mine.name} to {theirs.name}" for mine, theirs in pairs),
        },
    )


def _steps(selection: Selection, paths: Sequence[Sequence[BoundFollower]]) -> list[tuple[TableInfo, BoundReference]]:
    """Return every reference on the path to some followers, with the table that it refers to."""
    steps = [
        (path[number - 1].reference.table if number else selection.table, one.reference)
        for path in paths
        for number, one in enumerate(path)
    ]
    return list(dict.fromkeys(steps))
