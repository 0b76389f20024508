"""How a rule reaches its rows: in the order of time, or, where no index has that order, by the table's key.

An index that leads with the right columns serves a rule whatever its rows are (`wane._rules.indexes`). Any other may
serve a table as it is now: a state that nearly all rows have needs no column of its own in an index. So the query plan
of the statement that finds the rows decides, once a table has enough rows for the planner to choose. Where none serves,
small tables are read whole, and large ones are walked by their key: nothing reads a large table in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from wane._contract.model import Cap, ToArchive
from wane._db import Store
from wane._db.queryplan import QueryPlan
from wane._db.schema import Column, TableInfo
from wane._db.statement import Parameters, Statement
from wane._findings import Severity
from wane._rules.indexes import (
    earlier_columns,
    has_reference_index,
    has_time_index,
    is_ordered,
    serves,
    unserved,
    wanted_columns,
)
from wane._rules.report import Report, rule_path
from wane._rules.rows import rows_of
from wane._rules.rule_statements import statements_of
from wane._rules.selection import BoundFollower, BoundReference, Selection, follower_paths
from wane.errors import StoreError, Unreachable

LARGE = 100_000
"""From this many rows on, no batch reads the whole table."""
_LEAST_PLANNED = 1_000
"""Of tables with fewer rows, planners read all of them, whatever indexes there are; and so may batches."""
_BATCH_ROWS = 500
_SMALL_SHARE = 0.1
"""A statement that costs less than this share of reading the whole table is bounded, however it finds its rows."""

RowCount = Callable[[TableInfo], int | None]
"""Returns the approximate number of rows of a table; None if that is unknown."""


def check_indexes(
    store: Store, selection: Selection, rows: RowCount, report: Report, *, large_only: bool = False
) -> None:
    """Report a rule that would read whole tables, or whole large ones, with the statements that create the indexes."""

    def concerned(table: TableInfo) -> bool:
        return not large_only or is_large(rows(table))

    # Counting may take a while: only where no index serves by its columns.
    if concerned(selection.table) and not has_time_index(selection, store.dialect, store.kind):
        count = rows(selection.table)
        if not _plan_reaches(store, selection, count):
            small = count is not None and count < _LEAST_PLANNED and not is_large(count)
            severity = Severity.NOTE if small else _severity(selection, count)
            for message, fix in _missing(store, selection, count):
                report.add(severity, "no-index", selection.name, rule_path(selection), message, fix)
    if selection.rule.spare is not None and not large_only:
        _check_spared(store, selection, report)
    for parent, reference, where in _references(selection):
        if not concerned(reference.table) or has_reference_index(reference):
            continue
        count = rows(reference.table)
        if not _plan_finds(store, parent, reference, where, count):
            names = ", ".join(column.name for column in reference.columns)
            report.add(
                _severity(selection, count),
                "no-reference-index",
                selection.name,
                rule_path(selection),
                f"no index of {reference.table.name} starts with {names}, so every row that leaves reads all of it",
                store.dialect.index_ddl(reference.table, reference.columns, None),
            )


def _check_spared(store: Store, selection: Selection, report: Report) -> None:
    """Report a rule whose newest rows no index finds by their scope."""
    counted = replace(selection, per=selection.spared_per)
    if not any(serves(index, counted, store.kind) for index in selection.table.indexes):
        report.add(
            Severity.WARNING,
            "no-spare-index",
            selection.name,
            rule_path(selection),
            "no index finds the newest rows, which the rule spares, so every row that is old enough reads many others",
            store.dialect.index_ddl(selection.table, wanted_columns(counted, store.kind), selection.time_column),
        )


def _severity(selection: Selection, rows: int | None) -> Severity:
    """Return an error for what refuses a rule: the archive copies ranges of time, and has no slower way."""
    refused = is_large(rows) and isinstance(selection.rule.action, ToArchive)
    return Severity.ERROR if refused else Severity.WARNING


def _missing(store: Store, selection: Selection, rows: int | None) -> Iterator[tuple[str, str]]:
    """Yield what is missing, and the statement that creates it: an index for each column that may hold the time."""
    by_key = is_large(rows) and can_walk_by_key(selection)
    effect = "sweeps walk the table by its key, all of it" if by_key else "every batch reads the whole table"
    if not is_ordered(store.dialect, selection):
        written = f"{selection.time.column} writes numbers as texts, which no index has in order"
        yield f"{written}, so {effect}", "write all of its timestamps in one way"
        return
    for one in unserved(selection, store.kind):
        time = None if one.own_time is None else one.time_column
        by = f" by {one.time_column.name}" if one.own_time is not None and one.own_time.among else ""
        # SQLite prefers the index of the first column to a partial one, and sorts.
        earlier = [] if store.kind == "sqlite" else earlier_columns(one)
        nulls = " AND ".join(f"{store.dialect.quote(column.name)} IS NULL" for column in earlier)
        yield (
            f"no index finds the rule's oldest rows{by}, so {effect}",
            store.dialect.index_ddl(selection.table, wanted_columns(one, store.kind), time, nulls),
        )


def can_walk_by_key(selection: Selection) -> bool:
    """Return whether a rule's rows can be found in the order of their key.

    What is beyond a cap depends on the order of time, and the archive copies ranges of it.
    """
    return not isinstance(selection.rule.bound, Cap) and not isinstance(selection.rule.action, ToArchive)


def walks_by_key(store: Store, selection: Selection, rows: RowCount) -> bool:
    """Return whether sweeps of a rule walk its table by key, because every other way reads all of a large table."""
    if has_time_index(selection, store.dialect, store.kind) or not can_walk_by_key(selection):
        return False
    count = rows(selection.table)
    return is_large(count) and not _plan_reaches(store, selection, count)


def _plan_reaches(store: Store, selection: Selection, rows: int | None) -> bool:
    """Check whether the query plan finds the rule's oldest rows without reading the whole table."""
    if rows is None or rows < _LEAST_PLANNED or selection.per or not is_ordered(store.dialect, selection):
        return False
    rule = statements_of(rows_of(store), selection)
    find = rule.fill(rule.batch_end or rule.candidates, selection, store.now(), limit=_BATCH_ROWS)
    plan = _plan_of(store, find)
    scans = [*plan.of("t"), *plan.of("n")]
    if scans and all(one.indexed and not one.sorted for one in scans):
        return True
    whole = _plan_of(store, Statement(f"SELECT 1 FROM {store.dialect.table(selection.table)}", {}))
    return plan.cost is not None and whole.cost is not None and plan.cost < _SMALL_SHARE * whole.cost


