"""Which indexes serve a rule whatever its rows are: by their columns.

An index serves a rule if it leads with the columns that the rule compares for equality, then the time, so that the
oldest due rows are the first ones of a range. A partial index serves if the rule implies its predicate. Others may
serve a table as it is now: see `wane._rules.access`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from wane._contract.mistakes import key_path
from wane._contract.model import Expiry, State, Table, Time
from wane._db import Store
from wane._db.schema import Column, Index
from wane._db.statement import Dialect
from wane._findings import Severity
from wane._rules.report import Report
from wane._rules.selection import BoundCondition, BoundReference, Selection

_NULL_TEST = re.compile(r'"?(?P<column>[^"]+?)"? IS (?P<negated>NOT )?NULL', re.IGNORECASE)
_COMPARISON = re.compile(r'\(?"?(?P<column>\w+)"?\)?(?:::[\w ]+)? (?:=|IN) (?P<values>.+)', re.IGNORECASE | re.DOTALL)
_LITERAL = re.compile(r"'((?:[^']|'')*)'|\b(\d+)\b")
_FINDS_EQUAL = ("btree", "hash")


def wanted_columns(selection: Selection, store: str) -> list[Column]:
    """Return the columns of the index that serves a rule best."""
    time = [] if selection.own_time is None else [selection.time_column]
    return list(dict.fromkeys([*_equal_columns(selection, store), *_where_columns(selection), *time, *selection.key]))


def serves(index: Index, selection: Selection, store: str) -> bool:
    """Check whether an index finds the rule's oldest rows first."""
    if not index.valid or index.method != "btree":
        return False
    fixed = {column.name for column in _equal_columns(selection, store)}
    if index.predicate is not None:
        implied = _implied(index.predicate, selection, store)
        if implied is None:
            return False
        fixed -= implied
    also = {column.name for column in _where_columns(selection)}
    for position, name in enumerate(index.columns):
        if name in fixed or name in also:
            fixed.discard(name)
            continue
        collation = index.collations[position] if position < len(index.collations) else None
        if selection.own_time is None:
            # The collation is that of the column, in which the statement compares keys.
            return name == selection.key[0].name and not fixed and collation == selection.key[0].collation
        return name == selection.time_column.name and not fixed and collation is None
    return False


def orders_keys(selection: Selection, store: str) -> bool:
    """Check whether an index that serves a rule has the key behind the time, so that no rows are sorted by it."""
    time = selection.time_column.name
    key = [column for column in selection.key if column.name != time]
    names = tuple(column.name for column in key)

    def has_keys(index: Index) -> bool:
        begin = index.columns.index(time) + 1
        same = index.columns[begin : begin + len(key)] == names
        return same and index.collations[begin : begin + len(key)] == tuple(column.collation for column in key)

    return any(serves(index, selection, store) and has_keys(index) for index in selection.table.indexes)


def unserved(selection: Selection, store: str) -> list[Selection]:
    """Return the parts of a rule's rows (see `Selection.walks`) whose oldest no index finds first."""
    parts = selection.walks() if selection.own_time is not None and selection.own_time.among else [selection]
    return [one for one in parts if not any(serves(index, one, store) for index in selection.table.indexes)]


def earlier_columns(selection: Selection) -> list[Column]:
    """Return the columns that are NULL in the rows of a walk."""
    own = selection.own_time
    if own is None or not own.walked:
        return []
    return list(own.among[: own.among.index(own.column)])


def is_ordered(dialect: Dialect, selection: Selection) -> bool:
    """Return whether an index can have the order of a rule's rows."""
    return selection.own_time is None or dialect.walks(selection.time_column, selection.time)


def has_time_index(selection: Selection, dialect: Dialect, store: str) -> bool:
    """Check whether an index finds the rule's oldest rows first."""
    return is_ordered(dialect, selection) and not unserved(selection, store)


def has_bare_time_index(selection: Selection, dialect: Dialect, store: str) -> bool:
    """Check whether an index has all rows of a table in the order of time, those of other rules among them."""
    bare = without_conditions(selection)
    return is_ordered(dialect, bare) and any(serves(index, bare, store) for index in selection.table.indexes)


def without_conditions(selection: Selection, states: tuple[State, ...] = ()) -> Selection:
    """Return the selection of a table's rows by the time of a rule, of some states or all."""
    return replace(
        selection,
        rule=replace(selection.rule, states=states),
        per=(),
        orphan=None,
        missing=None,
        where=(),
        saved_while_null=(),
        saved_while_not_null=(),
    )


def has_reference_index(reference: BoundReference) -> bool:
    """Check whether an index finds the rows that refer to one row."""
    return any(_leads(index, reference) for index in reference.table.indexes)


def served(selection: Selection, dialect: Dialect, store: str) -> bool:
    """Check whether an index serves every step of taking a rule's rows.

    One that has the time alone does, by reading rows of other rules too; each only once in a sweep.
    """
    followers = [one.reference for follower in selection.followers for one in follower.walk()]
    timed = has_time_index(selection, dialect, store) or has_bare_time_index(selection, dialect, store)
    return timed and all(map(has_reference_index, (*selection.guards, *followers)))


