"""Proving a contract of the catalogue: the system's own cleaner on one copy of a database, Wane on the other.

A system's script runs in an environment of its own, `.venv-catalogue/NAME`, which `make catalogue` makes: it creates
the system's real schema, fills it through the system's own API, runs its cleaner, and uses it again. Systems that
cannot be installed here have a module in `schemas`: their tables and their cleaners' statements, written down.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from servers import Database, PostgresDatabase, SqliteDatabase
from wane import catalogue
from wane._check.acceptance import accept
from wane._check.cover import cover
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Severity
from wane._keeper import Keeper
from wane._prune.pace import FAST
from wane._prune.sweep import Outcome, Sweeper

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "in_systems"
ENVIRONMENTS = ROOT / ".venv-catalogue"


@dataclass(frozen=True)
class Proof:
    """How a system is set up, and which windows make a contract equal to its cleaner."""

    environment: str
    script: str
    contracts: tuple[str, ...]
    windows: tuple[tuple[str, str], ...] = ()
    package: str = ""
    """The distribution whose version is proven, and those of its apps."""
    stores: tuple[str, ...] = ("sqlite", "postgres")
    differs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Reasons why Wane keeps more than the cleaner, each with its tables."""
    written: tuple[str, ...] = ()
    """Tables in which the cleaner also writes: their rows are only counted."""

    beside: tuple[str, ...] = ()
    """What the names of tables begin with that are not the system's own."""
    server: str = "postgres"
    """The PostgreSQL server; the packaged one lacks some extensions."""
    sweeps: int = 1
    """How many sweeps it takes until nothing is due: rows that refer to each other leave one generation at a time."""

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.environment

    @property
    def schema_only(self) -> bool:
        """Return whether the system is not installed: a module of `schemas` has its tables and its cleaner's
        statements."""
        return not self.environment

    def run(self, verb: str, database: Database) -> None:
        if self.schema_only:
            getattr(import_module(f"catalogue.schemas.{self.script}"), verb)(database)
            return
        program = self.folder / "bin" / "python"
        if self.script.endswith(".cjs"):
            own = self.folder / "node_modules" / ".bin" / "node"
            program = own if own.exists() else Path("node")
        variables = {"NODE_PATH": str(self.folder / "node_modules"), "NODE_OPTIONS": "--no-deprecation"}
        command = [str(program), str(SCRIPTS / self.script), verb, database.url]
        subprocess.run(command, check=True, timeout=300, env={**os.environ, **variables})

    def version(self) -> str:
        """Return the version of the system in its environment, and those of its apps by their names."""
        if self.schema_only:
            return str(import_module(f"catalogue.schemas.{self.script}").VERSION)
        if self.script.endswith(".cjs"):
            package = self.folder / "node_modules" / self.package / "package.json"
            return str(json.loads(package.read_text(encoding="utf-8"))["version"])
        text = "from importlib.metadata import version; import sys; print(*map(version, sys.argv[1:]))"
        names = self.package.split()
        command = [str(self.folder / "bin" / "python"), "-c", text, *names]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        return ", ".join([found[0], *(f"{name} {one}" for name, one in zip(names[1:], found[1:], strict=True))])

    def contract(self, folder: Path) -> Path:
        """Write a contract that includes those of the catalogue and decides their windows."""
        included = ", ".join(f'"catalogue:{name}"' for name in self.contracts)
        windows = "".join(f'"{name}" = "{length}"\n' for name, length in self.windows)
        file = folder / "wane.toml"
        file.write_text(f"include = [{included}]\n[window]\n{windows}", encoding="utf-8")
        return file


def own(name: str) -> tuple[tuple[str, str], ...]:
    """Return the windows that the cleaner of a system uses."""
    [system] = [one for one in catalogue.systems() if one.name == name]
    return tuple((window, stated.own) for window, stated in system.windows.items())


