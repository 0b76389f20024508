"""Growth: how large tables were, how fast they grow, and when they will be too large.

Snapshots are taken by any running process, once in an interval; Wane's own contract thins them out. Everything reported
about a table comes from its snapshots alone, so the cost does not depend on the table's size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from wane.contract.model import Contract
from wane.contract.settings import GrowthSettings
from wane.db import Store
from wane.db.counting import Exactness, measure_rows
from wane.db.space import read_sizes
from wane.events import Listener, SnapshotTaken, TableNearThreshold, nobody
from wane.leases import Leases
from wane.observe.forecast import DaysTo, Expected, Trend, Verdict, days_to, expected, trend
from wane.observe.measured import Measured, measured_tables
from wane.observe.sql_snapshots import Snapshot, Snapshots

FORECAST_DAYS = (7, 30, 90)
_MOST_SNAPSHOTS = 100_000
_READ_SECONDS = 5.0
_LEASE = "growth"
_LEASE_SECONDS = 300.0
_PASS_SECONDS = 5.0
"""The budget of a pass between two ticks of a scheduler; tables beyond it are estimated, and come first next time."""
_LOOK_SECONDS = 60.0
_TELL_SECONDS = 86_400.0
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
            "rows": self.rows,
            "exact": self.exact,
            "bytes": self.bytes,
            "bytes_exact": self.bytes_exact,
            "verdict": self.verdict.value,
            "rows_per_day": _plain_trend(self.rate),
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
    store: Store, contract: Contract, *, most_seconds: float | None = None, listener: Listener = nobody
) -> list[Snapshot]:
    """Measure every table now, and store all snapshots in one transaction."""
    store.require_migrated()
    began, now = time.monotonic(), store.now()
    measured = _measure(store, measured_tables(store, contract), now, contract.growth, most_seconds)
    snapshots = Snapshots(store.dialect)
    taken = [_with_trend(store, snapshots, one, contract.growth) for one in measured]
    with store.transaction() as transaction:
        for snapshot in taken:
            snapshots.write(transaction.execute, snapshot)
    counted = sum(one.exact for one in taken)
    listener(SnapshotTaken(len(taken), counted, time.monotonic() - began))
    return taken


def _measure(
    store: Store, tables: Sequence[Measured], now: datetime, settings: GrowthSettings, most_seconds: float | None
) -> list[Snapshot]:
    began, each = time.monotonic(), settings.count_within.total_seconds()
    counts = {}
    # The order rotates, so that a budget that is too small for all tables reaches each in its turn.
    start = int(now.timestamp() / settings.every.total_seconds()) % max(len(tables), 1)
    for one in [*tables[start:], *tables[:start]]:
        left = each if most_seconds is None else min(each, most_seconds - (time.monotonic() - began))
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
            )
        )
    return found


def _with_trend(store: Store, snapshots: Snapshots, latest: Snapshot, settings: GrowthSettings) -> Snapshot:
    before = _history(store, snapshots, latest.table, latest.taken_at, settings.window)
    found = _trend([*before, latest], settings)
    return latest if found is None else replace(latest, rate=found.rate, rate_low=found.low, rate_high=found.high)


def read_growth(store: Store, contract: Contract, table: str | None = None) -> list[TableGrowth]:
    """Read the growth of every table, or of one, from the stored snapshots, never from the tables themselves."""
    store.require_migrated()
    snapshots, settings, now = Snapshots(store.dialect), contract.growth, store.now()
    found = []
    for one in measured_tables(store, contract, table):
        history = _history(store, snapshots, one.full, now, settings.keep)
        found.append(_growth(one.shown, history, now, settings))
    return found


def _history(store: Store, snapshots: Snapshots, table: str, until: datetime, window: timedelta) -> list[Snapshot]:
    return snapshots.history(store.reader(_READ_SECONDS), table, until - window, until, _MOST_SNAPSHOTS)


def _growth(shown: str, history: Sequence[Snapshot], now: datetime, settings: GrowthSettings) -> TableGrowth:
    counted = [one for one in history if one.rows is not None]
    latest = counted[-1] if counted else None
    recent = [one for one in history if one.taken_at >= now - settings.window]
    rate = _trend(recent, settings)
    sizes = [(_days(one, recent[0]), float(one.bytes)) for one in recent if one.bytes is not None]
    rows = None if latest is None else latest.rows
    days = tuple(
        days_to(threshold, rows, rate) if rows is not None else DaysTo(threshold, None, word="n/a")
        for threshold in settings.thresholds
    )
    last = history[-1] if history else None
    return TableGrowth(
        table=shown,
        taken_at=None if last is None else last.taken_at,
        rows=rows,
        exact=latest is not None and latest.exact,
        bytes=None if last is None else last.bytes,
        bytes_exact=last is not None and last.bytes_exact,
        verdict=Verdict.UNKNOWN if rate is None else rate.verdict,
        rate=rate,
        bytes_rate=trend(sizes, settings.least / timedelta(days=1)),
        days=days,
        forecast=()
        if rate is None or rows is None
        else tuple(expected(rows, rate, float(ahead)) for ahead in FORECAST_DAYS),
        alert=None if rows is None else find_alert(rows, days, settings),
        history=tuple((one.taken_at, one.rows) for one in counted if one.rows is not None),
    )


def _trend(history: Sequence[Snapshot], settings: GrowthSettings) -> Trend | None:
    points = [(_days(one, history[0]), float(one.rows)) for one in history if one.rows is not None]
    return trend(points, settings.least / timedelta(days=1))


def told_trend(latest: Snapshot) -> Trend | None:
    """Return the trend stored with a snapshot; only its rate is stored, not the spread of the points around it."""
    if latest.rate is None or latest.rate_low is None or latest.rate_high is None:
        return None
    return Trend(latest.rate, latest.rate_low, latest.rate_high)


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


class GrowthDuty:
    """A runner's duty between ticks: a snapshot of every table once in an interval, by one of all processes."""

    def __init__(self, contract: Contract, listener: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._contract = contract
        self._listener = listener
        self._clock = clock
        self._look_at = float("-inf")
        self._told: dict[tuple[str, int], float] = {}

    def __call__(self, store: Store, holder: str) -> None:
        """Take a snapshot if one is due and no other process holds the lease."""
        every = self._contract.growth.every
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + min(every.total_seconds() / 2, _LOOK_SECONDS)
        now = store.now()
        latest = Snapshots(store.dialect).latest_at(store.reader(_READ_SECONDS), now)
        # Times of snapshots have a resolution of one minute; half a minute early is on time.
        if latest is not None and now - latest < every - timedelta(seconds=30):
            return
        leases = Leases(store.dialect)
        with store.write() as (run, moment):
            until = (moment or now) + timedelta(seconds=_LEASE_SECONDS)
            taken, lease = leases.take(run, _LEASE, holder, until, moment)
        if not taken:
            return
        try:
            take_snapshots(store, self._contract, most_seconds=_PASS_SECONDS, listener=self._listener)
        finally:
            with store.write() as (run, moment):
                leases.end(run, lease, moment)
        self._tell(store)

    def _tell(self, store: Store) -> None:
        for one in read_growth(store, self._contract):
            if one.alert is None or one.rows is None:
                continue
            key = (one.table, one.alert.threshold)
            if self._clock() - self._told.get(key, float("-inf")) < _TELL_SECONDS:
                continue
            self._told[key] = self._clock()
            self._listener(
                TableNearThreshold(one.table, one.rows, one.alert.threshold, one.alert.reason, one.alert.days)
            )
