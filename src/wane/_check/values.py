"""Checks of the rows themselves: states that no rule mentions, times not encoded as declared, excuses that are false.

Every probe is bounded. What could not be checked in the time allowed is reported, never assumed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from wane._check.encodings import NOT_A_TIME, declared_encodings, encodings, how_to_declare, unsortable
from wane._check.vocabulary import DONE, TIMES, last_word, words
from wane._contract import toml
from wane._contract.mistakes import key_path
from wane._contract.model import Excuse, Expiry, Table, Time, Unit
from wane._contract.names import TableName
from wane._db import Store
from wane._db.counting import Exactness, distinct, has_more_rows_than
from wane._db.schema import Column, TableInfo
from wane._db.timestamps import DIGITS
from wane._findings import Severity, did_you_mean, many
from wane._rules.excuses import ExcusedTable
from wane._rules.indexes import serves
from wane._rules.reads import count_due_without, count_never_due, count_unselected, sample_times
from wane._rules.report import Report, rule_path
from wane._rules.selection import Selection

_SAMPLE = 200
_MOST_STATES = 100
_MOST_NAMED = 10
"""The most states that a message lists."""
_MOST_COUNTED = 10_000


def check_states(
    store: Store, table: Table, info: TableInfo, seconds: float, severity: Severity, report: Report
) -> None:
    """Check that every state of a row is live, ruled or excused, and that rules name no state by mistake."""
    column = None if table.state is None else info.column(table.state)
    known = [*table.live, *(state for rule in table.rules for state in rule.states), *dict(table.excused)]
    if column is None or any(store.types.state(column, state) for state in known):
        return  # Binding has reported it.
    path = key_path(["table", table.name, "live"])
    found = distinct(store, info, column, _MOST_STATES + 1, seconds)
    if found is None or len(found) > _MOST_STATES:
        why = "too many rows to read" if found is None else f"more than {_MOST_STATES} different values"
        report.add(
            Severity.NOTE, "states-unchecked", table.name, path, f"the states in {column.name} were not checked: {why}"
        )
        return
    _check_named(table, column, found, {_comparable(state) for state in known}, report)
    if any(rule.all_but is not None for rule in table.rules):
        found = [state for state in found if state is None]
        column = replace(column, labels=())
    listed = {_comparable(state) for state in known}
    for state in _possible(column, found):
        if state is None:
            message = f"rows without a state ({column.name} is NULL) are never selected and never leave"
            fix = "give them a state"
        elif _comparable(state) not in listed:
            message = f"the state {state!r} is in no rule, not live and not excused, so its rows never leave"
            fix = "add it to `live`, to a rule's `when` or to `excused`"
        else:
            continue
        report.add(severity, "unlisted-state", table.name, path, message, fix)


def _check_named(
    table: Table, column: Column, found: Sequence[object], listed: Collection[object], report: Report
) -> None:
    """Report states of rules that no row has, while rows have one that the contract does not name: likely a typing
    error.

    Without such a state, the rows may just be gone, or not be there yet.
    """
    possible = sorted((state for state in _possible(column, found) if state is not None), key=str)
    unnamed = [state for state in possible if _comparable(state) not in listed]
    present = {_comparable(state) for state in possible}
    catch_all = any(rule.all_but is not None for rule in table.rules)
    for rule in table.rules:
        for state in rule.states:
            near = did_you_mean(state, unnamed)
            # A rule with `when = "*"` is about states that are not named: such a state is no mistake by itself.
            if _comparable(state) in present or not unnamed or (catch_all and not near):
                continue
            states = [*unnamed, *(one for one in possible if one not in unnamed)]
            more = f" and {len(states) - _MOST_NAMED:,} more" if len(states) > _MOST_NAMED else ""
            have = f"rows have {', '.join(map(repr, states[:_MOST_NAMED]))}{more}"
            path = f"{key_path(['table', table.name, 'rule', rule.name])}.when"
            message = f"no row has the state {state!r} in {column.name}"
            report.add(
                Severity.WARNING, "absent-state", table.name, path, message, " ".join(filter(None, (near, have)))
            )


def _possible(column: Column, found: Sequence[object]) -> list[object]:
    """Return the states that rows have, and those that the column's type has besides."""
    if column.type.startswith("character("):
        found = [state.rstrip(" ") if isinstance(state, str) else state for state in found]
    return [*found, *(label for label in column.labels if label not in found)]


