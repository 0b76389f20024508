"""PgQueuer: `pgqueuer_queue.py create|fill|clean|use URL`, run where PgQueuer is installed."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from pgqueuer.db import PsycopgDriver
from pgqueuer.models import CronExpressionEntrypoint
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries

ENDS = ("successful", "exception", "canceled", "failed", "failed")
AGES = (
    "UPDATE pgqueuer SET updated = now() - id * interval '3 hours' - interval '5 minutes', created = now() - interval '1 year'",
    "UPDATE pgqueuer_log SET created = now() - id * interval '2 hours' - interval '5 minutes'",
)
CLEAN = (
    "DELETE FROM pgqueuer WHERE status = 'failed' AND updated < now() - interval '20 days'",
    "DELETE FROM pgqueuer_log WHERE aggregated AND created < now() - interval '30 days'",
    "DELETE FROM pgqueuer_statistics WHERE created < now() - interval '40 days'",
)


async def take(queries: Queries, jobs: int) -> list[Any]:
    entrypoints = {"work": EntrypointExecutionParameter(0)}
    taken: list[Any] = await queries.dequeue(jobs, entrypoints, uuid4(), None, timedelta(seconds=30))
    return taken


async def fill(queries: Queries) -> None:
    await queries.insert_schedule({CronExpressionEntrypoint("tick", "* * * * *"): timedelta(minutes=1)})
    await queries.enqueue(["work"] * 300, [b"{}"] * 300, list(range(300)))
    taken = await take(queries, 250)
    await queries.log_jobs([(job, ENDS[number % len(ENDS)], None) for number, job in enumerate(taken[:220])])
    for statement in AGES:
        await queries.driver.execute(statement)
    await queries.aggregate_logs()
    # These were not counted yet.
    await queries.log_jobs([(job, "successful", None) for job in taken[220:240]])
    await queries.driver.execute("UPDATE pgqueuer_log SET created = created - interval '60 days' WHERE NOT aggregated")


async def clean(queries: Queries) -> None:
    for statement in CLEAN:
        await queries.driver.execute(statement)


async def use(queries: Queries) -> None:
    [new] = await queries.enqueue("work", b"{}", priority=1_000)
    await queries.requeue_jobs([job.id for job in await queries.list_failed_jobs(5)])
    [job] = await take(queries, 1)
    assert job.id == new
    await queries.log_jobs([(job, "successful", None)])
    assert await queries.job_status([new]) == [(new, "successful")]
    assert await queries.unaggregated_log_count() > 20
    await queries.aggregate_logs()
    assert await queries.unaggregated_log_count() == 0


async def main(verb: str, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        queries = Queries(PsycopgDriver(connection))
        await {"create": Queries.install, "fill": fill, "clean": clean, "use": use}[verb](queries)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
