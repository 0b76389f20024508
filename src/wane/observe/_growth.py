"""Growth: how large tables were, how fast they grow, and when they will be too large.

Snapshots are taken by any running process, once in an interval; Wane's own contract thins them out. Everything reported
about a table comes from its snapshots alone, so the cost does not depend on the table's size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from wane._check.live import read_swept
from wane._contract.model import Contract, Mark
from wane._contract.settings import GrowthSettings
from wane._db import Store
from wane._db.counting import Exactness, as_count, measure_rows, stated
from wane._db.row_numbers import row_numbers
from wane._db.sizes import read_sizes
from wane._forecast import DaysTo, Expected, Limit, Trend, Verdict, days_to_each, expected, find_limit, shifted, trend
from wane._leases import Leases
from wane._ledger import Ledger
from wane.events import Listener, SnapshotTaken, TableNearThreshold, ignore_event
from wane.observe._measured import Measured, measured_tables
from wane.observe._reading import attempt
from wane.observe._sql_snapshots import Snapshot, Snapshots

FORECAST_DAYS = (7, 30, 90)
_MOST_SNAPSHOTS = 100_000
_READ_SECONDS = 5.0
_LEASE = "growth"
_LEASE_SECONDS = 300.0
_PASS_SECONDS = 5.0
"""The budget of a pass between two ticks of a scheduler; tables beyond it are estimated, and come first next time."""
_CHECK_SECONDS = 60.0
_WARN_SECONDS = 86_400.0
"""A table that stays near its threshold is reported once a day."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A table that is, or soon will be, larger than it should be."""

    threshold: int
    reason: str
    """"reached", "near" or "forecast"."""
    days: float | None
    """Until it is reached, if that is known."""


