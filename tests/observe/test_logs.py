"""Log lines have the names and facts that dashboards depend on."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from servers import Database
from wane._contract.model import Age, Contract, Rule, Scheduler, Table, Time
from wane._contract.names import TableName
from wane._contract.settings import Budget
from wane._db import open_store
from wane._db.url import resolve_url
from wane._prune.gates import set_gate
from wane._prune.pace import Pace
from wane._prune.sweep import Sweeper
from wane.events import (
    BatchTaken,
    Event,
    HeartbeatWritten,
    MessageDead,
    OutageEnded,
    RetentionPassFailed,
    RowConsumed,
    RowsPruned,
    RuleFailed,
    RuleSwept,
    SlowedDown,
    SweepsEnqueued,
    TickFailed,
    WorkFailed,
)
from wane.observe._log_options import LogFormat
from wane.observe._logs import LOGGER, configure_logging, log_event


def contract(budget: Budget) -> Contract:
    rule = Rule("failed", Age(Time("at"), timedelta(days=7)), states=("failed",), budget=budget)
    table = Table(TableName("jobs"), "a test", (rule,), scheduler="statestore", state="status", live=("queued",))
    return Contract(None, (table,), schedulers=(Scheduler("statestore", timedelta(minutes=5)),))


def swept(database: Database, budget: Budget, rows: int = 30) -> None:
    kind = "timestamptz" if database.store == "postgres" else "text"
    database.script(
        f"CREATE TABLE jobs (id integer PRIMARY KEY, status text, at {kind}); CREATE INDEX a ON jobs (status, at, id)"
    )
    old = datetime.now(UTC) - timedelta(days=8)
    stamp = old if database.store == "postgres" else old.strftime("%Y-%m-%d %H:%M:%S")
    database.executemany("INSERT INTO jobs VALUES (?, 'failed', ?)", [(number, stamp) for number in range(rows)])
    promised = contract(budget)
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        pace = Pace(duty=1.0, first_batch=10, least_batch=10, most_batch=10)
        Sweeper(store, promised, listener=log_event, pace=pace).sweep()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "wane"]


def test_a_sweep_that_removed_rows_is_logged_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wane")
    swept(database, Budget())
    assert lines(caplog) == [(logging.INFO, "event=statestore.lifecycle_pruned table=jobs rule=failed rows=30")]
    assert vars(caplog.records[-1])["wane"]["rows"] == 30


def test_a_sweep_with_nothing_due_is_silent(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wane")
    swept(database, Budget(), rows=0)
    assert lines(caplog) == []


def test_a_spent_budget_is_logged(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wane")
    swept(database, Budget(rows=20))
    assert lines(caplog) == [
        (
            logging.WARNING,
            "event=statestore.lifecycle_prune_budget_exhausted table=jobs rule=failed spent=rows",
        ),
        (logging.INFO, "event=statestore.lifecycle_pruned table=jobs rule=failed rows=20"),
    ]


def test_a_failure_is_logged_on_one_line_whatever_it_states(caplog: pytest.LogCaptureFixture) -> None:
    log_event(RuleFailed("outbox", "outbox", "old", "outbox", 'it said "no"\nand = left\\'))
    [(level, text)] = lines(caplog)
    assert level == logging.ERROR
    assert text == (
        'event=outbox.lifecycle_tick_failed table=outbox rule=old error="it said \\"no\\"\\nand = left\\\\"'
    )


LOGGED: list[tuple[Event, int, str]] = [
    (
        TickFailed("statestore", "no connection"),
        logging.ERROR,
        'event=statestore.lifecycle_tick_failed error="no connection"',
    ),
    (
        WorkFailed(None, "retention_sweep_jobs", "lost"),
        logging.ERROR,
        "event=wane.lifecycle_tick_failed kind=retention_sweep_jobs error=lost",
    ),
    (
        TickFailed("statestore", "gone", repeated=True),
        logging.DEBUG,
        "event=statestore.lifecycle_tick_failed error=gone",
    ),
    (
        WorkFailed(None, "reserve", "gone", repeated=True),
        logging.DEBUG,
        "event=wane.lifecycle_tick_failed kind=reserve error=gone",
    ),
    (OutageEnded(9.04, 20), logging.WARNING, "event=wane.outage_ended seconds=9.0 attempts=20"),
    (
        RuleSwept("tick", "jobs", "done", "jobs.done", "prune", {"jobs": 5, "job_attempts": 7}, 1, 0.1, "done"),
        logging.INFO,
        "event=tick.lifecycle_pruned table=jobs rule=done rows=5 followers=7",
    ),
    (
        RetentionPassFailed("knocker_events", "no"),
        logging.ERROR,
        "event=wane.lifecycle_tick_failed table=knocker_events error=no",
    ),
    (
        SweepsEnqueued("outbox", "2026-03-01T12:00:00Z", ("retention_sweep_a", "retention_sweep_b")),
        logging.INFO,
        "event=outbox.lifecycle_tick window=2026-03-01T12:00:00Z sweeps=retention_sweep_a,retention_sweep_b",
    ),
    (
        MessageDead("retention", "m1", "retention_sweep_a", "max_delivery_attempts_reached"),
        logging.WARNING,
        "event=wane.message_dead pool=retention message_id=m1 kind=retention_sweep_a reason=max_delivery_attempts_reached",
    ),
    (
        HeartbeatWritten("host:1", "worker", "idle"),
        logging.DEBUG,
        "event=wane.heartbeat executor=host:1 role=worker doing=idle",
    ),
    (
        SlowedDown("jobs", "failed", "lock contention"),
        logging.INFO,
        'event=wane.slowed_down table=jobs rule=failed cause="lock contention"',
    ),
]


@pytest.mark.parametrize(("event", "level", "text"), LOGGED, ids=lambda one: type(one).__name__)
def test_each_event_has_its_line(event: Event, level: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="wane")
    log_event(event)
    assert lines(caplog) == [(level, text)]


def test_marks_batches_and_single_rows_write_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="wane")
    log_event(RuleSwept("s", "jobs", "cleaned", "jobs.cleaned", "mark", {"jobs": 3}, 1, 0.1, "done"))
    log_event(BatchTaken("s", "jobs", "failed", "jobs.failed", "prune", {"jobs": 3}, 0.1, 10))
    log_event(RowsPruned("s", "jobs", None, "jobs.failed", "prune", {"jobs": 3}, committed=True))
    log_event(RowConsumed("jobs", "consume"))
    assert lines(caplog) == []


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Restore the configuration of logging after a test."""
    handlers, level = list(LOGGER.handlers), LOGGER.level
    yield
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(level)


