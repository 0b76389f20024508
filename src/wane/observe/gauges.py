"""Metrics that only the database knows: queue depths, due rows and how late they are, and which executors are alive.

Every reading is bounded: each probe counts up to a limit and has a time limit, and all of them together have a budget.
A rule whose probe took too long is skipped for a while. What was left out this time is reported from the last reading,
while that is fresh enough.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from wane.contract.model import Cap, Contract, Rule, Table, ToArchive
from wane.db import Store
from wane.db.statement import Statement
from wane.errors import Locked, StoreError, TimedOut, Unreachable
from wane.forecast import days_to
from wane.observe.gauge import Gauge, Told, Values
from wane.observe.growth import find_alert
from wane.observe.health_gauges import HEALTH_GAUGES, HealthGauges
from wane.observe.logs import UNSCHEDULED
from wane.observe.measured import shown_name
from wane.observe.sql_snapshots import Snapshots
from wane.queue.dialects import messages_of
from wane.rules.due import cutoff
from wane.rules.reads import backlog
from wane.rules.selection import Selection, bind_rule
from wane.schedule.sql import Timetable

COUNTED_ROWS = 10_000
"""Gauges that count rows or messages stop here: the value is then a lower bound."""
_MOST_POOLS = 100
_MOST_EXECUTORS = 500
_MOST_TABLES = 500
_LOOK_SECONDS = 0.25
"""The most seconds that one probe may take."""
_ALONE_SECONDS = 300.0
"""How long a rule is skipped after its probe took too long, or failed."""
_KEPT_SECONDS = 300.0
"""How long the last reading of a rule replaces one that was left out."""
_BOUND_SECONDS = 60.0
"""How long a reflected schema is reused."""


_RULE = ("scheduler", "table", "rule")
UP = Gauge("wane_up", "Whether the database could be read: 1, or 0.")
READ_SECONDS = Gauge("wane_database_read_seconds", "How long reading these gauges took, the last time it was done.")
BACKLOG = Gauge("wane_backlog_rows", f"Rows that are due and not yet gone, counted up to {COUNTED_ROWS:,}.", _RULE)
OLDEST_DUE = Gauge(
    "wane_oldest_due_row_age_seconds", "Age of the oldest due row by the rule's time column, 0 if none is due.", _RULE
)
OVERDUE = Gauge("wane_overdue_seconds", "How long the oldest due row has been due, 0 if none is.", _RULE)
ARCHIVE_LAG = Gauge(
    "wane_archive_lag_seconds", "How long the oldest row has been due to move to the archive, 0 if none is.", _RULE
)
UNREAD = Gauge("wane_backlog_unread_rules", "Rules whose backlog is not told, because looking takes too long or fails.")
MESSAGES = Gauge(
    "wane_queue_messages",
    f"Messages of the cleanup queue, counted up to {COUNTED_ROWS:,}; dead: not resolved.",
    ("pool", "state"),
)
OLDEST_MESSAGE = Gauge(
    "wane_queue_oldest_message_age_seconds",
    "How long ago the oldest of these messages was enqueued, 0 if there is none.",
    ("pool", "state"),
)
LATE = Gauge(
    "wane_scheduler_late_seconds", "How long a scheduler's next window has been due without a tick.", ("scheduler",)
)
BEAT_AGE = Gauge("wane_executor_beat_age_seconds", "How long ago an executor was last alive.", ("executor", "role"))
BEAT_EVERY = Gauge(
    "wane_executor_beat_interval_seconds", "How often an executor says that it is alive.", ("executor", "role")
)
SNAPSHOT_AGE = Gauge("wane_snapshot_age_seconds", "How long ago all tables were last measured.")
TABLE_ROWS = Gauge("wane_table_rows", "Rows of a table when it was last measured, counted or estimated.", ("table",))
TABLE_BYTES = Gauge("wane_table_bytes", "What a table took with its indexes when it was last measured.", ("table",))
TABLE_RATE = Gauge("wane_table_growth_rows_per_day", "How fast a table grows, where that can be said.", ("table",))
DAYS_TO = Gauge(
    "wane_table_threshold_days",
    "Days until a table reaches a threshold of rows, 0 if it has; absent: never, or nobody can tell.",
    ("table", "threshold"),
)
NEAR = Gauge(
    "wane_table_threshold_near",
    "1 if a table has reached a threshold of rows or soon will, else 0.",
    ("table", "threshold"),
)
GAUGES = (
    UP,
    READ_SECONDS,
    BACKLOG,
    OLDEST_DUE,
    OVERDUE,
    ARCHIVE_LAG,
    UNREAD,
    MESSAGES,
    OLDEST_MESSAGE,
    LATE,
    BEAT_AGE,
    BEAT_EVERY,
    SNAPSHOT_AGE,
    TABLE_ROWS,
    TABLE_BYTES,
    TABLE_RATE,
    DAYS_TO,
    NEAR,
    *HEALTH_GAUGES,
)


@dataclass(slots=True)
class _Known:
    """The last readings of one rule."""

    looked_at: float = float("-inf")
    read_at: float = float("-inf")
    failed_at: float = float("-inf")
    cut_short: bool = False
    """Whether the budget ended during the last probe, whose failure therefore means nothing."""
    values: list[tuple[Gauge, float]] = field(default_factory=list)


class Gauges:
    """Reads the gauges of one contract."""

    def __init__(
        self,
        contract: Contract,
        *,
        health: HealthGauges | None = None,
        budget_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the gauges; with `health`, its verdict is reported, too."""
        self.contract = contract
        self.budget_seconds = budget_seconds
        self._clock = clock
        self._rules = list(contract.rules())
        self._known = {self._labels(table, rule): _Known() for table, rule in self._rules}
        self._bound: dict[tuple[str, ...], Selection] = {}
        self._bound_at = float("-inf")
        self._health = health

    def read(self, store: Store) -> Values:
        """Read what the budget allows; raise if the database is unreachable."""
        began = self._clock()
        end = began + self.budget_seconds
        values: Values = defaultdict(list)
        now = store.now()
        if store.is_migrated():
            self._own_tables(store, now, end, values)
        # Half of the remaining time is for the backlogs, which are read rule by rule.
        if self._health is not None:
            for gauge, labels, value in self._health.read(store, (end - self._clock()) / 2):
                values[gauge].append((labels, value))
        self._backlogs(store, now, end, values)
        values[READ_SECONDS].append(((), self._clock() - began))
        return values

    # Wane's own tables

    def _own_tables(self, store: Store, now: datetime, end: float, values: Values) -> None:
        def run(text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
            return store.read(Statement(text, parameters), self._left(end))

        for read in (self._schedulers, self._executors, self._queues, self._growth):
            if self._clock() >= end:
                return
            try:
                found = list(read(store, run, now))
            except Unreachable:
                raise
            except StoreError:
                continue  # Too slow, or not readable for this role: the others may work.
            for gauge, labels, value in found:
                values[gauge].append((labels, value))

    def _schedulers(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        for window in Timetable(store.dialect).windows(run):
            yield LATE, (window.scheduler,), _seconds(now, window.due_at)

    def _executors(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        for beat in Timetable(store.dialect).heartbeats(run, _MOST_EXECUTORS):
            yield BEAT_AGE, (beat.executor, beat.role), _seconds(now, beat.beat_at)
            yield BEAT_EVERY, (beat.executor, beat.role), beat.every_seconds

    def _queues(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        known = messages_of(store).pools(run, _MOST_POOLS)
        for pool in dict.fromkeys([self.contract.queue.pool, *known]):
            for state, (many, oldest) in messages_of(store).depths(run, pool, COUNTED_ROWS).items():
                yield MESSAGES, (pool, state.value), many
                yield OLDEST_MESSAGE, (pool, state.value), _seconds(now, oldest)

    def _growth(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        settings = self.contract.growth
        for one in Snapshots(store.dialect).latest(run, now, _MOST_TABLES):
            table = shown_name(self.contract, one.table)
            if one.bytes is not None:
                yield TABLE_BYTES, (table,), one.bytes
            if one.rows is None:
                continue
            yield TABLE_ROWS, (table,), one.rows
            if one.rate is not None:
                yield TABLE_RATE, (table,), one.rate
            days = [days_to(threshold, one.rows, one.trend, one.limit) for threshold in settings.thresholds]
            alert = find_alert(one.rows, days, settings)
            for each in days:
                labels = (table, str(each.threshold))
                yield NEAR, labels, float(alert is not None and alert.threshold == each.threshold)
                if each.days is not None:
                    yield DAYS_TO, labels, each.days
        at = Snapshots(store.dialect).latest_at(run, now)
        if at is not None:
            yield SNAPSHOT_AGE, (), _seconds(now, at)

    # Users' tables

    def _backlogs(self, store: Store, now: datetime, end: float, values: Values) -> None:
        self._bind(store)
        # The rule read longest ago comes first, so that a small budget reaches every rule in the end.
        for labels in sorted(self._bound, key=lambda one: self._known[one].looked_at):
            known, began = self._known[labels], self._clock()
            if began >= end:
                break
            if began - known.failed_at < _ALONE_SECONDS:
                continue
            seconds, cut_before = self._left(end), known.cut_short
            known.cut_short = False
            try:
                known.values = self._backlog(store, self._bound[labels], now, seconds)
                known.read_at = self._clock()
            except Unreachable:
                raise
            except (TimedOut, Locked):
                if seconds < _LOOK_SECONDS and not cut_before:
                    known.cut_short = True  # It comes first next time.
                    break
                known.failed_at = began
            except StoreError:
                known.failed_at = began
            known.looked_at = began
        unread = 0
        for labels, known in self._known.items():
            if self._clock() - known.read_at > _KEPT_SECONDS:
                unread += 1
                continue
            for gauge, value in known.values:
                values[gauge].append((labels, value))
        values[UNREAD].append(((), unread))

    def _backlog(self, store: Store, selection: Selection, now: datetime, seconds: float) -> list[tuple[Gauge, float]]:
        rows, oldest = backlog(store, selection, now, COUNTED_ROWS, seconds)
        told = [(BACKLOG, float(rows)), (OLDEST_DUE, _seconds(now, oldest))]
        if not isinstance(selection.rule.bound, Cap):
            overdue = _seconds(cutoff(selection.rule, now), oldest)
            told.append((OVERDUE, overdue))
            if isinstance(selection.rule.action, ToArchive):
                told.append((ARCHIVE_LAG, overdue))
        return told

    def _bind(self, store: Store) -> None:
        if self._clock() - self._bound_at < _BOUND_SECONDS:
            return
        schema = store.reflect()
        bound = {}
        for table, rule in self._rules:
            selection, _ = bind_rule(self.contract, table, rule, schema, store.types)
            if selection is not None:  # `wane check --cover` reports what does not bind.
                bound[self._labels(table, rule)] = selection
        self._bound, self._bound_at = bound, self._clock()

    @staticmethod
    def _labels(table: Table, rule: Rule) -> tuple[str, ...]:
        return (table.scheduler or UNSCHEDULED, str(table.name), rule.name)

    def _left(self, end: float) -> float:
        return max(min(end - self._clock(), _LOOK_SECONDS), 0.001)


_Run = Callable[[str, dict[str, object]], list[tuple[Any, ...]]]


def _seconds(now: datetime | None, then: datetime | None) -> float:
    """Return how many seconds ago a time was; 0 if it is unknown or in the future."""
    return 0.0 if now is None or then is None else max((now - then).total_seconds(), 0.0)
