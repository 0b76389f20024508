"""Celery: a periodic task that sweeps.

add_sweep(app, "wane.toml", every=timedelta(minutes=5))
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import Celery
from celery.app.task import Task

from wane.contrib._sweeping import sweep_or_raise
from wane.errors import WrongArgument


def add_sweep(
    app: Celery,
    contract: Path | str,
    *only: str,
    every: timedelta = timedelta(minutes=5),
    url: str | None = None,
    name: str = "wane.sweep",
    queue: str | None = None,
) -> Task:
    """Register a task that sweeps every table, or those named, and enter it into the schedule of `celery beat`.

    The task returns the rows that left, by table. It fails if a rule failed or waits for approval, so that what
    watches the application's tasks reports it. A task that no worker took by the time of the next one is dropped.
    """
    if every <= timedelta(0):
        raise WrongArgument(f"every must be longer than zero, not {every}")

    @app.task(name=name, shared=False)  # of this application alone, not of every one in the process
    def sweep() -> dict[str, int]:
        return sweep_or_raise(contract, url=url, only=only, actor="celery")

    options: dict[str, Any] = {"expires": every.total_seconds()} | ({} if queue is None else {"queue": queue})
    app.conf.beat_schedule = {
        **(app.conf.beat_schedule or {}),
        name: {"task": name, "schedule": every, "options": options},
    }
    return sweep
