"""The command in this process, for most tests, and as a process of its own, for what only that shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.running import Result, fill, write_contract
from servers import Database
from wane._cli import main

Wane = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where the command runs, with an environment that does not mention Wane."""
    for name in ("WANE_CONTRACT", "WANE_URL", "DATABASE_URL", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def wane(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Wane:
    def run(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["wane", *map(str, words)])
        capfd.readouterr()
        try:
            main()
        except SystemExit as end:
            code = end.code
        else:
            code = 0
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Result(int(code or 0), out, err)

    return run


@pytest.fixture
def process() -> Wane:
    def run(*words: object, **environment: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "wane", *map(str, words)],
            capture_output=True,
            text=True,
            encoding=environment.get("PYTHONIOENCODING", "utf-8"),
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def filled(database: Database, folder: Path) -> Database:
    """Return a small database on each store, with its contract as ./wane.toml."""
    fill(database)
    write_contract(folder, database.url)
    return database
