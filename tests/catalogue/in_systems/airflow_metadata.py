"""Airflow's metadata database: `airflow_metadata.py create|fill|clean|use URL`, run where Airflow is installed."""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta

NOW = datetime.now(UTC)
TASKS = ("extract", "load")


def configure(url: str) -> None:
    driver = "postgresql+psycopg" if url.startswith("postgresql") else "sqlite"
    apart = "postgresql+psycopg_async" if url.startswith("postgresql") else "sqlite+aiosqlite"
    rest = url[url.index(":") :]
    os.environ |= {
        "AIRFLOW_HOME": tempfile.mkdtemp(),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": driver + rest,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": apart + rest,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days, minutes=5)


def create() -> None:
    from airflow.utils.db import initdb

    initdb()


def parse(session, name: str, *tasks: str):  # type: ignore[no-untyped-def]
    """Store a DAG as the DAG processor does, and return it as the scheduler has it."""
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.sdk import DAG, Asset, BaseOperator
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    with DAG(name, schedule="@daily", start_date=ago(400), tags=["proof"]) as dag:
        for task in tasks:
            BaseOperator(task_id=task, outlets=[Asset("proof")])
    dag.fileloc, dag.relative_fileloc = __file__, "dags.py"
    parsed = [LazyDeserializedDAG.from_dag(dag)]
    session.commit()
    session.expunge_all()
    update_dag_parsing_results_in_db("proof", None, parsed, {}, None, set(), session=session)
    session.commit()
    return SerializedDagModel.get_dag(name, session=session)


def run(session, dag, number: int, days: float, kind: str, state: str):  # type: ignore[no-untyped-def]
    """Create a run of a DAG, with everything that its tasks leave behind."""
    from airflow.models.deadline import Deadline
    from airflow.models.hitl import HITLDetail
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.models.taskmap import TaskMap
    from airflow.models.taskreschedule import TaskReschedule
    from airflow.models.xcom import XComModel
    from airflow.sdk.definitions.callback import SyncCallback
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    at = ago(days)
    made = dag.create_dagrun(
        run_id=f"{kind}__{number}",
        logical_date=at,
        data_interval=(at, at),
        run_after=at,
        run_type=DagRunType(kind),
        triggered_by=DagRunTriggeredByType.TEST,
        state=DagRunState(state),
        start_date=at,
        note="a note" if number % 2 else None,
        session=session,
    )
    for task in made.get_task_instances(session=session):
        of = {"dag_id": task.dag_id, "task_id": task.task_id, "run_id": task.run_id}
        task.state = TaskInstanceState.SUCCESS if state == "success" else TaskInstanceState(state)
        task.start_date, task.end_date, task.try_number = at, at, 1
        task.note = "another"
        task.hitl_detail = HITLDetail(ti_id=task.id, options=["yes"], subject="?")
        session.flush()
        TaskInstanceHistory.record_ti(task, session=session)
        session.flush()
        session.add(TaskReschedule(task.id, at, at, at))
        session.add(RenderedTaskInstanceFields(task, render_templates=False, rendered_fields={"x": 1}))
        session.add(TaskMap(**of, map_index=-1, length=1, keys=None))
        XComModel.set("x", 1, **of, session=session)
        session.flush()
        for key, expiry in (("soon", at + timedelta(days=1)), ("never", None)):
            of_run = {"dag_run_id": made.id, "map_index": -1, "value": "1"}
            session.add(TaskStateStoreModel(**of, **of_run, key=key, expires_at=expiry))
    deadline = Deadline(at + timedelta(days=number % 7), SyncCallback("os.getcwd", {}), made.id, None, dag.dag_id)
    deadline.callback.state = ("scheduled", "success", "failed", "running", None)[number % 5]
    deadline.callback.created_at = at
    session.add(deadline)
    session.flush()
    return made


