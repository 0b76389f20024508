"""Prometheus alerts that follow from a contract: its windows, schedulers, archive and thresholds decide what is late."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from wane._contract.duration import format_duration
from wane._contract.model import Cap, Contract, Rule, Scheduler, Table, ToArchive
from wane.observe import _gauge as gauge

_MISSED_WINDOWS = 3
"""A table whose last completed sweep is this many windows ago is reported, whatever is due."""


@dataclass(frozen=True, slots=True)
class PrometheusAlert:
    """One alerting rule of Prometheus."""

    name: str
    expression: str
    lasts: timedelta
    """How long the expression must hold."""
    severity: str
    summary: str
    fix: str
    labels: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": f"{int(self.lasts.total_seconds())}s",
            "labels": {"severity": self.severity, **self.labels},
            "annotations": {"summary": self.summary, "description": self.fix},
        }


def alerts(contract: Contract) -> list[PrometheusAlert]:
    """Return the alerts of a contract: those of every installation, then those of each table and rule."""
    return [*_general(), *_by_rule(contract), *_by_table(contract)]


def as_groups(listed: list[PrometheusAlert]) -> dict[str, object]:
    """Return the alerts as a rules file of Prometheus has them."""
    return {"groups": [{"name": "wane", "rules": [one.as_dict() for one in listed]}]}


def as_yaml(listed: list[PrometheusAlert]) -> str:
    """Write the rules file: each value is JSON, which is YAML too, so that nothing in a name can change its meaning."""
    lines = ["groups:", "  - name: wane", "    rules:"]
    for one in listed:
        for number, (key, value) in enumerate(one.as_dict().items()):
            begin = "      - " if number == 0 else "        "
            if isinstance(value, dict):
                lines.append(f"{begin}{key}:")
                lines += [f"          {name}: {_text(text)}" for name, text in value.items()]
            else:
                lines.append(f"{begin}{key}: {_text(value)}")
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _general() -> Iterator[PrometheusAlert]:
    yield PrometheusAlert(
        "WaneUnreachable",
        f"{gauge.UP.name} == 0 or absent({gauge.UP.name})",
        timedelta(minutes=5),
        "critical",
        "No process of Wane reports, or none can read the database.",
        "Check that `wane run` is running and reaches its database: wane status",
    )
    yield PrometheusAlert(
        "WaneUnhealthy",
        f"{gauge.HEALTHY.name} == 0",
        timedelta(minutes=15),
        "warning",
        "Retention does not do its work.",
        "wane health says what is wrong, and how to mend it",
    )
    yield PrometheusAlert(
        "WaneRuleWaitsForApproval",
        'increase(wane_sweeps_total{outcome="fused"}[1h]) > 0',
        timedelta(0),
        "warning",
        "A rule would take more of its table than the fuse allows, and takes nothing.",
        "Review and approve its plan: wane approve",
    )
    yield PrometheusAlert(
        "WaneDeadLetters",
        f'{gauge.MESSAGES.name}{{state="dead"}} > 0',
        timedelta(minutes=5),
        "warning",
        "Messages of the cleanup queue failed for good.",
        "wane queue dead lists them; requeue or resolve them",
    )
    yield PrometheusAlert(
        "WaneExecutorSilent",
        f"{gauge.BEAT_AGE.name} > 4 * {gauge.BEAT_EVERY.name}",
        timedelta(minutes=2),
        "warning",
        "A worker or scheduler stopped writing its heartbeat without saying goodbye.",
        "wane status names its machine; another process continues its sweeps",
    )


def _by_rule(contract: Contract) -> Iterator[PrometheusAlert]:
    for table, rule in contract.rules():
        scheduler = _scheduler(contract, table)
        if scheduler is None or isinstance(rule.bound, Cap):
            continue
        allowed = scheduler.longest + contract.health.grace
        archived = isinstance(rule.action, ToArchive)
        metric = gauge.ARCHIVE_LAG if archived else gauge.OVERDUE
        verb = "archived" if archived else "taken"
        yield PrometheusAlert(
            "WaneArchiveLate" if archived else "WaneRowsLate",
            f"{metric.name}{_matching(table, rule)} > {_seconds(allowed)}",
            timedelta(minutes=5),
            "warning",
            f"Rows of {table.name} that {rule.name} should have {verb} have waited for more than "
            f"{format_duration(allowed)}.",
            f"wane plan {table.name} shows what is due, wane health why it waits",
            {"table": str(table.name), "rule": rule.name},
        )


def _by_table(contract: Contract) -> Iterator[PrometheusAlert]:
    for table in contract.tables:
        scheduler = _scheduler(contract, table)
        if scheduler is None:
            continue
        name = str(table.name)
        longest = _MISSED_WINDOWS * scheduler.longest + contract.health.grace
        matching = f"{{table={_text(name)}}}"
        yield PrometheusAlert(
            "WaneNotSwept",
            f"time() - {gauge.TABLE_SWEPT.name}{matching} > {_seconds(longest)}",
            timedelta(minutes=5),
            "warning",
            f"{name} was not swept for {format_duration(longest)}, though it should be {scheduler.when}.",
            "wane status shows schedulers, flags and workers",
            {"table": name},
        )
        yield PrometheusAlert(
            "WaneTableGrows",
            f"{gauge.NEAR.name}{matching} == 1",
            timedelta(hours=1),
            "warning",
            f"{name} reached a threshold of its size, or soon will.",
            f"wane growth {name} shows its rate, and when",
            {"table": name},
        )


def _scheduler(contract: Contract, table: Table) -> Scheduler | None:
    return next((one for one in contract.schedulers if one.name == table.scheduler), None)


def _matching(table: Table, rule: Rule) -> str:
    return f"{{table={_text(str(table.name))}, rule={_text(rule.name)}}}"


def _seconds(duration: timedelta) -> int:
    return int(duration.total_seconds())
