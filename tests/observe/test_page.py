"""docs/reference/observability.md leaves out nothing: every metric with its labels, every log line, every event."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from docs.sessions import ROOT, loosely, plain, shop
from wane import events
from wane._cli import output, progress
from wane._contract.load import load_contract
from wane.events import Event
from wane.observe import _logs as logs
from wane.observe import _scrape as scrape
from wane.observe._gauge import GAUGES
from wane.observe._logs import LOGGER, log_event
from wane.observe._metrics import Metrics
from wane.reference import contract_path, names

PAGE = (ROOT / "docs/reference/observability.md").read_text(encoding="utf-8")


def row(name: str) -> str:
    """Return the one line of a table that mentions something."""
    found = re.findall(rf"^\| `{re.escape(name)}` .*$", PAGE, re.MULTILINE)
    assert len(found) == 1, f"{name} has {len(found)} lines"
    return str(found[0])


def counters() -> dict[str, set[str]]:
    """Return every metric that the reference contracts have, with its labels."""
    found: dict[str, set[str]] = {}
    for name in names():
        for family in Metrics(load_contract(contract_path(name))).registry.collect():
            full = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[full] = found.get(full, set()) | labels
    return found


METRICS = {**counters(), **{gauge.name: set(gauge.labels) for gauge in GAUGES}}


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_there_with_its_labels(name: str) -> None:
    line = row(name)
    labels = line.split("|")[-3]
    assert set(re.findall(r"`(\w+)`", labels)) == METRICS[name]


def test_no_metric_is_there_that_does_not_exist() -> None:
    described = set(re.findall(r"^\| `((?:wane|lifecycle)_\w+)` ", PAGE, re.MULTILINE))
    assert described == set(METRICS)
    assert set(re.findall(r"\b(?:wane|lifecycle)_[a-z_]+_(?:total|seconds|rows)\b", PAGE)) <= set(METRICS)


def test_every_log_line_is_there_and_no_other() -> None:
    source = "".join(inspect.getsource(one) for one in (logs, scrape, output, progress))
    written = {f"<scheduler>.{name}" for name in re.findall(r'"(lifecycle_\w+)"', source)}
    written |= set(re.findall(r'"(wane\.\w+)"', source))
    section = PAGE.partition("\n## Log lines\n")[2]
    described = set(re.findall(r"^\| `((?:<scheduler>|wane)\.\w+)` ", section, re.MULTILINE))
    assert described == written


LINES: list[Event] = [
    events.RuleSwept("s", "t", "r", "t", "prune", {"t": 1}, 1, 0.1, "done"),
    events.RuleFailed("s", "t", "r", "t", "no"),
    events.BudgetExhausted("s", "t", "r", "t", "rows"),
    events.SweepsEnqueued("s", "w", ()),
    events.SlowedDown("t", "r", "c"),
    events.MessageDead("p", "m", "k", "r"),
    events.HeartbeatWritten("e", "worker", "idle"),
    events.ArchiveStep("t", "r", 1, "written", {}, {}, 0.1),
    events.ArchiveColumnChanged("t", "c", "type", "integer", "long", 1),
    events.RowsArchived("<table>", "r", 1, {"<table>": 3}, {"<table>": 2}, 1),
    events.RowsRestored("<table>", 1, "side", {"<table>": 3}, 2, 1, 0),
    events.TableNearThreshold("t", 5, 6, "near", 1.0),
    events.SnapshotTaken(2, 1, 0.1),
]


@pytest.mark.parametrize("event", LINES, ids=lambda event: type(event).__name__)
def test_each_log_line_is_there_with_its_level_and_facts(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="wane")
    log_event(event)
    [record] = caplog.records
    facts: dict[str, Any] = dict(vars(record)["wane"])
    line = row(facts.pop("event").replace("s.lifecycle", "<scheduler>.lifecycle"))
    level, _, _repeated = line.split("|")[2].strip().partition("; ")
    assert level == record.levelname
    assert [name for name in facts if f"`{name}`" not in line] == []


@pytest.mark.parametrize("event", get_args(events.Event), ids=lambda event: event.__name__)
def test_every_event_is_there_with_what_it_has(event: type) -> None:
    line = row(event.__name__)
    assert [name for name in event.__dataclass_fields__ if f"`{name}`" not in line] == []  # type: ignore[attr-defined]


def test_its_example_prints_what_it_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shop(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(LOGGER, "handlers", [])
    import wane

    with wane.open(contract="wane.toml") as keeper:
        keeper.migrate()
    section = PAGE.partition("\n## In Python\n")[2]
    [example] = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    exec(compile(example, "observability.md", "exec"), {"__name__": "__main__"})
    promised = "\n".join(re.findall(r"# → (.*)$", example, re.MULTILINE))
    assert re.fullmatch(loosely(promised), plain(capsys.readouterr().out))
    assert "wane_up 1.0" in (folder / "wane.prom").read_text()


def test_its_alerts_are_of_metrics_that_exist() -> None:
    expressions = re.findall(r'^\s+expr: "(.*)"$', PAGE, re.MULTILINE)
    assert expressions
    for expression in expressions:
        used = re.findall(r"\b(?:wane|lifecycle)_\w+", expression)
        assert used
        assert set(used) <= set(METRICS)
