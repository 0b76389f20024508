"""What `wane init` proposes for tables of real systems is what the systems' own cleaners go by.

The schemas are those of the systems, shortened to the columns that could mislead; the rows are as the systems leave
them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from servers import Database
from wane._check.propose import propose
from wane._db import open_store
from wane._db.url import resolve_url
from wane.catalogue import contract_path

NOW = datetime.now(UTC).replace(microsecond=0)
SPELLING = {
    "sqlite": {"time": "DATETIME", "int": "BIGINT", "bool": "BOOLEAN", "duration": "DATETIME", "id": "INTEGER"},
    "postgres": {"time": "timestamptz", "int": "bigint", "bool": "boolean", "duration": "interval", "id": "bigint"},
}
Value = Callable[[int], object]
ROWS = 12


def at(days: float = 30.0, *, unless: Callable[[int], bool] = lambda _: False) -> Value:
    return lambda n: None if unless(n) else NOW - timedelta(days=days - n)


def epoch(days: float = 30.0, *, scale: int = 1, unless: Callable[[int], bool] = lambda _: False) -> Value:
    return lambda n: None if unless(n) else int((NOW - timedelta(days=days - n)).timestamp()) * scale


def one_of(*values: object) -> Value:
    return lambda n: values[n % len(values)]


def not_in(*cases: int, of: int) -> Callable[[int], bool]:
    return lambda n: n % of not in cases


@dataclass(frozen=True)
class Real:
    """A table of a system, with what a contract should say of it."""

    columns: str
    values: dict[str, Value]
    state: str | None = None
    time: str | None = None
    expires: str | None = None
    rules: dict[str, str] = field(default_factory=dict)
    """Rules by their own times, where states have different ones."""
    follows: str = ""
    excused: bool = False


RUNNING = not_in(1, 2, of=3)
THREE = one_of("running", "success", "failed")
FOUR = one_of("available", "completed", "cancelled", "discarded")
SYSTEMS: dict[str, dict[str, Real]] = {
    "celery": {
        "celery_taskmeta": Real(
            "id <id> PRIMARY KEY, task_id text, status text, result text, date_done <time>, name text, queue text",
            {"status": one_of("SUCCESS", "FAILURE"), "date_done": at()},
            state="status",
            time="date_done",
        ),
        "celery_tasksetmeta": Real(
            "id <id> PRIMARY KEY, taskset_id text, result text, date_done <time>", {"date_done": at()}, time="date_done"
        ),
    },
    "django": {
        "django_session": Real(
            "session_key text PRIMARY KEY, session_data text NOT NULL, expire_date <time> NOT NULL",
            {"session_key": lambda n: f"s{n}", "session_data": one_of("x"), "expire_date": at(5)},
            expires="expire_date",
        ),
        "django_admin_log": Real(
            "id <id> PRIMARY KEY, action_time <time> NOT NULL, action_flag integer",
            {"action_time": at()},
            time="action_time",
        ),
        "django_celery_results_taskresult": Real(
            "id <id> PRIMARY KEY, task_id text, status text NOT NULL, date_created <time>, date_started <time>, date_done <time>",
            {"status": one_of("SUCCESS", "FAILURE"), "date_created": at(31), "date_started": at(31), "date_done": at()},
            state="status",
            time="date_done",
        ),
        "django_q_task": Real(
            "id text PRIMARY KEY, name text, started <time> NOT NULL, stopped <time> NOT NULL, success <bool> NOT NULL",
            {"id": lambda n: f"t{n}", "started": at(31), "stopped": at(), "success": one_of(True, True)},
            time="stopped",
        ),
        "django_q_ormq": Real("id <id> PRIMARY KEY, key text, payload text, lock <time>", {"lock": at()}, excused=True),
        "django_migrations": Real(
            "id <id> PRIMARY KEY, app text, name text, applied <time> NOT NULL", {"applied": at()}, excused=True
        ),
    },
    "river": {
        "river_job": Real(
            "id <id> PRIMARY KEY, state text NOT NULL, attempted_at <time>, created_at <time> NOT NULL, finalized_at <time>,"
            " scheduled_at <time> NOT NULL, kind text",
            {
                "state": one_of("running", "completed", "discarded"),
                "attempted_at": at(31),
                "created_at": at(32),
                "finalized_at": at(unless=RUNNING),
                "scheduled_at": at(32),
            },
            state="state",
            time="finalized_at",
        ),
        "river_queue": Real(
            "name text PRIMARY KEY, created_at <time> NOT NULL, paused_at <time>, updated_at <time> NOT NULL",
            {"name": lambda n: f"q{n}", "created_at": at(31), "updated_at": at()},
            time="updated_at",
        ),
        "river_leader": Real(
            "name text PRIMARY KEY, leader_id text, elected_at <time> NOT NULL, expires_at <time> NOT NULL",
            {"name": lambda n: f"l{n}", "elected_at": at(5), "expires_at": at(4)},
            expires="expires_at",
        ),
        "river_migration": Real(
            "line text, version <int> PRIMARY KEY, created_at <time> NOT NULL",
            {"version": lambda n: n, "created_at": at()},
            excused=True,
        ),
    },
    "oban": {
        "oban_jobs": Real(
            "id <id> PRIMARY KEY, state text NOT NULL, queue text, inserted_at <time> NOT NULL, scheduled_at <time> NOT NULL,"
            " attempted_at <time>, completed_at <time>, discarded_at <time>, cancelled_at <time>",
            {
                "state": FOUR,
                "inserted_at": at(32),
                "scheduled_at": at(32),
                "completed_at": at(unless=not_in(1, of=4)),
                "cancelled_at": at(unless=not_in(2, of=4)),
                "discarded_at": at(unless=not_in(3, of=4)),
            },
            state="state",
            rules={"completed": "completed_at", "cancelled": "cancelled_at", "discarded": "discarded_at"},
        ),
        "oban_peers": Real(
            # Without its column `node`, so that it is not recognised as a system of the catalogue.
            "name text PRIMARY KEY, started_at <time> NOT NULL, expires_at <time> NOT NULL",
            {"name": lambda n: f"p{n}", "started_at": at(5), "expires_at": at(4)},
            expires="expires_at",
        ),
    },
    "solid queue": {
        "solid_queue_jobs": Real(
            "id <id> PRIMARY KEY, queue_name text, class_name text, scheduled_at <time>, finished_at <time>,"
            " created_at <time> NOT NULL, updated_at <time> NOT NULL",
            {"created_at": at(31), "updated_at": at(30), "scheduled_at": at(31), "finished_at": at(unless=RUNNING)},
            time="finished_at",
        ),
        "solid_queue_failed_executions": Real(
            "id <id> PRIMARY KEY, job_id <id> NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE, error text,"
            " created_at <time> NOT NULL",
            {"job_id": lambda n: n, "created_at": at()},
            follows="solid_queue_jobs",
        ),
        "solid_queue_processes": Real(
            "id <id> PRIMARY KEY, kind text, last_heartbeat_at <time> NOT NULL, pid integer, created_at <time> NOT NULL",
            {"last_heartbeat_at": at(), "created_at": at(31)},
            time="last_heartbeat_at",
        ),
        "solid_queue_semaphores": Real(
            "id <id> PRIMARY KEY, key text, value integer, expires_at <time> NOT NULL, created_at <time> NOT NULL",
            {"expires_at": at(4), "created_at": at(5)},
            expires="expires_at",
        ),
    },
    "laravel": {
        "failed_jobs": Real(
            "id <id> PRIMARY KEY, uuid text, payload text, exception text, failed_at <time> NOT NULL",
            {"failed_at": at()},
            time="failed_at",
        ),
        "job_batches": Real(
            "id text PRIMARY KEY, name text, total_jobs integer, cancelled_at integer, created_at integer NOT NULL,"
            " finished_at integer",
            {"id": lambda n: f"b{n}", "created_at": epoch(31), "finished_at": epoch(unless=RUNNING)},
            time="finished_at",
        ),
        "sessions": Real(
            "id text PRIMARY KEY, user_id <int>, payload text, last_activity integer NOT NULL",
            {"id": lambda n: f"s{n}", "last_activity": epoch()},
            time="last_activity",
        ),
        "cache_locks": Real(
            "key text PRIMARY KEY, owner text NOT NULL, expiration integer NOT NULL",
            {"key": lambda n: f"k{n}", "owner": one_of("o"), "expiration": epoch(4)},
            expires="expiration",
        ),
        "password_reset_tokens": Real(
            "email text PRIMARY KEY, token text NOT NULL, created_at <time>",
            {"email": lambda n: f"m{n}", "token": one_of("t"), "created_at": at()},
            time="created_at",
        ),
    },
    "apscheduler": {
        "schedules": Real(
            "id text PRIMARY KEY, task_id text, next_fire_time <time>, last_fire_time <time>, acquired_by text, acquired_until <time>",
            {"id": lambda n: f"s{n}", "next_fire_time": at(-1), "last_fire_time": at(12), "acquired_until": at(12)},
            time="last_fire_time",
        ),
        "jobs": Real(
            "id text PRIMARY KEY, created_at <time> NOT NULL, start_deadline <time>, result_expiration_time <duration>,"
            " acquired_by text, acquired_until <time>",
            {"id": lambda n: f"j{n}", "created_at": at(), "acquired_until": at(29)},
            time="created_at",
        ),
        "job_results": Real(
            "job_id text PRIMARY KEY, finished_at <time>, expires_at <time>",
            {"job_id": lambda n: f"j{n}", "finished_at": at(5), "expires_at": at(4)},
            expires="expires_at",
        ),
    },
    "airflow": {
        "dag_run": Real(
            "id <id> PRIMARY KEY, dag_id text, queued_at <time>, logical_date <time>, start_date <time>, end_date <time>,"
            " state text, run_id text, last_scheduling_decision <time>, span_status text NOT NULL, updated_at <time>",
            {
                "state": THREE,
                "span_status": one_of("ended", "active"),
                "start_date": at(31),
                "end_date": at(unless=RUNNING),
                "updated_at": at(29),
                "last_scheduling_decision": at(29),
            },
            state="state",
            time="end_date",
        ),
        "log": Real("id <id> PRIMARY KEY, dttm <time>, event text", {"dttm": at()}, time="dttm"),
        "revoked_token": Real(
            "jti text PRIMARY KEY, exp <time> NOT NULL", {"jti": lambda n: f"t{n}", "exp": at(4)}, expires="exp"
        ),
        "alembic_version": Real("version_num text PRIMARY KEY", {"version_num": lambda n: f"v{n}"}, excused=True),
    },
    "prefect": {
        "flow_run": Real(
            "id text PRIMARY KEY, created <time>, updated <time>, state_type text, state_name text, state_timestamp <time>,"
            " start_time <time>, end_time <time>, expected_start_time <time>, total_run_time <duration>, cache_expiration <time>",
            {
                "id": lambda n: f"f{n}",
                "created": at(32),
                "updated": at(29),
                "state_type": one_of("RUNNING", "COMPLETED", "FAILED"),
                "state_name": one_of("Running", "Completed", "Failed"),
                "start_time": at(31),
                "end_time": at(unless=RUNNING),
                "cache_expiration": at(4),
            },
            state="state_type",
            time="end_time",
        ),
    },
    "mlflow": {
        "runs": Real(
            "run_uuid text PRIMARY KEY, status text, start_time <int>, end_time <int>, deleted_time <int>, lifecycle_stage text,"
            " experiment_id integer",
            {
                "run_uuid": lambda n: f"r{n}",
                "status": one_of("FINISHED", "RUNNING"),
                "start_time": epoch(40, scale=1000),
                "end_time": epoch(35, scale=1000, unless=not_in(0, of=2)),
                "deleted_time": epoch(scale=1000, unless=not_in(2, of=3)),
                "lifecycle_stage": one_of("active", "active", "deleted"),
            },
            state="lifecycle_stage",
            time="deleted_time",
        ),
        "metrics": Real(
            "key text NOT NULL, timestamp <int> NOT NULL, run_uuid text NOT NULL REFERENCES runs (run_uuid),"
            " PRIMARY KEY (key, timestamp, run_uuid)",
            {"key": lambda n: f"k{n}", "timestamp": epoch(scale=1000), "run_uuid": lambda n: f"r{n}"},
            follows="runs",
        ),
        "tags": Real(
            "key text NOT NULL, value text, run_uuid text NOT NULL REFERENCES runs (run_uuid), PRIMARY KEY (key, run_uuid)",
            {"key": lambda n: f"k{n}", "run_uuid": lambda n: f"r{n}"},
            follows="runs",
        ),
    },
    "dagster": {
        "runs": Real(
            "id <id> PRIMARY KEY, run_id text NOT NULL UNIQUE, status text, create_timestamp <time>, update_timestamp <time>,"
            " start_time double precision, end_time double precision",
            {
                "run_id": lambda n: f"r{n}",
                "status": one_of("STARTED", "SUCCESS", "FAILURE"),
                "create_timestamp": at(32),
                "update_timestamp": at(29),
                "start_time": epoch(31),
                "end_time": epoch(unless=RUNNING),
            },
            state="status",
            time="end_time",
        ),
        "event_logs": Real(
            "id <id> PRIMARY KEY, run_id text NOT NULL, event text, timestamp <time>",
            {"run_id": lambda n: f"r{n}", "timestamp": at()},
            time="timestamp",
        ),
    },
    "temporal": {
        "executions_visibility": Real(
            "run_id text PRIMARY KEY, start_time <time> NOT NULL, execution_time <time> NOT NULL, status integer NOT NULL,"
            " close_time <time>",
            {
                "run_id": lambda n: f"r{n}",
                "start_time": at(31),
                "execution_time": at(31),
                "status": one_of(1, 2, 3),
                "close_time": at(unless=RUNNING),
            },
            state="status",
            time="close_time",
        ),
    },
    "pg-boss": {
        "job": Real(
            "id text PRIMARY KEY, name text, state text NOT NULL, start_after <time> NOT NULL, created_on <time> NOT NULL,"
            " started_on <time>, completed_on <time>, keep_until <time> NOT NULL",
            {
                "id": lambda n: f"j{n}",
                "state": one_of("active", "completed", "failed"),
                "start_after": at(32),
                "created_on": at(32),
                "started_on": at(31),
                "completed_on": at(unless=RUNNING),
                "keep_until": at(-10),
            },
            state="state",
            time="completed_on",
        ),
    },
    "graphile worker": {
        "jobs": Real(
            "id <id> PRIMARY KEY, run_at <time> NOT NULL, attempts integer, max_attempts integer, created_at <time> NOT NULL,"
            " updated_at <time> NOT NULL, locked_at <time>, locked_by text",
            {"run_at": at(31), "created_at": at(31), "updated_at": at(), "locked_at": at(30)},
            time="updated_at",
        ),
    },
    "supabase auth": {
        "users": Real(
            "id text PRIMARY KEY, email text, email_change_confirm_status integer, last_sign_in_at <time>, created_at <time>,"
            " updated_at <time>, deleted_at <time>, is_anonymous <bool>",
            {
                "id": lambda n: f"u{n}",
                "email_change_confirm_status": one_of(0),
                "last_sign_in_at": at(),
                "created_at": at(31),
                "updated_at": at(29),
            },
            time="updated_at",
        ),
    },
}


def build(database: Database, tables: dict[str, Real]) -> None:
    for name, real in tables.items():
        columns = real.columns
        for word, spelled in SPELLING[database.store].items():
            columns = columns.replace(f"<{word}>", spelled)
        database.execute(f"CREATE TABLE {name} ({columns})")
        values = dict(real.values)
        if columns.startswith("id ") and "id" not in values:
            values["id"] = lambda n: n
        marks = ", ".join("?" * len(values))
        rows = [tuple(written(database, one(n)) for one in values.values()) for n in range(ROWS)]
        database.executemany(f"INSERT INTO {name} ({', '.join(values)}) VALUES ({marks})", rows)


def written(database: Database, value: object) -> object:
    if database.store == "postgres":
        return value
    return value.strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value


def column(declared: Any) -> str | None:
    name = declared["column"] if isinstance(declared, dict) else declared
    assert name is None or isinstance(name, str)
    return name


def shipped_tables(include: str) -> set[str]:
    """Return the tables that a contract of the catalogue names."""
    path = contract_path(include.removeprefix("catalogue:"))
    return set(tomllib.loads(path.read_text(encoding="utf-8")).get("table", {}))


def followers(listed: Sequence[Any]) -> list[str]:
    return [one.rpartition(".")[0] if isinstance(one, str) else one["table"] for one in listed]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_columns_of_real_systems_are_those_of_their_cleaners(database: Database, system: str) -> None:
    tables = SYSTEMS[system]
    build(database, tables)
    with open_store(resolve_url(database.url), read_only=True) as store:
        text = propose(store, url_text="x")
    data = tomllib.loads(text)
    sections = data.get("table", {})
    # What the catalogue has is included from there.
    included = {name for one in data.get("include", ()) for name in shipped_tables(one)}
    tables = {name: real for name, real in tables.items() if name not in included}
    expected = {name for name, real in tables.items() if not real.follows and not real.excused}
    assert set(sections) == expected, text
    for name, real in tables.items():
        if real.follows:
            [(_, rule)] = sections[real.follows]["rule"].items()
            assert name in followers(rule["with"]), text
        elif real.excused:
            assert name in data["excused"] or f"# {name} is " in text, text
        else:
            stated = sections[name]
            rules = stated["rule"]
            ages = {one: column(rule["time"]) for one, rule in rules.items() if "time" in rule}
            expires = next((column(rule["expires"]) for rule in rules.values() if "expires" in rule), None)
            assert (stated.get("state"), expires, ages) == (real.state, real.expires, real.rules), text
            if real.time is not None:
                assert column(stated.get("time")) == real.time, text


def test_references_without_a_foreign_key_are_mentioned(database: Database) -> None:
    build(database, SYSTEMS["dagster"])
    with open_store(resolve_url(database.url), read_only=True) as store:
        assert "# event_logs.run_id may refer here, without a foreign key" in propose(store, url_text="x")


def test_followers_of_followers_leave_along(database: Database) -> None:
    build(database, SYSTEMS["solid queue"])
    database.execute(
        "CREATE TABLE causes (id integer PRIMARY KEY, execution_id bigint NOT NULL"
        " REFERENCES solid_queue_failed_executions (id) ON DELETE CASCADE)"
    )
    with open_store(resolve_url(database.url), read_only=True) as store:
        data = tomllib.loads(propose(store, url_text="x"))
    [rule] = data["table"]["solid_queue_jobs"]["rule"].values()
    [follower] = rule["with"]
    assert follower == {
        "table": "solid_queue_failed_executions",
        "columns": ["job_id"],
        "with": ["causes.execution_id"],
    }


def test_how_many_rows_have_no_time_is_stated(database: Database) -> None:
    build(
        database,
        {
            "procrastinate_jobs": Real(
                "id <id> PRIMARY KEY, status text, scheduled_at <time>",
                {"status": one_of("succeeded"), "scheduled_at": at(unless=lambda n: n > 0)},
            )
        },
    )
    with open_store(resolve_url(database.url), read_only=True) as store:
        assert "(scheduled_at is NULL in 92 %)" in propose(store, url_text="x")
