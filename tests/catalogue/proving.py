"""Proving a contract of the catalogue: the system's own cleaner on one copy of a database, Wane on the other.

A system's script runs in an environment of its own, `.venv-catalogue/NAME`, which `make catalogue` makes: it creates the
system's real schema, fills it through the system's own API, runs its cleaner, and uses it again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
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
    """The distribution whose version is proven."""
    stores: tuple[str, ...] = ("sqlite", "postgres")

    def run(self, verb: str, database: Database) -> None:
        python = ENVIRONMENTS / self.environment / "bin" / "python"
        subprocess.run([python, SCRIPTS / self.script, verb, database.url], check=True, timeout=110)

    def contract(self, folder: Path) -> Path:
        """Write a contract that includes those of the catalogue and decides their windows."""
        included = ", ".join(f'"catalogue:{name}"' for name in self.contracts)
        windows = "".join(f'"{name}" = "{length}"\n' for name, length in self.windows)
        file = folder / "wane.toml"
        file.write_text(f"include = [{included}]\n[window]\n{windows}", encoding="utf-8")
        return file


PROOFS = {
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
        ("postgres",),
    ),
}


def copy_rows(source: Database, target: Database) -> None:
    """Copy every row; the tables are there."""
    if isinstance(source, SqliteDatabase) and isinstance(target, SqliteDatabase):
        source.connect().backup(target.connect())
        return
    assert isinstance(source, PostgresDatabase)
    with source.connect() as reading, target.connect() as writing:
        writing.execute("SET session_replication_role = replica")
        for name in tables(source):
            writing.execute(f"DELETE FROM {name}".encode())
            with (
                reading.cursor().copy(f"COPY {name} TO STDOUT".encode()) as rows,
                writing.cursor().copy(f"COPY {name} FROM STDIN".encode()) as into,
            ):
                for part in rows:
                    into.write(part)
        for name, last in source.query(
            "SELECT format('%I.%I', schemaname, sequencename), last_value FROM pg_sequences WHERE last_value IS NOT NULL"
        ):
            writing.execute("SELECT setval(%s, %s)", (name, last))


def tables(database: Database) -> list[str]:
    """The tables of the application, quoted."""
    if database.store == "sqlite":
        found = database.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [f'"{name}"' for (name,) in found if not name.startswith(("wane_", "sqlite_"))]
    found = database.query(
        "SELECT schemaname, tablename FROM pg_tables"
        " WHERE schemaname NOT IN ('wane', 'pg_catalog', 'information_schema') ORDER BY 1, 2"
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
    return sum(one.rows for one in swept.rules)


def version(proof: Proof) -> str:
    """The version of the system in its environment."""
    python = ENVIRONMENTS / proof.environment / "bin" / "python"
    text = f"from importlib.metadata import version; print(version({proof.package!r}))"
    return subprocess.run([python, "-c", text], check=True, capture_output=True, text=True).stdout.strip()


def differences(theirs: dict[str, list[str]], ours: dict[str, list[str]]) -> dict[str, Sequence[str]]:
    """The rows that only one of the two has, by table."""
    return {
        name: sorted(set(theirs.get(name, [])) ^ set(ours.get(name, [])))
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    }
