"""`wane run`, `wane status`, `wane adopt`: as people, scripts and service managers use them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from servers import Database
from wane._cli.output import FORMAT
from wane._cli.run import _print_awaited
from wane._schedule.status import SchedulerStatus

WANE = [sys.executable, "-m", "wane"]
EVERY_SECOND = CONTRACT.replace('"5m"', '"1s"')
SLOWLY = EVERY_SECOND + "\n[sweep]\nduty = 0.001\nfuse_rows = 1000000\n"
OTHER = CONTRACT.replace('keep = "7d"', 'keep = "8d"')


@pytest.fixture
def ready(filled: Database, wane: Wane) -> Database:
    assert wane("migrate").code == 0
    assert wane("enable").code == 0
    return filled


def ids(database: Database) -> list[int]:
    return [one for (one,) in database.query("SELECT id FROM inbox ORDER BY id")]


def own(database: Database, name: str) -> str:
    return f"wane_{name}" if database.store == "sqlite" else f"wane.{name}"


def fill_more(database: Database, rows: int = 3_000) -> None:
    old = int((datetime.now(UTC) - timedelta(days=30)).timestamp() * 1_000)
    database.executemany("INSERT INTO inbox VALUES (?, 'failed', ?)", [(100 + n, old + n) for n in range(rows)])


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [*WANE, "run", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def wait_for(running: subprocess.Popen[str], database: Database, fewer_than: int) -> None:
    deadline = time.monotonic() + 30
    while database.query("SELECT count(*) FROM inbox")[0][0] >= fewer_than:
        assert running.poll() is None, running.stderr.read() if running.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Received:
    """The names of what a collector was sent."""

    def __init__(self) -> None:
        self.port = 0
        self.spans: set[str] = set()
        self.metrics: set[str] = set()

    def add(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            self.spans |= {span.name for r in traces.resource_spans for s in r.scope_spans for span in s.spans}
        if path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(body)
            self.metrics |= {one.name for r in metrics.resource_metrics for s in r.scope_metrics for one in s.metrics}


@contextmanager
def collector() -> Iterator[Received]:
    """Yield a collector that speaks OTLP over HTTP."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            unzipped = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            received.add(self.path, unzipped)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield received
        server.shutdown()


# --- run --------------------------------------------------------------------------------------------------------------


def test_a_run_of_one_window_sweeps_and_ends(wane: Wane, ready: Database) -> None:
    done = wane("run", "--max-runs", "1")
    assert done.code == 0, done.err
    assert done.out == ""
    assert "schedulers: tick; 1 worker; contract " in done.err
    assert "1 window, 1 sweep, 0 failures" in done.err
    assert "event=tick.lifecycle_pruned" in done.err
    assert ids(ready) == [5, 6], "all that failed long ago"
    [entry] = wane("audit", "list", "--json").json
    assert entry["run"].startswith("retention_sweep_inbox@")


def test_a_run_answers_in_json(wane: Wane, ready: Database) -> None:
    assert wane("run", "--max-runs", "1", "--json").json == {"ticks": 1, "sweeps": 1, "failures": 0}


def test_with_json_logs_every_line_is_json(wane: Wane, ready: Database) -> None:
    done = wane("run", "--max-runs", "1", "--log-format", "json")
    [result] = map(json.loads, done.out.splitlines())
    assert (done.code, result["format"], result["sweeps"]) == (0, FORMAT, 1)
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert {"time", "level", "event"} <= set.intersection(*map(set, lines))
    messages = [one["message"] for one in lines if one["event"] == "wane.message"]
    assert messages[0].startswith("schedulers: tick; 1 worker; contract ")
    assert messages[1] == "ends after 1 window of each scheduler, when their sweeps are done"
    failed = wane("sweep", "--approve", "inbox.nothing", "--log-format", "json")
    assert [json.loads(line)["level"] for line in failed.err.splitlines()] == ["error", "error"]
    swept = wane("sweep", "--log-format", "json")
    assert [(rule["rule"], rule["rows"]) for rule in json.loads(swept.out)["rules"]] == [("failed", 0)]
    assert wane("sweep").out.startswith("rule"), "and text for people again"


def test_a_run_states_which_window_it_waits_for(wane: Wane, ready: Database) -> None:
    single = ("run", "--workers", "0", "--max-runs", "1")
    assert "waiting for" not in wane(*single).err, "its first window begins at once"
    soon = datetime.now(UTC) + timedelta(seconds=1)
    value = soon if ready.store == "postgres" else soon.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    ready.execute(f"UPDATE {own(ready, 'schedule')} SET due_at = ?", (value,))
    shown = f"{soon:%Y-%m-%d %H:%M:%S} UTC (every 5m)"
    assert f"waiting for tick: its next window begins at {shown}" in wane(*single).err


def test_a_run_states_that_a_new_cron_scheduler_waits_for_its_first_time(capsys: pytest.CaptureFixture[str]) -> None:
    first = datetime(2026, 11, 17, 3, 15, tzinfo=UTC)
    _print_awaited([SchedulerStatus("nightly", 86_400.0, "at 15 3 * * * UTC", None, first, 0.0)], 1)
    shown = "waiting for nightly: its next window begins at 2026-11-17 03:15:00 UTC (at 15 3 * * * UTC)"
    assert capsys.readouterr().err.splitlines()[-1] == shown


