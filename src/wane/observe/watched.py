"""The tables that a contract names, bound to a live database: how to probe their rows without reading many of them.

A reflected schema is reused for a minute, so that repeated readings pay for it once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from wane.check.cover import uncovered
from wane.contract.fingerprint import fingerprint
from wane.contract.model import Contract, Expiry, Table, Time
from wane.contract.names import TableName
from wane.db import Store
from wane.db.schema import Column, Kind, Schema, TableInfo
from wane.findings import Finding
from wane.observe.prepared import PreparedProbes
from wane.rules.indexes import find_way, observed
from wane.rules.probes import TimeRangeProbe, WatchedTable
from wane.rules.selection import READABLE, Selection, bind_age, bind_rule

TRUSTED_SECONDS = 60.0
"""How long a reflected schema is reused."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Everything that a contract names, and what of it does not bind."""

    tables: tuple[WatchedTable, ...]
    misfits: tuple[Finding, ...]
    uncovered: tuple[TableName, ...]
    schema: Schema
    fingerprint: str
    """The contract's."""
    kept: PreparedProbes
    """Their prepared probes."""


class Watcher:
    """Binds one contract, and caches the result."""

    def __init__(self, contract: Contract, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.contract = contract
        self._clock = clock
        self._seen: Watched | None = None
        self._seen_at = float("-inf")

    def watched(self, store: Store) -> Watched:
        if self._seen is None or self._clock() - self._seen_at > TRUSTED_SECONDS:
            self._seen = watch(store, self.contract)
            self._seen_at = self._clock()
        return self._seen


def watch(store: Store, contract: Contract) -> Watched:
    """Bind the contract to the database as it is now."""
    schema = store.reflect()
    every = {one.name: one.every for one in contract.schedulers}
    tables: dict[tuple[str, str], WatchedTable] = {}
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
            hot = sight = _sight(store, table, selections)
            if table.age is not None:
                sight = None if age is None else _declared(store, table, selections, info, *age)
            tables[info.qualified] = WatchedTable(
                table.name,
                info,
                table,
                tuple(selections),
                sight,
                hot,
                None if table.append_only or table.scheduler is None else every.get(table.scheduler),
                _alone(info, schema),
            )
    for name in [*(one.reference.table for _, _, one in contract.followers()), *dict(contract.excused)]:
        info = schema.find(name.schema, name.name)
        if info is not None and info.kind in READABLE:
            tables.setdefault(info.qualified, WatchedTable(name, info, alone=_alone(info, schema)))
    return Watched(
        tuple(tables.values()),
        tuple(misfits),
        tuple(uncovered(contract, schema)),
        schema,
        fingerprint(contract),
        PreparedProbes(store.dialect),
    )


def _alone(info: TableInfo, schema: Schema) -> bool:
    return info.kind is Kind.TABLE and not schema.heirs(info)


def _sight(store: Store, table: Table, selections: list[Selection]) -> TimeRangeProbe | None:
    """Choose the column to probe ages by: the one that rows age by before that of their expiry, indexed if possible."""
    if not selections:
        return None
    by_age = sorted(selections, key=lambda one: isinstance(one.rule.bound, Expiry))
    found = (_along(store, table, one) for one in by_age)
    return next((sight for sight in found if not sight.small), None) or _along(store, table, by_age[0])


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
