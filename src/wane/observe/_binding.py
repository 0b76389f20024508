"""The tables that a contract names, bound to a live database: how to probe their rows without reading many of them."""

from __future__ import annotations

from dataclasses import dataclass

from wane._check.cover import uncovered
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract, Expiry, Table, Time
from wane._contract.names import TableName
from wane._db import Store
from wane._db.schema import Column, Kind, Schema, TableInfo
from wane._findings import Finding
from wane._rules.excuses import excused_tables
from wane._rules.indexes import find_way, observed
from wane._rules.probes import ProbedTable, TimeRangeProbe, is_due_by_row
from wane._rules.rows import Rows
from wane._rules.selection import READABLE, Selection, bind_age, bind_rule
from wane.observe._prepared import PreparedProbes


@dataclass(frozen=True, slots=True)
class BoundContract:
    """Everything that a contract names, and what of it does not bind."""

    tables: tuple[ProbedTable, ...]
    misfits: tuple[Finding, ...]
    uncovered: tuple[TableName, ...]
    schema: Schema
    fingerprint: str
    """The contract's."""
    prepared: PreparedProbes
    """Their prepared probes."""


def bind_tables(store: Store, contract: Contract) -> BoundContract:
    """Bind the contract to the database as it is now."""
    schema = store.reflect()
    every = {one.name: one.longest for one in contract.schedulers}
    rows = Rows(store.dialect, holds=False)
    tables: dict[tuple[str, str], ProbedTable] = {}
    misfits: list[Finding] = []
    for table in contract.tables:
        selections = []
        for rule in table.rules:
            if not rule.active:
                continue
            selection, found = bind_rule(contract, table, rule, schema, store.types)
            misfits += [one for one in found if one not in misfits]
            if selection is not None:
                selections.append(selection)
        info = schema.find(table.name.schema, table.name.name)
        age, found = bind_age(contract, table, schema, store.types)
        misfits += found
        if info is not None and info.kind in READABLE:
            hot = time_range = _time_range(store, table, selections)
            if table.age is not None:
                time_range = None if age is None else _declared(store, table, selections, info, *age)
            tables[info.qualified] = ProbedTable(
                table.name,
                info,
                table,
                tuple(selections),
                time_range,
                hot,
                None if table.append_only or table.scheduler is None else every.get(table.scheduler),
                _is_without_children(info, schema),
                tuple(n for n, one in enumerate(selections) if is_due_by_row(rows, one)),
            )
    following = (one.reference.table for _, _, one in contract.followers())
    others = [(name, schema.find(name.schema, name.name)) for name in following]
    others += [(one.name, one.info) for one in excused_tables(contract, schema)]
    for name, info in others:
        if info is not None and info.kind in READABLE:
            tables.setdefault(
                info.qualified, ProbedTable(name, info, without_children=_is_without_children(info, schema))
            )
    return BoundContract(
        tuple(tables.values()),
        tuple(misfits),
        tuple(uncovered(contract, schema)),
        schema,
        fingerprint(contract),
        PreparedProbes(store.dialect),
    )


def _is_without_children(info: TableInfo, schema: Schema) -> bool:
    return info.kind is Kind.TABLE and not schema.descendants(info)


def _time_range(store: Store, table: Table, selections: list[Selection]) -> TimeRangeProbe | None:
    """Choose the column to probe ages by: the one that rows age by before that of their expiry, indexed if possible."""
    by_age = sorted((one for one in selections if one.one_time), key=lambda one: isinstance(one.rule.bound, Expiry))
    if not by_age:
        return None
    found = (_along(store, table, one) for one in by_age)
    return next((time_range for time_range in found if not time_range.small), None) or _along(store, table, by_age[0])


def _declared(
    store: Store, table: Table, selections: list[Selection], info: TableInfo, age: Time, column: Column
) -> TimeRangeProbe:
    """Build the probe by the column that the table declares its age by."""
    if not selections:
        return TimeRangeProbe(info, age, column, small=True)
    return _along(store, table, observed(selections[0], age, column))


def _along(store: Store, table: Table, selection: Selection) -> TimeRangeProbe:
    way = find_way(store, table, selection)
    state = selection.state if way else None
    return TimeRangeProbe(selection.table, selection.time, selection.time_column, state, way or (), small=way is None)
