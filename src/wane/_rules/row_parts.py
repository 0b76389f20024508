"""One row and one rule: which parts of the rule the row fulfils.

The parts are those of `Rows.parts`, so what is listed here is what the statements that take rows require.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from wane._contract.model import Pick
from wane._db.statement import Parameters, Statement
from wane._db.store import Store
from wane._db.timestamps import read_time
from wane._rules.queries import Queries
from wane._rules.rows import Rows, RulePart, all_of, rows_of
from wane._rules.selection import Selection
from wane._rules.walk import Walk

MOST_COUNTED = 100
"""What retains a row is counted up to this many."""


@dataclass(frozen=True, slots=True)
class RowCondition:
    """One part of a rule, and whether a row fulfils it."""

    kind: str
    """"state", "orphan", "where", "key", "time", "bound", "guard", "follower", "spare" or "hold"."""
    requires: str
    met: bool | None
    """None: it could not be evaluated, because the row's time is no timestamp."""
    values: dict[str, object]
    """The row's own columns that decide, and its time and its window where another table has them."""
    retaining: int | None = None
    """The rows or holds that retain the row, counted up to MOST_COUNTED; None: it depends on the row alone."""


@dataclass(frozen=True, slots=True)
class RowParts:
    """A row as one rule reads it."""

    conditions: tuple[RowCondition, ...]
    time: datetime | None
    """The time that the rule ages the row by; None if it has none."""
    window: timedelta | None
    """The row's own window (`longer`); None if the rule reads none, or the row has none that can pass."""
    position: tuple[object, ...]
    """Its position among the rows that leave, as `Walk` binds it."""

    @property
    def unmet(self) -> list[RowCondition]:
        return [one for one in self.conditions if not one.met]


def read_row_parts(
    store: Store, selection: Selection, key: Mapping[str, object], now: datetime, seconds: float
) -> RowParts | None:
    """Read which parts of a rule the row with a key fulfils as of `now`; None if there is no such row."""
    rows = rows_of(store)
    if selection.per:
        found = store.read(_scope_of(rows, selection, key), seconds)
        if not found:
            return None
        selection = selection.in_scope(tuple(found[0]))
    p = rows.parameters()
    # A row is in its own scope.
    parts = [part for part in rows.parts(p, selection, now) if part.conditions and part.kind != "scope"]
    found = store.read(_statement(rows, p, selection, key, parts), seconds)
    return _read(found[0], selection, parts, len(rows.position(selection, "t"))) if found else None


def count_ahead(store: Store, selection: Selection, row: RowParts, now: datetime, most: int, seconds: float) -> int:
    """Count the due rows that leave before a due row, up to `most`."""
    rows = rows_of(store)
    p = rows.parameters()
    where = [*rows.due(p, selection, now), Walk(rows, selection).up_to(p, row.position)]
    source = f"SELECT 1 FROM {rows.dialect.table(selection.table)} AS t WHERE {all_of(where)}"
    text = f"SELECT count(*) FROM ({source} LIMIT {p.bind('limit', most + 1)}) AS ahead"
    [(found,)] = store.read(p.statement(text), seconds)
    return max(int(found) - 1, 0)


def _scope_of(rows: Rows, selection: Selection, key: Mapping[str, object]) -> Statement:
    p = rows.parameters()
    outputs = ", ".join(rows.dialect.encode_key(rows.column(column)) for column in selection.per)
    return p.statement(f"SELECT {outputs} FROM {_one_row(rows, p, selection, key)}")


def _one_row(rows: Rows, p: Parameters, selection: Selection, key: Mapping[str, object]) -> str:
    where = " AND ".join(Queries(rows).has_key(p, selection.key, key))
    return f"{rows.dialect.table(selection.table)} AS t WHERE {where}"


def _statement(
    rows: Rows, p: Parameters, selection: Selection, key: Mapping[str, object], parts: Sequence[RulePart]
) -> Statement:
    outputs = [rows.column(column) for column in selection.time_columns]
    if selection.other_time is not None:
        outputs.append(rows.read_elsewhere(selection.other_time, "t"))
    if selection.longer is not None:
        outputs.append(rows.own_window(selection.longer))
    outputs += [rows.dialect.encode_key(text) for text in rows.position(selection, "t")]
    timely = " AND ".join(condition for part in parts if part.kind == "time" for condition in part.conditions)
    for part in parts:
        met = f"CASE WHEN {' AND '.join(part.conditions)} THEN 1 ELSE 0 END"
        # A value that is no timestamp is compared with none.
        outputs.append(f"CASE WHEN {timely} THEN {met} END" if part.kind == "bound" and timely else met)
        outputs += [rows.column(column) for column in part.columns]
        if part.retaining is not None:
            some = f"{part.retaining(p)} LIMIT {p.bind('most_counted', MOST_COUNTED)}"
            outputs.append(f"(SELECT count(*) FROM ({some}) AS retaining)")
    return p.statement(f"SELECT {', '.join(outputs)} FROM {_one_row(rows, p, selection, key)}")


def _read_time(selection: Selection, values: Sequence[Any]) -> datetime | None:
    """Return the time of a row by the values of its time columns; None if it has none."""
    own = selection.own_time
    if own is None:
        return None
    times = [
        read_time(value, own.encoded(column) if own.among else own.time)
        for column, value in zip(selection.time_columns, values, strict=True)
        if value is not None
    ]
    if own.time.pick is not Pick.LATEST:
        return times[0] if times else None
    known = [one for one in times if one is not None]
    return max(known) if len(known) == len(times) > 0 else None


def _read(found: Sequence[Any], selection: Selection, parts: Sequence[RulePart], positions: int) -> RowParts:
    values = iter(found)
    elsewhere: dict[str, object] = {}
    if selection.other_time is not None:
        other = next(values)
        elsewhere = {str(selection.other_time.time): other}
        time = read_time(other, selection.other_time.time)
    else:
        time = _read_time(selection, [next(values) for _ in selection.time_columns])
    longer = {} if selection.longer is None else {selection.longer.name: next(values)}
    window = None if selection.longer is None else selection.longer.read(*longer.values())
    position = tuple(next(values) for _ in range(positions))
    conditions = []
    for part in parts:
        met = next(values)
        own = {column.name: next(values) for column in part.columns}
        if part.kind in ("time", "bound"):
            own = elsewhere or own
        if part.kind == "bound":
            own = own | longer
        retaining = None if part.retaining is None else int(next(values))
        conditions.append(RowCondition(part.kind, part.requires, None if met is None else bool(met), own, retaining))
    return RowParts(tuple(conditions), time, window, position)