def test_schedulers_and_workers_apart(wane: Wane, ready: Database) -> None:
    done = wane("run", "--workers", "0", "--scheduler", "tick", "--max-runs", "1")
    assert "schedulers: tick; 0 workers" in done.err
    assert "1 window, 0 sweeps" in done.err
    assert ids(ready) == [1, 2, 3, 4, 5, 6]
    done = wane("run", "--no-schedulers", "--workers", "1", "--max-runs", "1")
    assert "schedulers: none; 1 worker" in done.err
    assert "0 windows, 1 sweep" in done.err
    assert ids(ready) == [5, 6]


def test_a_run_with_the_flag_off_reports_it_and_takes_nothing(wane: Wane, ready: Database) -> None:
    wane("disable")
    done = wane("run", "--max-runs", "1")
    assert done.code == 4
    assert "sweeps are off: retention.enabled is off until `wane enable`" in done.err
    assert ids(ready) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (("--workers", "-1"), 2, "--workers"),
        (("--workers", "65"), 2, "--workers"),
        (("--workers", "two"), 2, "--workers"),
        (("--max-runs", "0"), 2, "--max-runs"),
        (("--no-schedulers", "--scheduler", "tick"), 2, "both named and left out"),
        (("--no-schedulers", "--workers", "0"), 2, "nothing to run"),
        (("--metrics-address", "0.0.0.0"), 2, "nothing is served without --metrics-port"),
        (("--scheduler", "tik"), 1, "did you mean 'tick'?"),
    ],
)
def test_wrong_usage_of_run(wane: Wane, ready: Database, words: tuple[str, ...], code: int, reported: str) -> None:
    done = wane("run", "--max-runs", "1", *words)
    assert (done.code, done.out) == (code, "")
    assert reported in " ".join(done.err.replace("│", " ").split())


def test_a_database_that_is_not_migrated_is_refused(wane: Wane, filled: Database) -> None:
    for command in ("run", "status", "adopt"):
        done = wane(command)
        assert (done.code, done.out) == (1, "")
        assert "run `wane migrate`" in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_within_a_batch(filled: Database, wane: Wane, folder: Path, number: signal.Signals) -> None:
    write_contract(folder, filled.url, SLOWLY)
    wane("migrate")
    wane("enable")
    fill_more(filled)
    with started("--json") as running:
        wait_for(running, filled, 3_000)
        running.send_signal(number)
        out, err = running.communicate(timeout=30)
        assert running.returncode == 0, err
        ran = json.loads(out)
        assert (ran["sweeps"], ran["failures"]) == (0, 0)
        assert "stopping after the current batch" in err
        assert "Traceback" not in err
    left = len(ids(filled))
    [(reported,)] = filled.query(f"SELECT sum(row_count) FROM {own(filled, 'audit')}")
    assert 2 < left < 3_006
    assert reported == 3_006 - left + 2, "two notes left with their message"
    assert filled.query(f"SELECT count(*) FROM {own(filled, 'heartbeat')}") == [(0,)]


def test_a_second_signal_ends_it_at_once(sqlite_database: Database, wane: Wane, folder: Path) -> None:
    """The first waits for the end of the batch, and that one waits for an application that holds the database."""
    from cli.running import fill

    fill(sqlite_database)
    write_contract(folder, sqlite_database.url, SLOWLY)
    wane("migrate")
    wane("enable")
    fill_more(sqlite_database)
    with started() as running:
        wait_for(running, sqlite_database, 3_000)
        holding = sqlite_database.connect()
        holding.execute("BEGIN IMMEDIATE")
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        while "stopping" not in running.stderr.readline():
            pass
        running.send_signal(signal.SIGTERM)
        # One that ends after the batch, whether that fails or not, exits otherwise.
        assert running.wait(timeout=30) == 128 + signal.SIGTERM
        holding.execute("ROLLBACK")
    left = len(ids(sqlite_database))
    [(reported,)] = sqlite_database.query("SELECT sum(row_count) FROM wane_audit")
    assert reported == 3_006 - left + 2


# --- adopt ------------------------------------------------------------------------------------------------------------


def test_another_contract_is_refused_until_it_is_adopted(wane: Wane, ready: Database, folder: Path) -> None:
    first = wane("adopt", "--json").json
    assert first["before"] is None
    mark = first["in_force"]["fingerprint"]
    done = wane("adopt")
    assert (done.code, done.out, done.err) == (0, "", f"{mark} was in force already\n")
    write_contract(folder, ready.url, OTHER)
    done = wane("run", "--max-runs", "1")
    assert done.code == 1
    words = " ".join(done.err.split())
    assert f"the contract in force is {mark}" in words
    assert "put this one in force with `wane adopt`" in words
    assert ids(ready) == [1, 2, 3, 4, 5, 6]
    assert "this contract is" in wane("status").out
    done = wane("adopt")
    assert done.code == 0
    assert f"is in force instead of {mark}" in done.err
    assert wane("run", "--max-runs", "1").code == 0
    assert ids(ready) == [5, 6]


