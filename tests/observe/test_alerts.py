"""`wane alerts`: rules and panels read metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from covering import loaded
from wane.observe._alerts import alert_rules, as_yaml, dashboard
from wane.observe._gauge import GAUGES
from wane.observe._metrics import Metrics

CONTRACT = """
[archive]
url = "cold"
[archive.event]
keep = "forever"
[scheduler]
tick = { every = "5m" }
[table.event]
scheduler = "tick"
why = "A test."
time = { column = "at_ms", unit = "ms" }
[table.event.rule.cold]
keep = "30d"
then = "archive"
[table.'"{{odd}} \\"name\\""']
scheduler = "tick"
why = "A test."
time = { column = "at_ms", unit = "ms" }
[table.'"{{odd}} \\"name\\""'.rule.old]
keep = "7d"
[table.seen]
scheduler = "tick"
why = "A test."
time = { column = "at_ms", unit = "ms" }
[table.seen.rule.cap]
most = 10
"""
CONTRACT = CONTRACT.replace('\\"name\\"', "name")


def known() -> dict[str, set[str]]:
    """Return the labels of every metric that can be scraped, by its name."""
    found = {gauge.name: set(gauge.labels) for gauge in GAUGES}
    metrics = Metrics(loaded(CONTRACT))
    for metric in metrics.registry.collect():
        for sample in metric.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def reads(expression: str) -> list[tuple[str, set[str]]]:
    """Return the metrics of an expression, each with the labels that it selects by."""
    found = []
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    for name, labels in re.findall(r"\b((?:wane|lifecycle)_[a-z_]+)(?:\{([^}]*)\})?", bare):
        found.append((name, set(re.findall(r"(\w+)=", labels))))
    return found


RULES = alert_rules(loaded(CONTRACT), timedelta(hours=1))
PANELS: list[dict[str, Any]] = dashboard()["panels"]
EXPRESSIONS = [one.expression for one in RULES] + [one["targets"][0]["expr"] for one in PANELS]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_reads_metrics_that_exist(expression: str) -> None:
    metrics = known()
    read = reads(expression)
    assert read
    for name, labels in read:
        assert name in metrics, name
        assert labels <= metrics[name], (name, labels)


def test_each_promise_has_its_alert() -> None:
    by_table = [(one.alert, one.expression) for one in RULES]
    assert ("WaneArchiveLag", 'wane_archive_lag_seconds{table="event", rule="cold"} > 4200') in by_table
    assert ("WaneNotSwept", 'time() - wane_table_last_sweep_timestamp_seconds{table="seen"} > 900') in by_table
    assert not any("wane_overdue_seconds" in one and '"seen"' in one for _, one in by_table)
    names = {one.alert for one in RULES}
    assert names == {
        *("WaneDatabaseUnreadable", "WaneUnhealthy", "WaneFuseBlown", "WaneDeadLetters", "WaneGrowthThreshold"),
        *("WaneSchedulerLate", "WaneNotSwept", "WaneRetentionLag", "WaneArchiveLag"),
    }


def test_the_file_is_yaml_and_names_are_no_templates() -> None:
    text = as_yaml(RULES)
    values = re.findall(r"^ +(?:expr|summary|action): (.*)$", text, flags=re.MULTILINE)
    assert len(values) == 3 * len(RULES)
    assert all(isinstance(json.loads(value), str) for value in values)
    odd = [one for one in RULES if "odd" in one.summary]
    assert odd
    assert all('{{ "{{" }}odd}}' in one.summary for one in odd)


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & mine, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= mine
