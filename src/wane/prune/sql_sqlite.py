"""Taking rows on SQLite.

The transaction holds the write lock from its first statement, so nothing changes between read and delete.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from wane.contract.model import Cap, Mark
from wane.db.sqlite.ddl import fires_on_delete
from wane.db.sqlite.reflect import TEMPORARY_TRIGGERS, VERSION, fold
from wane.db.statement import Statement
from wane.prune.taking import Batch, Key, Taken, Taking, preview_locked
from wane.rules.rows import Rows
from wane.rules.selection import Selection, losing, schema_changed


class SqliteTaking(Taking):
    """Takes rows of a SQLite database."""

    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        return keys

    def require_bound(self, selection: Selection) -> None:
        [(version,)] = self.transaction.execute(VERSION, {})
        if version != selection.relied.version:
            raise schema_changed(selection, "tables, indexes or triggers were created, changed or dropped")
        # Only a caller's connection has any. They fire for its own statements alone, so reflection does not see them.
        tables = {fold(table.name) for table in losing(selection)}
        for name, table, text in self.transaction.execute(TEMPORARY_TRIGGERS, {}):
            if fold(table) in tables and fires_on_delete(text):
                raise schema_changed(selection, f"the connection has a temporary trigger, {name}, on {table}")

    def take(self, batch: Batch) -> Taken:
        selection = batch.selection
        most = min(batch.limit, batch.most)
        # No hold can be placed while this transaction has the write lock.
        held = bool(self.transaction.read(self.rows.anything_held(selection)))
        if takes_up_to(selection) and not held:
            return self._take_up_to(replace(batch, limit=most))
        if takes_by_key(selection):
            return self._take_locked(replace(batch, limit=most, skip_locked=False, held=held))
        count = self.transaction.change(self.rows.take_oldest(selection, batch.now, most))
        return Taken({str(selection.name): count}, None, done=count < most)

    def _take_up_to(self, batch: Batch) -> Taken:
        """Find where the batch ends, then take everything due up to there.

        No other transaction writes in between, so the number of rows is the same.
        """
        selection = batch.selection
        ends = self.transaction.read(self.rows.end_of_batch(selection, batch.now, batch.limit, batch.floor))
        end = ends[0] if ends else None
        count = self.transaction.change(self.rows.take_up_to(selection, batch.now, batch.floor, end))
        return Taken({str(selection.name): count}, end, done=end is None)


def takes_up_to(selection: Selection) -> bool:
    """Return whether a rule's rows can be taken by their position alone, if nothing of their table is held.

    No two rows may have the same position, as keys do that differ by case only. What is beyond a cap shifts while rows
    leave.
    """
    marks, caps = isinstance(selection.rule.action, Mark), isinstance(selection.rule.bound, Cap)
    loose = any(column.collation is not None for column in selection.key)
    return not (marks or caps or loose or selection.followers or selection.watched)


def takes_by_key(selection: Selection) -> bool:
    """Return whether a rule's rows are read before they are taken.

    That is to find their followers, to check that a trigger retained none, or to know where a batch ended: rows that a
    guard saves stay in front, and every batch would walk over all of them again.
    """
    marks = isinstance(selection.rule.action, Mark)
    return marks or bool(selection.followers or selection.saved_by or selection.watched)


def preview(rows: Rows, selection: Selection, now: datetime, limit: int) -> list[Statement]:
    """Return the statements that would take the oldest due rows."""
    if takes_up_to(selection):
        end = ("…",) * len(rows.places(selection))
        return [rows.end_of_batch(selection, now, limit), rows.take_up_to(selection, now, None, end)]
    if takes_by_key(selection):
        return preview_locked(rows, selection, now, limit)
    return [rows.take_oldest(selection, now, limit)]
