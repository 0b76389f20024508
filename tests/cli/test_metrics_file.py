"""`--metrics-file`, `--log-format` and `--log-level`: what one-shot runs leave behind for operators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from observe.reading import of, series
from servers import Database
from wane.observe._logs import LOGGER

CUTOFF = "2026-01-03T00:00:00Z"


@pytest.fixture(autouse=True)
def own_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANE_LOG_FORMAT", raising=False)
    monkeypatch.delenv("WANE_LOG_LEVEL", raising=False)
    monkeypatch.setattr(LOGGER, "handlers", [])
    monkeypatch.setattr(LOGGER, "level", LOGGER.level)


@pytest.fixture
def ready(filled: Database, wane: Wane) -> Database:
    assert wane("migrate").code == 0
    assert wane("enable").code == 0
    return filled


@pytest.mark.usefixtures("ready")
def test_a_sweep_leaves_its_metrics_behind(wane: Wane, folder: Path) -> None:
    done = wane("sweep", "--approve", "inbox.failed", "--metrics-file", "wane.prom", "--json")
    assert (done.code, done.err) == (0, "")
    taken = done.json["rules"][0]["counts"]
    text = (folder / "wane.prom").read_text()
    assert of(text, "lifecycle_prune_rows_total") == {
        ("tick", "inbox.failed"): float(taken["inbox"]),
        ("tick", "note"): float(taken["note"]),
    }
    assert of(text, "lifecycle_tick_errors_total") == {("tick",): 0.0, ("wane",): 0.0}
    assert of(text, "wane_backlog_rows") == {("failed", "tick", "inbox"): 0.0}
    assert of(text, "wane_sweep_done_timestamp_seconds")[("failed", "tick", "inbox")] > 1_700_000_000
    assert of(text, "wane_up") == {(): 1.0}
    assert sorted(one.name for one in folder.iterdir()) == ["wane.prom", "wane.toml"]


@pytest.mark.usefixtures("ready")
def test_an_applied_plan_leaves_its_metrics_behind(wane: Wane, folder: Path) -> None:
    assert wane("plan", "--out", "plan.json").code == 0
    assert wane("apply", "plan.json", "--metrics-file", "wane.prom").code == 0
    counted = of((folder / "wane.prom").read_text(), "lifecycle_prune_rows_total")
    assert counted[("tick", "inbox.failed")] > 0


@pytest.mark.usefixtures("ready")
def test_an_explicit_prune_leaves_its_metrics_behind_and_a_dry_run_none(wane: Wane, folder: Path) -> None:
    words = ("prune", "inbox", "--state", "failed", "--older-than", CUTOFF, "--metrics-file", "wane.prom")
    assert wane(*words, "--dry-run").code == 0
    assert not (folder / "wane.prom").exists()
    assert wane(*words).code == 0
    counted = of((folder / "wane.prom").read_text(), "lifecycle_prune_rows_total")
    assert counted == {("tick", "inbox.failed"): 3.0, ("tick", "note"): 2.0}


def test_a_failed_sweep_is_in_its_metrics(wane: Wane, ready: Database, folder: Path) -> None:
    write_contract(folder, ready.url, CONTRACT.replace("received_at_ms", "no_such_column"))
    assert wane("sweep", "--metrics-file", "wane.prom").code == 1
    assert of((folder / "wane.prom").read_text(), "lifecycle_tick_errors_total")[("tick",)] == 1.0


def test_a_database_that_is_not_there_is_in_the_metrics_too(wane: Wane, ready: Database, folder: Path) -> None:
    done = wane("sweep", "--url", f"sqlite:///{folder}/nothing.db", "--metrics-file", "wane.prom")
    assert done.code == 1
    assert "there is no database" in done.err
    assert series((folder / "wane.prom").read_text())[("wane_up", ())] == 0.0


@pytest.mark.parametrize("words", [("sweep",), ("prune", "inbox.failed")])
def test_a_file_that_cannot_be_written_is_stated_before_anything_leaves(
    wane: Wane, ready: Database, words: tuple[str, ...]
) -> None:
    done = wane(*words, "--metrics-file", "nowhere/wane.prom")
    assert (done.code, done.out) == (1, "")
    assert "metrics cannot be written to nowhere/wane.prom: there is no such folder" in done.err
    assert ready.query("SELECT count(*) FROM inbox") == [(6,)]


@pytest.mark.usefixtures("ready")
def test_log_lines_go_to_stderr_as_requested(wane: Wane) -> None:
    done = wane("sweep", "--approve", "inbox.failed", "--log-level", "info", "--log-format", "json", "--json")
    assert done.code == 0
    reported = [json.loads(line) for line in done.err.splitlines()]
    assert [one["event"] for one in reported] == ["tick.lifecycle_pruned"]
    assert reported[0]["rows"] + reported[0]["followers"] == sum(rule["rows"] for rule in done.json["rules"])


@pytest.mark.usefixtures("ready")
def test_without_being_requested_only_warnings_are_logged(wane: Wane) -> None:
    done = wane("sweep", "--approve", "inbox.failed", "--rows", "1", "--json")
    [line] = done.err.splitlines()
    assert "level=warning event=tick.lifecycle_prune_budget_exhausted table=inbox rule=failed spent=rows" in line


@pytest.mark.usefixtures("ready")
def test_a_level_that_does_not_exist_is_wrong_usage(wane: Wane) -> None:
    assert wane("sweep", "--log-level", "loud").code == 2
    assert wane("sweep", "--log-format", "xml").code == 2