@dataclass(frozen=True, slots=True)
class TableGrowth:
    """The growth of one table, from its snapshots."""

    table: str
    taken_at: datetime | None
    """When it was last measured; None: never."""
    rows: int | None
    exact: bool
    bytes: int | None
    bytes_exact: bool
    verdict: Verdict
    rate: Trend | None
    """Rows a day."""
    limit: Limit | None
    """What it tends to, by its retention window or cap; None: nothing bounds it, or that is unknown."""
    bytes_rate: Trend | None
    days: tuple[DaysTo, ...]
    forecast: tuple[Expected, ...]
    alert: Alert | None
    history: tuple[tuple[datetime, int], ...]
    """(time, rows), oldest first."""

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain data, with a number of days or the word that stands for it."""
        return {
            "table": self.table,
            "taken_at": None if self.taken_at is None else self.taken_at.isoformat(),
            **stated("rows", as_count(self.rows, exact=self.exact)),
            **stated("bytes", as_count(self.bytes, exact=self.bytes_exact)),
            "verdict": self.verdict.value,
            "rows_per_day": _plain_trend(self.rate),
            "tends_to": None if self.limit is None else {"rows": self.limit.rows, "high": self.limit.high},
            "bytes_per_day": _plain_trend(self.bytes_rate),
            "days_to": {
                str(one.threshold): {
                    "days": one.word or _rounded(one.days),
                    "earliest": _rounded(one.earliest),
                    "latest": _rounded(one.latest),
                }
                for one in self.days
            },
            "forecast": [
                {"days": one.days, "rows": one.rows, "low": one.low, "high": one.high} for one in self.forecast
            ],
            "alert": None
            if self.alert is None
            else {
                "threshold": self.alert.threshold,
                "reason": self.alert.reason,
                "days": _rounded(self.alert.days),
            },
            "snapshots": len(self.history),
            "since": self.history[0][0].isoformat() if self.history else None,
        }


def _plain_trend(found: Trend | None) -> dict[str, float] | None:
    return (
        None
        if found is None
        else {"rate": round(found.rate, 3), "low": round(found.low, 3), "high": round(found.high, 3)}
    )


def _rounded(days: float | None) -> float | None:
    return None if days is None else round(days, 1)


def take_snapshots(
    store: Store, contract: Contract, *, most_seconds: float | None = None, listener: Listener = ignore_event
) -> list[Snapshot]:
    """Measure every table now, and store all snapshots in one transaction."""
    store.require_migrated()
    began, now = time.monotonic(), store.now()
    tables = measured_tables(store, contract)
    measured = _measure(store, tables, now, contract.growth, most_seconds)
    forecasts = _Forecasts(store, contract, now)
    taken = [forecasts.stored(one.shown, latest) for one, latest in zip(tables, measured, strict=True)]
    with store.transaction() as transaction:
        for snapshot in taken:
            forecasts.snapshots.write(transaction.execute, snapshot)
    counted = sum(one.exact for one in taken)
    listener(SnapshotTaken(len(taken), counted, time.monotonic() - began))
    return taken


def _measure(
    store: Store, tables: Sequence[Measured], now: datetime, settings: GrowthSettings, most_seconds: float | None
) -> list[Snapshot]:
    began, each = time.monotonic(), settings.count_within.total_seconds()
    counts, last_rows = {}, {}
    last_audit = Ledger(store.dialect, store.reader(_READ_SECONDS)).last_entry()
    # The order rotates, so that a budget that is too small for all tables reaches each in its turn.
    start = int(now.timestamp() / settings.every.total_seconds()) % max(len(tables), 1)
    for one in [*tables[start:], *tables[:start]]:
        left = each if most_seconds is None else min(each, most_seconds - (time.monotonic() - began))
        numbers = attempt(partial(row_numbers, store, one.info))
        last_rows[one.full] = None if numbers is None else numbers[1]
        counts[one.full] = measure_rows(store, one.info, max(left, 0.001))
    left = each if most_seconds is None else max(most_seconds - (time.monotonic() - began), 0.05)
    known = [(one.info, None if (count := counts[one.full]) is None else count.rows) for one in tables]
    sizes = read_sizes(store, known, min(each, left))
    found = []
    for one in tables:
        count, size = counts[one.full], sizes.get(one.info.qualified)
        found.append(
            Snapshot(
                now,
                one.full,
                None if count is None else count.rows,
                count is not None and count.exactness is Exactness.EXACT,
                None if size is None else size.bytes,
                size is not None and size.exact,
                last_row=last_rows[one.full],
                last_audit=last_audit,
            )
        )
    return found


def read_growth(store: Store, contract: Contract, table: str | None = None) -> list[TableGrowth]:
    """Read the growth of every table, or of one, from the stored snapshots, never from the tables themselves."""
    store.require_migrated()
    forecasts = _Forecasts(store, contract, store.now())
    return [forecasts.growth(one) for one in measured_tables(store, contract, table)]


class _Forecasts:
    """Forecasts tables from their snapshots, and from what left them by the audit trail."""

    def __init__(self, store: Store, contract: Contract, now: datetime) -> None:
        self.snapshots = Snapshots(store.dialect)
        self._run = store.reader(_READ_SECONDS)
        self._contract = contract
        self._settings: GrowthSettings = contract.growth
        self._now = now
        self._swept = read_swept(store)

    def stored(self, shown: str, latest: Snapshot) -> Snapshot:
        """Return a snapshot with the forecast that is stored with it."""
        found = self._trend([*self._history(latest.table, self._settings.window), latest])
        limit = self._limit(shown, latest.rows, found)
        if found is not None:
            latest = replace(latest, rate=found.rate, rate_low=found.low, rate_high=found.high)
        return latest if limit is None else replace(latest, row_limit=limit.rows, row_limit_high=limit.high)

    def growth(self, one: Measured) -> TableGrowth:
        history = self._history(one.full, self._settings.keep)
        counted = [(each.taken_at, each.rows) for each in history if each.rows is not None]
        last, rows = history[-1] if history else None, counted[-1][1] if counted else None
        recent = [each for each in history if each.taken_at >= self._now - self._settings.window]
        rate = self._trend(recent)
        sizes = [(_days(each, recent[0]), float(each.bytes)) for each in recent if each.bytes is not None]
        limit = self._limit(one.shown, rows, rate)
        days = days_to_each(self._settings, rows, rate, limit)
        return TableGrowth(
            table=one.shown,
            taken_at=None if last is None else last.taken_at,
            rows=rows,
            exact=next((each.exact for each in reversed(history) if each.rows is not None), False),
            bytes=None if last is None else last.bytes,
            bytes_exact=last is not None and last.bytes_exact,
            verdict=Verdict.UNKNOWN if rate is None else rate.verdict,
            rate=rate,
            limit=limit,
            bytes_rate=trend(sizes, self._settings.least / timedelta(days=1)),
            days=days,
            forecast=()
            if rate is None or rows is None
            else tuple(expected(rows, rate, float(ahead), limit) for ahead in FORECAST_DAYS),
            alert=None if rows is None else find_alert(rows, days, self._settings),
            history=tuple(counted),
        )

    def _history(self, table: str, window: timedelta) -> list[Snapshot]:
        return self.snapshots.history(self._run, table, self._now - window, self._now, _MOST_SNAPSHOTS)

    def _trend(self, history: Sequence[Snapshot]) -> Trend | None:
        points = [(_days(one, history[0]), float(one.rows)) for one in history if one.rows is not None]
        return trend(points, self._settings.least / timedelta(days=1))

    def _limit(self, shown: str, rows: int | None, found: Trend | None) -> Limit | None:
        """Return what a table tends to: what arrives is what it grows by, and what sweeps took meanwhile."""
        if rows is None:
            return None
        arriving = None if found is None else shifted(found, self._leaving_a_day(shown))
        return find_limit(self._contract, shown, rows, arriving)

    def _leaving_a_day(self, shown: str) -> float:
        return sum(
            last.rows / max((self._now - last.first_at) / timedelta(days=1), 1.0)
            for table in self._contract.tables
            if str(table.name) == shown
            for rule in table.rules
            if not isinstance(rule.action, Mark) and (last := self._swept.get((shown, rule.name))) is not None
        )


def _days(one: Snapshot, first: Snapshot) -> float:
    return (one.taken_at - first.taken_at) / timedelta(days=1)


def find_alert(rows: int, days: Sequence[DaysTo], settings: GrowthSettings) -> Alert | None:
    """Return an alert for the highest threshold that a table has reached, is near, or will reach soon."""
    for one in sorted(days, key=lambda each: each.threshold, reverse=True):
        soon = one.days is not None and one.days <= settings.warn / timedelta(days=1)
        if rows >= one.threshold:
            return Alert(one.threshold, "reached", 0.0)
        if rows >= settings.near * one.threshold:
            return Alert(one.threshold, "near", one.days)
        if soon:
            return Alert(one.threshold, "forecast", one.days)
    return None


class GrowthChore:
    """A runner's chore beside its windows: a snapshot of every table once in an interval, by one of all processes."""

    def __init__(self, contract: Contract, listener: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._contract = contract
        self._listener = listener
        self._clock = clock
        self.seconds = min(contract.growth.every.total_seconds() / 2, _CHECK_SECONDS)
        self._warned_at: dict[tuple[str, int], float] = {}

    def __call__(self, store: Store, holder: str) -> None:
        """Take a snapshot if one is due and no other process holds the lease."""
        every = self._contract.growth.every
        now = store.now()
        latest = Snapshots(store.dialect).latest_at(store.reader(_READ_SECONDS), now)
        # Times of snapshots have a resolution of one minute; half a minute early is on time.
        if latest is not None and now - latest < every - timedelta(seconds=30):
            return
        leases = Leases(store.dialect)
        with store.write() as (run, clock):
            until = (clock or now) + timedelta(seconds=_LEASE_SECONDS)
            taken, lease = leases.take(run, _LEASE, holder, until, clock)
        if not taken:
            return
        try:
            take_snapshots(store, self._contract, most_seconds=_PASS_SECONDS, listener=self._listener)
        finally:
            with store.write() as (run, clock):
                leases.end(run, lease, clock)
        self._warn(store)

    def _warn(self, store: Store) -> None:
        for one in read_growth(store, self._contract):
            if one.alert is None or one.rows is None:
                continue
            key = (one.table, one.alert.threshold)
            if self._clock() - self._warned_at.get(key, float("-inf")) < _WARN_SECONDS:
                continue
            self._warned_at[key] = self._clock()
            self._listener(
                TableNearThreshold(one.table, one.rows, one.alert.threshold, one.alert.reason, one.alert.days)
            )