def _comparable(state: object) -> object:
    """Convert a state to a form in which the contract's and the database's values compare: SQLite has no booleans."""
    return int(state) if isinstance(state, bool) else state


def check_times(store: Store, selection: Selection, now: datetime, seconds: float, report: Report) -> None:
    """Check that times are encoded as declared; report rows whose times are not, which never leave."""
    path, own, aged = rule_path(selection), selection.own_time, selection.other_time or selection.own_time
    if aged is None:
        _check_key(store, selection, seconds, path, report)
        return
    if own is not None and not (
        store.kind == "postgres" and (own.time.unit is Unit.NATIVE or own.column.type == "date")
    ):
        for one in selection.walks() if own.among else [selection]:
            _check_encoding(store, one, one.time_column, now, seconds, path, report)
    rows, other = _never_due(store, selection, seconds, report, f"a usable time in {aged.time}"), selection.other_time
    if rows is not None:
        if other is not None and other.in_child:
            message = f"{rows} no row of {other.reference.name} with a usable time, and stay until they have one"
        else:
            unusable = "NULL, a placeholder or another encoding"
            message = f"{rows} no usable time in {aged.time} ({unusable}) and never leave"
        report.add(Severity.NOTE, "never-due", selection.name, path, message)


def _check_key(store: Store, selection: Selection, seconds: float, path: str, report: Report) -> None:
    """Report rows whose keys do not order them by age: they neither leave nor count towards the cap."""
    name = selection.key[0].name
    rows = _never_due(store, selection, seconds, report, f"a key in {name} that ascends")
    if rows is not None:
        message = (
            f"{rows} no whole number, UUIDv7 or ULID in {name}, so its order is not that of time; they never leave"
        )
        report.add(Severity.WARNING, "unordered-key", selection.name, path, message, "cap by a time: `time = …`")


def _never_due(store: Store, selection: Selection, seconds: float, report: Report, required: str) -> str | None:
    """Return how many rows are never due, in words, if there are any; report if that could not be counted."""
    stuck = count_never_due(store, selection, _MOST_COUNTED + 1, seconds)
    if stuck is None:
        message = f"whether every row has {required} was not checked: too many rows to read"
        report.add(Severity.NOTE, "times-unchecked", selection.name, rule_path(selection), message)
    if not stuck:
        return None
    count = f"more than {_MOST_COUNTED:,}" if stuck > _MOST_COUNTED else f"{stuck:,}"
    return many(count, "of its rows has", "of its rows have")


def check_selected(store: Store, selections: Sequence[Selection], seconds: float, report: Report) -> None:
    """Report rows of a table that the `where` of every rule excludes."""
    if not any(one.where for one in selections):
        return
    name = selections[0].name
    path = key_path(["table", name])
    found = count_unselected(store, selections, _MOST_COUNTED + 1, seconds)
    if found is None:
        message = "whether a rule selects every row was not checked: too many rows to read"
        report.add(Severity.NOTE, "times-unchecked", name, path, message)
    elif found:
        count = f"more than {_MOST_COUNTED:,}" if found > _MOST_COUNTED else f"{found:,}"
        rows = many(count, "row fulfils", "rows fulfil")
        message = f"{rows} the `where` of no rule and never leave"
        report.add(
            Severity.NOTE, "unselected-rows", name, path, message, "add a rule for them, unless they are to stay"
        )


def check_done(store: Store, selection: Selection, now: datetime, seconds: float, report: Report) -> None:
    """Report due rows whose work is not done: they age by another column, and no state or guard keeps them.

    An expiry is the end of a row, whether it is done or not.
    """
    columns = _done_columns(store, selection)
    if selection.rule.by_state or isinstance(selection.rule.bound, Expiry) or not columns:
        return
    path, names = rule_path(selection), " or ".join(column.name for column in columns)
    unfinished = count_due_without(store, selection, now, columns, _MOST_COUNTED, seconds)
    if unfinished is None:
        message = f"whether every due row has a time in {names} was not checked: too many rows to read"
        report.add(Severity.NOTE, "times-unchecked", selection.name, path, message)
    elif unfinished.rows:
        some = "at least " if unfinished.exactness is Exactness.AT_LEAST else ""
        rows = many(unfinished.rows, "due row has", "due rows have")
        message = f"{some}{rows} no {names} (NULL): by {selection.time} they leave before they are done"
        done = toml.text(columns[0].name)
        fix = f"age by it, `time = {done}`, or guard them, `unless = [{{ null = {done} }}]`"
        report.add(Severity.WARNING, "unfinished-due", selection.name, path, message, fix)