POSTGRES = ("postgres",)
LARAVEL = (*own("laravel-queue")[:2], ("laravel.unfinished_batches", "7d"))
SOLID_QUEUE = (("solid_queue.finished", "1d"), ("solid_queue.failed", "30d"))
PROOFS = {
    # Systems of other languages.
    "pg-boss": Proof(
        "pg-boss",
        "pg-boss.cjs",
        ("pg-boss",),
        (("pgboss.ended", "1s"), ("pgboss.warnings", "10d"), ("pgboss.stats", "8d")),
        "pg-boss",
        POSTGRES,
        (
            ("pg-boss drops whole days, before the window of all of their rows has passed", ("pgboss.queue_stats",)),
            (
                "a dependency whose job the application deleted stays as long as its other job",
                ("pgboss.job_dependency",),
            ),
        ),
        written=("pgboss.queue", "pgboss.version"),
    ),
    "graphile-worker": Proof(
        "graphile-worker",
        "graphile-worker.cjs",
        ("graphile-worker",),
        own("graphile-worker"),
        "graphile-worker",
        POSTGRES,
        (
            (
                "queues and identifiers without jobs have no time",
                ("graphile_worker._private_job_queues", "graphile_worker._private_tasks"),
            ),
        ),
    ),
    "river": Proof("", "river", ("river",), own("river")),
    "oban-elixir": Proof(
        "",
        "oban_elixir",
        ("oban",),
        (("oban.jobs", "1d"),),
        stores=POSTGRES,
        differs=(("a completed job counts from completed_at, in Oban from scheduled_at", ("oban_jobs",)),),
    ),
    "solid-queue": Proof("", "solid_queue", ("solid-queue",), SOLID_QUEUE),
    "solid-queue-batches": Proof("", "solid_queue_batches", ("solid-queue-batches",), SOLID_QUEUE),
    "good-job": Proof("", "good_job", ("good-job",), own("good-job"), stores=POSTGRES),
    "laravel-queue": Proof("", "laravel_queue", ("laravel-queue",), LARAVEL),
    # Systems for Python.
    "celery": Proof("celery", "celery_backend.py", ("celery",), (("celery.results", "1d"),), "celery"),
    "django": Proof(
        "django",
        "django_apps.py",
        (
            "django-sessions",
            "django-admin",
            "django-celery-results",
            "django-celery-beat",
            "django-q2",
            "django-tasks",
        ),
        (
            ("django.admin_log", "30d"),
            ("celery.results", "1d"),
            ("django_tasks.successful", "7d"),
            ("django_tasks.failed", "10d"),
            ("django_q.successes", "8d"),
            ("django_q.failures", "12d"),
            ("django_celery_beat.one_off", "30d"),
        ),
        "django django-celery-results django-celery-beat django-q2 django-tasks-db",
        differs=(("Django notes the time of a change of schedules", ("django_celery_beat_periodictasks",)),),
        beside=("auth_", "django_content_type"),
    ),
    "oban": Proof(
        "oban",
        "oban_queries.py",
        ("oban-py",),
        (("oban.jobs", "1d"), ("oban.producers", "1h")),
        "oban",
        POSTGRES,
    ),
    "procrastinate": Proof(
        "procrastinate",
        "procrastinate_jobs.py",
        ("procrastinate",),
        (("procrastinate.succeeded", "72h"), ("procrastinate.failed", "120h"), ("procrastinate.cancelled", "168h")),
        "procrastinate",
        POSTGRES,
    ),
    "pgqueuer": Proof(
        "pgqueuer",
        "pgqueuer_queue.py",
        ("pgqueuer",),
        (("pgqueuer.failed", "20d"), ("pgqueuer.log", "30d"), ("pgqueuer.statistics", "40d")),
        "pgqueuer",
        POSTGRES,
    ),
    "airflow": Proof(
        "airflow",
        "airflow_metadata.py",
        ("airflow",),
        (
            ("airflow.runs", "90d"),
            ("airflow.log", "60d"),
            ("airflow.assets", "70d"),
            ("airflow.housekeeping", "30d"),
        ),
        "apache-airflow-core",
        differs=(
            ("DAGs that are no longer parsed stay", ("dag", "dag_tag", "task_outlet_asset_reference")),
            (
                "versions stay with those DAGs, and with the tasks of runs that stay",
                ("dag_code", "dag_version", "deadline_alert", "serialized_dag"),
            ),
            ("the triggers of assets stay with their watchers", ("asset_watcher", "trigger")),
            (
                "runs that have not ended stay, and the last run of each DAG stays with its tasks",
                (
                    "asset_partition_dag_run",
                    "backfill_dag_run",
                    "dag_run",
                    "dag_run_note",
                    "dagrun_asset_event",
                    "hitl_detail",
                    "hitl_detail_history",
                    "rendered_task_instance_fields",
                    "task_instance",
                    "task_instance_history",
                    "task_instance_note",
                    "task_map",
                    "task_reschedule",
                    "task_state_store",
                    "xcom",
                ),
            ),
        ),
    ),
    "prefect": Proof(
        "prefect",
        "prefect_server.py",
        ("prefect",),
        (
            ("prefect.runs", "30d"),
            ("prefect.orphans", "1d"),
            ("prefect.events", "7d"),
            ("prefect.heartbeats", "3d"),
        ),
        "prefect",
        differs=(
            ("logs and artifacts without a run stay for a day, in case it is still to come", ("artifact", "log")),
            ("collections are pointed at other artifacts by Prefect alone", ("artifact_collection",)),
        ),
        server="postgres-system",  # Its schema needs pg_trgm.
        sweeps=3,
    ),
    "apscheduler": Proof(
        "apscheduler",
        "apscheduler_store.py",
        ("apscheduler",),
        package="apscheduler",
        differs=(("schedules that are over are deleted by APScheduler alone", ("schedules",)),),
    ),
}


