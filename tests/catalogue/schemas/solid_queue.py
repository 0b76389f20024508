"""Solid Queue (Rails), on PostgreSQL and SQLite: its tables up to 1.6, and what it deletes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from catalogue.dialect import before, create_tables, insert
from servers import Database

VERSION = "1.6.0"
EXECUTIONS = {
    "ready": "queue_name text NOT NULL, priority integer NOT NULL DEFAULT 0",
    "claimed": "process_id bigint",
    "blocked": "queue_name text NOT NULL, concurrency_key text NOT NULL, expires_at <naive> NOT NULL",
    "scheduled": "queue_name text NOT NULL, scheduled_at <naive> NOT NULL",
    "failed": "error text",
    "recurring": "task_key text NOT NULL, run_at <naive> NOT NULL",
}
TABLES = """
    CREATE TABLE solid_queue_jobs (
      id <serial>, queue_name text NOT NULL, class_name text NOT NULL, arguments text, active_job_id text,
      scheduled_at <naive>, finished_at <naive>, created_at <naive> NOT NULL, updated_at <naive> NOT NULL);
    CREATE INDEX index_solid_queue_jobs_on_finished_at ON solid_queue_jobs (finished_at);
    CREATE TABLE solid_queue_processes (id <serial>, kind text NOT NULL, pid integer NOT NULL, name text NOT NULL,
      last_heartbeat_at <naive> NOT NULL, created_at <naive> NOT NULL);
    CREATE TABLE solid_queue_semaphores (id <serial>, key text NOT NULL UNIQUE, value integer NOT NULL DEFAULT 1,
      expires_at <naive> NOT NULL, created_at <naive> NOT NULL, updated_at <naive> NOT NULL);
    CREATE TABLE solid_queue_recurring_tasks (id <serial>, key text NOT NULL UNIQUE, schedule text NOT NULL,
      created_at <naive> NOT NULL, updated_at <naive> NOT NULL);
    CREATE TABLE solid_queue_pauses (id <serial>, queue_name text NOT NULL UNIQUE, created_at <naive> NOT NULL);
""" + "".join(
    f"CREATE TABLE solid_queue_{name}_executions (id <serial>, {columns}, created_at <naive> NOT NULL,"
    " job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);"
    for name, columns in EXECUTIONS.items()
)
KINDS = ("finished", "recurring", "failed", "ready", "claimed", "blocked", "scheduled")


def create(database: Database) -> None:
    create_tables(database, TABLES)


def fill(database: Database) -> None:
    def ago(hours: int) -> object:
        return before(database, timedelta(hours=hours, minutes=5))

    def jobs() -> Iterator[dict[str, object]]:
        for number, (kind, hours) in enumerate(kinds, 1):
            finished = ago(hours) if kind in ("finished", "recurring") else None
            times = {"scheduled_at": ago(900), "created_at": ago(900), "updated_at": ago(900 - hours)}
            yield {"id": number, "queue_name": "q", "class_name": "Job", "finished_at": finished, **times}

    kinds = [(kind, hours) for kind in KINDS for hours in range(0, 1000, 8)]
    insert(database, "solid_queue_jobs", jobs())
    columns: dict[str, dict[str, object]] = {
        "ready": {"queue_name": "q"},
        "blocked": {"queue_name": "q", "concurrency_key": "k", "expires_at": ago(9)},
        "scheduled": {"queue_name": "q", "scheduled_at": ago(-9)},
        "failed": {"error": "no"},
        "recurring": {"task_key": "t", "run_at": ago(9)},
    }
    for kind in EXECUTIONS:
        rows = (
            {"job_id": number, "created_at": ago(hours), **columns.get(kind, {})}
            for number, (one, hours) in enumerate(kinds, 1)
            if one == kind
        )
        insert(database, f"solid_queue_{kind}_executions", rows)
    stamps = {"created_at": ago(999)}
    process = {"kind": "Worker", "pid": 1, "name": "w", "last_heartbeat_at": ago(99), **stamps}
    insert(database, "solid_queue_processes", [process])
    insert(database, "solid_queue_semaphores", [{"key": "k", "expires_at": ago(99), "updated_at": ago(1), **stamps}])
    insert(
        database, "solid_queue_recurring_tasks", [{"key": "t", "schedule": "hourly", "updated_at": ago(1), **stamps}]
    )
    insert(database, "solid_queue_pauses", [{"queue_name": "q", **stamps}])


def clean(database: Database) -> None:
    """Delete what clear_finished_in_batches deletes after a day, and discard jobs that failed thirty days ago."""
    finished, failed = (before(database, timedelta(days=days)) for days in (1, 30))
    database.execute("DELETE FROM solid_queue_jobs WHERE finished_at IS NOT NULL AND finished_at < ?", (finished,))
    old = "SELECT job_id FROM solid_queue_failed_executions WHERE created_at < ?"
    database.execute(f"DELETE FROM solid_queue_jobs WHERE finished_at IS NULL AND id IN ({old})", (failed,))
