"""Laravel's queue in the database, on PostgreSQL and SQLite: its tables, and what its commands prune."""

from __future__ import annotations

import time
from datetime import timedelta

from catalogue.dialect import before, create_tables, insert
from servers import Database

VERSION = "12"
TABLES = """
    CREATE TABLE jobs (id <serial>, queue varchar(255) NOT NULL, payload text NOT NULL, attempts smallint NOT NULL,
      reserved_at integer, available_at integer NOT NULL, created_at integer NOT NULL);
    CREATE TABLE failed_jobs (id <serial>, uuid varchar(255) NOT NULL UNIQUE, connection text NOT NULL,
      queue text NOT NULL, payload text NOT NULL, exception text NOT NULL, failed_at <naive> NOT NULL);
    CREATE TABLE job_batches (id varchar(255) NOT NULL PRIMARY KEY, name varchar(255) NOT NULL,
      total_jobs integer NOT NULL, pending_jobs integer NOT NULL, failed_jobs integer NOT NULL,
      failed_job_ids text NOT NULL, options text, cancelled_at integer, created_at integer NOT NULL,
      finished_at integer);
"""
HOUR = 3600


def create(database: Database) -> None:
    create_tables(database, TABLES)


def fill(database: Database) -> None:
    now = int(time.time()) - 300
    ages = range(0, 400, 5)
    waiting = {"queue": "default", "payload": "{}", "attempts": 0, "reserved_at": None}
    insert(database, "jobs", ({**waiting, "available_at": now, "created_at": now - n * HOUR} for n in ages))
    failed = {"connection": "database", "queue": "default", "payload": "{}", "exception": "no"}
    at = (before(database, timedelta(hours=n, minutes=5), digits=0) for n in ages)
    insert(database, "failed_jobs", ({**failed, "uuid": str(n), "failed_at": one} for n, one in enumerate(at)))
    counts = {"name": "", "total_jobs": 1, "pending_jobs": 0, "failed_jobs": 0, "failed_job_ids": "[]"}
    insert(
        database,
        "job_batches",
        (
            {
                **counts,
                "id": f"{kind}{n}",
                "cancelled_at": now - n * HOUR if kind == "cancelled" else None,
                "created_at": now - n * HOUR if kind == "open" else now - 500 * HOUR,
                "finished_at": None if kind == "open" else now - n * HOUR,
            }
            for kind in ("finished", "cancelled", "open")
            for n in ages
        ),
    )


def clean(database: Database) -> None:
    """Prune as `queue:prune-failed --hours=24` and `queue:prune-batches --hours=24 --unfinished=168` do."""
    now = int(time.time())
    yesterday = before(database, timedelta(hours=24), digits=0)
    database.execute("DELETE FROM failed_jobs WHERE failed_at < ?", (yesterday,))
    finished = "DELETE FROM job_batches WHERE finished_at IS NOT NULL AND finished_at < ?"
    database.execute(finished, (now - 24 * HOUR,))
    database.execute("DELETE FROM job_batches WHERE finished_at IS NULL AND created_at < ?", (now - 168 * HOUR,))