@pytest.mark.usefixtures("own_logging")
class TestLines:
    """What a process of Wane's own writes."""

    FAILED = RuleFailed("outbox", "outbox", "old", "outbox", 'it said "no"\nüber')

    def test_json_lines_are_json_and_have_the_facts(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logging("info", "json")
        log_event(self.FAILED)
        [line] = capsys.readouterr().err.splitlines()
        reported = json.loads(line)
        timestamp = datetime.fromisoformat(reported.pop("time"))
        assert abs(timestamp - datetime.now(UTC)) < timedelta(minutes=1)
        assert reported == {
            "level": "error",
            "event": "outbox.lifecycle_tick_failed",
            "table": "outbox",
            "rule": "old",
            "error": 'it said "no"\nüber',
        }

    def test_text_lines_are_pairs(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logging("info", "text")
        log_event(self.FAILED)
        out, err = capsys.readouterr()
        assert out == ""
        assert re.fullmatch(
            r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=error event=outbox.lifecycle_tick_failed table=outbox rule=old"
            r' error="it said \\"no\\"\\nüber"\n',
            err,
        )

    def test_a_second_configuration_replaces_the_settings(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logging("debug", "json")
        configure_logging("warning", "text")
        log_event(HeartbeatWritten("host:1", "worker", "idle"))
        log_event(SlowedDown("jobs", "failed", "locks"))
        log_event(self.FAILED)
        assert len(capsys.readouterr().err.splitlines()) == 1

    @pytest.mark.parametrize("form", LogFormat)
    def test_other_lines_of_wane_are_lines_too(self, form: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logging("info", form)
        try:
            raise ValueError("inner\nlines")
        except ValueError:
            logging.getLogger("wane.webhooks").exception("a pass %s", "failed")
        [line] = capsys.readouterr().err.splitlines()
        assert "a pass failed" in line
        assert "ValueError: inner" in line
