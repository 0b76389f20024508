"""How old the rows of one table are: a histogram of its time column, from all rows or from a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from wane._contract.lookup import find_table
from wane._contract.model import Contract
from wane._db import Store
from wane._db.counting import Exactness, count_rows, sample, sample_spread
from wane._db.timestamps import read_time
from wane._rules.rows import cutoff
from wane._rules.selection import Selection, bind_rule

_MOST_READ = 5_000
_BUCKETS = 40


@dataclass(frozen=True, slots=True)
class AgeBucket:
    """Rows whose time is from `since` until before `until`."""

    since: datetime
    until: datetime
    rows: int


@dataclass(frozen=True, slots=True)
class AgeHistogram:
    """The times of a table's rows, as one of its rules reads them."""

    table: str
    rule: str
    column: str
    now: datetime
    cutoff: datetime | None
    """Rows are due before it; for an expiry, at or before it. A cap has none."""
    exact: bool
    """Whether all rows were read; if not, `buckets` count a sample."""
    rows: int
    """The rows that were read."""
    without_time: int
    """Of those, the rows whose time is missing or not plausible."""
    buckets: tuple[AgeBucket, ...]
    """Oldest first."""


def read_ages(store: Store, contract: Contract, name: str, seconds: float) -> AgeHistogram | None:
    """Read the histogram of a table; None if none of its rules fits the database and ages by one column."""
    table, schema, now = find_table(contract, name), store.reflect(), store.now()
    for rule in table.rules:
        selection = bind_rule(contract, table, rule, schema, store.types)[0] if rule.active else None
        if selection is not None and selection.one_time:
            values, exact = _read(store, selection, seconds)
            times = sorted(time for value in values if (time := read_time(value, selection.time)) is not None)
            column, ending = selection.time_column.name, cutoff(rule, now)
            without = len(values) - len(times)
            buckets = tuple(_buckets(times))
            return AgeHistogram(name, rule.name, column, now, ending, exact, len(values), without, buckets)
    return None


def _read(store: Store, selection: Selection, seconds: float) -> tuple[list[object], bool]:
    table, column = selection.table, selection.time_column
    count = count_rows(store, table, seconds)
    known = None if count is None else count.rows
    if count is not None and count.exactness is Exactness.EXACT and count.rows <= _MOST_READ:
        values = sample(store, table, column, _MOST_READ, seconds, known)
        return values, len(values) == known
    return sample_spread(store, table, store.dialect.quote(column.name), _MOST_READ, seconds, known), False


def _buckets(times: Sequence[datetime]) -> list[AgeBucket]:
    if not times:
        return []
    first, step = times[0], max((times[-1] - times[0]) / _BUCKETS, (times[-1] - times[0]).resolution)
    counts = [0] * _BUCKETS
    for time in times:
        counts[min(int((time - first) / step), _BUCKETS - 1)] += 1
    return [AgeBucket(first + step * n, first + step * (n + 1), rows) for n, rows in enumerate(counts)]
