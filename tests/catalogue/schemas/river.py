"""River (Go), on PostgreSQL and SQLite: its tables after migration 7, and what its maintenance services delete."""

from __future__ import annotations

from datetime import timedelta

from catalogue.dialect import before, create_tables, insert
from servers import Database

VERSION = "0.44.1"
ENDS = ("cancelled", "completed", "discarded")
STATES = ("available", "pending", "retryable", "running", "scheduled", *ENDS)
STATE_TYPE = f"CREATE TYPE river_job_state AS ENUM ({', '.join(map(repr, sorted(STATES)))});"
TABLES = """
    CREATE TABLE river_job (
      id <serial>, state <state> NOT NULL, attempt integer NOT NULL DEFAULT 0, max_attempts integer NOT NULL DEFAULT 25,
      attempted_at <time>, created_at <time> NOT NULL, finalized_at <time>, scheduled_at <time> NOT NULL,
      priority integer NOT NULL DEFAULT 1, kind text NOT NULL, queue text NOT NULL DEFAULT 'default',
      CHECK ((finalized_at IS NOT NULL) = (state IN ('cancelled', 'completed', 'discarded'))));
    CREATE INDEX river_job_state_and_finalized_at_index ON river_job (state, finalized_at)
      WHERE finalized_at IS NOT NULL;
    CREATE TABLE river_queue (name text NOT NULL PRIMARY KEY, created_at <time> NOT NULL, paused_at <time>,
      updated_at <time> NOT NULL);
    CREATE TABLE river_leader (name text NOT NULL PRIMARY KEY, leader_id text NOT NULL, elected_at <time> NOT NULL,
      expires_at <time> NOT NULL);
    CREATE TABLE river_migration (line text NOT NULL, version integer NOT NULL, created_at <time> NOT NULL,
      PRIMARY KEY (line, version));
    CREATE TABLE river_notification (id <serial>, created_at <time> NOT NULL, payload text NOT NULL,
      topic text NOT NULL);
    CREATE INDEX river_notification_created_at_idx ON river_notification (created_at);
"""


def create(database: Database) -> None:
    sqlite = database.store == "sqlite"
    create_tables(
        database, ("" if sqlite else STATE_TYPE) + TABLES.replace("<state>", "text" if sqlite else "river_job_state")
    )


def fill(database: Database) -> None:
    def ago(hours: float) -> object:
        return before(database, timedelta(hours=hours, minutes=5), naive=False, digits=3)

    # Every other time of a job is on the other side of its window.
    insert(
        database,
        "river_job",
        (
            {
                "state": state,
                "created_at": ago(240 - hours),
                "scheduled_at": ago(240 - hours),
                "attempted_at": ago(240 - hours),
                "finalized_at": ago(hours) if state in ENDS else None,
                "kind": "proof",
                "queue": ("default", "mail")[hours % 2],
            }
            for state in STATES
            for hours in range(0, 240, 5)
        ),
    )
    queues = ({"name": f"q{n}", "created_at": ago(99), "paused_at": None, "updated_at": ago(4 * n)} for n in range(12))
    insert(database, "river_queue", queues)
    notes = ({"created_at": ago(n / 60), "payload": "{}", "topic": "river_insert"} for n in range(-5, 40, 7))
    insert(database, "river_notification", notes)
    leader = {"name": "default", "leader_id": "a", "elected_at": ago(9), "expires_at": ago(-1)}
    insert(database, "river_leader", [leader])
    insert(database, "river_migration", ({"line": "main", "version": n, "created_at": ago(999)} for n in range(1, 8)))


def clean(database: Database) -> None:
    """Delete what the cleaners of jobs, queues and notifications delete with their default periods."""

    def horizon(**age: int) -> object:
        return before(database, timedelta(**age), naive=False, digits=3)

    statement = "DELETE FROM river_job WHERE state = ? AND finalized_at < ?"
    for state, hours in (("cancelled", 24), ("completed", 24), ("discarded", 7 * 24)):
        database.execute(statement, (state, horizon(hours=hours)))
    database.execute("DELETE FROM river_queue WHERE updated_at < ?", (horizon(hours=24),))
    database.execute("DELETE FROM river_notification WHERE created_at < ?", (horizon(minutes=5),))
