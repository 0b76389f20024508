"""The probe: everything that is known about a contract's database, bound once and read once within a time budget.

Pressure, health and gauges are projections of these facts; nothing else reads users' tables for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from wane._check.live import Bounds, Live, read_swept
from wane._contract.model import Contract
from wane._db import Store
from wane._findings import Finding
from wane._ledger import RuleSweeps
from wane._rules.access import check_indexes
from wane._rules.holds import lost_holds, report_lost_holds
from wane._rules.probes import Probe
from wane._rules.report import Report
from wane.errors import StoreError, Unreachable
from wane.observe._binding import BoundContract, bind_tables
from wane.observe._facts import Facts
from wane.observe._own_facts import OwnFacts
from wane.observe._reading import OWN_SECONDS, PROBE_SECONDS, Key, Memory, Reading
from wane.observe._row_counts import RowCounts
from wane.observe._sql_installed import functions_fingerprint
from wane.observe._table_probe import TableProbe

READ_SECONDS = 5.0
"""The most that a whole reading may take, estimates left out."""
_BOUND_SECONDS = 60.0
"""How long a reflected schema is reused."""
_HOT_TABLES = 20
"""The number of the largest tables whose reads are timed."""


class Prober:
    """Probes the database of one contract. It retains the bound contract for a while."""

    def __init__(
        self, contract: Contract, *, retry_seconds: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read nothing yet; retry a table that could not be read in time only after `retry_seconds`."""
        self._contract = contract
        self._clock = clock
        self._memory = Memory(retry_seconds, clock)
        self._bound: BoundContract | None = None
        self._bound_at = float("-inf")

    def read_pressure(self, store: Store, seconds: float = READ_SECONDS) -> Facts:
        """Read rows, their ages and what is due of every table."""
        store.is_migrated()
        reading = self._begin(store, seconds)
        tables = tuple(one.facts() for one in _read_pressure(reading, for_health=False))
        return Facts(store.shown, store.kind, reading.now, reading.bound, tables)

    def read(self, store: Store, seconds: float = READ_SECONDS) -> Facts:
        """Read everything."""
        migrated = store.is_migrated()
        reading = self._begin(store, seconds)
        swept: dict[tuple[str, str], RuleSweeps] = {}
        own, problem = None, None
        try:
            if migrated:
                swept = _swept(reading)
                own = OwnFacts(store, self._contract, reading.now, reading.execute)
        except Unreachable:
            raise
        except StoreError as error:
            problem = error  # Users' tables may still be readable.
        tables = _read_pressure(reading, for_health=True)
        _read_health(reading, tables)
        return Facts(
            store.shown,
            store.kind,
            reading.now,
            reading.bound,
            tuple(one.facts() for one in tables),
            own,
            problem,
            swept,
            functions_fingerprint(store, reading.left(OWN_SECONDS)),
            (*_broken_promises(reading, swept), *_missing_indexes(reading, tables)),
        )

    def _begin(self, store: Store, seconds: float) -> Reading:
        began = self._clock()
        if self._bound is None or began - self._bound_at > _BOUND_SECONDS:
            self._bound = bind_tables(store, self._contract)
            self._bound_at = self._clock()
        left = seconds - (self._clock() - began)
        return Reading(store, self._contract, self._bound, self._memory, left)


def _swept(reading: Reading) -> dict[tuple[str, str], RuleSweeps]:
    """Read when each rule was last swept."""
    trail = read_swept(reading.store, reading.left(OWN_SECONDS))
    rules = [(str(one.name), one.rule.name) for table in reading.bound.tables for one in table.selections]
    return {rule: found for rule in rules if (found := trail.get(rule)) is not None}


def _read_pressure(reading: Reading, *, for_health: bool) -> list[TableProbe]:
    row_counts = RowCounts(reading)
    tables = [TableProbe(reading, one, row_counts) for one in reading.bound.tables]
    _read(reading, tables, {(one.key, "pressure"): one.first(for_health=for_health) for one in tables})
    _read(reading, tables, {(one.key, "counts"): one.beyond_few() for one in tables})
    # Statements that may scan all rows run last, and alone, so that they delay no other.
    for one in tables:
        for name, probe in one.scoped().items():
            _read(reading, [one], {(one.key, name): {name: probe}})
    return tables


def _read_health(reading: Reading, tables: Sequence[TableProbe]) -> None:
    """Read what health needs beyond pressure, of the tables that could be read."""
    _read(reading, tables, {(one.key, "health"): one.second() for one in tables if one.was_read})
    ruled = [(one.rows.rows, n) for n, one in enumerate(tables) if one.rows is not None and one.table.selections]
    for rows, n in sorted(ruled, reverse=True)[:_HOT_TABLES]:
        if rows > reading.most:
            tables[n].time_hot_read()
    for one in tables:
        one.estimate_finished()


def _read(reading: Reading, tables: Sequence[TableProbe], groups: dict[Key, Mapping[str, Probe]]) -> None:
    owners = {one.key: one for one in tables}
    for (key, _), found in reading.read(groups).items():
        owners[key].found |= found


def _broken_promises(reading: Reading, swept: dict[tuple[str, str], RuleSweeps]) -> list[Finding]:
    bound = reading.bound
    selections = [one for table in bound.tables for one in table.selections]
    bounds = Bounds(reading.most, PROBE_SECONDS, reading.left(READ_SECONDS) if reading.in_time else 0.0)
    live = Live(reading.store, reading.contract, bound.schema, selections, reading.now, swept, bounds)
    live.invariants()
    report_lost_holds(lost_holds(reading.store, bound.schema, reading.held), live.report)
    return live.report.findings


def _missing_indexes(reading: Reading, tables: Sequence[TableProbe]) -> list[Finding]:
    """Report the indexes without which sweeps read all of a large table."""
    rows = {one.table.info.qualified: one.rows.rows for one in tables if one.rows is not None}
    report = Report(reading.contract)
    for one in tables:
        for selection in one.table.selections:
            check_indexes(reading.store, selection, lambda table: rows.get(table.qualified), report, large_only=True)
    return report.findings