def find_way(store: Store, table: Table, selection: Selection) -> tuple[State, ...] | None:
    """Find how an index reaches a table's oldest rows by the selection's time, ignoring the rule's other conditions.

    () is one walk for all rows; states are one walk for each of them; None means that no index serves.
    """
    if not store.dialect.walks(selection.time_column, selection.time):
        return None
    states = (state for rule in table.rules for state in rule.states)
    known = tuple(dict.fromkeys([*table.live, *states, *dict(table.excused)]))
    # Every other state is no list that can be walked.
    complete = [] if any(one.all_but is not None for one in table.rules) else [known]
    for way in dict.fromkeys([(), *complete, selection.rule.states]):
        requested = without_conditions(selection, way)
        if any(serves(index, requested, store.kind) for index in requested.table.indexes):
            return way
    return None


def observed(selection: Selection, age: Time, column: Column) -> Selection:
    """Return the selection as if all rows of its table aged by the column that the contract declares as their age."""
    rule = replace(selection.rule, states=(), all_but=None, conditions=(), bound=Expiry(age))
    return replace(selection, rule=rule, where=()).timed(age, column)


def check_age_index(store: Store, table: Table, selection: Selection, report: Report) -> None:
    """Report an age that can only be read from small tables, with the statement that creates the index.

    See `observed`.
    """
    column = selection.time_column
    if find_way(store, table, selection) is None:
        report.add(
            Severity.WARNING,
            "no-age-index",
            table.name,
            key_path(["table", table.name, "age"]),
            f"no index is in the order of {column.name}, so the oldest row is reported only while the table is small",
            store.dialect.index_ddl(selection.table, list(dict.fromkeys([column, *selection.key])), column),
        )


def _equal_columns(selection: Selection, store: str) -> list[Column]:
    columns = [selection.state] if selection.rule.states and selection.state is not None else []
    # SQLite prefers the index of the first column to a partial one, and sorts; PostgreSQL has NULLs in no order.
    nulls = earlier_columns(selection) if store == "sqlite" else []
    return [*selection.per, *columns, *([selection.orphan] if selection.orphan is not None else []), *nulls]


def _where_columns(selection: Selection) -> list[Column]:
    """Return the columns that conditions compare with one constant, or with NULL: an index may lead with them, too."""
    return [one.column for one in selection.where if _single(one)]


def _single(condition: BoundCondition) -> bool:
    if not condition.comparisons:
        return condition.null is True
    return condition.null is None and any(one.sign == "=" and len(one.values) == 1 for one in condition.comparisons)


def _implied(predicate: str, selection: Selection, store: str) -> set[str] | None:
    """Return the columns that an index's predicate fixes to what the rule selects.

    None if the rule does not imply the predicate.
    """
    fixed: set[str] = set()
    for term in _terms(predicate):
        null_test, comparison = _NULL_TEST.fullmatch(term), _COMPARISON.fullmatch(term)
        if null_test is not None:
            if null_test["column"] not in (_not_null(selection) if null_test["negated"] else _null(selection)):
                return None
            fixed.add(null_test["column"])
        elif comparison is not None and store == "postgres":
            # SQLite plans before values are bound, so it cannot match them with a predicate.
            found = _LITERAL.findall(comparison["values"])
            values = {number or text.replace("''", "'") for text, number in found}
            states = {str(state) for state in selection.rule.states}
            if (
                selection.state is None
                or comparison["column"] != selection.state.name
                or not states
                or not states <= values
            ):
                return None
            if len(values) == 1:
                fixed.add(selection.state.name)
        else:
            return None
    return fixed


def _terms(predicate: str) -> Iterable[str]:
    """Yield the terms of a conjunction, without the brackets that databases print around them."""
    for term in re.split(r"\s+AND\s+", predicate.strip(), flags=re.IGNORECASE):
        while term.startswith("(") and term.count("(") > term.count(")"):
            term = term[1:]
        while term.endswith(")") and term.count(")") > term.count("("):
            term = term[:-1]
        while term.startswith("(") and term.endswith(")"):
            term = term[1:-1]
        yield " ".join(term.split())


def _null(selection: Selection) -> set[str]:
    columns = [*selection.saved_while_not_null, *([selection.orphan] if selection.orphan is not None else [])]
    columns += [one.column for one in selection.where if one.null and not one.comparisons]
    return {column.name for column in (*columns, *earlier_columns(selection))}


def _not_null(selection: Selection) -> set[str]:
    time = () if selection.own_time is None else (selection.time_column,)
    where = (one.column for one in selection.where if not one.null)
    return {column.name for column in (*selection.saved_while_null, *time, *where)}


def _leads(index: Index, reference: BoundReference) -> bool:
    """Check whether an index finds the rows that refer to one row.

    A reference is never NULL, so an index may leave those out.
    """
    names = {column.name for column in reference.columns}
    orders = {column.name: column.collation for column in reference.columns}
    leading = index.columns[: len(names)]
    same_order = all(
        name is not None and orders.get(name) == order for name, order in zip(leading, index.collations, strict=False)
    )
    complete = index.predicate is None or all(
        (test := _NULL_TEST.fullmatch(term)) is not None and test["negated"] and test["column"] in names
        for term in _terms(index.predicate)
    )
    return index.valid and index.method in _FINDS_EQUAL and complete and same_order and set(leading) == names
