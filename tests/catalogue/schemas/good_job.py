"""GoodJob 4 (Rails), on PostgreSQL: its tables, and what cleanup_preserved_jobs deletes."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from catalogue.dialect import before, create_tables, insert
from servers import Database

VERSION = "4"
TABLES = """
    CREATE TABLE good_jobs (
      id uuid PRIMARY KEY, active_job_id uuid, queue_name text, job_class text, error text, batch_id uuid,
      locked_by_id uuid, scheduled_at <naive>, performed_at <naive>, finished_at <naive>, created_at <naive> NOT NULL,
      updated_at <naive> NOT NULL);
    CREATE INDEX index_good_jobs_jobs_on_finished_at_only ON good_jobs (finished_at) WHERE finished_at IS NOT NULL;
    CREATE INDEX index_good_jobs_on_active_job_id_and_created_at ON good_jobs (active_job_id, created_at);
    CREATE TABLE good_job_executions (
      id uuid PRIMARY KEY, active_job_id uuid NOT NULL, error text, process_id uuid, scheduled_at <naive>,
      finished_at <naive>, created_at <naive> NOT NULL, updated_at <naive> NOT NULL);
    CREATE INDEX index_good_job_executions_on_active_job_id_and_created_at
      ON good_job_executions (active_job_id, created_at);
    CREATE TABLE good_job_batches (
      id uuid PRIMARY KEY, enqueued_at <naive>, discarded_at <naive>, finished_at <naive>, jobs_finished_at <naive>,
      created_at <naive> NOT NULL, updated_at <naive> NOT NULL);
    CREATE TABLE good_job_processes (id uuid PRIMARY KEY, state jsonb, lock_type integer, created_at <naive> NOT NULL,
      updated_at <naive> NOT NULL);
    CREATE TABLE good_job_settings (id uuid PRIMARY KEY, key text UNIQUE, value jsonb, created_at <naive> NOT NULL,
      updated_at <naive> NOT NULL);
"""


def create(database: Database) -> None:
    create_tables(database, TABLES)


def fill(database: Database) -> None:
    def ago(hours: int) -> object:
        return before(database, timedelta(hours=hours, minutes=5))

    def stamps(hours: int, kind: str) -> dict[str, object]:
        finished = None if kind == "open" else ago(hours)
        return {"id": uuid4(), "finished_at": finished, "created_at": ago(900), "updated_at": ago(900 - hours)}

    kinds = [(kind, hours) for kind in ("succeeded", "discarded", "open") for hours in range(0, 800, 20)]
    jobs = [
        {**stamps(hours, kind), "error": "no" if kind == "discarded" else None, "performed_at": ago(hours + 1)}
        for kind, hours in kinds
    ]
    insert(database, "good_jobs", ({**job, "active_job_id": job["id"]} for job in jobs))
    # A job has one execution for each attempt, all of them finished before it or meanwhile.
    executions = ({**stamps(n, "open"), "active_job_id": job["id"], "error": "no"} for job in jobs for n in range(3))
    insert(database, "good_job_executions", executions)
    batches = (
        {**stamps(hours, kind), "discarded_at": ago(800 - hours) if kind == "discarded" else None}
        for kind, hours in kinds
    )
    insert(database, "good_job_batches", batches)
    times = {"created_at": ago(900), "updated_at": ago(900)}
    insert(database, "good_job_processes", [{"id": uuid4(), **times}])
    insert(database, "good_job_settings", [{"id": uuid4(), "key": "cron_keys_disabled", **times}])


def clean(database: Database) -> None:
    """Delete what cleanup_preserved_jobs deletes: succeeded jobs and batches after 14 days, and discarded ones."""
    horizon = before(database, timedelta(days=14))
    old = "SELECT active_job_id FROM good_jobs WHERE finished_at <= ?"
    database.execute(f"DELETE FROM good_job_executions WHERE active_job_id IN ({old})", (horizon,))
    database.execute("DELETE FROM good_jobs WHERE finished_at <= ?", (horizon,))
    database.execute("DELETE FROM good_job_batches WHERE finished_at <= ?", (horizon,))
