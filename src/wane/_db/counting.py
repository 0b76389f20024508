"""Counting and sampling rows of a table within a time limit. A count says how much it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from wane._contract.model import State
from wane._db.schema import Column, TableInfo
from wane._db.statement import Statement
from wane._db.store import Store
from wane.errors import Locked, StoreError, TimedOut, Unreachable

TOO_LONG = (TimedOut, Locked)
"""The errors of a bounded read that exceeds its limit; the caller falls back to a cheaper read."""
READ_SECONDS = 2.0
"""The longest that one read of a plan may take, unless its caller chooses."""
REVIEW_SECONDS = 60.0
"""The time limit of a count that an approval depends on: a user waits for it."""
_COUNTED_ROWS = 1_000_000
"""Tables with a larger estimated row count are not counted."""


class Exactness(StrEnum):
    """How much a count can be trusted."""

    EXACT = "exact"
    ESTIMATE = "estimate"
    AT_LEAST = "at least"


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows, and how much it can be trusted."""

    rows: int
    exactness: Exactness = Exactness.EXACT


def count_rows(store: Store, table: TableInfo, seconds: float) -> Count | None:
    """Count the rows of a table: exactly if that is quick, else return the database's own estimate."""
    believed = table.rows_estimate
    if believed is not None and believed > _COUNTED_ROWS:
        return Count(believed, Exactness.ESTIMATE)
    # Not count(*): SQLite answers that in one step, which no time limit can interrupt.
    statement = Statement(f"SELECT count(1) FROM {store.dialect.table(table)}", {})
    counted = count(store, statement, (), seconds)
    if counted is None and believed is not None:
        return Count(believed, Exactness.ESTIMATE)
    return counted


def measure_rows(store: Store, table: TableInfo, seconds: float) -> Count | None:
    """Count like count_rows, but bring the database's estimate up to date with the table's present size."""
    believed = table.rows_estimate
    try:
        if believed is None or believed <= _COUNTED_ROWS:
            counted = count_rows(store, table, seconds)
            if counted is None or counted.exactness is Exactness.EXACT:
                return counted
    except StoreError:
        pass  # A role may see how large a table is without being able to read it.
    try:
        fresh = store.estimate(Statement(f"SELECT 1 FROM {store.dialect.table(table)}", {}))
    except StoreError:
        fresh = None
    rows = believed if fresh is None else fresh
    return None if rows is None else Count(rows, Exactness.ESTIMATE)


def has_more_rows_than(store: Store, table: TableInfo, limit: int, seconds: float) -> bool | None:
    """Check whether a table has more than `limit` rows, without counting all of them; None if that takes too long."""
    p = store.parameters()
    text = f"SELECT 1 FROM {store.dialect.table(table)} LIMIT 1 OFFSET {p.bind('limit', limit)}"
    try:
        return bool(store.read(p.statement(text), seconds))
    except TOO_LONG:
        return None


def count_some_rows(store: Store, table: TableInfo, most: int, seconds: float) -> int:
    """Count the rows of a table, up to `most`; raise TimedOut if that takes longer."""
    p = store.parameters()
    some = f"SELECT 1 FROM {store.dialect.table(table)} LIMIT {p.bind('n', most)}"
    [(rows,)] = store.read(p.statement(f"SELECT count(*) FROM ({some}) AS some_rows"), seconds)
    return int(rows)


def count(store: Store, exact: Statement, probes: Sequence[Statement], seconds: float) -> Count | None:
    try:
        [(rows,)] = store.read(exact, seconds)
        return Count(rows)
    except TOO_LONG:
        pass
    with suppress(*TOO_LONG):
        estimate = store.estimate(exact)
        if estimate is not None:
            return Count(estimate, Exactness.ESTIMATE)
    for probe in probes:
        with suppress(*TOO_LONG):
            return Count(len(store.read(probe, seconds)), Exactness.AT_LEAST)
    return None