def _done_columns(store: Store, selection: Selection) -> list[Column]:
    """Return the columns that hold when the work on a row was done; none if the rule or a guard reads one."""
    named = [column for column in selection.table.columns if not DONE.isdisjoint(words(column.name))]
    own = selection.own_time
    if own is None or any(column in named for column in (own.column, *own.among)):
        return []
    if any(column in named for column in selection.saved_while_null):
        return []
    if any(column.name in dict(selection.rule.conditions) for column in named):
        return []
    return [column for column in named if column.nullable and _holds_times(store, column)]


def _holds_times(store: Store, column: Column) -> bool:
    times = (Time(column.name, unit, zone) for unit in Unit for zone in (None, "UTC"))
    return last_word(column.name) in TIMES and any(not store.types.time(column, time) for time in times)


def _check_encoding(
    store: Store, selection: Selection, column: Column, now: datetime, seconds: float, path: str, report: Report
) -> None:
    indexed = any(serves(index, selection, store.kind) for index in selection.table.indexes)
    values = sample_times(store, selection, _SAMPLE, seconds, indexed=indexed)
    if selection.time.also:
        # A column of texts that mixes numbers and texts holds the numbers as texts.
        values = [int(one) if isinstance(one, str) and DIGITS.fullmatch(one) else one for one in values]
    found = encodings(dict.fromkeys(values), now)
    units = declared_encodings(selection.time, store.kind)
    declared, as_declared = " or ".join(units), sum(found[unit] for unit in units)
    others = {name: count for name, count in found.items() if name not in (*units, NOT_A_TIME)}
    total = sum(found.values())
    if others and not as_declared:
        [name, *rest] = sorted(others, key=lambda one: -others[one])
        seen = name if not rest else f"{name} and {', '.join(rest)}"
        message = (
            f"{column.name} is declared {declared}, but {others[name]} of {total} sampled values are written as {seen}"
        )
        report.add(Severity.ERROR, "wrong-encoding", selection.name, path, message, how_to_declare(name))
    elif others:
        seen = ", ".join(f"{count} as {name}" for name, count in others.items())
        message = f"{column.name} is written in several ways: {as_declared} of {total} sampled values as declared ({declared}), {seen}"
        fix = "write all of them in one way, or name every way: unit = […]"
        report.add(Severity.ERROR, "mixed-encoding", selection.name, path, message, fix)
    elif total and not as_declared:
        message = f"{column.name} is declared {declared}, but none of {total} sampled values is a timestamp"
        report.add(
            Severity.ERROR, "wrong-encoding", selection.name, path, message, "name the column that holds timestamps"
        )
    elif unsortable(values):
        message = (
            f"{column.name} has fractions of different lengths before Z, which do not sort by time within a second"
        )
        report.add(
            Severity.WARNING,
            "unsortable-times",
            selection.name,
            path,
            message,
            "write all of them with as many digits",
        )


def check_excuse(store: Store, table: ExcusedTable, seconds: float, report: Report) -> None:
    """Check that an excuse that promises a number of rows is true."""
    name, info, excuse, path = table.name, table.info, table.excuse, table.path
    if excuse.rows is None or info is None:
        return
    rows = "one row" if excuse.rows == 1 else f"at most {excuse.rows:,} rows"
    more = has_more_rows_than(store, info, excuse.rows, seconds)
    if more is None:
        message = f"whether it has {rows}, as its excuse promises, was not checked: reading them takes too long"
        report.add(Severity.NOTE, "excuse-unchecked", name, path, message)
    elif more:
        report.add(Severity.ERROR, "false-excuse", name, path, *false_excuse(name, excuse))


def false_excuse(table: TableName, excuse: Excuse) -> tuple[str, str]:
    """Return the message and the fix for a table with more rows than its excuse promises."""
    rows = "one row" if excuse.rows == 1 else f"at most {excuse.rows:,} rows"
    message = f"{table} is excused as {excuse.kind.value} ({excuse.reason}), which promises {rows}, but it has more"
    return message, "give the table rules, or fix what writes it"
