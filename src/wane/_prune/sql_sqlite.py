"""Taking rows on SQLite.

The transaction holds the write lock from its first statement, so nothing changes between read and delete.
"""

from __future__ import annotations

from dataclasses import replace

from wane._db.sqlite.ddl import fires_on_delete
from wane._db.sqlite.reflect import TEMPORARY_TRIGGERS, VERSION, fold
from wane._db.statement import Statement
from wane._prune.take import Batch, CapEdge, Key, RowTaker, Taken
from wane._rules.selection import Selection, losing, schema_changed
from wane.errors import Locked

_CHANGED_BY_OTHERS = "PRAGMA data_version"
"""Returns a number that changes when another connection has committed a change."""


class SqliteRowTaker(RowTaker):
    """Takes rows of a SQLite database."""

    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        return keys

    def require_bound(self, selection: Selection) -> None:
        [(version,)] = self.transaction.execute(VERSION, {})
        if version != selection.dependencies.version:
            raise schema_changed(selection, "tables, indexes or triggers were created, changed or dropped")
        # Only a caller's connection has any. They fire for its own statements alone, so reflection does not see them.
        tables = {fold(table.name) for table in losing(selection)}
        for name, table, text in self.transaction.execute(TEMPORARY_TRIGGERS, {}):
            if fold(table) in tables and fires_on_delete(text):
                raise schema_changed(selection, f"the connection has a temporary trigger, {name}, on {table}")

    def take(self, batch: Batch) -> Taken:
        if batch.skip_locked or batch.limit > batch.most:
            batch = replace(batch, limit=min(batch.limit, batch.most), skip_locked=False)
        if batch.slice_rows:
            return self._take_slice(batch)
        rule = self.statements(batch.selection)
        if rule.unheld is None or rule.batch_end is None or rule.take_range is None:
            return self._take_locked(batch)
        edge = None if rule.edge is None else self._edge(batch, rule.edge)
        if rule.edge is not None and edge is None:
            return Taken({str(batch.selection.name): 0}, batch.floor, done=True)
        taken = self._take_range(batch, *rule.unheld, edge)
        # Nothing is due, or something of the table is held.
        return taken if any(taken.counts.values()) else self._take_range(batch, rule.batch_end, rule.take_range, edge)

    def _edge(self, batch: Batch, find: Statement) -> CapEdge | None:
        """Find the first row that a cap excludes, unless no other connection has changed anything since it was found.

        What this one took since is beyond it. None if the cap excludes no row.
        """
        [(version,)] = self.transaction.execute(_CHANGED_BY_OTHERS, {})
        if batch.edge is not None and batch.edge.version == version:
            return batch.edge
        found = self.transaction.read(self.statements(batch.selection).fill(find, batch.selection, batch.now))
        return CapEdge(found[0], version) if found else None

    def _take_range(self, batch: Batch, find: Statement, take: Statement, edge: CapEdge | None) -> Taken:
        """Find where the batch ends, and take everything due up to there.

        No other transaction writes in between, so only a hold that ends can add rows.
        """
        selection, rule, floor = batch.selection, self.statements(batch.selection), batch.floor
        beyond = None if edge is None else edge.position
        ends = self.transaction.read(rule.fill(find, selection, batch.now, limit=batch.limit, floor=floor, edge=beyond))
        end = ends[0] if ends else None
        last = end or (beyond if rule.ends_at_edge else None)
        taken = self.transaction.change(rule.fill(take, selection, batch.now, floor=floor, end=last, edge=beyond))
        if taken > batch.limit:
            raise Locked(f"{selection.name}: a hold ended while rows were taken; nothing was changed", "try again")
        known = None if edge is None else replace(edge, floor=end or floor)
        return Taken({str(selection.name): taken}, end, done=end is None, edge=known)
