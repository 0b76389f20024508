"""APScheduler's data store: `apscheduler_store.py create|fill|clean|use URL`, run where APScheduler 4 is installed."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

from apscheduler import ConflictPolicy, Job, JobOutcome, JobResult, Schedule, Task
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.local import LocalEventBroker
from apscheduler.triggers.date import DateTrigger
from sqlalchemy.ext.asyncio import create_async_engine

NOW = datetime.now(UTC)


async def add_job(store: SQLAlchemyDataStore, expires: datetime, outcome: JobOutcome) -> JobResult:
    await store.add_job(Job(task_id="work", executor="async", result_expiration_time=timedelta(hours=1)))
    [job] = await store.acquire_jobs("me", timedelta(hours=1), 1)
    result = JobResult(job_id=job.id, outcome=outcome, finished_at=NOW - timedelta(days=30), expires_at=expires)
    await store.release_job("me", job, result)
    return result


async def fill(store: SQLAlchemyDataStore) -> None:
    await store.add_task(Task(id="work", func="operator:add", job_executor="async"))
    for number in range(120):
        outcome = (JobOutcome.success, JobOutcome.error, JobOutcome.missed_start_deadline)[number % 3]
        await add_job(store, NOW + timedelta(hours=number - 60, minutes=5), outcome)
    for number in range(5):
        await store.add_job(Job(task_id="work", executor="async", schedule_id="ended" if number else None))
    for name, fires in (("ended", None), ("over", None), ("soon", NOW + timedelta(days=1))):
        trigger = DateTrigger(NOW + timedelta(days=1))
        schedule = Schedule(id=name, task_id="work", trigger=trigger, job_executor="async", next_fire_time=fires)
        await store.add_schedule(schedule, ConflictPolicy.exception)


async def use(store: SQLAlchemyDataStore) -> None:
    jobs = await store.acquire_jobs("me", timedelta(hours=1), 100)
    assert len(jobs) == 5
    await store.cleanup()
    assert sorted(one.id for one in await store.get_schedules()) == ["ended", "soon"]
    result = await add_job(store, NOW + timedelta(hours=1), JobOutcome.success)
    assert await store.get_job_result(result.job_id) == result


async def main(verb: str, url: str) -> None:
    logger = logging.getLogger("proof")
    driver = "postgresql+psycopg" if url.startswith("postgresql") else "sqlite+aiosqlite"
    store, broker = SQLAlchemyDataStore(create_async_engine(driver + url[url.index(":") :])), LocalEventBroker()
    async with AsyncExitStack() as stack:
        await broker.start(stack, logger)
        await store.start(stack, broker, logger)  # It creates the schema.
        if verb == "clean":
            await store.cleanup()
        elif verb != "create":
            await {"fill": fill, "use": use}[verb](store)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
