"""How fast `--fast` takes rows of other systems' tables, beside their own cleaners.

    .venv/bin/python -m bench.systems [--rows 100000] [--rounds 3] [--only NAME …] [--cpu]

The tables have the columns, keys, indexes and triggers that matter of Django's sessions, Celery's results, River, Oban,
Solid Queue, procrastinate and Prefect's flow runs, and the statements of their cleaners, with the batches that those
have; nothing of the systems themselves runs, and no cleaner pauses. Each contender gets a fresh copy and a new
connection, in turns; no commits wait for the disk. Both must delete the same number of rows of each table. The default
pace, on a database that is idle, is measured beside `--fast` by the clock, for systems whose rows have followers. Raw
samples go to bench/results/systems.json.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import ROOT, machine, postgres_url, print_line, with_cpu
from bench.prune import IDLE_SECONDS, NO_LIMIT
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.postgres.store import PostgresStore
from wane._db.url import resolve_url
from wane._prune.gates import set_gate
from wane._prune.pace import FAST, Pace
from wane._prune.sweep import Sweeper

RESULTS = ROOT / "bench" / "results" / "systems.json"
DAYS_OLD = "(CASE WHEN n > {rows} / 10 THEN 100.0 ELSE 90.0 END * n / {rows})"
"""The age of row n: nine rows in ten are older than 10 days, as in tables that are cleaned for the first time, and the
others are younger than 9, so that none comes due meanwhile."""
DAYS = f"interval '1 day' * {DAYS_OLD}"


@dataclass(frozen=True, slots=True)
class System:
    """The tables of a system, its cleaner, and a contract that promises the same."""

    store: str
    tables: str
    fill: tuple[str, ...]
    clean: str | Callable[[psycopg.Connection], None]
    """A statement, run until it deletes nothing; or what cleans."""
    contract: str

    @property
    def table_names(self) -> list[str]:
        return re.findall(r"CREATE TABLE (\w+)", self.tables)


SESSIONS = """
[table.django_session]
scheduler = "s"
why = "A benchmark."
[table.django_session.rule.expired]
expires = "expire_date"
"""
SESSION_TABLE = """
CREATE TABLE django_session (session_key varchar(40) NOT NULL PRIMARY KEY, session_data text NOT NULL, expire_date {type} NOT NULL);
CREATE INDEX django_session_expire_date ON django_session (expire_date);
"""
ENDS = ("completed", "cancelled", "discarded")
EXECUTIONS = ("ready", "claimed", "blocked", "scheduled", "failed", "recurring")
CELERY = """
[table.celery_taskmeta]
scheduler = "s"
why = "A benchmark."
time = { column = "date_done", zone = "UTC" }
[table.celery_taskmeta.rule.expired]
keep = "10d"
"""
CELERY_TABLE = """
CREATE TABLE celery_taskmeta (id {key}, task_id varchar(155) UNIQUE, status varchar(50), result {bytes}, date_done {type},
  traceback text, children {bytes});
CREATE INDEX celery_taskmeta_date_done ON celery_taskmeta (date_done);
"""
FLOW_RUNS = """
[table.flow_run]
scheduler = "s"
why = "A benchmark."
state = "state_type"
live = ["SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING"]
time = "end_time"
[table.flow_run.rule.ended]
when = ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]
where = { parent_task_run_id = { null = true } }
keep = "10d"
with = [
  "flow_run_state.flow_run_id",
  "flow_run_input.flow_run_id",
  { table = "task_run", columns = "flow_run_id", with = ["task_run_state.task_run_id"] },
  "log.flow_run_id",
  "artifact.flow_run_id",
]
"""
FLOW_RUN_TABLES = """
CREATE TABLE artifact (id uuid PRIMARY KEY, key text, flow_run_id uuid, task_run_id uuid);
CREATE INDEX artifact_run ON artifact (flow_run_id);
CREATE TABLE log (id uuid PRIMARY KEY, level smallint NOT NULL, message text NOT NULL, flow_run_id uuid, task_run_id uuid,
  timestamp timestamptz NOT NULL);
CREATE INDEX log_run ON log (flow_run_id, timestamp);
CREATE TABLE flow_run (id uuid PRIMARY KEY, name text NOT NULL, state_type text, end_time timestamptz, parent_task_run_id uuid,
  state_id uuid);
