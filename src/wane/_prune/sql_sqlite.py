"""Taking rows on SQLite.

The transaction holds the write lock from its first statement, so nothing changes between read and delete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from wane._db.sqlite.ddl import fires_on_delete
from wane._db.sqlite.dialect import HostClock, at_one_time
from wane._db.sqlite.reflect import TEMPORARY_TRIGGERS, VERSION, fold
from wane._db.statement import Statement
from wane._ledger import Ledger
from wane._prune.take import Batch, CapEdge, Key, Opening, Position, RowTaker, Taken, deletion_prevented
from wane._rules.batch_statements import RangeStatements
from wane._rules.selection import Selection, losing, schema_changed
from wane.errors import Locked

_CHANGES = "SELECT data_version, total_changes() FROM pragma_data_version"
"""Returns a number that is another one when other connections have committed a change, and how many rows this one has
changed: other threads may use it between two batches."""
_SPARE_FOLLOWERS = 1.05
"""Rows may have more followers than those before; a range that does not fit is read twice."""


class SqliteRowTaker(RowTaker):
    """Takes rows of a SQLite database."""

    def open_batch(self, selection: Selection) -> Opening:
        # There is one writer at a time, so there is no gate to enter.
        return Opening(Ledger.of(self.transaction).flags(), self.transaction.now())

    def lock(self, selection: Selection, keys: list[Key], *, skip_locked: bool) -> list[Key]:
        return keys

    def require_bound(self, selection: Selection) -> None:
        [(version,)] = self.transaction.execute(VERSION, {})
        if version != selection.dependencies.version:
            raise schema_changed(selection, "tables, indexes or triggers were created, changed or dropped")
        # Only a caller's connection has any. They fire for its own statements alone, so reflection does not see them.
        for name, table, text in self.transaction.execute(TEMPORARY_TRIGGERS, {}):
            if fold(table) in {fold(one.name) for one in losing(selection)} and fires_on_delete(text):
                raise schema_changed(selection, f"the connection has a temporary trigger, {name}, on {table}")

    def take(self, batch: Batch) -> Taken:
        if batch.skip_locked or batch.limit > batch.most:
            batch = replace(batch, limit=min(batch.limit, batch.most), skip_locked=False)
        if batch.slice_rows:
            return self._take_slice(batch)
        rule = self.statements(batch.selection)
        if rule.unheld is not None and rule.unheld.followers:
            return self._take_with_followers(batch, rule.unheld)
        if rule.unheld is None or rule.batch_end is None or rule.take_range is None:
            return self._take_locked(batch)
        edge = None if rule.edge is None else self._edge(batch, rule.edge)
        if rule.edge is not None and edge is None:
            return Taken({str(batch.selection.name): 0}, batch.floor, done=True)
        taken = self._take_range(batch, rule.unheld.end, rule.unheld.take, edge)
        # Nothing is due, or something of the table is held.
        return taken if any(taken.counts.values()) else self._take_range(batch, rule.batch_end, rule.take_range, edge)

    def _edge(self, batch: Batch, find: Statement) -> CapEdge | None:
        """Find the first row that a cap excludes, unless no other connection has changed anything since it was found.

        What this one took since is beyond it. None if the cap excludes no row.
        """
        [version] = self.transaction.execute(_CHANGES, {})
        if batch.edge is not None and batch.edge.version == version:
            return batch.edge
        found = self.transaction.read(self.statements(batch.selection).fill(find, batch.selection, batch.now))
        return CapEdge(found[0], version) if found else None

    def _behind(self, edge: CapEdge, floor: Position | None) -> CapEdge:
        """Return the edge as the next batch may use it: this one changes nothing more than its audit row."""
        [(others, own)] = self.transaction.execute(_CHANGES, {})
        return replace(edge, version=(others, own + 1), floor=floor)

    def _take_range(self, batch: Batch, find: Statement, take: Statement, edge: CapEdge | None) -> Taken:
        """Find where the batch ends, and take everything due up to there.

        No other transaction writes in between, so only a hold that ends can add rows.
        """
        selection, rule, floor = batch.selection, self.statements(batch.selection), batch.floor
        beyond = None if edge is None else edge.position
        limit, ahead = batch.limit, batch.repeated
        find = rule.fill(find, selection, batch.now, limit=limit, floor=floor, edge=beyond, ahead=ahead)
        ends = self.transaction.read(find)
        end = ends[0] if ends else None
        last = end or (beyond if rule.ends_at_edge else None)
        taken = self.transaction.change(rule.fill(take, selection, batch.now, floor=floor, end=last, edge=beyond))
        if taken > batch.limit:
            raise Locked(f"{selection.name}: a hold ended while rows were taken; nothing was changed", "try again")
        known = None if edge is None else self._behind(edge, end or floor)
        # Where texts sort differently from the times they mean, rows behind the edge may be before it in an index.
        done = end is None or (rule.ends_at_edge and end == beyond)
        return Taken({str(selection.name): taken}, end, done=done, edge=known)

    def _take_with_followers(self, batch: Batch, ranges: RangeStatements) -> Taken:
        """Take ranges of rows with everything that follows them, until the batch is full.

        Rows are read by their keys if something is held, or if one row has more followers than fit.
        """
        counts: Counter[str] = Counter()
        own, floor, done = str(batch.selection.name), batch.floor, False
        followers = float(len(ranges.followers)) if batch.followers is None else batch.followers * _SPARE_FOLLOWERS
        while not done:
            rows_left = batch.most - counts.total()
            limit = min(batch.limit - counts[own], max(1, int(rows_left / (1 + followers))))
            if rows_left < batch.least_rows or limit <= 0:
                break
            taken = self._take_fitting(replace(batch, limit=limit, most=rows_left, floor=floor), ranges)
            if taken is None and counts:
                break
            if taken is None:
                return self._take_locked(batch)
            counts.update(taken.counts)
            floor, done = taken.floor, taken.done
            followers = counts.total() / counts[own] - 1
        return Taken(dict(counts), floor, done=done)

    def _take_fitting(self, batch: Batch, ranges: RangeStatements) -> Taken | None:
        """Take one range of rows with their followers; fewer rows if all of them do not fit. None if not even one
        does."""
        selection, rule = batch.selection, self.statements(batch.selection)
        # No hold may end between two of the statements.
        limit, clock = batch.limit, str(HostClock())
        while True:
            find = rule.fill(ranges.end, selection, batch.now, limit=limit, floor=batch.floor)
            ends = self.transaction.read(at_one_time(find, clock))
            end = ends[0] if ends else None

            def fill(statement: Statement, end: Position | None = end) -> Statement:
                return at_one_time(rule.fill(statement, selection, batch.now, floor=batch.floor, end=end), clock)

            # Without an end, something is held, or these are the last rows: the count decides.
            if batch.repeated and end is not None:
                return self._take_uncounted(batch, ranges, fill, end)
            assert ranges.count is not None
            [counted] = self.transaction.read(fill(ranges.count))
            if not counted[0]:
                return None
            if sum(counted) <= batch.most:
                break
            if limit == 1:
                return None
            limit = max(1, min(limit // 2, int(limit * batch.most / sum(counted))))
        counts: Counter[str] = Counter()
        for name, statement in ranges.followers:
            counts[name] += self.transaction.change(fill(statement))
        counts[str(selection.name)] += self.transaction.change(fill(ranges.take))
        if counts.total() != sum(counted) or counts[str(selection.name)] != counted[0]:
            raise deletion_prevented(f"{selection.name}: {sum(counted)} rows were to leave, but {counts.total()} did")
        return Taken(dict(counts), end or batch.floor, done=end is None)

    def _take_uncounted(
        self, batch: Batch, ranges: RangeStatements, fill: Callable[[Statement], Statement], end: Position | None
    ) -> Taken | None:
        """Take one range of rows with their followers; raise if that is more than fits. None if nothing is due.

        Nothing changes between two statements, so all of them find the same rows.
        """
        counts: Counter[str] = Counter()
        for name, statement in (*ranges.followers, (str(batch.selection.name), ranges.take)):
            counts[name] += self.transaction.change(fill(statement))
        if counts.total() > batch.most:
            raise Locked(f"{batch.selection.name}: rows have more followers than those before", "try again")
        return Taken(dict(counts), end or batch.floor, done=end is None) if counts.total() else None
