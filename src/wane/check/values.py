"""What the rows themselves say: states nobody mentions, times written otherwise than declared, excuses that are not true.

Every look is bounded. What could not be looked at in the time allowed is said, never assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from wane.check.encodings import NOT_A_MOMENT, declared_encoding, encodings, how_to_declare, unsortable
from wane.check.report import Report
from wane.contract.model import Excuse, Table, Unit
from wane.findings import Severity
from wane.store import Store
from wane.store.schema import Column, TableInfo
from wane.store.selection import Selection

_SAMPLE = 200
_MOST_STATES = 100
_MOST_COUNTED = 10_000


def check_states(
    store: Store, table: Table, info: TableInfo, seconds: float, severity: Severity, report: Report
) -> None:
    """Every state that a row has must be live, ruled or excused."""
    column = None if table.state is None else info.column(table.state)
    if column is None:
        return
    place = f"table.{table.name}.live"
    found = store.distinct(info, column, _MOST_STATES + 1, seconds)
    if found is None or len(found) > _MOST_STATES:
        why = "too many rows to look at" if found is None else f"more than {_MOST_STATES} different values"
        report.add(
            Severity.NOTE, "states-unchecked", table.name, place, f"the states in {column.name} were not checked: {why}"
        )
        return
    known = {_comparable(state) for state in table.live}
    known |= {_comparable(state) for rule in table.rules for state in rule.states}
    known |= {_comparable(state) for state, _ in table.excused}
    for state in [*found, *(label for label in column.labels if label not in found)]:
        if state is None:
            message = f"rows without a state ({column.name} is NULL) are never selected and never leave"
            report.add(severity, "unlisted-state", table.name, place, message, "give them a state")
        elif _comparable(state) not in known:
            message = f"the state {state!r} is in no rule, not live and not excused, so its rows never leave"
            report.add(
                severity,
                "unlisted-state",
                table.name,
                place,
                message,
                "add it to `live`, to a rule's `when` or to `excused`",
            )


def _comparable(state: object) -> object:
    """A state as both the contract and the database write it: SQLite has no booleans."""
    return int(state) if isinstance(state, bool) else state


def check_times(store: Store, selection: Selection, now: datetime, seconds: float, report: Report) -> None:
    """Times must be written as declared; those that are not never leave, and that is told."""
    place = f"table.{selection.name}.rule.{selection.rule.name}"
    if not (store.kind == "postgres" and selection.time.unit is Unit.NATIVE):
        _check_encoding(store, selection, selection.time_column, now, seconds, place, report)
    stuck = store.count_never_due(selection, _MOST_COUNTED + 1, seconds)
    if stuck:
        count = f"more than {_MOST_COUNTED:,}" if stuck > _MOST_COUNTED else f"{stuck:,}"
        report.add(
            Severity.NOTE,
            "never-due",
            selection.name,
            place,
            f"{count} of its rows have no usable moment in {selection.time.column} (NULL, a placeholder or another encoding) and never leave",
        )


def _check_encoding(
    store: Store, selection: Selection, column: Column, now: datetime, seconds: float, place: str, report: Report
) -> None:
    values = store.sample(selection.table, column, _SAMPLE, seconds)
    found = encodings(values, now)
    declared = declared_encoding(selection.time, store.kind)
    others = {name: count for name, count in found.items() if name not in (declared, NOT_A_MOMENT)}
    total = sum(found.values())
    if others and declared not in found:
        [name, *rest] = sorted(others, key=lambda one: -others[one])
        seen = name if not rest else f"{name} and {', '.join(rest)}"
        message = (
            f"{column.name} is declared {declared}, but {others[name]} of {total} sampled values are written as {seen}"
        )
        report.add(Severity.ERROR, "wrong-encoding", selection.name, place, message, how_to_declare(name))
    elif others:
        seen = ", ".join(f"{count} as {name}" for name, count in others.items())
        message = f"{column.name} is written in several ways: {found[declared]} of {total} sampled values as declared ({declared}), {seen}"
        report.add(Severity.ERROR, "mixed-encoding", selection.name, place, message, "write all of them in one way")
    elif total and declared not in found:
        message = f"{column.name} is declared {declared}, but none of {total} sampled values is a moment"
        report.add(
            Severity.ERROR, "wrong-encoding", selection.name, place, message, "name the column that holds moments"
        )
    elif unsortable(values):
        message = (
            f"{column.name} has fractions of different lengths before Z, which do not sort by time within a second"
        )
        report.add(
            Severity.WARNING,
            "unsortable-times",
            selection.name,
            place,
            message,
            "write all of them with as many digits",
        )


def check_excuses(
    store: Store, tables: Sequence[tuple[str, TableInfo, Excuse]], seconds: float, report: Report
) -> None:
    """An excuse that promises a number of rows must be true."""
    for name, info, excuse in tables:
        if excuse.rows is None:
            continue
        if store.has_more_rows_than(info, excuse.rows, seconds):
            rows = "one row" if excuse.rows == 1 else f"at most {excuse.rows:,} rows"
            message = f"excused as {excuse.kind.value} ({excuse.reason}), which promises {rows}, but it has more"
            report.add(
                Severity.ERROR,
                "false-excuse",
                name,
                f"excused.{name}",
                message,
                "give the table rules, or mend what writes it",
            )
