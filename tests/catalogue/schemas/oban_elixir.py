"""Oban (Elixir), on PostgreSQL: its tables after migration 14, and what its pruner deletes."""

from __future__ import annotations

from datetime import timedelta

from catalogue.dialect import before, create_tables, insert
from servers import Database

VERSION = "2.22.1"
ENDS = ("completed", "cancelled", "discarded")
STATES = ("available", "suspended", "scheduled", "executing", "retryable", *ENDS)
TABLES = f"""
    CREATE TYPE oban_job_state AS ENUM ({", ".join(map(repr, STATES))});
    CREATE TABLE oban_jobs (
      id <serial>, state oban_job_state NOT NULL DEFAULT 'available', queue text NOT NULL DEFAULT 'default',
      worker text NOT NULL, attempt integer NOT NULL DEFAULT 0, max_attempts integer NOT NULL DEFAULT 20,
      priority integer NOT NULL DEFAULT 0, inserted_at <naive> NOT NULL, scheduled_at <naive> NOT NULL,
      attempted_at <naive>, cancelled_at <naive>, completed_at <naive>, discarded_at <naive>);
    CREATE INDEX oban_jobs_state_queue_priority_scheduled_at_id_index
      ON oban_jobs (state, queue, priority, scheduled_at, id);
    CREATE INDEX oban_jobs_state_cancelled_at_index ON oban_jobs (state, cancelled_at);
    CREATE INDEX oban_jobs_state_discarded_at_index ON oban_jobs (state, discarded_at);
    CREATE UNLOGGED TABLE oban_peers (name text NOT NULL PRIMARY KEY, node text NOT NULL, started_at <naive> NOT NULL,
      expires_at <naive> NOT NULL);
"""


def create(database: Database) -> None:
    create_tables(database, TABLES)


def fill(database: Database) -> None:
    def ago(hours: int) -> object:
        return before(database, timedelta(hours=hours, minutes=5))

    # A job waited for up to ten hours before it ran, and one that was cancelled may have been meant for later.
    insert(
        database,
        "oban_jobs",
        (
            {
                "state": state,
                "worker": "Proof",
                "inserted_at": ago(hours + 99),
                "scheduled_at": ago(-hours if state == "cancelled" else hours + waited),
                "attempted_at": None if state == "cancelled" else ago(hours),
                **{f"{end}_at": ago(hours) if end == state else None for end in ENDS},
            }
            for state in STATES
            for hours in range(0, 72, 3)
            for waited in (0, 10)
        ),
    )
    peers = ({"name": f"Oban{n}", "node": "a", "started_at": ago(9), "expires_at": ago(n)} for n in (-1, 1))
    insert(database, "oban_peers", peers)


def clean(database: Database) -> None:
    """Delete what the pruner deletes with `max_age: 86_400`."""
    horizon = before(database, timedelta(days=1))
    for state, column in (("completed", "scheduled_at"), ("cancelled", "cancelled_at"), ("discarded", "discarded_at")):
        database.execute(f"DELETE FROM oban_jobs WHERE state = '{state}' AND {column} < ?", (horizon,))
