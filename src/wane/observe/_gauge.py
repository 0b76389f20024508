"""Gauges: metrics that are read from the database at a scrape."""

from __future__ import annotations

from dataclasses import dataclass

COUNTED_MESSAGES = 10_000
"""Messages are counted up to here: the value is then a lower bound."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric that is read from the database."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


Sample = tuple[Gauge, tuple[str, ...], float]
"""A gauge, the values of its labels, and its value."""
Values = dict[Gauge, list[tuple[tuple[str, ...], float]]]
"""For each gauge: label values and the value."""

_RULE = ("scheduler", "table", "rule")
UP = Gauge("wane_up", "Whether the database could be read: 1, or 0.")
READ_SECONDS = Gauge("wane_database_read_seconds", "How long reading these gauges took, the last time it was done.")
BACKLOG = Gauge(
    "wane_backlog_rows", "Rows that are due and not yet gone; exact if wane_backlog_rows_exact is 1.", _RULE
)
BACKLOG_EXACT = Gauge(
    "wane_backlog_rows_exact", "1 if wane_backlog_rows was counted, 0 if it is an estimate or a lower bound.", _RULE
)
OLDEST_DUE = Gauge(
    "wane_oldest_due_row_age_seconds", "Age of the oldest due row by the rule's time column, 0 if none is due.", _RULE
)
OVERDUE = Gauge("wane_overdue_seconds", "How long the oldest due row has been due, 0 if none is.", _RULE)
ARCHIVE_LAG = Gauge(
    "wane_archive_lag_seconds", "How long the oldest row has been due to move to the archive, 0 if none is.", _RULE
)
UNREAD_RULES = Gauge("wane_backlog_unread_rules", "Rules whose backlog is unknown: reading takes too long, or fails.")
MESSAGES = Gauge(
    "wane_queue_messages",
    f"Messages of the cleanup queue, counted up to {COUNTED_MESSAGES:,}; dead: not resolved.",
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
HEARTBEAT_AGE = Gauge(
    "wane_executor_beat_age_seconds", "How long ago an executor was last alive.", ("executor", "role")
)
HEARTBEAT_INTERVAL = Gauge(
    "wane_executor_beat_interval_seconds", "Interval between an executor's heartbeats.", ("executor", "role")
)
SNAPSHOT_AGE = Gauge("wane_snapshot_age_seconds", "How long ago all tables were last measured.")
TABLE_ROWS = Gauge(
    "wane_table_rows", "Rows of a table when it was last measured; exact if wane_table_rows_exact is 1.", ("table",)
)
TABLE_ROWS_EXACT = Gauge(
    "wane_table_rows_exact", "1 if wane_table_rows was counted, 0 if it is an estimate.", ("table",)
)
TABLE_BYTES = Gauge("wane_table_bytes", "What a table took with its indexes when it was last measured.", ("table",))
TABLE_RATE = Gauge("wane_table_growth_rows_per_day", "Growth of a table; absent if unknown.", ("table",))
DAYS_TO = Gauge(
    "wane_table_threshold_days",
    "Days until a table reaches a threshold of rows, 0 if it has; absent: never, or unknown.",
    ("table", "threshold"),
)
NEAR = Gauge(
    "wane_table_threshold_near",
    "1 if a table has reached a threshold of rows or soon will, else 0.",
    ("table", "threshold"),
)
HEALTHY = Gauge("wane_healthy", "Whether retention does its work: 1, or 0; wane_health_findings counts what is wrong.")
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
TABLE_INFLOW = Gauge("wane_table_inflow_rows_per_hour", "Rows inserted into a table; absent if unknown.", ("table",))
TABLE_PRUNED = Gauge("wane_table_pruned_rows_per_hour", "What sweeps take of a table, by the trail.", ("table",))
TABLE_DRAIN = Gauge(
    "wane_table_drain_seconds",
    "How long until nothing of a table is due at this pace; absent: never, unknown, or nothing runs.",
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
GAUGES = tuple(one for one in list(globals().values()) if isinstance(one, Gauge))
"""All of them."""
