"""Health as gauges, so that a scrape contains the verdict, too.

It is read within the remaining time of a scrape. If reading fails, it is skipped for a while, and while the last
reading is fresh enough, that one is reported.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from wane.contract.model import Contract
from wane.db import Store
from wane.errors import StoreError, Unreachable
from wane.observe.examine import read_health
from wane.observe.gauge import Gauge, Told
from wane.observe.health import Health, TableHealth
from wane.observe.watched import Watcher

HEALTHY = Gauge("wane_healthy", "Whether retention does its work: 1, or 0; wane_health_findings says what is wrong.")
FINDINGS = Gauge(
    "wane_health_findings",
    "Findings of health. Errors make it unhealthy, warnings do not.",
    ("severity", "code", "table"),
)
UNCOVERED = Gauge("wane_uncovered_tables", "Tables that the contract does not name.")
TABLE_LATE = Gauge(
    "wane_table_late_seconds",
    "How long the oldest due row of a table has waited beyond its window and one sweep interval.",
    ("table",),
)
TABLE_OLDEST = Gauge(
    "wane_table_oldest_row_age_seconds",
    "Age of the oldest row of a table, by its `age` or `time`; absent: no rows, or not read.",
    ("table",),
)
TABLE_SWEPT = Gauge(
    "wane_table_last_sweep_timestamp_seconds", "When a table was last swept, by the trail; absent: never.", ("table",)
)
TABLE_INFLOW = Gauge("wane_table_inflow_rows_per_hour", "What comes into a table, where that can be said.", ("table",))
TABLE_PRUNED = Gauge("wane_table_pruned_rows_per_hour", "What sweeps take of a table, by the trail.", ("table",))
TABLE_DRAIN = Gauge(
    "wane_table_drain_seconds",
    "How long until nothing of a table is due at this pace; absent: never, or nobody can tell.",
    ("table",),
)
TABLE_READ = Gauge(
    "wane_table_hot_read_seconds", "What a read of one row through a rule's index takes, of large tables.", ("table",)
)
TABLE_PARTITION = Gauge(
    "wane_table_partition_recommended",
    "1 if a table has outgrown a single table, else 0; of tables that can be partitioned.",
    ("table",),
)
HEALTH_GAUGES = (
    HEALTHY,
    FINDINGS,
    UNCOVERED,
    TABLE_LATE,
    TABLE_OLDEST,
    TABLE_SWEPT,
    TABLE_INFLOW,
    TABLE_PRUNED,
    TABLE_DRAIN,
    TABLE_READ,
    TABLE_PARTITION,
)
_LEAST_SECONDS = 0.05
"""With less time left, nothing is read."""
_ALONE_SECONDS = 300.0
"""How long reading is skipped after it failed."""
_KEPT_SECONDS = 300.0
"""How long the last reading replaces one that was left out."""


class HealthGauges:
    """Reads the health of one contract's database, and reports it as gauges."""

    def __init__(self, contract: Contract, clock: Callable[[], float] = time.monotonic) -> None:
        self._contract = contract
        self._watcher = Watcher(contract, clock=clock)
        self._clock = clock
        self._told: list[Told] = []
        self._read_at = float("-inf")
        self._failed_at = float("-inf")

    def read(self, store: Store, seconds: float) -> list[Told]:
        """Return the gauges of health, from a new reading or, while it is fresh enough, from the last one."""
        began = self._clock()
        if seconds >= _LEAST_SECONDS and began - self._failed_at >= _ALONE_SECONDS:
            try:
                watched = self._watcher.watched(store)
                self._told = list(_told(read_health(store, self._contract, watched, seconds=seconds)))
                self._read_at = self._clock()
            except Unreachable:
                raise
            except StoreError:
                self._failed_at = began
        return self._told if self._clock() - self._read_at <= _KEPT_SECONDS else []


def _told(health: Health) -> Iterable[Told]:
    yield HEALTHY, (), float(health.healthy)
    yield UNCOVERED, (), float(len(health.uncovered))
    counts = Counter((one.severity.value, one.code, one.table) for one in health.findings)
    for labels, many in counts.items():
        yield FINDINGS, labels, float(many)
    for table in health.tables:
        yield from _table(table)


def _table(table: TableHealth) -> Iterable[Told]:
    labels = (table.pressure.table,)
    swept = None if table.last_sweep is None else table.last_sweep.timestamp()
    read = None if table.hot_read_ms is None else table.hot_read_ms / 1_000
    recommended = float(table.partition_recommended) if table.may_partition else None
    for gauge, value in (
        (TABLE_LATE, table.late_seconds),
        (TABLE_OLDEST, None if table.oldest_age_seconds is None else max(table.oldest_age_seconds, 0.0)),
        (TABLE_SWEPT, swept),
        (TABLE_INFLOW, table.inflow_per_hour),
        (TABLE_PRUNED, table.pruned_per_hour),
        (TABLE_DRAIN, table.drain_seconds),
        (TABLE_READ, read),
        (TABLE_PARTITION, recommended),
    ):
        if value is not None:
            yield gauge, labels, value
