"""Sweeps as a periodic task of Celery, run by a real worker."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.contrib.testing.worker import start_worker

from contrib.shop import DUE, left_over, make_shop
from servers import Database
from wane import open as open_keeper
from wane.contrib.celery import add_sweep
from wane.errors import WaneError, WrongArgument


@pytest.fixture
def app() -> Celery:
    return Celery("shop", broker="memory://", backend="cache+memory://")


def test_a_worker_sweeps_and_returns_what_left(app: Celery, database: Database, tmp_path: Path) -> None:
    contract = make_shop(database, tmp_path)
    with open_keeper(database.url, contract=contract) as keeper:
        keeper.migrate()
        keeper.enable()
    task = add_sweep(app, contract, url=database.url)
    with start_worker(app, perform_ping_check=False, shutdown_timeout=60):
        assert task.delay().get(timeout=60) == {"jobs": DUE}
        assert task.delay().get(timeout=60) == {"jobs": 0}
    assert left_over(database) == [100, 101]
    with open_keeper(database.url, contract=contract) as keeper:
        assert {entry.actor for entry in keeper.audit(table="jobs")} == {"celery"}


def test_a_rule_that_fails_fails_the_task(app: Celery, sqlite_database: Database, tmp_path: Path) -> None:
    contract = make_shop(sqlite_database, tmp_path)
    with open_keeper(sqlite_database.url, contract=contract) as keeper:
        keeper.migrate()
        keeper.enable()
    sqlite_database.execute("ALTER TABLE jobs RENAME COLUMN status TO state")
    task = add_sweep(app, contract, url=sqlite_database.url)
    with pytest.raises(WaneError, match="status"):
        task.apply().get()


def test_heartbeat_runs_it_beside_what_the_application_schedules(app: Celery, tmp_path: Path) -> None:
    app.conf.beat_schedule = {"own": {"task": "own", "schedule": 60.0}}
    add_sweep(app, tmp_path / "wane.toml", every=timedelta(minutes=3), queue="maintenance")
    entries = Scheduler(app, lazy=False).schedule
    assert {"own", "wane.sweep"} <= set(entries)
    entry = entries["wane.sweep"]
    assert entry.schedule.run_every == timedelta(minutes=3)
    assert entry.options == {"expires": 180.0, "queue": "maintenance"}


def test_an_interval_of_nothing_is_refused(app: Celery, tmp_path: Path) -> None:
    with pytest.raises(WrongArgument):
        add_sweep(app, tmp_path / "wane.toml", every=timedelta(0))
    assert not app.conf.beat_schedule
