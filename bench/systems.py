"""How fast `--fast` takes rows of other systems' tables, beside their own cleaners.

    .venv/bin/python -m bench.systems [--rows 100000] [--rounds 3] [--only NAME …] [--cpu]

The tables have the columns, keys, indexes and triggers that matter of Django's sessions, Oban, Solid Queue and procrastinate, and the
statements of their cleaners, with the batches that those have; nothing of the systems themselves runs. Each contender gets a fresh copy, in
turns; everybody's connection is open, and nobody's commits wait for the disk. Raw samples go to bench/results/systems.json.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import ROOT, machine, postgres_url, print_line, with_cpu
from bench.prune import NO_LIMIT
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.postgres.store import PostgresStore
from wane._db.url import resolve_url
from wane._prune.gates import set_gate
from wane._prune.pace import FAST
from wane._prune.sweep import Sweeper

RESULTS = ROOT / "bench" / "results" / "systems.json"
DUE_SHARE = 0.9
"""Of all rows; tables that are cleaned for the first time are nearly all due."""


@dataclass(frozen=True, slots=True)
class System:
    """The tables of a system, its cleaner, and a contract that promises the same."""

    store: str
    tables: str
    fill: tuple[str, ...]
    clean: str
    """Run until it deletes nothing."""
    contract: str


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
DAYS = "interval '1 day' * (100.0 * n / {rows})"
SYSTEMS = {
    "django-sessions, SQLite": System(
        "sqlite",
        SESSION_TABLE.format(type="datetime"),
        (
            (
                "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {rows}) INSERT INTO django_session"
                " SELECT lower(hex(randomblob(16))), 'e30:1vJ' || hex(randomblob(40)),"
                " strftime('%Y-%m-%d %H:%M:%S', 'now', (10 - 100.0 * n / {rows}) || ' days') || printf('.%06d', n % 1000000) FROM g"
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
}


class Sqlite:
    server = None

    def __init__(self, folder: Path) -> None:
        self.path = folder / "system.db"
        self.url = f"sqlite:///{self.path}"
        self.connection: sqlite3.Connection | None = None

    def fresh(self, system: System, rows: int) -> None:
        if self.connection is not None:
            self.connection.close()
        for file in self.path.parent.glob("system.db*"):
            file.unlink()
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.executescript(f"PRAGMA journal_mode = wal; PRAGMA synchronous = normal; {system.tables}")
        for text in (*system.fill, "ANALYZE", "PRAGMA wal_checkpoint(truncate)"):
            self.connection.execute(text.format(rows=rows))

    def execute(self, text: str) -> int:
        assert self.connection is not None
        return self.connection.execute(text).rowcount


class Postgres:
    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SET synchronous_commit = off")

    @property
    def server(self) -> int:
        return self.connection.info.backend_pid

    def fresh(self, system: System, rows: int) -> None:
        self.connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        self.connection.execute(system.tables.encode())
        for text in (*system.fill, "CHECKPOINT", "VACUUM ANALYZE", "VACUUM"):
            self.connection.execute(text.format(rows=rows).encode())

    def execute(self, text: str) -> int:
        return self.connection.execute(text.encode()).rowcount


def cleaner(database: Sqlite | Postgres, system: System) -> dict[str, float]:
    def run() -> None:
        while database.execute(system.clean) > 0:
            pass

    seconds, cpu, _ = with_cpu(database.server, run)
    return {"seconds": round(seconds, 4), "cpu_seconds": round(cpu, 4)}


def wane(database: Sqlite | Postgres, promised: Contract) -> dict[str, float]:
    with open_store(resolve_url(database.url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        server = store._connection.info.backend_pid if isinstance(store, PostgresStore) else None
        sweeper = Sweeper(store, promised, pace=FAST, unattended=False)
        seconds, cpu, sweep = with_cpu(server, lambda: sweeper.sweep(budget=NO_LIMIT))
    assert all(swept.outcome == "done" for swept in sweep.rules), sweep
    return {
        "seconds": round(seconds, 4),
        "cpu_seconds": round(cpu, 4),
        "rows": sum(swept.rows for swept in sweep.rules),
        "batches": sum(swept.batches for swept in sweep.rules),
    }


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
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            database.fresh(system, rows)
            samples[name].append(contender())
    assert all(one["rows"] >= rows * DUE_SHARE * 0.99 for one in samples["wane"]), samples
    medians = {name: statistics.median(one[measured] for one in values) for name, values in samples.items()}
    return {"samples": samples, "ratio": round(medians["cleaner"] / medians["wane"], 3)}


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
        databases = {"sqlite": Sqlite(folder), "postgres": Postgres(url)}
        for name in options.only:
            system = SYSTEMS[name]
            results[name] = measure(databases[system.store], system, folder, options.rows, options.rounds, measured)
            print_line(f"{name}: {results[name]}")
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
