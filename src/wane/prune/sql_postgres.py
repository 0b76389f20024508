"""Taking rows on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from wane.contract.model import Mark, Shelve
from wane.db.postgres.catalog import LOCKS_PARENT
from wane.db.postgres.gate import ENTER, gates
from wane.db.schema import TableInfo
from wane.db.statement import Statement
from wane.db.transaction import Transaction
from wane.ledger import Ledger
from wane.prune.sql_cold_tier import Shelf, preview_shelving, shelves
from wane.prune.taking import MOST_LOST, Batch, Key, Opening, Position, Taken, Taking, preview_locked
from wane.rules.relied_postgres import read_stamps
from wane.rules.rows import Rows
from wane.rules.selection import BoundFollower, BoundReference, Selection, follower_paths, locked_paths, schema_changed

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
"""Returns a row if the referring table, or one of its partitions or inheriting tables, has no foreign key over these
pairs of columns that locks the parent.

Partitions have a copy of their parent's key; tables that inherit do not.
"""
_LOSING = "SHARE ROW EXCLUSIVE"
"""The lock on a table that loses rows itself: two transactions that both have a SHARE lock cannot both go on to
delete."""


class PostgresTaking(Taking):
    """Takes rows of a PostgreSQL database."""

    def __init__(self, transaction: Transaction, rows: Rows) -> None:
        super().__init__(transaction, rows)
        self._shelf: Shelf | None = None
        """Where rows are moved that are taken now; None if they are deleted for good."""

    def open_batch(self, tables: Sequence[TableInfo]) -> Opening:
        """Open a batch in one statement.

        The flags are read before it waits at the gate, as if they were read first.
        """
        ledger = Ledger.of(self.transaction)
        found = self.transaction.execute(
            f"WITH gate AS MATERIALIZED ({ENTER}) SELECT clock_timestamp(), flag.* FROM (SELECT count(*) FROM gate) AS entered"
            f" LEFT JOIN ({ledger.all_flags}) AS flag ON true",
            gates(tables),
        )
        clock = found[0][0]
        assert isinstance(clock, datetime)
        return Opening(ledger.read_flags(row[1:] for row in found if row[1] is not None), clock.astimezone(UTC))

    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        p = self.rows.parameters()
        where = self.rows.among(p, selection, keys)
        outputs = ", ".join(self.rows.dialect.encode_key(self.rows.column(column)) for column in selection.key)
        how = "FOR UPDATE OF t SKIP LOCKED" if skip_locked else "FOR UPDATE OF t"
        # All pruners lock in the same order, so that two of them wait for each other once at most.
        order = ", ".join(self.rows.position(selection, "t"))
        return self.transaction.execute(
            f"SELECT {outputs} FROM {self.rows.dialect.table(selection.table)} AS t WHERE {where} ORDER BY {order} {how}",
            p.values,
        )

    def lock_followers(self, selection: Selection, keys: list[Key]) -> bool:
        paths = locked_paths(selection)
        self.close(_steps(selection, paths), _LOSING)
        for path in paths:
            self.transaction.read(self.rows.lock_followers(selection, path, keys))
        return bool(paths)

    def close_references(self, selection: Selection) -> bool:
        closed = self.close([(selection.table, guard) for guard in selection.saved_by], "SHARE")
        # Before any row is locked: a transaction that writes a live follower may have to lock its row in order to
        # commit.
        return (
            self.close(_steps(selection, [path for path in follower_paths(selection) if path[-1].live]), _LOSING)
            or closed
        )

    def close(self, references: Sequence[tuple[TableInfo, BoundReference]], mode: str) -> bool:
        """Lock the referring tables of references that no foreign key protects; return whether there are any.

        Each reference comes with the table that it refers to. Only a lock on its table prevents new references to a row
        while it leaves.
        """
        tables = sorted(
            {
                self.rows.dialect.table(reference.table)
                for parent, reference in references
                if not (reference.enforced and self._is_protected(parent, reference))
            }
        )
        if tables:
            self.transaction.execute(f"LOCK TABLE {', '.join(tables)} IN {mode} MODE", {})
        return bool(tables)

    def _is_protected(self, parent: TableInfo, reference: BoundReference) -> bool:
        protection = self.protection(parent, reference)
        [(_, protected)] = self.transaction.execute(protection.text, protection.parameters)
        return bool(protected)

    def protection(self, parent: TableInfo, reference: BoundReference) -> Statement:
        """Write the query whether the foreign key that was reflected still protects, as the second output.

        If so, it stays until the transaction has ended.
        """
        pairs = zip(reference.columns, reference.to, strict=True)
        child, above = (self.rows.dialect.table(table) for table in (reference.table, parent))
        # Naming the table takes a lock before the catalog is read, and no key can be dropped under that lock.
        return Statement(
            f"SELECT (SELECT count(*) FROM (SELECT 1 FROM {child} LIMIT 0) AS kept), NOT EXISTS ({_UNPROTECTED})",
            {
                "child": child.replace("%%", "%"),
                "parent": above.replace("%%", "%"),
                "pairs": sorted(f"{mine.name} to {theirs.name}" for mine, theirs in pairs),
            },
        )

    def require_bound(self, selection: Selection) -> None:
        if set(self.transaction.read(read_stamps(selection))) != selection.relied.stamps:
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
        """Take the oldest due rows behind a position; return how many it took, how many it found, and where they end.

        It takes fewer than it found if another transaction was faster: its own snapshot is from before that one's
        commit.
        """
        # Holds are rare, and checking every row for one is expensive: first as if there were none, and if there are, or
        # nothing is due, again.
        for held in (False, True):
            statement = self.rows.take_range(selection, now, limit, floor, held=held)
            [(count, found, *end)] = self.transaction.execute(statement.text, statement.parameters)
            if found:
                return count, found, tuple(end)
        return 0, 0, floor

    def take_chosen(self, selection: Selection, now: datetime, keys: list[Key], *, held: bool = True) -> dict[str, int]:
        if not isinstance(selection.rule.action, Shelve):
            return super().take_chosen(selection, now, keys, held=held)
        counts: Counter[str] = Counter()
        for shelf, some in shelves(self.transaction, self.rows, selection, keys):
            with self._onto(shelf):
                counts.update(super().take_chosen(selection, now, some, held=held))
        return dict(counts)

    def take_some_followers(self, batch: Batch, key: Key) -> dict[str, int]:
        if not isinstance(batch.selection.rule.action, Shelve):
            return super().take_some_followers(batch, key)
        [(shelf, _)] = shelves(self.transaction, self.rows, batch.selection, [key])
        with self._onto(shelf):
            return super().take_some_followers(batch, key)

    @contextmanager
    def _onto(self, shelf: Shelf) -> Iterator[None]:
        self._shelf = shelf
        try:
            yield
        finally:
            self._shelf = None

    def delete_rows(self, table: TableInfo, statement: Statement) -> int:
        return self.transaction.change(statement if self._shelf is None else self._shelf.copying(table, statement))


def takes_by_key(selection: Selection) -> bool:
    """Return whether a rule's rows are read and locked before they are taken: see Taking._take_locked.

    Marks too: a trigger may leave a row as it was, which is noticed only if the intended rows are known.
    """
    moves = isinstance(selection.rule.action, Mark | Shelve)
    return moves or bool(selection.followers or selection.saved_by or selection.watched)


def _steps(selection: Selection, paths: Sequence[Sequence[BoundFollower]]) -> list[tuple[TableInfo, BoundReference]]:
    """Return every reference on the path to some followers, with the table that it refers to."""
    steps = [
        (path[number - 1].reference.table if number else selection.table, one.reference)
        for path in paths
        for number, one in enumerate(path)
    ]
    return list(dict.fromkeys(steps))


def preview(rows: Rows, selection: Selection, now: datetime, limit: int) -> list[Statement]:
    """Return the statements that would take the oldest due rows."""
    if isinstance(selection.rule.action, Shelve):
        return preview_shelving(rows, selection, preview_locked(rows, selection, now, limit))
    if takes_by_key(selection):
        return preview_locked(rows, selection, now, limit)
    return [rows.take_range(selection, now, limit)]
