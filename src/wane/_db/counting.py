"""Counting and sampling rows of a table within a time limit.

A count states how exact it is, and so does every number that is made of counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

from wane._contract.model import State
from wane._db.row_numbers import row_numbers
from wane._db.schema import Column, TableInfo
from wane._db.statement import Parameters, Statement
from wane._db.store import Store
from wane._frozen import frozen
from wane.errors import Locked, StoreError, TimedOut, Unreachable

TOO_LONG = (TimedOut, Locked)
"""The errors of a bounded read that exceeds its limit; the caller falls back to a cheaper read."""
READ_SECONDS = 2.0
"""The longest that one read of a plan may take, unless its caller chooses."""
REVIEW_SECONDS = 60.0
"""The time limit of a count that an approval depends on: a user waits for it."""
_COUNTED_ROWS = 1_000_000
"""Tables with a larger estimated row count are not counted."""


_FIRST_SLICE = 100
_SLICE_GROWTH = 10
"""A slice counts the rows of the one before again, which costs a ninth more in all."""


class Exactness(StrEnum):
    """How much a count can be trusted."""

    EXACT = "exact"
    ESTIMATE = "estimate"
    AT_LEAST = "at least"
    AT_MOST = "at most"


@frozen
class Count:
    """A number of rows, and how much it can be trusted."""

    rows: int
    exactness: Exactness = Exactness.EXACT


def as_count(number: int | None, *, exact: bool) -> Count | None:
    """Return a number as a count: exact, or an estimate; None if it is unknown."""
    return None if number is None else Count(number, Exactness.EXACT if exact else Exactness.ESTIMATE)


@frozen
class Figure:
    """A number that is made of counts, such as a share or a duration, and how much it can be trusted."""

    value: float
    exactness: Exactness = Exactness.EXACT


_SHARES = {
    (Exactness.EXACT, Exactness.EXACT): Exactness.EXACT,
    (Exactness.EXACT, Exactness.ESTIMATE): Exactness.ESTIMATE,
    (Exactness.ESTIMATE, Exactness.EXACT): Exactness.ESTIMATE,
    (Exactness.ESTIMATE, Exactness.ESTIMATE): Exactness.ESTIMATE,
    (Exactness.AT_LEAST, Exactness.EXACT): Exactness.AT_LEAST,
    (Exactness.AT_LEAST, Exactness.AT_MOST): Exactness.AT_LEAST,
    (Exactness.EXACT, Exactness.AT_MOST): Exactness.AT_LEAST,
    (Exactness.EXACT, Exactness.AT_LEAST): Exactness.AT_MOST,
}
"""How exact a share is by its two counts. Of the others, such as a lower bound of an estimate, nothing is known."""


def share_of(part: Count | None, rows: Count | None) -> Figure | None:
    """Return which share of the rows a part is; None if its counts allow neither a number nor a bound."""
    if part == Count(0):
        return Figure(0.0)
    exactness = None if part is None or rows is None else _SHARES.get((part.exactness, rows.exactness))
    if part is None or rows is None or exactness is None:
        return None
    share = min(part.rows / rows.rows, 1.0) if rows.rows else float(part.rows > 0)
    return Figure(round_bound(share, exactness, 4), exactness)


def round_bound(value: float, exactness: Exactness, digits: int) -> float:
    """Round a number; a bound is rounded away from what it bounds, so that it stays one."""
    scale = float(10**digits)
    if exactness is Exactness.AT_LEAST:
        return math.floor(value * scale) / scale
    if exactness is Exactness.AT_MOST:
        return math.ceil(value * scale) / scale
    return round(value, digits)


def sum_counts(counts: Iterable[Count | None]) -> Count:
    """Add up counts. Where one is missing or a lower bound, so is the sum; an estimate adds nothing to a lower
    bound."""
    known = list(counts)
    kinds = {None if one is None else one.exactness for one in known}
    if kinds & {None, Exactness.AT_LEAST}:
        sure = (Exactness.EXACT, Exactness.AT_LEAST)
        return Count(sum(one.rows for one in known if one is not None and one.exactness in sure), Exactness.AT_LEAST)
    total = sum(one.rows for one in known if one is not None)
    return Count(total, Exactness.EXACT if kinds <= {Exactness.EXACT} else Exactness.ESTIMATE)


def count_union(together: Count | None, each: Sequence[Count | None]) -> Count | None:
    """Return the rows of several overlapping counts, each row once, from what could be found out about all of them.

    They may share any of their rows, so the largest number is there at least, and the sum at most.
    """
    known = [one for one in each if one is not None]
    if together is None or len(known) < len(each) or together.exactness is Exactness.EXACT:
        return together
    if together.exactness is Exactness.ESTIMATE:
        most, least = sum(one.rows for one in known), max(one.rows for one in known)
        return Count(min(max(together.rows, least), most), Exactness.ESTIMATE)
    sure = (one.rows for one in known if one.exactness is not Exactness.ESTIMATE)
    return Count(max(together.rows, *sure), Exactness.AT_LEAST)


def stated(name: str, number: Count | Figure | None) -> dict[str, Any]:
    """Return a number and how exact it is as two entries of a report: `due` and `due_exactness`."""
    value = number.rows if isinstance(number, Count) else None if number is None else number.value
    return {name: value, f"{name}_exactness": None if number is None else number.exactness.value}


def stated_each(name: str, numbers: Mapping[Any, Count | None]) -> dict[str, Any]:
    """Return numbers by a name, and how exact each is, as two entries of a report: `followers` and
    `followers_exactness`."""
    each = {key: stated("number", number) for key, number in numbers.items()}
    return {
        name: {key: one["number"] for key, one in each.items()},
        f"{name}_exactness": {key: one["number_exactness"] for key, one in each.items()},
    }


def read_stated(report: Mapping[str, Any], name: str) -> Any:
    """Return a number of a report with its exactness as the fields of a Count, by name if there are several."""
    value, exactness = report.get(name), report.get(f"{name}_exactness")
    if isinstance(value, dict):
        known = exactness if isinstance(exactness, dict) else {}
        return {key: read_stated({"one": one, "one_exactness": known.get(key)}, "one") for key, one in value.items()}
    return None if value is None else {"rows": value, "exactness": exactness}


def count_rows(store: Store, table: TableInfo, seconds: float) -> Count | None:
    """Count the rows of a table: exactly if that is quick, else return the database's own estimate."""
    believed = table.rows_estimate
    if believed is not None and believed > _COUNTED_ROWS:
        return Count(believed, Exactness.ESTIMATE)
    # Not count(*): SQLite answers that in one step, which no time limit can interrupt.
    statement = Statement(f"SELECT count(1) FROM {store.dialect.table(table)}", {})
    counted = count(store, statement, seconds)
    if counted is None and believed is not None:
        return Count(believed, Exactness.ESTIMATE)
    return counted