def fill() -> None:
    from airflow.jobs.job import Job
    from airflow.models.asset import (
        AssetAliasModel,
        AssetEvent,
        AssetModel,
        AssetWatcherModel,
    )
    from airflow.models.backfill import Backfill, BackfillDagRun
    from airflow.models.callback import Callback
    from airflow.models.connection_test import ConnectionTestRequest
    from airflow.models.dag import DagModel
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.models.deadline_alert import DeadlineAlert
    from airflow.models.errors import ParseImportError
    from airflow.models.log import Log
    from airflow.models.revoked_token import RevokedToken
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.trigger import Trigger
    from airflow.sdk.definitions.callback import SyncCallback
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    with create_session() as session:
        session.add(DagBundleModel(name="proof"))
        session.commit()
        etl = parse(session, "etl", "extract")
        for number in range(60):
            kind = ("scheduled", "manual", "scheduled", "backfill")[number % 4]
            if number == 20:
                etl = parse(session, "etl", *TASKS)
            state = "running" if number == 3 else ("success", "failed")[number % 5 == 4]
            run(session, etl, number, 240 - 4 * number, kind, state)
        # Every run of this one is old; its last one by hand is younger than its last scheduled one.
        old = parse(session, "old", *TASKS)
        for number in range(8):
            run(session, old, number, 200 - number, "manual" if number > 5 else "scheduled", "success")
        # Versions without tasks, and a DAG whose file is gone.
        for count in range(3):
            never = parse(session, "never", *map(str, range(count + 1)))
            made = run(session, never, count, 300 - count, "manual", "success")
            assert made
        parse(session, "gone", "extract")
        session.execute(update(DagModel).where(DagModel.dag_id == "gone").values(last_parsed_time=ago(200)))
        for version in session.scalars(select(DagVersion)):
            version.created_at = ago(150 - version.version_number)
        asset, runs = session.scalars(select(AssetModel)).one(), session.scalars(select(DagRun)).all()
        for serialized in session.scalars(select(SerializedDagModel)):
            session.add(DeadlineAlert(serialized_dag_id=serialized.id, reference={}, interval={}, callback_def={}))
        alias = AssetAliasModel(name="alias")
        span = {"from_date": ago(300), "to_date": ago(0), "dag_run_conf": {}}
        backfill = Backfill(dag_id="etl", **span, reprocess_behavior="none", max_active_runs=1)
        session.add_all([alias, backfill])
        session.flush()
        for number in range(60):
            at = ago(4 * number)
            session.add(Log(event="proof", owner="x", owner_display_name="x"))
            event = AssetEvent(asset_id=asset.id, extra={}, timestamp=at)
            event.source_aliases.append(alias)
            runs[number].consumed_asset_events.append(event)
            session.add(event)
            session.add(BackfillDagRun(backfill_id=backfill.id, dag_run_id=runs[number].id, sort_ordinal=number + 1))
            job = Job(job_type="SchedulerJob", state=("running", "success")[number % 2])
            job.latest_heartbeat = at
            session.add(job)
            session.add(ParseImportError(timestamp=at, filename=str(number), bundle_name="proof", stacktrace="no"))
            session.add(RevokedToken(jti=f"{number:032}", exp=at))
            test = ConnectionTestRequest(connection_id=f"c{number}", conn_type="http")
            test.state = ("success", "failed", "pending", "running")[number % 4]
            test.created_at = test.updated_at = at
            session.add(test)
            callback = Callback.create_from_sdk_def(SyncCallback("os.getcwd", {}))
            callback.state = ("scheduled", "success", "failed", "queued", None)[number % 5]
            callback.created_at = at
            session.add(callback)
        session.flush()
        session.execute(update(Log).values(dttm=NOW))
        for number, log in enumerate(session.scalars(select(Log))):
            log.dttm = ago(4 * number)
        partitions(session, asset.id)
        # The trigger of a watcher lives for as long as its asset.
        session.add(Trigger(classpath="proof.Trigger", kwargs={}, created_date=ago(200)))
        session.flush()
        trigger = session.scalars(select(Trigger)).one()
        session.add(AssetWatcherModel(name="w", asset_id=asset.id, trigger_id=trigger.id))


def partitions(session, asset: int) -> None:  # type: ignore[no-untyped-def]
    """Write the log of partitions: of runs that exist, that are pending, and that are gone."""
    from airflow.models.asset import AssetPartitionDagRun, PartitionedAssetKeyLog
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    runs = [*session.scalars(select(DagRun.id).order_by(DagRun.id).limit(60)).all(), None, None]
    for number, made in enumerate(runs):
        pending = AssetPartitionDagRun(target_dag_id="etl", created_dag_run_id=made, partition_key=str(number))
        session.add(pending)
        session.flush()
        of = {"asset_id": asset, "asset_event_id": number, "source_partition_key": "x", "target_dag_id": "etl"}
        for parent in (pending.id, 1_000_000 + number):
            key = {"asset_partition_dag_run_id": parent, "target_partition_key": str(number)}
            session.add(PartitionedAssetKeyLog(**of, **key, created_at=ago(3 * number)))


def clean() -> None:
    from airflow.utils.db_cleanup import run_cleanup

    housekeeping = ["job", "import_error", "revoked_token", "connection_test_request", "callback", "task_state_store"]
    assets = ["asset_event", "partitioned_asset_key_log"]
    for days, tables in ((90, None), (70, assets), (60, ["log"]), (30, housekeeping)):
        before = datetime.now(UTC) - timedelta(days=days)
        run_cleanup(
            clean_before_timestamp=before,
            table_names=tables,
            confirm=False,
            skip_archive=True,
            error_on_cleanup_failure=True,
        )


def use() -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.db import check_migrations
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from sqlalchemy import select

    check_migrations(0)
    with create_session() as session:
        dag = parse(session, "old", *TASKS, "report")
        run(session, dag, 100, 0, "scheduled", "success")
        last = select(DagRun).where(DagRun.dag_id == "old", DagRun.run_type == DagRunType.SCHEDULED)
        assert len(session.scalars(last).all()) == 2, "the last one from before the sweep, and the new one"


def main(verb: str, url: str) -> None:
    configure(url)
    {"create": create, "fill": fill, "clean": clean, "use": use}[verb]()


if __name__ == "__main__":
    main(*sys.argv[1:])
