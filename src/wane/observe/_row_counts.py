"""The rows of tables that are too large to be counted at every reading.

Where the planner has statistics, its estimate serves. SQLite has none, so the last snapshot is brought up to date: rows
inserted since have higher numbers, and the audit trail knows what sweeps took since. What is due is counted for a
short time, or estimated from rows picked at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial

from wane._contract.names import TableName
from wane._db.counting import Count, Exactness, rows_up_to
from wane._db.row_numbers import count_after, row_numbers
from wane._db.statement import Statement
from wane._ledger import Ledger
from wane._rules.probes import ProbedTable
from wane._rules.queries import queries_of
from wane._rules.selection import Selection
from wane.observe._reading import PROBE_SECONDS, Reading, attempt
from wane.observe._sql_snapshots import Snapshot, Snapshots, oldest_valid

_MOST_TABLES = 10_000
_MOST_NEW = 10_000
"""New rows are counted up to here."""
_QUICK_ROWS = 10_000
"""Rows are counted up to here before they are estimated, which takes longer than counting as many."""
_PICKED = 2_000
"""Rows that are picked at random."""
_LEAST_FOUND = 100
"""An estimate by so many of them is mostly less than ten percent off; by fewer it could be far off."""
_MOST_ENTRIES = 5_000
"""A snapshot that more entries of the audit trail follow is not brought up to date."""
_SURELY_MANY = 2
"""An estimate of so many times as many rows as are counted before: there are that many."""


@cache
def _points() -> list[float]:
    """Return a random point in each of as many ranges of length 1 as rows are picked."""
    draw = random.Random(0).random
    return [number + draw() for number in range(_PICKED)]


class RowCounts:
    """Counts or estimates the rows of large tables, and large backlogs, within one reading."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._store = reading.store
        self._picked: dict[tuple[tuple[str, str], tuple[str, ...]], int] = {}
        """How many of the rows picked at random are in a table, and how many some of its rules take."""

    def of(self, table: ProbedTable) -> Count:
        """Return the rows of a table that has more than a probe counts."""
        store, most = self._store, self._reading.most
        estimate = attempt(lambda: store.planner.estimate_rows(table.info))
        if estimate is not None and store.kind != "sqlite":  # What SQLite knows is from the last ANALYZE.
            return Count(max(estimate, most), Exactness.ESTIMATE)
        numbers = attempt(lambda: row_numbers(store, table.info))
        if numbers is not None and (rows := self._corrected(table, *numbers)) is not None:
            return Count(max(rows, most), Exactness.ESTIMATE)
        counted = self._counted(table, (), partial(rows_up_to, store, table.info), numbers)
        if counted.exactness is not Exactness.AT_LEAST:
            return counted
        if numbers is not None:
            return Count(numbers[1] - numbers[0] + 1, Exactness.AT_MOST)  # No two rows have the same number.
        return counted if estimate is None else Count(max(estimate, counted.rows), Exactness.ESTIMATE)

    def due(self, table: ProbedTable, selections: Sequence[Selection]) -> Count:
        """Return the due rows of a table that has more of them than a probe counts: counted, estimated, or a bound."""
        store, now, most = self._store, self._reading.now, self._reading.most
        queries = queries_of(store)
        estimate = attempt(lambda: store.planner.estimate(queries.estimate_due(selections, now)))
        if estimate is not None:
            return Count(max(estimate, most), Exactness.ESTIMATE)
        numbers = attempt(lambda: row_numbers(store, table.info))
        return self._counted(table, selections, partial(queries.count_any_due, selections, now), numbers)

    def _counted(
        self,
        table: ProbedTable,
        selections: Sequence[Selection],
        up_to: Callable[[int], Statement],
        numbers: tuple[int, int] | None,
    ) -> Count:
        """Count rows if they are not many; else pick some at random; if that is no answer, count what the time allows.

        Where they were many at the last reading, they are counted only if the picked ones leave that open.
        """
        many = self._reading.many_rows
        key = (table.info.qualified, tuple(one.rule.name for one in selections))
        if numbers is not None and key in many:
            sampled = self._sampled(table, selections, *numbers)
            if sampled is not None and sampled.rows >= _SURELY_MANY * _QUICK_ROWS:
                return sampled
        many.discard(key)
        counted = self._reading.count_on(up_to, _QUICK_ROWS)
        if counted.exactness is Exactness.EXACT:
            return counted
        sampled = None if numbers is None else self._sampled(table, selections, *numbers)
        if sampled is not None:
            many.add(key)
            return replace(sampled, rows=max(sampled.rows, counted.rows))
        return self._reading.count_on(up_to)

    def _sampled(self, table: ProbedTable, selections: Sequence[Selection], first: int, last: int) -> Count | None:
        """Estimate the rows of a table, or those that rules take, by rows picked at random among all row numbers.

        None if too few of them are found. Every row is as likely to be picked as any other.
        """
        key, span = (table.info.qualified, tuple(one.rule.name for one in selections)), last - first + 1
        if key not in self._picked:
            self._pick(table, selections, first, span)
        rows = self._picked.get(key, 0)
        return Count(round(span * rows / min(_PICKED, span)), Exactness.ESTIMATE) if rows >= _LEAST_FOUND else None

    def _pick(self, table: ProbedTable, selections: Sequence[Selection], first: int, span: int) -> None:
        """Pick rows of a table at random, and find for all of its rules at once which they take: finding rows takes
        longest."""
        shared = [(one,) for one in table.selections if not one.per]
        groups = [*shared, table.selections] if table.overlapping and len(shared) == len(table.selections) else shared
        if selections and all(list(group) != list(selections) for group in groups):
            groups = [tuple(selections)]  # A cap per scope takes too long for others to wait for it.
        count = min(_PICKED, span)
        # One in each of as many ranges: the same ones each time, so that the estimate changes only with the table.
        numbers = [first + int(point * span / count) for point in _points()[:count]]
        statement = queries_of(self._store).sample_due(table.info, groups, self._reading.now, numbers)
        found = attempt(lambda: self._store.read(statement, self._reading.left(PROBE_SECONDS)))
        for group, rows in zip([(), *groups], found[0] if found else [], strict=False):
            self._picked[table.info.qualified, tuple(one.rule.name for one in group)] = int(rows)

    def _corrected(self, table: ProbedTable, first: int, last: int) -> int | None:
        """Bring the last snapshot of a table up to date; None if there is none, or too much happened since."""
        saved = self._saved.get(str(TableName(table.info.name, table.info.schema)))
        if saved is None or saved.rows is None or saved.last_row is None or self._taken is None:
            return None
        new = self._new(table, saved.last_row, last)
        return min(saved.rows + new - self._taken.get(str(table.name), 0), last - first + 1)

    def _new(self, table: ProbedTable, before: int, last: int) -> int:
        """Return how many rows were inserted since the last one of a snapshot: counted, or, if they are many, by their
        numbers."""
        store, seconds = self._store, self._reading.left(PROBE_SECONDS)
        found = attempt(lambda: count_after(store, table.info, before, _MOST_NEW, seconds))
        return max(last - before, 0) if found is None or found == _MOST_NEW else found

    @cached_property
    def _saved(self) -> dict[str, Snapshot]:
        """Return the last snapshots by their tables' full names, where they are recent."""
        reading = self._reading
        if not self._store.migrated:
            return {}
        found = attempt(lambda: Snapshots(self._store.dialect).latest(reading.execute, reading.now, _MOST_TABLES))
        oldest = oldest_valid(reading.contract.growth, reading.now)
        return {one.table: one for one in found or [] if one.taken_at >= oldest}

    @cached_property
    def _taken(self) -> dict[str, int] | None:
        """Return what sweeps took of each table since the last snapshots; None if many entries would have to be
        read."""
        since = next((one.last_audit for one in self._saved.values() if one.last_audit is not None), None)
        own = Ledger(self._store.dialect, self._reading.execute)
        if since is None or (last := attempt(own.last_entry)) is None or last - since > _MOST_ENTRIES:
            return None
        return attempt(lambda: own.pruned_after(since))
