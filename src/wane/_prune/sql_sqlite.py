"""Taking rows on SQLite.

The transaction holds the write lock from its first statement, so nothing changes between read and delete.
"""

from __future__ import annotations

from dataclasses import replace

from wane._db.sqlite.ddl import fires_on_delete
from wane._db.sqlite.reflect import TEMPORARY_TRIGGERS, VERSION, fold
from wane._prune.take import Batch, Key, RowTaker, Taken
from wane._rules.selection import Selection, losing, schema_changed
from wane.errors import Locked


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
        batch = replace(batch, limit=min(batch.limit, batch.most))
        selection, rule = batch.selection, self.statements(batch.selection)
        if rule.batch_end is None or rule.take_range is None:
            return self._take_locked(replace(batch, skip_locked=False))
        # No other transaction writes between finding the end and taking, so only a hold that ends in between can add rows.
        find = rule.fill(rule.batch_end, selection, batch.now, limit=batch.limit, floor=batch.floor)
        ends = self.transaction.read(find)
        end = ends[0] if ends else None
        take = rule.fill(rule.take_range, selection, batch.now, floor=batch.floor, end=end)
        taken = self.transaction.change(take)
        if taken > batch.limit:
            raise Locked(f"{selection.name}: a hold ended while rows were taken; nothing was changed", "try again")
        return Taken({str(selection.name): taken}, end, done=end is None)
