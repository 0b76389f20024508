"""Solid Queue (Rails) from 1.7 on, on PostgreSQL and SQLite: with its tables of batches, and what it deletes."""

from __future__ import annotations

from datetime import timedelta

from catalogue.dialect import before, create_tables, insert
from catalogue.schemas import solid_queue
from servers import Database

VERSION = "1.7.0"
TABLES = """
    ALTER TABLE solid_queue_jobs ADD COLUMN batch_id bigint;
    CREATE TABLE solid_queue_batches (id <serial>, total_jobs integer NOT NULL DEFAULT 0, enqueued_at <naive>,
      finished_at <naive>, failed_at <naive>, created_at <naive> NOT NULL, updated_at <naive> NOT NULL);
    CREATE INDEX index_solid_queue_batches_on_finished_at ON solid_queue_batches (finished_at);
    CREATE TABLE solid_queue_batch_executions (id <serial>, created_at <naive> NOT NULL,
      batch_id bigint NOT NULL REFERENCES solid_queue_batches (id) ON DELETE CASCADE,
      job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);
    CREATE INDEX index_solid_queue_batch_executions_on_batch_id ON solid_queue_batch_executions (batch_id);
"""


def create(database: Database) -> None:
    solid_queue.create(database)
    create_tables(database, TABLES)


def fill(database: Database) -> None:
    def ago(hours: int) -> object:
        return before(database, timedelta(hours=hours, minutes=5))

    solid_queue.fill(database)
    batches = [(kind, hours) for kind in ("finished", "failed", "open") for hours in range(0, 1000, 40)]
    insert(
        database,
        "solid_queue_batches",
        (
            {
                "id": number,
                "finished_at": None if kind == "open" else ago(hours),
                "failed_at": ago(hours) if kind == "failed" else None,
                "created_at": ago(hours + 1),
                "updated_at": ago(0),
            }
            for number, (kind, hours) in enumerate(batches, 1)
        ),
    )
    jobs = database.query("SELECT id FROM solid_queue_jobs ORDER BY id")
    numbers = ((job, number % len(batches) + 1) for number, (job,) in enumerate(jobs))
    rows = ({"job_id": job, "batch_id": batch, "created_at": ago(1)} for job, batch in numbers)
    insert(database, "solid_queue_batch_executions", rows)


def clean(database: Database) -> None:
    """Delete what clear_finished_in_batches of jobs and of batches delete, and discard what failed thirty days ago."""
    finished, failed = (before(database, timedelta(days=days)) for days in (1, 30))
    solid_queue.clean(database)
    database.execute("DELETE FROM solid_queue_batches WHERE finished_at < ? AND failed_at IS NULL", (finished,))
    database.execute("DELETE FROM solid_queue_batches WHERE finished_at IS NOT NULL AND failed_at < ?", (failed,))
