"""What only the database knows: how deep queues are, what is due and how late, and who is alive.

Every reading is bounded: each look counts up to a limit and has its seconds, and all of them together have a budget. A rule whose
look took too long is left alone for a while. What was left out this time is told from the last time, while that is fresh enough.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from wane.contract.model import Archive, Cap, Contract, Rule, Table
from wane.errors import Locked, StoreError, TimedOut, Unreachable
from wane.observe.forecast import days_to
from wane.observe.gauge import Gauge, Told, Values
from wane.observe.growth import find_alert, told_trend
from wane.observe.health_gauges import HEALTH_GAUGES, HealthGauges
from wane.observe.logs import UNSCHEDULED
from wane.observe.measured import shown_name
from wane.store import Store
from wane.store.due import cutoff
from wane.store.selection import Selection, bind_rule
from wane.store.snapshots import Snapshots
from wane.store.statement import Statement

COUNTED_ROWS = 10_000
"""Gauges that count rows or messages count no further: they say "at least so many" then."""
_MOST_POOLS = 100
_MOST_EXECUTORS = 500
_MOST_TABLES = 500
_LOOK_SECONDS = 0.25
"""The most that one look may take."""
_ALONE_SECONDS = 300.0
"""How long a rule is left alone after a look at it took too long, or failed."""
_KEPT_SECONDS = 300.0
"""How long the last reading of a rule stands in for one that was left out."""
_BOUND_SECONDS = 60.0
"""How long a look at the schema is trusted."""


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
    """What is known of one rule."""

    looked_at: float = float("-inf")
    read_at: float = float("-inf")
    failed_at: float = float("-inf")
    cut_short: bool = False
    """Whether the budget ended during the last look, which therefore says nothing."""
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
        """With `health`, its verdict is told too."""
        self.contract = contract
        self.budget_seconds = budget_seconds
        self._clock = clock
        self._rules = list(contract.rules())
        self._known = {self._labels(table, rule): _Known() for table, rule in self._rules}
        self._bound: dict[tuple[str, ...], Selection] = {}
        self._bound_at = float("-inf")
        self._health = health

    def read(self, store: Store) -> Values:
        """Read what the budget allows; raise if the database is not there."""
        began = self._clock()
        end = began + self.budget_seconds
        values: Values = defaultdict(list)
        now = store.now()
        if store.is_migrated():
            store.rows.with_holds = True  # Wane's own tables may have come after the connection.
            self._own_tables(store, now, end, values)
        # Half of what is left is for the backlogs, which are told rule by rule.
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
                continue  # Too slow, or not for this role to read: the others may be.
            for gauge, labels, value in found:
                values[gauge].append((labels, value))

    def _schedulers(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        for window in store.timetable.windows(run):
            yield LATE, (window.scheduler,), _seconds(now, window.due_at)

    def _executors(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        for beat in store.timetable.heartbeats(run, _MOST_EXECUTORS):
            yield BEAT_AGE, (beat.executor, beat.role), _seconds(now, beat.beat_at)
            yield BEAT_EVERY, (beat.executor, beat.role), beat.every_seconds

    def _queues(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        known = store.messages.pools(run, _MOST_POOLS)
        for pool in dict.fromkeys([self.contract.queue.pool, *known]):
            for state, (many, oldest) in store.messages.depths(run, pool, COUNTED_ROWS).items():
                yield MESSAGES, (pool, state.value), many
                yield OLDEST_MESSAGE, (pool, state.value), _seconds(now, oldest)

    def _growth(self, store: Store, run: _Run, now: datetime) -> Iterable[Told]:
        settings = self.contract.growth
        for one in Snapshots(store.rows.dialect).latest(run, now, _MOST_TABLES):
            table = shown_name(self.contract, one.table)
            if one.bytes is not None:
                yield TABLE_BYTES, (table,), one.bytes
            if one.rows is None:
                continue
            yield TABLE_ROWS, (table,), one.rows
            known = told_trend(one)
            if known is not None:
                yield TABLE_RATE, (table,), known.rate
            days = [days_to(threshold, one.rows, known) for threshold in settings.thresholds]
            alert = find_alert(one.rows, days, settings)
            for each in days:
                labels = (table, str(each.threshold))
                yield NEAR, labels, float(alert is not None and alert.threshold == each.threshold)
                if each.days is not None:
                    yield DAYS_TO, labels, each.days
        at = Snapshots(store.rows.dialect).latest_at(run, now)
        if at is not None:
            yield SNAPSHOT_AGE, (), _seconds(now, at)

    # Users' tables

    def _backlogs(self, store: Store, now: datetime, end: float, values: Values) -> None:
        self._bind(store)
        # Whoever waited longest comes first, so that a small budget reaches everybody in the end.
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
                    known.cut_short = True  # It comes first the next time.
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
        rows, oldest = store.backlog(selection, now, COUNTED_ROWS, seconds)
        told = [(BACKLOG, float(rows)), (OLDEST_DUE, _seconds(now, oldest))]
        if not isinstance(selection.rule.bound, Cap):
            overdue = _seconds(cutoff(selection.rule, now), oldest)
            told.append((OVERDUE, overdue))
            if isinstance(selection.rule.action, Archive):
                told.append((ARCHIVE_LAG, overdue))
        return told

    def _bind(self, store: Store) -> None:
        if self._clock() - self._bound_at < _BOUND_SECONDS:
            return
        schema = store.reflect()
        bound = {}
        for table, rule in self._rules:
            selection, _ = bind_rule(self.contract, table, rule, schema, store.types)
            if selection is not None:  # `wane check --cover` says what does not fit.
                bound[self._labels(table, rule)] = selection
        self._bound, self._bound_at = bound, self._clock()

    @staticmethod
    def _labels(table: Table, rule: Rule) -> tuple[str, ...]:
        return (table.scheduler or UNSCHEDULED, str(table.name), rule.name)

    def _left(self, end: float) -> float:
        return max(min(end - self._clock(), _LOOK_SECONDS), 0.001)


_Run = Callable[[str, dict[str, object]], list[tuple[Any, ...]]]


def _seconds(now: datetime | None, then: datetime | None) -> float:
    """How long ago; a moment that is still to come is not."""
    return 0.0 if now is None or then is None else max((now - then).total_seconds(), 0.0)
