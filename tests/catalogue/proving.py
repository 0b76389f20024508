"""Proving a contract of the catalogue: the system's own cleaner on one copy of a database, Wane on the other.

A system's script runs in an environment of its own, `.venv-catalogue/NAME`, which `make catalogue` makes: it creates the
system's real schema, fills it through the system's own API, runs its cleaner, and uses it again. Systems that cannot be
installed here have a module in `schemas`: their tables and their cleaners' statements, written down.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from servers import Database, PostgresDatabase, SqliteDatabase
from wane import catalogue
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._prune.pace import FAST
from wane._prune.sweep import Outcome, Sweeper
from wane.catalogue import systems

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
    """The distribution whose version is proven."""
    stores: tuple[str, ...] = ("sqlite", "postgres")
    differs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Reasons why Wane keeps more than the cleaner, each with its tables."""
    written: tuple[str, ...] = ()
    """Tables in which the cleaner also writes: their rows are only counted."""

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.environment

    @property
    def schema_only(self) -> bool:
        """Whether the system is not installed: a module of `schemas` has its tables and its cleaner's statements."""
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
        subprocess.run(command, check=True, timeout=110, env={**os.environ, **variables})

    def version(self) -> str:
        """Return the version of the system in its environment."""
        if self.schema_only:
            return str(import_module(f"catalogue.schemas.{self.script}").VERSION)
        if self.script.endswith(".cjs"):
            package = self.folder / "node_modules" / self.package / "package.json"
            return str(json.loads(package.read_text(encoding="utf-8"))["version"])
        text = f"from importlib.metadata import version; print(version({self.package!r}))"
        command = [str(self.folder / "bin" / "python"), "-c", text]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def contract(self, folder: Path) -> Path:
        """Write a contract that includes those of the catalogue and decides their windows."""
        included = ", ".join(f'"catalogue:{name}"' for name in self.contracts)
        windows = "".join(f'"{name}" = "{length}"\n' for name, length in self.windows)
        file = folder / "wane.toml"
        file.write_text(f"include = [{included}]\n[window]\n{windows}", encoding="utf-8")
        return file


def own(name: str) -> tuple[tuple[str, str], ...]:
    """The windows that the cleaner of a system uses."""
    [system] = [one for one in catalogue.systems() if one.name == name]
    return tuple((window, said.own) for window, said in system.windows.items())


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
        ("django-sessions", "django-admin", "django-celery-results"),
        (("django.admin_log", "30d"), ("celery.results", "1d")),
        "django",
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
}


def prepare(proof: Proof, database: Database) -> None:
    """Change what the catalogue says has to be changed before the first sweep."""
    for system in systems():
        for statement in system.prepare if system.name in proof.contracts else ():
            database.execute(statement)


@contextmanager
def copies(filled: Database, folder: Path) -> Iterator[tuple[Database, Database]]:
    """Two copies of a database, with every table, row and sequence; closes it."""
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
    """The tables of the application, quoted; rows of partitions are seen in the table that they are part of."""
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
    """Every row of every table, in an order of their own."""
    return {name: sorted(map(repr, database.query(f"SELECT * FROM {name}"))) for name in tables(database)}


def sweep(database: Database, file: Path) -> int:
    """Sweep by every rule, and return how many rows left."""
    contract = load_contract(file)
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        keeper = Keeper(contract, store, actor="proof")
        keeper.enable()
        swept = Sweeper(store, contract, pace=FAST, unattended=False).sweep()
    assert {one.outcome for one in swept.rules} == {Outcome.DONE}, swept
    assert all(one.rows for one in swept.rules), f"a rule took nothing: {swept}"
    return sum(one.rows for one in swept.rules)


def unquoted(name: str) -> str:
    """The name of a table as a contract has it."""
    return name.replace('"', "").removeprefix("public.")


def differences(theirs: dict[str, list[str]], ours: dict[str, list[str]]) -> dict[str, Sequence[str]]:
    """The rows that only one of the two has, by table."""
    return {
        name: sorted(set(theirs.get(name, [])) ^ set(ours.get(name, [])))
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    }
