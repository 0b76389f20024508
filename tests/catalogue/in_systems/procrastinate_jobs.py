"""procrastinate: `procrastinate_jobs.py create|fill|clean|use URL`, run where procrastinate is installed."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime, timedelta

from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Status

DEFERS = (1_700_000_000, 1_700_000_300)
# The job of a number is `number` hours old. Its events end then; one in ten has an event in the future.
AGES = """
    UPDATE procrastinate_events
    SET at = now() - (job.number || ' hours 5 minutes')::interval - (last.id - event.id) * interval '9 days'
    FROM procrastinate_events AS event
    JOIN (SELECT job_id, max(id) AS id FROM procrastinate_events GROUP BY job_id) AS last USING (job_id)
    JOIN (SELECT id, (args ->> 'number')::integer AS number FROM procrastinate_jobs) AS job ON job.id = job_id
    WHERE procrastinate_events.id = event.id AND event.at < now()
"""


def build(url: str) -> App:
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="work", queue="proof")
    def work(number: int, state: str = "succeeded") -> None:
        if state == "failed":
            raise ValueError("no")

    @app.task(name="tick", queue="proof")
    def tick(timestamp: int, number: int) -> None: ...

    return app


async def fill(app: App) -> None:
    work, manager = app.tasks["work"], app.job_manager
    for number in range(0, 240, 2):
        await work.defer_async(number=number, state="failed" if number % 4 else "succeeded")
    for timestamp in DEFERS:
        tick = app.configure_task("tick", task_kwargs={"timestamp": timestamp, "number": 400}).job
        await manager.defer_periodic_job(job=tick, periodic_id="often", defer_timestamp=timestamp)
    await app.run_worker_async(wait=False, install_signal_handlers=False)
    worker = await manager.register_worker()
    for number in range(0, 240, 2):
        task = work.configure(queue="later", schedule_at=datetime.now(UTC) + timedelta(days=1 if number % 20 else -40))
        waiting = await task.defer_async(number=number)
        if number % 3:
            await manager.cancel_job_by_id_async(waiting)
    for number in range(0, 240, 6):
        await work.defer_async(number=number)
        job = await manager.fetch_job(queues=["proof"], worker_id=worker)
        assert job is not None
        if number % 4:
            await manager.cancel_job_by_id_async(job.id, abort=True)
            await manager.finish_job(job, Status.ABORTED, delete_job=False)
    await app.connector.execute_query_async(AGES)


async def clean(app: App) -> None:
    await app.job_manager.delete_old_jobs(72)
    await app.job_manager.delete_old_jobs(120, include_failed=True)
    await app.job_manager.delete_old_jobs(168, include_cancelled=True, include_aborted=True)


async def use(app: App) -> None:
    job = await app.tasks["work"].defer_async(number=1)
    tick = app.configure_task("tick", task_kwargs={"timestamp": DEFERS[-1], "number": 0}).job
    repeated = await app.job_manager.defer_periodic_job(job=tick, periodic_id="often", defer_timestamp=DEFERS[-1])
    assert repeated is None, "the periodic task was deferred for that time before the sweep"
    await app.run_worker_async(wait=False, install_signal_handlers=False)
    assert await app.job_manager.get_job_status_async(job) is Status.SUCCEEDED


async def main(verb: str, url: str) -> None:
    logging.disable()  # Of jobs that fail on purpose.
    app = build(url)
    async with app.open_async():
        if verb == "create":
            await app.schema_manager.apply_schema_async()
        else:
            await {"fill": fill, "clean": clean, "use": use}[verb](app)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
