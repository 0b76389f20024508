"""Reading the facts of health, in a few bounded statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from wane.check.live import Bounds, Live, forgiven, late_by, read_swept
from wane.contract.model import Cap, Contract, Mark
from wane.contract.names import TableName
from wane.contract.settings import HealthSettings
from wane.db import Store
from wane.db.counting import Count
from wane.db.schema import Kind
from wane.db.space import size_probe
from wane.db.statement import Statement
from wane.db.timestamps import read_time
from wane.errors import StoreError, Unreachable
from wane.findings import Finding
from wane.forecast import days_to
from wane.ledger import RuleSweeps
from wane.observe.health import Health, RuleHealth, TableHealth
from wane.observe.own_facts import OWN_SECONDS, OwnFacts
from wane.observe.pressure import PressureReading, RuleDue, estimate_states, read_pressure
from wane.observe.reading import LOOK_SECONDS, READ_SECONDS, Reading
from wane.observe.sql_installed import functions_fingerprint
from wane.observe.verdict import judge
from wane.observe.watched import Watched
from wane.rules.holds import lost_holds, report_lost_holds
from wane.rules.probes import UNREAD, Probe, Probes, gather
from wane.rules.rows import rows_of

_HOT_READS = 5
_HOT_TABLES = 20
"""The number of the largest tables whose reads are timed."""


def read_health(
    store: Store,
    contract: Contract,
    watched: Watched,
    *,
    seconds: float = READ_SECONDS,
    archive: Sequence[Finding] | None = None,
) -> Health:
    """Read and judge everything, in a few statements that take `seconds` at most.

    `archive` are the findings in the archive; without them, those that the last archive command recorded are used.
    """
    now = store.now()
    migrated = store.is_migrated()
    swept = read_swept(store) if migrated else {}
    own = OwnFacts(store, contract, now) if migrated else None
    asking = Reading(store, watched, now, seconds)
    readings = read_pressure(asking, contract, watched)
    tables = _Tables(asking, contract, swept, own).read(readings)
    selections = [one for table in watched.tables for one in table.selections]
    bounds = Bounds(contract.health.counted_rows, LOOK_SECONDS, asking.left)
    promises = Live(store, contract, watched.schema, selections, now, swept, bounds)
    promises.invariants()
    report_lost_holds(lost_holds(store, watched.schema), promises.report)
    read = Health(
        now=now,
        database=store.shown,
        fingerprint=watched.fingerprint,
        in_force=own.in_force if own else None,
        migrated=migrated,
        enabled=own is not None and own.enabled,
        master_flag=contract.sweep.master_flag,
        disabled_tables=own.disabled if own else (),
        functions=functions_fingerprint(store, OWN_SECONDS),
        dead_letters=own.dead_letters if own else 0,
        uncovered=tuple(map(str, watched.uncovered)),
        schedulers=own.schedulers if own else (),
        executors=own.executors if own else (),
        tables=tables,
    )
    if archive is None:
        archive = [] if own is None else own.archive
    return judge(read, contract, watched.misfits, [*promises.report.findings, *archive])


class _Tables:
    """Reads the health of the tables, beyond their pressure."""

    def __init__(
        self,
        asking: Reading,
        contract: Contract,
        swept: dict[tuple[str, str], RuleSweeps],
        own: OwnFacts | None,
    ) -> None:
        self.asking = asking
        self.store = asking.store
        self.contract = contract
        self.settings: HealthSettings = contract.health
        self.now = asking.now
        self.swept = swept
        self.disabled = own.disabled if own else ()
        self.measured = own.measured if own else {}

    def read(self, readings: Sequence[PressureReading]) -> tuple[TableHealth, ...]:
        sizes = self._values(
            {
                n: self.asking.look("size", one.watched.info.qualified, look)
                for n, one in enumerate(readings)
                if (look := size_probe(self.store, one.watched.info))
            }
        )
        rules = [(n, rule) for n, one in enumerate(readings) for rule in one.rules]
        oldest = self._values(
            {
                i: self._oldest(rule)
                for i, (_, rule) in enumerate(rules)
                # Most rules have nothing due: then there is no oldest row to read.
                if not isinstance(rule.selection.rule.bound, Cap) and (rule.due is None or rule.due.rows)
            }
        )
        soon = self._values(
            {
                i: self._soon(rule, every)
                for i, (n, rule) in enumerate(rules)
                if (every := readings[n].watched.every) is not None and not isinstance(rule.selection.rule.bound, Cap)
            }
        )
        found: dict[int, list[RuleHealth]] = {}
        become: dict[int, int | None] = {}
        for i, (n, rule) in enumerate(rules):
            every = readings[n].watched.every
            found.setdefault(n, []).append(self._rule(rule, every, oldest.get(i), soon.get(i)))
            become[n] = soon.get(i)
        timed = self._timed(readings)
        return tuple(
            self._refined(
                self._table(one, tuple(found.get(n, ())), sizes.get(n), timed.get(n)),
                become.get(n),
            )
            for n, one in enumerate(readings)
        )

    def _values(self, looks: dict[int, Probe]) -> dict[int, Any]:
        values = self.asking.read(list(looks.values()))
        return {number: value for number, value in zip(looks, values, strict=True) if value is not UNREAD}

    def _oldest(self, rule: RuleDue) -> Probe:
        write = partial(self.asking.looks.oldest_due, selection=rule.selection, now=self.asking.written_at)
        return self.asking.look_due("oldest_due", [rule.selection], write)

    def _soon(self, rule: RuleDue, every: timedelta) -> Probe:
        at, most = self.asking.written_at, self.settings.counted_rows
        write = partial(self.asking.looks.soon_due, selection=rule.selection, now=at, within=every, most=most)
        return self.asking.look_due("soon", [rule.selection], write)

    def _rule(self, rule: RuleDue, every: timedelta | None, oldest: Any, soon: Any) -> RuleHealth:
        selection = rule.selection
        moment = read_time(oldest, selection.time)
        last = self.swept.get((str(selection.name), selection.rule.name))
        late = None
        if every is not None and not isinstance(selection.rule.bound, Cap):
            late = self._late(rule, moment, every, last)
        pruned = None
        if last is not None and every is not None:
            pruned = last.rows / max((self.now - last.first_at).total_seconds(), every.total_seconds()) * 3_600
        return RuleHealth(
            rule=selection.rule.name,
            due=rule.due,
            oldest_due=moment,
            late_seconds=None if late is None else max(late.total_seconds(), 0.0),
            last_sweep=None if last is None else last.last_at,
            last_rows=None if last is None else last.last_rows,
            pruned_per_hour=pruned,
            due_per_hour=None if soon is None or every is None else soon / every.total_seconds() * 3_600,
            takes=not isinstance(selection.rule.action, Mark),
        )

    def _refined(self, table: TableHealth, soon: int | None) -> TableHealth:
        """Return the table with its inflow as the rate at which rows become due, where that exceeds the counting limit.

        With several rules, the rule that the inflow belongs to is unknown.
        """
        if len(table.rules) != 1 or soon is None or soon <= self.settings.counted_rows or table.inflow_per_hour is None:
            return table
        [rule] = table.rules
        more = max(rule.due_per_hour or 0.0, table.inflow_per_hour)
        return replace(table, rules=(replace(rule, due_per_hour=more),))

    def _late(
        self, rule: RuleDue, oldest: datetime | None, every: timedelta, last: RuleSweeps | None
    ) -> timedelta | None:
        if oldest is None:
            return timedelta(0) if rule.due is not None and not rule.due.rows else None
        late = late_by(rule.selection, oldest, self.now, every)
        if last is not None and forgiven(self.contract, rule.selection, last):
            return min(late, self.now - last.last_at - every)
        return late

    def _timed(self, readings: Sequence[PressureReading]) -> dict[int, float]:
        """Measure how long reads of the largest tables take; small ones always respond at once."""
        large = [
            (one.pressure.rows.rows, n)
            for n, one in enumerate(readings)
            if one.pressure.rows is not None and one.pressure.rows.rows > self.settings.counted_rows and one.rules
        ]
        timed = {}
        for _, n in sorted(large, reverse=True)[:_HOT_TABLES]:
            try:
                timed[n] = self.store.time_read(self._hot(readings[n]), _HOT_READS, LOOK_SECONDS)
            except Unreachable:
                raise
            except StoreError:
                timed[n] = LOOK_SECONDS
        return timed

    def _hot(self, one: PressureReading) -> Statement:
        """Build a read through the index that the rules need: the oldest row, or, without an index, a due one."""
        sight, most = one.watched.hot, self.settings.counted_rows
        if sight is None or sight.small:
            return rows_of(self.store).keys_due(one.rules[0].selection, self.now, 1)
        edge = partial(Probes(rows_of(self.store)).edge, sight=sight, most=most, newest=False)
        text, p = gather(rows_of(self.store), [edge])
        return p.statement(text)

    def _table(self, one: PressureReading, rules: tuple[RuleHealth, ...], size: Any, hot: float | None) -> TableHealth:
        table, pressure = one.watched.table, one.pressure
        every = one.watched.every
        finished = self._finished(one)
        recommended = self._partition(one, finished, 1.0)
        full = str(TableName(one.watched.info.name, one.watched.info.schema))
        measured = self.measured.get(full)
        trend, limit = (None, None) if measured is None else (measured.trend, measured.limit)
        if size is None and measured is not None:
            size = measured.bytes
        days = None
        if pressure.rows is not None and self._may_partition(one):
            days = days_to(self.settings.partition_rows, pressure.rows.rows, trend, limit).days
        growth = self.contract.growth
        soon = days is not None and days <= growth.warn / timedelta(days=1)
        return TableHealth(
            pressure=pressure,
            scheduler=None if table is None else table.scheduler,
            every_seconds=None if every is None else every.total_seconds(),
            bytes=None if size is None else int(size),
            oldest_age_seconds=None if pressure.oldest is None else (self.now - pressure.oldest).total_seconds(),
            hot_read_ms=None if hot is None else round(hot * 1_000, 3),
            finished=finished,
            may_partition=self._may_partition(one),
            partition_recommended=recommended,
            partition_near=not recommended and (soon or self._partition(one, finished, growth.near)),
            partition_days=days,
            growth_per_day=None if trend is None else trend.rate,
            enabled=pressure.table not in self.disabled,
            rules=rules,
        )

    def _finished(self, one: PressureReading) -> Count | None:
        rows = one.pressure.rows
        if rows is None or rows.rows < self.contract.growth.near * self.settings.partition_finished_rows:
            return None
        try:
            estimate = estimate_states(self.store, one.watched)
        except Unreachable:
            raise
        except StoreError:
            return None
        return None if estimate is None else Count(estimate, rows.exactness)

    def _may_partition(self, one: PressureReading) -> bool:
        """Check whether partitions apply: only PostgreSQL has them, and only tables with rules need them."""
        return self.store.kind == "postgres" and one.watched.info.kind is Kind.TABLE and bool(one.rules)

    def _partition(self, one: PressureReading, finished: Count | None, share: float) -> bool:
        """Check whether the table has reached a share of the number of rows from which partitions are recommended."""
        if not self._may_partition(one):
            return False
        rows = one.pressure.rows
        large = rows is not None and rows.rows >= share * self.settings.partition_rows
        return large or (finished is not None and finished.rows >= share * self.settings.partition_finished_rows)
