"""oban-py by its own statements: `oban_queries.py create|fill|clean|use URL`.

The package needs a newer Python than this project, so it is not imported: the files of its statements are run.
"""

from __future__ import annotations

import sys
from importlib.metadata import files

import psycopg

ENDS = {"completed": "completed_at", "cancelled": "cancelled_at", "discarded": "discarded_at"}
STATES = ("available", "scheduled", "executing", "retryable", "suspended", *ENDS)
UTC = "timezone('UTC', now())"


def query(name: str) -> str:
    [file] = [one for one in files("oban") or [] if one.name == f"{name}.sql"]
    return str(file.read_text())


def insert_job(connection: psycopg.Connection, number: int) -> int:
    values: dict[str, object] = {
        "args": f'{{"n": {number}}}',
        "inserted_at": None,
        "max_attempts": 3,
        "meta": "{}",
        "priority": 0,
        "queue": "default",
        "scheduled_at": None,
        "state": "available",
        "tags": [],
        "worker": "proof.Worker",
    }
    # Its driver passes every value with a type; this one leaves NULL without.
    text = query("insert_job").replace("%(scheduled_at)s", "%(scheduled_at)s::timestamp")
    row = connection.execute(text.replace("%(inserted_at)s", "%(inserted_at)s::timestamp"), values).fetchone()
    assert row is not None
    return int(row[0])


def fill(connection: psycopg.Connection) -> None:
    for number in range(240):
        job, state = insert_job(connection, number), STATES[number % len(STATES)]
        age = f"{UTC} - interval '5 minutes' - {number} * interval '20 minutes'"
        ended = f", {ENDS[state]} = {age}" if state in ENDS else f", attempted_at = {age}"
        connection.execute(f"UPDATE oban_jobs SET state = '{state}', inserted_at = {age}{ended} WHERE id = {job}")
    for number in range(20):
        connection.execute(
            f"INSERT INTO oban_leaders VALUES ('l{number}', 'node', {UTC}, {UTC} + {number - 10} * interval '1 hour'"
            " + interval '5 minutes')"
        )
        connection.execute(
            "INSERT INTO oban_producers (uuid, node, queue, updated_at) VALUES (gen_random_uuid(), 'node', 'default',"
            f" {UTC} - {number} * interval '10 minutes' - interval '5 minutes')"
        )


def clean(connection: psycopg.Connection) -> None:
    connection.execute(query("prune_jobs"), {"max_age": 86_400, "limit": 20_000})
    connection.execute(query("cleanup_expired_leaders"))
    connection.execute(query("cleanup_expired_producers"), {"max_age": 3_600})


def use(connection: psycopg.Connection) -> None:
    job = insert_job(connection, 0)
    assert connection.execute("SELECT state FROM oban_jobs WHERE id = %s", (job,)).fetchone() == ("available",)


def main(verb: str, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        if verb == "create":
            connection.execute(query("install"))
        else:
            {"fill": fill, "clean": clean, "use": use}[verb](connection)


if __name__ == "__main__":
    main(*sys.argv[1:])