CREATE INDEX flow_run_end ON flow_run (end_time DESC);
CREATE INDEX flow_run_state_type ON flow_run (state_type);
CREATE INDEX flow_run_parent ON flow_run (parent_task_run_id);
CREATE INDEX flow_run_state_id ON flow_run (state_id);
CREATE TABLE flow_run_state (id uuid PRIMARY KEY, flow_run_id uuid NOT NULL REFERENCES flow_run (id) ON DELETE CASCADE,
  type text NOT NULL, timestamp timestamptz NOT NULL, result_artifact_id uuid REFERENCES artifact (id) ON DELETE SET NULL);
CREATE UNIQUE INDEX flow_run_state_run ON flow_run_state (flow_run_id, timestamp DESC);
CREATE INDEX flow_run_state_artifact ON flow_run_state (result_artifact_id);
CREATE TABLE task_run (id uuid PRIMARY KEY, flow_run_id uuid REFERENCES flow_run (id) ON DELETE CASCADE, state_type text);
CREATE INDEX task_run_run ON task_run (flow_run_id);
CREATE TABLE task_run_state (id uuid PRIMARY KEY, task_run_id uuid NOT NULL REFERENCES task_run (id) ON DELETE CASCADE,
  type text NOT NULL, timestamp timestamptz NOT NULL, result_artifact_id uuid REFERENCES artifact (id) ON DELETE SET NULL);
CREATE UNIQUE INDEX task_run_state_run ON task_run_state (task_run_id, timestamp DESC);
CREATE INDEX task_run_state_artifact ON task_run_state (result_artifact_id);
CREATE TABLE flow_run_input (id uuid PRIMARY KEY, flow_run_id uuid NOT NULL REFERENCES flow_run (id) ON DELETE CASCADE,
  key text NOT NULL, UNIQUE (flow_run_id, key));
ALTER TABLE flow_run ADD FOREIGN KEY (parent_task_run_id) REFERENCES task_run (id) ON DELETE SET NULL;
ALTER TABLE flow_run ADD FOREIGN KEY (state_id) REFERENCES flow_run_state (id) ON DELETE SET NULL;
"""


def vacuum_flow_runs(connection: psycopg.Connection) -> None:
    """Delete as Prefect's vacuum does: 200 runs, which cascades, then their logs and artifacts, 200 rows at a time."""
    while True:
        with connection.transaction():
            found = connection.execute(
                "SELECT id FROM flow_run WHERE parent_task_run_id IS NULL AND state_type IN"
                " ('COMPLETED', 'FAILED', 'CRASHED', 'CANCELLED') AND end_time IS NOT NULL AND end_time < now() - interval '10 days'"
                " ORDER BY id LIMIT 200 FOR UPDATE SKIP LOCKED"
            ).fetchall()
            runs = [run for (run,) in found]
            connection.execute("DELETE FROM flow_run WHERE id = ANY(%s)", [runs])
        if not runs:
            return
        for table in ("log", "artifact"):
            some = f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE flow_run_id = ANY(%s) LIMIT 200)"
            while connection.execute(some.encode(), [runs]).rowcount > 0:
                pass