def prepare(proof: Proof, database: Database) -> None:
    """Change what the catalogue says has to be changed before the first sweep."""
    for system in catalogue.systems():
        for statement in system.prepare if system.name in proof.contracts else ():
            database.execute(statement)


@contextmanager
def copies(filled: Database, folder: Path) -> Iterator[tuple[Database, Database]]:
    """Close a database, and yield two copies of it with every table, row and sequence."""
    names = ("theirs", "ours")
    if isinstance(filled, SqliteDatabase):
        theirs, ours = (SqliteDatabase(folder / f"{name}.db") for name in names)
        with closing(theirs), closing(ours):
            for one in (theirs, ours):
                filled.connect().backup(one.connect())
            yield theirs, ours
        return
    source = urlsplit(filled.url)
    name = source.path.removeprefix("/")
    filled.close()  # a database with sessions cannot be copied
    with psycopg.connect(source._replace(path="/postgres").geturl(), autocommit=True) as admin:
        for suffix in names:
            admin.execute(f"CREATE DATABASE {name}_{suffix} TEMPLATE {name}".encode())
        try:
            first, second = (PostgresDatabase(source._replace(path=f"/{name}_{one}").geturl()) for one in names)
            with closing(first), closing(second):
                yield first, second
        finally:
            for suffix in names:
                admin.execute(f"DROP DATABASE {name}_{suffix} WITH (FORCE)".encode())


def tables(database: Database) -> list[str]:
    """Return the tables of the application, quoted; rows of partitions are seen in the table that they are part of."""
    if database.store == "sqlite":
        found = database.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [f'"{name}"' for (name,) in found if not name.startswith(("wane_", "sqlite_"))]
    found = database.query(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition"
        " AND n.nspname NOT IN ('wane', 'pg_catalog', 'information_schema') ORDER BY 1, 2"
    )
    return [f'"{schema}"."{name}"' for schema, name in found]


def contents(database: Database) -> dict[str, list[str]]:
    """Return every row of every table, in an order of their own."""
    return {name: sorted(map(repr, database.query(f"SELECT * FROM {name}"))) for name in tables(database)}


SLOW = ("no-index", "no-spare-index", "no-reference-index")
"""Findings about a system's own indexes: its tables are swept without."""


def findings(proof: Proof, database: Database, file: Path) -> list[str]:
    """Return what `wane check --cover --strict` reports about the system's tables, and a user would have to fix."""
    contract = load_contract(file)
    with open_store(resolve_url(database.url), read_only=True) as store:
        found = accept(contract, cover(store, contract, strict=True), datetime.now(UTC).date(), ran=("database",))
    return [
        f"{one.code} {one.table}: {one.message}"
        for one in found
        if not one.accepted
        and one.severity is not Severity.NOTE
        and one.code not in SLOW
        and not (one.code == "uncovered-table" and str(one.table).startswith(proof.beside))
    ]


def sweep(database: Database, file: Path, sweeps: int) -> int:
    """Sweep by every rule until nothing is due, and return how many rows left."""
    contract = load_contract(file)
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        keeper = Keeper(contract, store, actor="proof")
        keeper.enable()
        swept = [Sweeper(store, contract, pace=FAST, unattended=False).sweep().rules for _ in range(sweeps)]
    assert {one.outcome for rules in swept for one in rules} == {Outcome.DONE}, swept
    assert all(one.rows for one in swept[0]), f"a rule took nothing: {swept[0]}"
    return sum(one.rows for rules in swept for one in rules)


def unquoted(name: str) -> str:
    """Return the name of a table as a contract has it."""
    return name.replace('"', "").removeprefix("public.")


def differences(theirs: dict[str, list[str]], ours: dict[str, list[str]]) -> dict[str, Sequence[str]]:
    """Return the rows that only one of the two has, by table."""
    return {
        name: sorted(set(theirs.get(name, [])) ^ set(ours.get(name, [])))
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    }


Contents = dict[str, list[str]]


def more(before: Contents, theirs: Contents, ours: Contents, name: str) -> int:
    """Return how many more rows of a table Wane left than the cleaner: all that the cleaner left as they were, and
    others."""
    assert set(ours[name]) - set(before[name]) <= set(theirs[name]), "references that were cleared"
    assert set(theirs[name]) & set(before[name]) <= set(ours[name])
    return len(ours[name]) - len(theirs[name])
