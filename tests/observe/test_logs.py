"""Log lines have the names and facts that dashboards depend on."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from servers import Database
from wane.contract.model import Age, Budget, Contract, Rule, Scheduler, Table, Time
from wane.contract.names import TableName
from wane.events import RuleFailed
from wane.observe.logs import log_event
from wane.prune.gates import set_gate
from wane.prune.pace import Pace
from wane.prune.sweep import Sweeper
from wane.store import open_store
from wane.store.url import resolve_url


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
    assert lines(caplog) == [(logging.INFO, "event=statestore.lifecycle_pruned table=jobs.failed rule=failed rows=30")]
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
            "event=statestore.lifecycle_prune_budget_exhausted table=jobs.failed rule=failed spent=rows",
        ),
        (logging.INFO, "event=statestore.lifecycle_pruned table=jobs.failed rule=failed rows=20"),
    ]


def test_a_failure_is_logged_on_one_line_whatever_it_says(caplog: pytest.LogCaptureFixture) -> None:
    log_event(RuleFailed("outbox", "outbox", "old", "outbox", 'it said "no"\nand = left\\'))
    [(level, text)] = lines(caplog)
    assert level == logging.ERROR
    assert text == (
        'event=outbox.lifecycle_tick_failed table=outbox rule=old error="it said \\"no\\"\\nand = left\\\\"'
    )