SYSTEMS = {
    "django-sessions, SQLite": System(
        "sqlite",
        SESSION_TABLE.format(type="datetime"),
        (
            (
                "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {rows}) INSERT INTO django_session"
                " SELECT lower(hex(randomblob(16))), 'e30:1vJ' || hex(randomblob(40)),"
                " strftime('%Y-%m-%d %H:%M:%S', 'now', (10 - "
                + DAYS_OLD
                + ") || ' days') || printf('.%06d', n % 1000000) FROM g"
            ),
        ),
        "DELETE FROM django_session WHERE expire_date < strftime('%Y-%m-%d %H:%M:%f', 'now')",
        SESSIONS,
    ),
    "django-sessions, PostgreSQL": System(
        "postgres",
        SESSION_TABLE.format(type="timestamptz")
        + "CREATE INDEX django_session_like ON django_session (session_key varchar_pattern_ops);",
        (
            (
                "INSERT INTO django_session SELECT md5(n::text), 'e30:1vJ' || md5(n::text) || md5((n + 1)::text),"
                f" now() + interval '10 days' - {DAYS} FROM generate_series(1, {{rows}}) AS n"
            ),
        ),
        "DELETE FROM django_session WHERE expire_date < now()",
        SESSIONS,
    ),
    "Celery, SQLite": System(
        "sqlite",
        CELERY_TABLE.format(key="integer PRIMARY KEY AUTOINCREMENT", bytes="blob", type="datetime"),
        (
            (
                "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {rows})"
                " INSERT INTO celery_taskmeta (task_id, status, result, date_done)"
                " SELECT lower(hex(randomblob(16))), 'SUCCESS', randomblob(40),"
                f" strftime('%Y-%m-%d %H:%M:%S', 'now', -{DAYS_OLD} || ' days') || printf('.%06d', n % 1000000) FROM g"
            ),
        ),
        "DELETE FROM celery_taskmeta WHERE date_done < strftime('%Y-%m-%d %H:%M:%f', 'now', '-10 days')",
        CELERY,
    ),
    "Celery, PostgreSQL": System(
        "postgres",
        CELERY_TABLE.format(key="serial PRIMARY KEY", bytes="bytea", type="timestamp"),
        (
            (
                "INSERT INTO celery_taskmeta (task_id, status, result, date_done)"
                " SELECT md5(n::text), 'SUCCESS', decode(md5((n + 1)::text), 'hex'),"
                f" timezone('UTC', now()) - {DAYS} FROM generate_series(1, {{rows}}) AS n"
            ),
        ),
        "DELETE FROM celery_taskmeta WHERE date_done < timezone('UTC', now()) - interval '10 days'",
        CELERY,
    ),
    "River, PostgreSQL": System(
        "postgres",
        "CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running',"
        " 'scheduled');"
        "CREATE TABLE river_job (id bigserial PRIMARY KEY, state river_job_state NOT NULL, args jsonb NOT NULL, kind text NOT NULL,"
        " queue text NOT NULL, priority smallint NOT NULL, scheduled_at timestamptz NOT NULL, finalized_at timestamptz,"
        " CHECK ((finalized_at IS NOT NULL) = (state IN ('cancelled', 'completed', 'discarded'))));"
        "CREATE INDEX river_job_kind ON river_job (kind);"
        "CREATE INDEX river_job_fetch ON river_job (state, queue, priority, scheduled_at, id);"
        "CREATE INDEX river_job_finalized ON river_job (state, finalized_at) WHERE finalized_at IS NOT NULL;",
        (
            (
                "INSERT INTO river_job (state, args, kind, queue, priority, scheduled_at, finalized_at) SELECT"
                " (ARRAY['completed', 'completed', 'completed', 'cancelled', 'discarded'])[1 + n % 5]::river_job_state,"
                " '{{}}', 'job', 'default', 1, at, at"
                f" FROM (SELECT n, now() - {DAYS} AS at FROM generate_series(1, {{rows}}) AS n) AS job"
            ),
        ),
        "DELETE FROM river_job WHERE id IN (SELECT id FROM river_job WHERE "
        + " OR ".join(f"(state = '{one}' AND finalized_at < now() - interval '10 days')" for one in ENDS)
        + " ORDER BY id LIMIT 10000)",
        '[table.river_job]\nscheduler = "s"\nwhy = "A benchmark."\nstate = "state"\ntime = "finalized_at"\n'
        'live = ["available", "pending", "retryable", "running", "scheduled"]\n'
        + "".join(f'[table.river_job.rule.{one}]\nwhen = ["{one}"]\nkeep = "10d"\n' for one in ENDS),
    ),
    "Oban, PostgreSQL": System(
        "postgres",
        "CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state text NOT NULL, queue text NOT NULL, worker text NOT NULL, args jsonb NOT NULL,"
        " priority integer NOT NULL, inserted_at timestamp NOT NULL, scheduled_at timestamp NOT NULL, completed_at timestamp,"
        " cancelled_at timestamp, discarded_at timestamp);"
        "CREATE INDEX oban_jobs_fetch ON oban_jobs (state, queue, priority, scheduled_at, id);"
        + "".join(f"CREATE INDEX oban_jobs_{one} ON oban_jobs ({one}_at) WHERE state = '{one}';" for one in ENDS),
        (
            (
                "INSERT INTO oban_jobs (state, queue, worker, args, priority, inserted_at, scheduled_at, completed_at, cancelled_at, discarded_at)"
                " SELECT s, 'default', 'proof.Worker', '{{}}', 0, at, at, CASE s WHEN 'completed' THEN at END,"
                " CASE s WHEN 'cancelled' THEN at END, CASE s WHEN 'discarded' THEN at END"
                " FROM (SELECT n, (ARRAY['completed', 'completed', 'completed', 'cancelled', 'discarded'])[1 + n % 5] AS s,"
                f" timezone('UTC', now()) - {DAYS} AS at FROM generate_series(1, {{rows}}) AS n) AS job"
            ),
        ),
        "WITH old AS (SELECT id FROM oban_jobs WHERE "
        + " OR ".join(f"(state = '{one}' AND {one}_at <= timezone('UTC', now()) - interval '10 days')" for one in ENDS)
        + " ORDER BY id LIMIT 20000) DELETE FROM oban_jobs USING old WHERE oban_jobs.id = old.id",
        '[table.oban_jobs]\nscheduler = "s"\nwhy = "A benchmark."\nstate = "state"\nlive = ["available"]\n'
        + "".join(
            f'[table.oban_jobs.rule.{one}]\nwhen = ["{one}"]\ntime = {{ column = "{one}_at", zone = "UTC" }}\nkeep = "10d"\n'
            for one in ENDS
        ),
    ),
    "Solid Queue, PostgreSQL": System(
        "postgres",
        "CREATE TABLE solid_queue_jobs (id bigserial PRIMARY KEY, queue_name text NOT NULL, class_name text NOT NULL, arguments text,"
        " active_job_id text, finished_at timestamp);"
        "CREATE INDEX solid_queue_finished ON solid_queue_jobs (finished_at); CREATE INDEX solid_queue_class ON solid_queue_jobs (class_name);"
        "CREATE INDEX solid_queue_active ON solid_queue_jobs (active_job_id);"
        "CREATE INDEX solid_queue_filter ON solid_queue_jobs (queue_name, finished_at);"
        + "".join(
            f"CREATE TABLE solid_queue_{one}_executions (id bigserial PRIMARY KEY,"
            " job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs (id) ON DELETE CASCADE);"
            for one in EXECUTIONS
        ),
        (
            (
                "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, active_job_id, finished_at)"
                f" SELECT 'default', 'Job' || n % 7, '{{{{}}}}', md5(n::text), timezone('UTC', now()) - {DAYS} FROM generate_series(1, {{rows}}) AS n"
            ),
        ),
        "DELETE FROM solid_queue_jobs WHERE id IN (SELECT id FROM solid_queue_jobs"
        " WHERE finished_at < timezone('UTC', now()) - interval '10 days' LIMIT 500)",
        '[table.solid_queue_jobs]\nscheduler = "s"\nwhy = "A benchmark."\ntime = { column = "finished_at", zone = "UTC" }\n'
        '[table.solid_queue_jobs.rule.finished]\nkeep = "10d"\n'
        f"with = [{', '.join(f'{chr(34)}solid_queue_{one}_executions.job_id{chr(34)}' for one in EXECUTIONS)}]\n",
    ),
    "procrastinate, PostgreSQL": System(
        "postgres",
        "CREATE TABLE procrastinate_jobs (id bigserial PRIMARY KEY, queue_name text NOT NULL, task_name text NOT NULL, args jsonb NOT NULL,"
        " status text NOT NULL, scheduled_at timestamptz);"
        "CREATE TABLE procrastinate_periodic_defers (id bigserial PRIMARY KEY, task_name text NOT NULL,"
        " job_id bigint REFERENCES procrastinate_jobs (id));"
        "CREATE INDEX procrastinate_defers ON procrastinate_periodic_defers (job_id);"
        "CREATE TABLE procrastinate_events (id bigserial PRIMARY KEY,"
        " job_id bigint NOT NULL REFERENCES procrastinate_jobs (id) ON DELETE CASCADE, type text, at timestamptz);"
        "CREATE INDEX procrastinate_events_job ON procrastinate_events (job_id);"
        "CREATE INDEX procrastinate_age ON procrastinate_jobs (status, scheduled_at, id);"
        "CREATE FUNCTION unlink() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS"
        " $$ BEGIN UPDATE procrastinate_periodic_defers SET job_id = NULL WHERE job_id = OLD.id; RETURN OLD; END $$;"
        "CREATE TRIGGER unlink BEFORE DELETE ON procrastinate_jobs FOR EACH ROW EXECUTE FUNCTION unlink();",
        (
            (
                "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, scheduled_at)"
                f" SELECT 'default', 'task', '{{{{}}}}', 'succeeded', now() - {DAYS} FROM generate_series(1, {{rows}}) AS n"
            ),
            (
                "INSERT INTO procrastinate_events (job_id, type, at) SELECT id, type, scheduled_at FROM procrastinate_jobs,"
                " unnest(ARRAY['deferred', 'succeeded']) AS type"
            ),
        ),
        "DELETE FROM procrastinate_jobs WHERE id IN (SELECT job.id FROM procrastinate_jobs AS job"
        " JOIN procrastinate_events AS event ON event.job_id = job.id WHERE job.status = 'succeeded'"
        " GROUP BY job.id HAVING max(event.at) < now() - interval '10 days')",
        '[table.procrastinate_jobs]\nscheduler = "s"\nwhy = "A benchmark."\nstate = "status"\nlive = ["todo", "doing"]\n'
        'time = "scheduled_at"\n[table.procrastinate_jobs.rule.old]\nwhen = ["succeeded"]\nkeep = "10d"\n'
        'with = ["procrastinate_events.job_id"]\nunless = [{ referenced_by = "procrastinate_periodic_defers.job_id" }]\n',
    ),
    "Prefect, PostgreSQL": System(
        "postgres",
        FLOW_RUN_TABLES,
        (
            # A run for every ten rows, because each has a task, seven logs, six states and an artifact.
            (
                "WITH run AS (INSERT INTO flow_run (id, name, state_type, end_time, state_id)"
                " SELECT md5('run' || n)::uuid, 'run' || n, 'COMPLETED', at, md5('COMPLETED' || n)::uuid"
                f" FROM (SELECT n, now() - {DAYS} AS at FROM generate_series(1, {{rows}}, 10) AS n) AS run RETURNING id, name, end_time)"
                " INSERT INTO flow_run_state (id, flow_run_id, type, timestamp)"
                " SELECT md5(type || substr(name, 4))::uuid, id, type, end_time - before * interval '1 second'"
                " FROM run, (VALUES ('PENDING', 2), ('RUNNING', 1), ('COMPLETED', 0)) AS state(type, before)"
            ),
            "INSERT INTO artifact SELECT gen_random_uuid(), name, id FROM flow_run",
            "INSERT INTO task_run SELECT gen_random_uuid(), id, 'COMPLETED' FROM flow_run",
            (
                "INSERT INTO task_run_state SELECT gen_random_uuid(), task.id, state.type, state.timestamp"
                " FROM task_run AS task JOIN flow_run_state AS state USING (flow_run_id)"
            ),
            (
                "INSERT INTO log SELECT gen_random_uuid(), 20, 'Finished in state Completed()', id, NULL, end_time"
                " FROM flow_run, generate_series(1, 7)"
            ),
        ),
        vacuum_flow_runs,
        FLOW_RUNS,
    ),
}