def test_a_runner_ends_when_another_contract_is_adopted(wane: Wane, ready: Database, folder: Path) -> None:
    with started("-c", str(write_contract(folder, ready.url, EVERY_SECOND))) as running:
        wait_for(running, ready, 3)
        write_contract(folder, ready.url, OTHER)
        assert wane("adopt").code == 0
        _, err = running.communicate(timeout=30)
        assert running.returncode == 1
        assert "wane adopt" in err
        assert "Traceback" not in err


# --- status -----------------------------------------------------------------------------------------------------------


def test_status_before_anything_ran(wane: Wane, ready: Database) -> None:
    found = wane("status", "--json").json
    assert (found["enabled"], found["alive"], found["dead_letters"]) == (True, False, 0)
    assert found["in_force"] is None
    [scheduler] = found["schedulers"]
    assert (scheduler["name"], scheduler["every_seconds"], scheduler["window"]) == ("tick", 300, None)
    assert found["executors"] == found["sweeps"] == found["queue"] == []
    shown = wane("status").out
    assert "sweeps are on" in shown
    assert "no contract is in force yet" in shown
    assert "never" in shown
    assert "no scheduler or worker is alive; start one with `wane run`" in shown


def test_status_shows_flags_windows_and_what_waits(wane: Wane, ready: Database) -> None:
    wane("run", "--workers", "0", "--max-runs", "1")
    wane("disable", "inbox")
    found = wane("status", "--json").json
    assert found["disabled_tables"] == ["inbox"]
    [line] = found["queue"]
    assert (line["pool"], line["state"], line["messages"]) == ("retention", "ready", 1)
    assert found["schedulers"][0]["window"]["ticked_by"].startswith("scheduler-")
    shown = wane("status").out
    assert "off for inbox" in shown
    assert "retention" in shown
    wane("disable")
    assert "sweeps are off: `wane enable` turns them on" in wane("status").out


def test_status_shows_who_runs_what_it_sweeps_and_who_fell_silent(
    filled: Database, wane: Wane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_contract(folder, filled.url, SLOWLY)
    wane("migrate")
    wane("enable")
    fill_more(filled)
    with started("--workers", "1") as running:
        wait_for(running, filled, 3_000)
        found = wane("status", "--json").json
        assert found["alive"] is True
        assert [one["heartbeat"]["role"] for one in found["executors"]] == ["scheduler", "worker"]
        assert [one["name"] for one in found["sweeps"]] == ["sweep:inbox"]
        assert found["executors"][1]["heartbeat"]["doing"] == "sweeping inbox"
        shown = wane("status").out
        assert "sweeping inbox" in shown
        assert "silent" not in shown
        assert "no scheduler or worker is alive" not in shown
        monkeypatch.setenv("COLUMNS", "80")
        narrow = wane("status").out
        assert max(map(len, narrow.splitlines())) <= 80
        assert all(one["heartbeat"]["executor"] in narrow for one in found["executors"])
        running.kill()  # It cannot say goodbye.
        running.communicate()
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    stamp = long_ago.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if filled.store == "sqlite" else long_ago
    filled.execute(f"UPDATE {own(filled, 'heartbeat')} SET beat_at = ?", (stamp,))
    filled.execute(f"UPDATE {own(filled, 'schedule')} SET due_at = ?", (stamp,))
    found = wane("status", "--json").json
    assert found["alive"] is False
    assert all(one["silent"] for one in found["executors"])
    assert found["schedulers"][0]["overdue_seconds"] > 290
    shown = wane("status").out
    assert shown.count("silent") == 2
    assert "no scheduler or worker is alive" in shown
    assert "late" in shown


def test_status_counts_dead_letters(wane: Wane, ready: Database, folder: Path) -> None:
    write_contract(folder, ready.url, CONTRACT + "\n[queue]\nattempts = 1\n")
    ready.execute("ALTER TABLE inbox RENAME TO elsewhere")
    done = wane("run", "--max-runs", "1")
    assert done.code == 1
    assert "1 failure" in done.err
    assert "event=tick.lifecycle_tick_failed" in done.err
    found = wane("status", "--json").json
    assert found["dead_letters"] == 1
    done = wane("status")
    assert "1 dead letter" in done.err
    assert "wane queue dead list" in done.err


def test_a_single_run_reports_by_its_exit_code_that_a_rule_waits_for_approval(ready: Database, wane: Wane) -> None:
    fill_more(ready)
    done = wane("run", "--max-runs", "1")
    assert done.code == 1
    assert "1 failure" in done.err
    assert len(ids(ready)) > 3_000


def test_a_run_sends_traces_and_metrics_to_a_collector(
    wane: Wane, ready: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{received.port}")
        done = wane("run", "--max-runs", "1", "--otel")
    assert done.code == 0, done.err
    assert "wane.sweep" in received.spans
    assert {"lifecycle_prune_rows", "wane_backlog_rows", "wane_up"} <= received.metrics
