"""Metrics that only the database knows: queue depths, due rows and how late they are, executors, growth and health.

They are projections of one reading, which has a budget. A table that took too long is skipped for a while. What was
left out this time is reported from the last reading, while that is fresh enough.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from wane._contract.model import Cap, Contract, ToArchive
from wane._db import Store
from wane._db.counting import Exactness
from wane._db.statement import Statement
from wane._forecast import days_to_each
from wane._rules.rows import cutoff
from wane.errors import StoreError, Unreachable
from wane.observe import _gauge as gauge
from wane.observe._examine import examine
from wane.observe._facts import Facts, RuleFacts, TableFacts
from wane.observe._gauge import Gauge, Sample, Values
from wane.observe._growth import find_alert
from wane.observe._health import Health, TableHealth
from wane.observe._logs import UNSCHEDULED
from wane.observe._measured import shown_name
from wane.observe._own_facts import OwnFacts
from wane.observe._probe import Prober
from wane.observe._reading import PROBE_SECONDS
from wane.queue._dialects import messages_of

_MOST_POOLS = 100
_MOST_TABLES = 500
_LEAST_SECONDS = 0.05
"""With less time left, nothing is read."""
_RETRY_SECONDS = 300.0
"""How long a table, or everything, is skipped after reading it took too long, or failed."""
_FRESH_SECONDS = 300.0
"""How long the last reading replaces one that was left out."""


@dataclass(slots=True)
class _Last:
    """The last samples of something, and when they were read."""

    read_at: float = float("-inf")
    samples: list[Sample] = field(default_factory=list)


class Gauges:
    """Reads the gauges of one contract."""

    def __init__(
        self, contract: Contract, *, budget_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.contract = contract
        self.budget_seconds = budget_seconds
        self.prober = Prober(contract, retry_seconds=_RETRY_SECONDS, clock=clock)
        self._clock = clock
        self._failed_at = float("-inf")
        self._health = _Last()
        self._rules = {(str(table.name), rule.name): _Last() for table, rule in contract.rules()}

    def read(self, store: Store) -> Values:
        """Read what the budget allows; raise if the database is unreachable."""
        began = self._clock()
        end = began + self.budget_seconds
        values: Values = defaultdict(list)
        found = [*self._queues(store, end), *self._facts(store, end), *self._last()]
        for one, labels, value in [*found, (gauge.READ_SECONDS, (), self._clock() - began)]:
            values[one].append((labels, value))
        return values

    def _queues(self, store: Store, end: float) -> list[Sample]:
        def run(text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
            return store.read(Statement(text, parameters), max(min(end - self._clock(), PROBE_SECONDS), 0.001))

        if not store.is_migrated():
            return []
        found: list[Sample] = []
        try:
            now, messages = store.now(), messages_of(store)
            for pool in dict.fromkeys([self.contract.queue.pool, *messages.pools(run, _MOST_POOLS)]):
                for state, (many, oldest) in messages.depths(run, pool, gauge.COUNTED_MESSAGES).items():
                    found.append((gauge.MESSAGES, (pool, state.value), many))
                    found.append((gauge.OLDEST_MESSAGE, (pool, state.value), _ago(now, oldest)))
        except Unreachable:
            raise
        except StoreError:
            pass  # Too slow, or not readable for this role: the others may work.
        return found

    def _facts(self, store: Store, end: float) -> list[Sample]:
        """Read the facts, if there is time; remember the samples of rules and of health, return the others."""
        began = self._clock()
        if end - began < _LEAST_SECONDS or began - self._failed_at < _RETRY_SECONDS:
            return []
        try:
            facts = self.prober.read(store, end - began)
        except Unreachable:
            raise
        except StoreError:
            self._failed_at = began
            return []
        for table in facts.tables:
            for rule in table.rules:
                known = self._rules.get((str(table.table.name), rule.selection.rule.name))
                if known is not None and rule.due is not None:
                    known.samples, known.read_at = list(_backlog(rule, table, facts.now)), self._clock()
        if facts.problem is None:
            health = examine(facts, self.contract)
            self._health = _Last(self._clock(), list(_health(health)))
        return [] if facts.own is None else list(self._own(facts, facts.own))

    def _last(self) -> Iterable[Sample]:
        fresh = self._clock() - _FRESH_SECONDS
        unread = 0
        for known in [self._health, *self._rules.values()]:
            if known.read_at >= fresh:
                yield from known.samples
            elif known is not self._health:
                unread += 1
        yield gauge.UNREAD_RULES, (), unread

    def _own(self, facts: Facts, own: OwnFacts) -> Iterable[Sample]:
        for window in own.windows.values():
            yield gauge.LATE, (window.scheduler,), _ago(facts.now, window.due_at)
        for heartbeat in own.executors:
            yield gauge.HEARTBEAT_AGE, (heartbeat.executor, heartbeat.role), _ago(facts.now, heartbeat.beat_at)
            yield gauge.HEARTBEAT_INTERVAL, (heartbeat.executor, heartbeat.role), heartbeat.every_seconds
        settings = self.contract.growth
        for one in own.snapshots[:_MOST_TABLES]:
            table = shown_name(self.contract, one.table)
            if one.bytes is not None:
                yield gauge.TABLE_BYTES, (table,), one.bytes
            if one.rows is None:
                continue
            yield gauge.TABLE_ROWS, (table,), one.rows
            yield gauge.TABLE_ROWS_EXACT, (table,), float(one.exact)
            if one.rate is not None:
                yield gauge.TABLE_RATE, (table,), one.rate
            days = days_to_each(settings, one.rows, one.trend, one.limit)
            alert = find_alert(one.rows, days, settings)
            for each in days:
                labels = (table, str(each.threshold))
                yield gauge.NEAR, labels, float(alert is not None and alert.threshold == each.threshold)
                if each.days is not None:
                    yield gauge.DAYS_TO, labels, each.days
        if own.snapshots:
            yield gauge.SNAPSHOT_AGE, (), _ago(facts.now, own.snapshots[0].taken_at)


def _backlog(rule: RuleFacts, one: TableFacts, now: datetime) -> Iterable[Sample]:
    assert rule.due is not None
    selection = rule.selection
    scheduler = None if one.table.table is None else one.table.table.scheduler
    labels = (scheduler or UNSCHEDULED, str(selection.name), selection.rule.name)
    yield gauge.BACKLOG, labels, float(rule.due.rows)
    yield gauge.BACKLOG_EXACT, labels, float(rule.due.exactness is Exactness.EXACT)
    if rule.due.rows and rule.oldest_due is None:
        return  # It is late, but for how long is unknown.
    yield gauge.OLDEST_DUE, labels, _ago(now, rule.oldest_due)
    if not isinstance(selection.rule.bound, Cap) and selection.longer is None:
        overdue = _ago(cutoff(selection.rule, now), rule.oldest_due)
        yield gauge.OVERDUE, labels, overdue
        if isinstance(selection.rule.action, ToArchive):
            yield gauge.ARCHIVE_LAG, labels, overdue


def _health(health: Health) -> Iterable[Sample]:
    yield gauge.HEALTHY, (), float(health.healthy)
    yield gauge.UNCOVERED, (), float(len(health.uncovered))
    counts = Counter((one.severity.value, one.code, one.table) for one in health.findings if one.accepted is None)
    for labels, many in counts.items():
        yield gauge.FINDINGS, labels, float(many)
    for table in health.tables:
        for one, value in _table(table):
            if value is not None:
                yield one, (table.pressure.table,), value


def _table(table: TableHealth) -> Iterable[tuple[Gauge, float | None]]:
    yield gauge.TABLE_LATE, table.late_seconds
    yield gauge.TABLE_OLDEST, None if table.oldest_age_seconds is None else max(table.oldest_age_seconds, 0.0)
    yield gauge.TABLE_SWEPT, None if table.last_sweep is None else table.last_sweep.timestamp()
    yield gauge.TABLE_INFLOW, table.inflow_per_hour
    yield gauge.TABLE_PRUNED, table.pruned_per_hour
    drain = table.drain
    # Of a lower bound, an alert could not be made.
    yield gauge.TABLE_DRAIN, None if drain is None or drain.exactness is Exactness.AT_LEAST else drain.value
    yield gauge.TABLE_READ, None if table.hot_read_ms is None else table.hot_read_ms / 1_000
    yield gauge.TABLE_PARTITION, float(table.partition_recommended) if table.may_partition else None


def _ago(now: datetime | None, then: datetime | None) -> float:
    """Return how many seconds ago a time was; 0 if it is unknown or in the future."""
    return 0.0 if now is None or then is None else max((now - then).total_seconds(), 0.0)