class Sqlite:
    server = None

    def __init__(self, folder: Path) -> None:
        self.path = folder / "system.db"
        self.url = f"sqlite:///{self.path}"
        self.connect()

    def connect(self) -> None:
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.executescript("PRAGMA journal_mode = wal; PRAGMA synchronous = normal")

    def close(self) -> None:
        self.connection.close()

    def fresh(self, system: System, rows: int) -> None:
        self.close()
        for file in self.path.parent.glob("system.db*"):
            file.unlink()
        self.connect()
        self.connection.executescript(system.tables)
        for text in (*system.fill, "ANALYZE", "PRAGMA wal_checkpoint(truncate)"):
            self.connection.execute(text.format(rows=rows))

    def count(self, table: str) -> int:
        [(rows,)] = self.connection.execute(f"SELECT count(*) FROM {table}")
        return int(rows)

    def clean(self, system: System) -> None:
        assert isinstance(system.clean, str)
        while self.connection.execute(system.clean).rowcount > 0:
            pass


class Postgres:
    def __init__(self, url: str) -> None:
        self.url = url
        self.connect()

    def connect(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.connection.execute("SET synchronous_commit = off")

    def close(self) -> None:
        self.connection.close()

    @property
    def server(self) -> int:
        return self.connection.info.backend_pid

    def fresh(self, system: System, rows: int) -> None:
        self.connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        self.connection.execute(system.tables.encode())
        for text in (*system.fill, "CHECKPOINT", "VACUUM ANALYZE", "VACUUM"):
            self.connection.execute(text.format(rows=rows).encode())

    def count(self, table: str) -> int:
        [(rows,)] = self.connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
        return int(rows)

    def clean(self, system: System) -> None:
        if callable(system.clean):
            system.clean(self.connection)
            return
        while self.connection.execute(system.clean.encode()).rowcount > 0:
            pass


def cleaner(database: Sqlite | Postgres, system: System) -> dict[str, float]:
    # A session that has read the table before saves the first access to each of its pages, which Wane's has to make.
    database.close()
    database.connect()
    seconds, cpu, _ = with_cpu(database.server, lambda: database.clean(system))
    return {"seconds": round(seconds, 4), "cpu_seconds": round(cpu, 4)}


def wane(
    database: Sqlite | Postgres, promised: Contract, pace: Pace = FAST, idle_seconds: float = 0
) -> dict[str, float]:
    with open_store(resolve_url(database.url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        server = store._connection.info.backend_pid if isinstance(store, PostgresStore) else None
        sweeper = Sweeper(store, promised, pace=pace, unattended=False)
        time.sleep(idle_seconds)
        seconds, cpu, sweep = with_cpu(server, lambda: sweeper.sweep(budget=NO_LIMIT))
    assert all(swept.outcome == "done" for swept in sweep.rules), sweep
    return {
        "seconds": round(seconds, 4),
        "cpu_seconds": round(cpu, 4),
        "audited": sum(swept.rows for swept in sweep.rules),
        "batches": sum(swept.batches for swept in sweep.rules),
    }


def count_rows(database: Sqlite | Postgres, system: System) -> Counter[str]:
    return Counter({table: database.count(table) for table in system.table_names})


def measure(
    database: Sqlite | Postgres, system: System, folder: Path, rows: int, rounds: int, measured: str
) -> dict[str, Any]:
    file = folder / "system.toml"
    file.write_text('[scheduler]\ns = { every = "5m" }\n' + system.contract)
    promised = load_contract(file)
    contenders: dict[str, Callable[[], dict[str, float]]] = {
        "cleaner": lambda: cleaner(database, system),
        "wane": lambda: wane(database, promised),
    }
    if "\nwith = [" in system.contract:
        contenders["default_pace"] = lambda: wane(database, promised, Pace(), IDLE_SECONDS)
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    deleted: dict[str, Counter[str]] = {}
    for _ in range(rounds):
        for name, contender in contenders.items():
            database.fresh(system, rows)
            before = count_rows(database, system)
            sample = contender()
            deleted[name] = before - count_rows(database, system)
            assert deleted[name] == deleted["cleaner"], deleted
            sample["rows"] = deleted[name].total()
            assert sample.pop("audited", sample["rows"]) == sample["rows"] > 0, sample
            samples[name].append(sample)
    medians = {name: statistics.median(one[measured] for one in values) for name, values in samples.items()}
    found = {"samples": samples, "ratio": round(medians["cleaner"] / medians["wane"], 3)}
    if "default_pace" in samples:
        fast, default = (
            statistics.median(one["seconds"] for one in samples[name]) for name in ("wane", "default_pace")
        )
        found["default_pace_ratio"] = round(fast / default, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--cpu", action="store_true", help="Ratios of CPU time, of client and server together.")
    options = parser.parse_args()
    measured = "cpu_seconds" if options.cpu else "seconds"
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {"rows": options.rows, "ratios_of": "CPU time" if options.cpu else "time", **machine()}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as place, postgres_url() as url:
        folder = Path(place)
        databases: dict[str, Sqlite | Postgres] = {"sqlite": Sqlite(folder), "postgres": Postgres(url)}
        for name in options.only:
            system = SYSTEMS[name]
            results[name] = measure(databases[system.store], system, folder, options.rows, options.rounds, measured)
            print_line(f"{name}: {results[name]}")
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
