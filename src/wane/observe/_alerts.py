"""Prometheus rules and a Grafana dashboard from a contract: what is promised decides when to alert.

Every expression reads metrics that `wane run --metrics-port` and `wane serve` export; a test compares the names.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from wane._contract.duration import format_duration
from wane._contract.model import Cap, Contract, Mark, Rule, Table, ToArchive

_MISSED = 3
"""A table that was not swept for this many intervals of its scheduler is reported."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alert: what it observes, for how long, and its text."""

    alert: str
    expression: str
    lasting: str
    severity: str
    """"page" or "ticket"."""
    summary: str
    action: str


def alert_rules(contract: Contract, lag: timedelta) -> list[AlertRule]:
    """Return the alerts of a contract. `lag`: how long a due row may wait beyond two intervals of its scheduler."""
    return [*_general(contract), *_by_rule(contract, lag)]


def _general(contract: Contract) -> Iterator[AlertRule]:
    yield AlertRule(
        "WaneDatabaseUnreadable",
        "wane_up == 0 or absent(wane_up)",
        "5m",
        "page",
        "Wane cannot read its database",
        "wane status",
    )
    yield AlertRule(
        "WaneUnhealthy", "wane_healthy == 0", "15m", "ticket", "Retention does not do its work", "wane health"
    )
    yield AlertRule(
        "WaneFuseBlown",
        'wane_health_findings{code="fused-rule"} > 0',
        "0m",
        "ticket",
        "The fuse stops {{ $labels.table }}: a large share of it is due",
        "wane approve",
    )
    yield AlertRule(
        "WaneDeadLetters",
        'wane_queue_messages{state="dead"} > 0',
        "5m",
        "ticket",
        "{{ $value }} dead letters in pool {{ $labels.pool }}",
        "wane queue dead list",
    )
    yield AlertRule(
        "WaneGrowthThreshold",
        "wane_table_threshold_near == 1",
        "1h",
        "ticket",
        "{{ $labels.table }} has reached {{ $labels.threshold }} rows, or soon will",
        "wane growth show",
    )
    for scheduler in contract.schedulers:
        late = scheduler.longest.total_seconds() * 2
        yield AlertRule(
            "WaneSchedulerLate",
            f"wane_scheduler_late_seconds{{scheduler={_quoted(scheduler.name)}}} > {late:g}",
            "5m",
            "page",
            f"The scheduler {_literal(scheduler.name)} does not open its windows",
            "wane status",
        )


def _by_rule(contract: Contract, lag: timedelta) -> Iterator[AlertRule]:
    every = {one.name: one.longest for one in contract.schedulers}
    for table in contract.tables:
        interval = every.get(table.scheduler or "")
        swept = [rule for rule in table.rules if rule.active]
        if interval is None or table.append_only or not swept:
            continue
        silent = max(interval * _MISSED, timedelta(minutes=15)).total_seconds()
        yield AlertRule(
            "WaneNotSwept",
            f"time() - wane_table_last_sweep_timestamp_seconds{{table={_quoted(table.name)}}} > {silent:g}",
            "5m",
            "ticket",
            f"{_literal(table.name)} was not swept for {format_duration(timedelta(seconds=silent))}",
            "wane health",
        )
        for rule in swept:
            wait = contract.archive_wait(str(table.name), rule.name)
            yield from _lagging(table, rule, interval * 2 + lag + wait)


def _lagging(table: Table, rule: Rule, objective: timedelta) -> Iterator[AlertRule]:
    """Yield the alert on rows that wait too long. A cap has no time since when a row is due; a mark removes nothing."""
    if isinstance(rule.bound, Cap) or isinstance(rule.action, Mark):
        return
    archives = isinstance(rule.action, ToArchive)
    metric = "wane_archive_lag_seconds" if archives else "wane_overdue_seconds"
    labels, label = f"table={_quoted(table.name)}, rule={_quoted(rule.name)}", f"{table.name}.{rule.name}"
    yield AlertRule(
        "WaneArchiveLag" if archives else "WaneRetentionLag",
        f"{metric}{{{labels}}} > {objective.total_seconds():g}",
        "10m",
        "ticket",
        f"Rows of {_literal(label)} wait longer than {format_duration(objective)} beyond their window",
        _literal(shlex.join(["wane", "plan", label])),
    )


def _literal(text: object) -> str:
    """Write a name for an annotation, where Prometheus fills in what stands in double braces."""
    return str(text).replace("{{", '{{ "{{" }}')


def _quoted(text: object) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def as_yaml(rules: list[AlertRule]) -> str:
    """Write alerts as a rule file of Prometheus. Every text is quoted as JSON does, which YAML reads."""
    lines = ["groups:", "  - name: wane", "    rules:"]
    for one in rules:
        lines += [
            f"      - alert: {one.alert}",
            f"        expr: {_quoted(one.expression)}",
            f"        for: {one.lasting}",
            "        labels:",
            f"          severity: {one.severity}",
            "        annotations:",
            f"          summary: {_quoted(one.summary)}",
            f"          action: {_quoted(one.action)}",
        ]
    return "\n".join(lines) + "\n"


_PANELS: tuple[tuple[str, str, str, str], ...] = (
    ("Healthy", "stat", "wane_healthy", "short"),
    ("Findings", "stat", "sum(wane_health_findings) or vector(0)", "short"),
    ("Dead letters", "stat", 'sum(wane_queue_messages{state="dead"}) or vector(0)', "short"),
    ("Backlog", "timeseries", "sum by (table, rule) (wane_backlog_rows)", "short"),
    ("Retention lag", "timeseries", "max by (table) (wane_table_late_seconds)", "s"),
    ("Archive lag", "timeseries", "max by (table, rule) (wane_archive_lag_seconds)", "s"),
    ("Rows pruned", "timeseries", "sum by (table) (rate(lifecycle_prune_rows_total[5m]))", "rowsps"),
    ("Rows archived", "timeseries", "sum by (table) (rate(wane_archived_rows_total[5m]))", "rowsps"),
    ("Rows", "timeseries", "wane_table_rows", "short"),
    ("Size", "timeseries", "wane_table_bytes", "bytes"),
    (
        "Batches, 95th percentile",
        "timeseries",
        "histogram_quantile(0.95, sum by (le, table) (rate(wane_batch_seconds_bucket[5m])))",
        "s",
    ),
    ("Sweeps by outcome", "timeseries", "sum by (outcome) (rate(wane_sweeps_total[15m]))", "short"),
    ("Executors, last heartbeat", "timeseries", "wane_executor_beat_age_seconds", "s"),
)
"""Title, kind, expression and unit of each panel."""


def dashboard() -> dict[str, Any]:
    """Return a dashboard for Grafana over the metrics of one Prometheus."""
    return {
        "uid": "wane",
        "title": "Wane: retention",
        "schemaVersion": 39,
        "tags": ["wane"],
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    x = y = 0
    for number, (title, kind, expression, unit) in enumerate(_PANELS, 1):
        width, height = (8, 4) if kind == "stat" else (12, 8)
        if x + width > 24:
            x, y = 0, y + (4 if kind == "stat" or y == 0 else 8)
        yield {
            "id": number,
            "title": title,
            "type": kind,
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [{"refId": "A", "expr": expression}],
        }
        x += width
