"""Prefect's server: `prefect_server.py create|fill|clean|use URL`, run where Prefect is installed."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

NOW = datetime.now(UTC)
DAY = 86_400
LIVE = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def configure(url: str) -> None:
    driver = "postgresql+asyncpg" if url.startswith("postgresql") else "sqlite+aiosqlite"
    os.environ |= {
        "PREFECT_HOME": tempfile.mkdtemp(),
        "PREFECT_API_DATABASE_CONNECTION_URL": driver + url[url.index(":") :],
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * DAY),
        "PREFECT_SERVER_SERVICES_DB_VACUUM_EVENT_RETENTION_OVERRIDES": f'{{"prefect.flow-run.heartbeat": {3 * DAY}}}',
    }


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days, minutes=5)


async def add_run(session: Any, flow: UUID, state: str, days: float, parent: UUID | None = None) -> tuple[UUID, UUID]:
    """Create a run with a task, its logs, artifacts and inputs; return it and the task."""
    from prefect.server import models, schemas

    end = ago(days)
    reached = schemas.states.State(type=state, timestamp=end)
    run = await models.flow_runs.create_flow_run(
        session, schemas.core.FlowRun(flow_id=flow, state=reached, parent_task_run_id=parent)
    )
    run.end_time = end if state in ENDED else None
    task = await models.task_runs.create_task_run(
        session,
        schemas.core.TaskRun(flow_run_id=run.id, task_key="t", dynamic_key="0", state=reached.fresh_copy()),
    )
    value = schemas.core.FlowRunInput(flow_run_id=run.id, key="k", value="1")
    await models.flow_run_input.create_flow_run_input(session, value)
    await add_output(session, run.id, task.id, end)
    return run.id, task.id


async def add_output(session: Any, run: UUID | None, task: UUID | None, at: datetime) -> None:
    from prefect.server import models, schemas
    from prefect.server.schemas.actions import LogCreate

    line = LogCreate(name="proof", level=20, message="x", timestamp=at, flow_run_id=run, task_run_id=task)
    await models.logs.create_logs(session, [line, line])
    artifact = schemas.core.Artifact(key=f"key-{uuid4().hex[0]}", flow_run_id=run, task_run_id=task)
    made = await models.artifacts.create_artifact(session, artifact)
    made.created = at


async def fill(db: Any) -> None:
    import sqlalchemy
    from prefect.server import models, schemas
    from prefect.server.events.schemas.events import ReceivedEvent
    from prefect.server.events.storage.database import write_events

    async with db.session_context(begin_transaction=True) as session:
        flow = (await models.flows.create_flow(session, schemas.core.Flow(name="proof"))).id
        for number in range(60):
            state = ENDED[number % 4] if number % 3 else LIVE[number % 5]
            _, task = await add_run(session, flow, state, number)
            if number % 5 == 0:
                # Of old parents some children are young, and some are parents themselves.
                _, child = await add_run(session, flow, "COMPLETED", number / 2, task)
                await add_run(session, flow, "COMPLETED", number, child)
        for number in range(30):
            await add_output(session, uuid4(), None, ago(number / 8))
            await add_output(session, None, None, ago(number * 3))
        kinds = ("prefect.flow-run.heartbeat", "prefect.flow-run.Completed")
        resource = {"prefect.resource.id": "prefect.flow-run.1"}
        related = [{"prefect.resource.id": "prefect.flow.1", "prefect.resource.role": "flow"}]
        events = [
            ReceivedEvent(
                occurred=ago(number / 4), event=kinds[number % 2], resource=resource, related=related, id=uuid4()
            )
            for number in range(60)
        ]
        await write_events(session, events)
        # As after an interrupted cleanup: their resources are still there.
        await session.execute(sqlalchemy.delete(db.Event).where(db.Event.id.in_([one.id for one in events[50:]])))


async def clean(db: Any) -> None:
    from prefect.server.services import db_vacuum

    await db_vacuum.vacuum_old_flow_runs(db=db)
    await db_vacuum.vacuum_events_with_retention_overrides(db=db)
    await db_vacuum.vacuum_old_events(db=db)
    await db_vacuum.vacuum_orphaned_logs(db=db)
    await db_vacuum.vacuum_orphaned_artifacts(db=db)
    await db_vacuum.vacuum_stale_artifact_collections(db=db)


async def use(db: Any) -> None:
    from prefect.server import models, schemas
    from prefect.server.services import db_vacuum

    await db.create_db()
    await db_vacuum.vacuum_stale_artifact_collections(db=db)
    async with db.session_context(begin_transaction=True) as session:
        [flow] = await models.flows.read_flows(session)
        run, _ = await add_run(session, flow.id, "RUNNING", 0)
        done = schemas.states.Completed()
        await models.flow_runs.set_flow_run_state(session, run, done)
        found = await models.flow_runs.read_flow_run(session, run)
        assert found.state_type == schemas.states.StateType.COMPLETED


async def run_verb(verb: str) -> None:
    from prefect.server.database import provide_database_interface

    db = provide_database_interface()
    await (db.create_db() if verb == "create" else {"fill": fill, "clean": clean, "use": use}[verb](db))


def main(verb: str, url: str) -> None:
    configure(url)
    asyncio.run(run_verb(verb))


if __name__ == "__main__":
    main(*sys.argv[1:])