def distinct(store: Store, table: TableInfo, column: Column, limit: int, seconds: float) -> list[State | None] | None:
    """Return the distinct values of a column, at most `limit` of them; None if that would take too long.

    With an index that starts with the column, this hops from value to value, however large the table is.
    """
    # A column may compare its texts case-insensitively; states are distinguished by their bytes, which no index orders.
    loose = column.collation is not None and store.kind == "sqlite"
    indexed = not loose and any(
        i.columns[:1] == (column.name,) and i.predicate is None and i.method == "btree" and i.valid
        for i in table.indexes
    )
    name, source = store.dialect.quote(column.name), store.dialect.table(table)
    p = store.parameters()
    n = p.bind("n", limit)
    hop = (
        f"WITH RECURSIVE hop(v) AS (SELECT * FROM (SELECT min({name}) FROM {source}) AS f UNION ALL"
        f" SELECT (SELECT min({name}) FROM {source} WHERE {name} > hop.v) FROM hop WHERE hop.v IS NOT NULL)"
        f" SELECT v FROM hop WHERE v IS NOT NULL LIMIT {n}"
    )
    # min() supports neither booleans nor every enum on PostgreSQL; those have few values, but a table may have many
    # rows.
    plain = f"SELECT DISTINCT {store.dialect.bytewise(name, column)} FROM {source} WHERE {name} IS NOT NULL LIMIT {n}"
    nothing = f"SELECT 1 FROM {source} WHERE {name} IS NULL LIMIT 1"
    try:
        values = store.read(p.statement(hop if indexed and column.type != "boolean" else plain), seconds)
        missing = store.read(Statement(nothing, {}), seconds)
    except TOO_LONG:
        return None
    return [value for (value,) in values] + ([None] if missing else [])


def sample(
    store: Store, table: TableInfo, column: Column, limit: int, seconds: float, known: int | None = None
) -> list[object]:
    """Return some values of a column: from all parts of the table, and from both ends where an index leads with it.

    `known` is the number of the table's rows, if it was counted.
    """
    name, source = store.dialect.quote(column.name), store.dialect.table(table)
    few = known is not None and known <= limit
    values = [] if few else _sample_spread(store, table, name, limit, seconds, known)
    reads = []
    if few or len(values) < limit // 4:  # Rows have no numbers, or numbers with large gaps.
        ends = [("", limit)] if few else _ends(store, table, limit)
        reads += [f"SELECT {name} FROM {source}{order} LIMIT {rows}" for order, rows in ends]
    if not few and any(index.columns[:1] == (column.name,) and index.method == "btree" for index in table.indexes):
        reads += [
            f"SELECT {name} FROM {source} WHERE {name} IS NOT NULL ORDER BY {name} {way} LIMIT {limit}"
            for way in ("ASC", "DESC")
        ]
    for text in reads:
        with suppress(*TOO_LONG):
            values += [value for (value,) in store.read(Statement(text, {}), seconds)]
    return values


def _ends(store: Store, table: TableInfo, limit: int) -> list[tuple[str, int]]:
    """Return how to read the first and the last rows by the key, and how many of each; of no key, the first rows."""
    keys = [store.dialect.quote(one) for one in table.primary_key]
    if not keys:
        return [("", limit)]
    first, last = (f" ORDER BY {', '.join(f'{key} {way}' for key in keys)}" for way in ("ASC", "DESC"))
    return [(first, limit - limit // 2), (last, limit // 2)]


def _sample_spread(
    store: Store, table: TableInfo, name: str, limit: int, seconds: float, known: int | None
) -> list[object]:
    try:
        source = store.dialect.spread(table, limit, store.estimate_rows(table) if known is None else known)
        return [value for (value,) in store.read(Statement(f"SELECT {name} FROM {source} AS s", {}), seconds)]
    except Unreachable:
        raise
    except StoreError:  # It takes too long, or the table numbers no rows; plain reads report anything else.
        return []


@dataclass(frozen=True, slots=True)
class StateShare:
    """How many rows of a table, or of a sample of it, are in one state, and how many of those have no time."""

    state: State | None
    rows: int
    without_time: int


def state_shares(
    store: Store, table: TableInfo, state: Column | None, time: Column | None, limit: int | None, seconds: float
) -> list[StateShare]:
    """Count the rows by state, of the whole table or of a sample; raise TimedOut if that takes longer.

    Without a state column, all rows are counted together.
    """
    dialect = store.dialect
    source = dialect.table(table) if limit is None else dialect.spread(table, limit, store.estimate_rows(table))
    missing = "0" if time is None else f"count(*) - count({dialect.quote(time.name)})"
    if state is None:
        text = f"SELECT NULL, count(*), {missing} FROM {source} AS s"
    else:
        by = dialect.bytewise(dialect.quote(state.name), state)
        text = f"SELECT {by}, count(*), {missing} FROM {source} AS s GROUP BY {by} ORDER BY count(*) DESC, 1"
    return [StateShare(*row) for row in store.read(Statement(text, {}), seconds)]
