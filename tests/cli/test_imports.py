"""Each command imports what it uses: imports are most of the time that a short command takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import wane
from cli.running import AT, fill, write_contract
from servers import SqliteDatabase

NEVER_FOR_READING = {"asyncio", "prometheus_client", "psycopg", "pyarrow", "pyspark", "deltalake", "starlette"}
OTHER_PACKAGES = {
    "_archive",
    "_check",
    "_demo",
    "_partition",
    "_roles",
    "_schedule",
    "_sqlfunctions",
    "claims",
    "queue",
}
"""Those that neither the help nor a plan needs."""


def source_of(module: str) -> str:
    path = Path(wane.__file__).parent.joinpath(*module.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def imported(*words: str) -> set[str]:
    """Run a command in a process of its own, and return the modules that it imported."""
    run = "import sys, wane._cli as cli; sys.argv[0] = 'wane'\ntry: cli.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", run, *words], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.split())


def test_the_help_imports_neither_a_command_nor_what_only_they_need() -> None:
    modules = imported("--help")
    assert {one for one in modules if one.split(".")[0] == "wane"} == {
        "wane", "wane._cli", "wane._cli.help", "wane._findings", "wane._frozen", "wane.errors",
    }  # fmt: skip
    assert not modules & {*NEVER_FOR_READING, "pydantic", "sqlite3", "rich.markdown", "rich.traceback", "rich.progress"}


def test_a_plan_imports_neither_other_features_nor_other_drivers(sqlite_database: SqliteDatabase, folder: Path) -> None:
    fill(sqlite_database)
    write_contract(folder, sqlite_database.url)
    modules = imported("plan", "--at", AT)
    assert "wane._prune.build_plan" in modules
    assert not modules & NEVER_FOR_READING
    assert not modules & {f"wane.{one}" for one in OTHER_PACKAGES}
    assert not modules & {"wane.events", "wane._async_keeper", "wane._prune.primitive"}
    assert not {one for one in modules if "postgres" in one}
    assert not modules & {"rich.markdown", "rich.traceback", "rich.progress", "rich._emoji_codes"}
    slow = "@dataclass(frozen=True, slots=True)"  # `frozen` defines the same class in a fifth of the time.
    assert [one for one in modules if one.startswith("wane.") and slow in source_of(one)] == []


def test_no_command_searches_installed_packages_for_plugins_of_pydantic(
    sqlite_database: SqliteDatabase, folder: Path
) -> None:
    fill(sqlite_database)
    write_contract(folder, sqlite_database.url)
    run = (
        "import importlib.metadata as metadata, sys, wane._cli as cli; sys.argv[0] = 'wane'\n"
        "def refuse(): raise AssertionError('all packages were read')\n"
        "metadata.distributions = refuse\n"
        "cli.main()"
    )
    words = [sys.executable, "-c", run, "plan", "--at", AT]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