def _plan_finds(
    store: Store,
    parent: TableInfo,
    reference: BoundReference,
    where: BoundFollower | None,
    rows: int | None,
) -> bool:
    """Check whether the query plan finds the rows that refer to one row without reading the whole table."""
    if rows is None or rows < _LEAST_PLANNED:
        return False
    conditions, p = rows_of(store), Parameters(store.dialect)
    links = [conditions.refers(reference, "f", "t"), *([] if where is None else conditions.fixed(p, where, "f"))]
    child = f"SELECT count(*) FROM {store.dialect.table(reference.table)} AS f WHERE {' AND '.join(links)}"
    found = _plan_of(store, p.statement(f"SELECT ({child}) FROM {store.dialect.table(parent)} AS t")).of("f")
    return bool(found) and all(one.indexed and _mentions(one.condition, reference.columns) for one in found)


def _mentions(condition: str, columns: Sequence[Column]) -> bool:
    return any(column.name in condition for column in columns)


def _references(selection: Selection) -> Iterator[tuple[TableInfo, BoundReference, BoundFollower | None]]:
    """Yield every reference that guards, ages or follows rows of a rule, with the table that it refers to."""
    for guard in selection.guards:
        yield selection.table, guard, None
    if selection.other_time is not None and selection.other_time.in_child:
        yield selection.table, selection.other_time.reference, None
    for path in follower_paths(selection):
        parent = path[-2].reference.table if len(path) > 1 else selection.table
        yield parent, path[-1].reference, path[-1]


def is_large(rows: int | None) -> bool:
    """Return whether a table has too many rows for a batch to read all of them."""
    return rows is not None and rows >= LARGE


def _plan_of(store: Store, statement: Statement) -> QueryPlan:
    """Return a statement's query plan; an empty one if it cannot be explained, because a role may not read a table."""
    try:
        return store.planner.query_plan(statement)
    except Unreachable:
        raise
    except StoreError:
        return QueryPlan((), None)