def bound_rows(store: Store, table: TableInfo) -> Count | None:
    """Return how many rows a table has at the most, where the store numbers them; None if that is unknown."""
    numbers = row_numbers(store, table)
    return None if numbers is None else Count(numbers[1] - numbers[0] + 1, Exactness.AT_MOST)


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
        fresh = store.planner.estimate(Statement(f"SELECT 1 FROM {store.dialect.table(table)}", {}))
    except StoreError:
        fresh = None
    rows = believed if fresh is None else fresh
    return None if rows is None else Count(rows, Exactness.ESTIMATE)


def has_more_rows_than(store: Store, table: TableInfo, limit: int, seconds: float) -> bool | None:
    """Check whether a table has more than `limit` rows, without counting all of them; None if that takes too long."""
    p = Parameters(store.dialect)
    text = f"SELECT 1 FROM {store.dialect.table(table)} LIMIT 1 OFFSET {p.bind('limit', limit)}"
    try:
        return bool(store.read(p.statement(text), seconds))
    except TOO_LONG:
        return None


def count_some_rows(store: Store, table: TableInfo, most: int, seconds: float) -> int:
    """Count the rows of a table, up to `most`; raise TimedOut if that takes longer."""
    [(rows,)] = store.read(rows_up_to(store, table, most), seconds)
    return int(rows)


def rows_up_to(store: Store, table: TableInfo, most: int) -> Statement:
    """Write the query that counts the rows of a table, up to `most`."""
    p = Parameters(store.dialect)
    some = f"SELECT 1 FROM {store.dialect.table(table)} LIMIT {p.bind('n', most)}"
    return p.statement(f"SELECT count(*) FROM ({some}) AS some_rows")


def count(
    store: Store,
    exact: Statement,
    seconds: float,
    *,
    planned: Statement | None = None,
    up_to: Callable[[int], Statement] | None = None,
) -> Count | None:
    """Count rows; if that takes too long, estimate them, or count at least some of them; None if nothing is known.

    The planner estimates the rows of `planned`, by default those of the statement itself; `up_to` writes the count
    that stops at a number of rows.
    """
    try:
        [(rows,)] = store.read(exact, seconds)
        return Count(rows)
    except TOO_LONG:
        pass
    with suppress(*TOO_LONG):
        estimate = store.planner.estimate(planned or exact)
        if estimate is not None:
            return Count(estimate, Exactness.ESTIMATE)
    return None if up_to is None else count_in_slices(store, up_to, _FIRST_SLICE, seconds)


def count_in_slices(
    store: Store, up_to: Callable[[int], Statement], first: int, seconds: float, last: int | None = None
) -> Count | None:
    """Count up to `first` rows, then up to ever more of them, until the time is up, `last` are found, or all were
    counted.

    The last count that finished is a lower bound; None if none did.
    """
    end, found = time.monotonic() + seconds, None
    most = first
    while found is None or (time.monotonic() < end and (last is None or most <= last)):
        try:
            [(rows,)] = store.read(up_to(most), max(end - time.monotonic(), 0.0))
        except TOO_LONG:
            break
        if rows < most:
            return Count(rows)
        found, most = Count(rows, Exactness.AT_LEAST), most * _SLICE_GROWTH
    return found


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
    p = Parameters(store.dialect)
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
    values = [] if few else sample_spread(store, table, name, limit, seconds, known)
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


def sample_spread(
    store: Store, table: TableInfo, name: str, limit: int, seconds: float, known: int | None
) -> list[object]:
    """Return some values of a quoted column, spread evenly over the table; nothing where that cannot be done in
    time."""
    try:
        source = store.dialect.spread(table, limit, store.planner.estimate_rows(table) if known is None else known)
        return [value for (value,) in store.read(Statement(f"SELECT {name} FROM {source} AS s", {}), seconds)]
    except Unreachable:
        raise
    except StoreError:  # It takes too long, or the table numbers no rows; plain reads report anything else.
        return []


@frozen
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
    source = dialect.table(table) if limit is None else dialect.spread(table, limit, store.planner.estimate_rows(table))
    missing = "0" if time is None else f"count(*) - count({dialect.quote(time.name)})"
    if state is None:
        text = f"SELECT NULL, count(*), {missing} FROM {source} AS s"
    else:
        by = dialect.bytewise(dialect.quote(state.name), state)
        text = f"SELECT {by}, count(*), {missing} FROM {source} AS s GROUP BY {by} ORDER BY count(*) DESC, 1"
    return [StateShare(*row) for row in store.read(Statement(text, {}), seconds)]
