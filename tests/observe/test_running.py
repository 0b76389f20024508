"""Schedulers and workers at work: what they report is counted and logged once, under the same names."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from observe.reading import of
from prune.keeping import DAY, KEEP_WEEK, ago, jobs, rule, table
from servers import Database, PostgresDatabase
from wane._contract.model import Contract, Scheduler, Table
from wane._contract.settings import QueueSettings
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane.events import Event
from wane.observe._logs import log_event
from wane.observe._metrics import Metrics


def contract(*tables: Table) -> Contract:
    queue = QueueSettings(attempts=2, backoff=timedelta(milliseconds=10))
    return Contract(None, tables, schedulers=(Scheduler("tick", DAY),), queue=queue)


def ran(database: Database, promised: Contract) -> Metrics:
    """Return the metrics of a runner that completed one window."""
    metrics = Metrics(promised)

    def listener(event: Event) -> None:
        log_event(event)
        metrics(event)

    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        keeper = Keeper(promised, store, listener=listener)
        keeper.enable()
        keeper.run(workers=1, max_runs=1)
    return metrics


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(record)["wane"]["event"] for record in caplog.records if "wane" in vars(record)]


def test_a_window_is_counted_and_logged(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wane")
    jobs(database, (1, "done", ago(9)), (2, "done", ago(1)))
    text = ran(database, contract(table("job"))).text()
    assert of(text, "lifecycle_prune_rows_total")[("tick", "job.old")] == 1.0
    assert of(text, "lifecycle_tick_errors_total")[("tick",)] == 0.0
    assert of(text, "wane_ticks_total")[("tick",)] == 1.0
    assert of(text, "wane_sweeps_enqueued_total")[("tick",)] == 1.0
    lines = [name for name in named(caplog) if name.startswith("tick.")]
    assert lines == ["tick.lifecycle_tick", "tick.lifecycle_pruned"]


def test_every_failed_attempt_is_counted_once_and_logged_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="wane")
    text = ran(database, contract(table("nothing", rule("old", KEEP_WEEK)))).text()
    assert of(text, "lifecycle_tick_errors_total") == {("tick",): 2.0, ("wane",): 0.0}
    assert of(text, "wane_dead_letters_total") == {("retention",): 1.0}
    assert named(caplog).count("tick.lifecycle_tick_failed") == 2
    assert named(caplog).count("wane.message_dead") == 1


def test_a_connection_that_the_server_ended_is_replaced(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(9)))
    metrics = Metrics(contract(table("job")))
    with open_store(resolve_url(postgres_database.url)) as store:
        metrics.watch(store.clone, fresh_seconds=0.0)
        assert of(metrics.text(), "wane_up") == {(): 1.0}
        postgres_database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'wane' AND datname = current_database()"
        )
        seen = [of(metrics.text(), "wane_up")[()] for _ in range(2)]
        metrics.close()
    assert seen[-1] == 1.0
