"""The demonstration, as a new user runs it."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import chdir, closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from archive.cold import archived
from commands import run_forked
from wane._cli import app
from wane._demo.seed import ROWS, TRAPS, attached_path
from wane.reference import names, schema_sql

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(600)
"""On a busy machine the demonstration takes minutes."""


def environment(columns: int | None = None) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "WANE_URL", "WANE_CONTRACT")}
    return inherited if columns is None else {**inherited, "COLUMNS": str(columns)}


def demo(folder: Path, *words: str, columns: int | None = None) -> subprocess.CompletedProcess[str]:
    return run_forked(["wane", "demo", "--rows", "1000", *words], folder, environment(columns))


def run_with_spark(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that is no fork: this one may have a Spark of its own."""
    return subprocess.run(
        [sys.executable, "-m", "wane", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module", params=["in this process", "as a command"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the demonstration's folder, and what it prints into a file.

    In this process it works on the Spark that other tests of the group have started.
    """
    folder = tmp_path_factory.mktemp("demo")
    words = ["demo", "--rows", "1000"]
    if request.param == "as a command":
        done = run_with_spark(folder, *words)
        assert done.returncode == 0, done.stderr
        return folder / ".demo", done.stdout
    with chdir(folder):
        unset = dict.fromkeys(os.environ.keys() - environment().keys())
        shown = CliRunner().invoke(app, words, env=unset, catch_exceptions=False)
    assert shown.exit_code == 0, shown.stderr
    return folder / ".demo", shown.stdout


@pytest.mark.group("spark")
@pytest.mark.sampled("in this process")
def test_it_walks_through_the_main_job(shown: tuple[Path, str]) -> None:
    _, text = shown
    archive = ("wane archive run", "wane archive query", "wane archive restore", "wane archive survey")
    parts = (
        "wane check --cover",
        "every one bounded",
        "wane plan",
        "wane apply",
        "wane prune",
        *archive,
        "wane audit list",
    )
    positions = [text.index(part) for part in (*parts, "What stayed, and why")]
    assert positions == sorted(positions)
    assert "error" not in text.partition("What stayed")[0]


def test_what_it_states_left_is_what_the_trail_and_the_tables_state(tmp_path: Path) -> None:
    reported = json.loads(demo(tmp_path, "--json", "--no-archive").stdout)
    with closing(sqlite3.connect(tmp_path / ".demo" / "state.db")) as connection:
        trail = connection.execute("SELECT counts FROM wane_audit WHERE kind = 'prune'").fetchall()
        gone: Counter[str] = Counter()
        for (counts,) in trail:
            gone.update(json.loads(counts))
        for table, before in reported["tables"].items():
            if "." not in table:
                [(after,)] = connection.execute(f"SELECT count(*) FROM {table}")
                assert before - after == gone[table], table
    for rule, due in reported["due"].items():
        if rule in reported["swept"]:
            assert reported["swept"][rule][rule.partition(".")[0]] == due, rule


@pytest.mark.group("spark")
@pytest.mark.sampled("in this process")
def test_what_it_states_of_every_trap_is_what_the_database_has_at_the_end(shown: tuple[Path, str]) -> None:
    folder, text = shown
    stays = text.partition("What stayed, and why")[2]
    there = 0
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute("ATTACH ? AS iu_core", (str(attached_path(folder / "state.db")),))
        for trap in TRAPS:
            [(rows,)] = connection.execute(f"SELECT count(*) FROM {trap.table} WHERE {trap.predicate}")
            assert rows == trap.rows or not trap.lasting, trap.name
            line = f" {rows}  {trap.why}"
            if rows < trap.rows:
                line = f" {rows} of {trap.rows}  {trap.why}: {trap.rows - rows} became due while you watched"
            assert re.search(rf"{re.escape(line)}\s*$", stays, flags=re.MULTILINE), trap.name
            there += rows
    planted = sum(trap.rows for trap in TRAPS)
    aged = f", {planted - there} became due while you watched, and left" if there < planted else ""
    assert f"of {planted} rows planted as traps {there} stayed{aged}." in stays


@pytest.mark.group("spark")
@pytest.mark.sampled("in this process")
def test_the_commands_that_it_names_work(shown: tuple[Path, str]) -> None:
    folder, text = shown
    commands = re.findall(r"^\s*(?:\$ )?wane (.*)$", text, flags=re.MULTILINE)
    assert len(commands) >= 8
    # Each of the others would start Spark once more; the demonstration itself has just done what they do.
    # The console would serve until a signal.
    others = [one for one in commands if not one.startswith(("archive", "serve")) or one.startswith("archive query")]
    for command in others:
        words = shlex.split(command)
        if words[0] == "archive":
            done = run_with_spark(folder.parent, *words)
        else:
            done = run_forked(["wane", *words], folder.parent, environment())
        assert done.returncode == 0, f"wane {command}: {done.stderr}"


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_rule_is_folded(tmp_path: Path, columns: int) -> None:
    done = demo(tmp_path, "--no-archive", columns=columns)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    # Commands stay whole, so that they can be copied.
    assert max(len(line) for line in lines if not line.startswith("$ ")) <= columns
    assert any(line.startswith("iu_auto_instantiate_event_log.old  ") for line in lines)


def test_it_can_be_rerun_in_the_same_folder(tmp_path: Path) -> None:
    first, second = demo(tmp_path, "--json", "--no-archive"), demo(tmp_path, "--json", "--no-archive")
    assert (first.returncode, second.returncode) == (0, 0)
    before, after = json.loads(first.stdout), json.loads(second.stdout)
    assert before["tables"] == after["tables"]
    assert all(one["rows"] == one["planted"] for one in after["stayed"])
    assert len(after["stayed"]) == len(TRAPS)


@pytest.mark.parametrize("stranger", ["thesis.txt", "statements.csv", "state.db.bak", "wane.toml.orig"])
def test_a_folder_with_other_files_is_unchanged(tmp_path: Path, stranger: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / stranger).write_text("precious")
    (folder / "wane.toml").write_text("mine too")
    done = demo(tmp_path, "--dir", "mine")
    assert done.returncode == 2
    assert stranger in " ".join(done.stderr.split())
    assert (folder / stranger).read_text() == "precious"
    assert (folder / "wane.toml").read_text() == "mine too"


def test_a_file_where_the_folder_should_be_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = demo(tmp_path, "--dir", "mine")
    assert done.returncode == 2
    assert "mine cannot be used: File exists; name another folder" in " ".join(done.stderr.replace("│", " ").split())
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_folder_where_no_database_can_be_is_an_error_without_a_trace(tmp_path: Path) -> None:
    done = demo(tmp_path, "--dir", "/".join(["a" * 100] * 6), columns=2_000)
    assert done.returncode == 2
    assert "the database cannot be written, unable to open database file; name another folder" in done.stderr


def test_the_readme_has_the_true_numbers_of_the_demonstration() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{ROWS:,} rows with {len(TRAPS)} traps" in readme
    scripts = [sql for name in names() for sql in schema_sql(name, "sqlite").values()]
    tables = sum(len(re.findall(r"CREATE TABLE (?!wane_)", sql)) for sql in scripts)
    assert f"for {tables} tables" in readme
    assert re.search(r"^demo:.*\n\t.*wane demo", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.group("spark")
@pytest.mark.sampled("in this process")
def test_what_it_states_was_archived_is_in_the_archive_and_what_came_back_is_not(shown: tuple[Path, str]) -> None:
    folder, _ = shown
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        trail: Counter[str] = Counter()
        for kind, counts in connection.execute(
            "SELECT kind, counts FROM wane_audit WHERE kind IN ('archive', 'restore')"
        ):
            for table, rows in json.loads(counts).items():
                trail[table] += rows if kind == "archive" else -rows
        assert connection.execute("SELECT count(*) FROM wane_audit WHERE kind = 'restore'").fetchone() == (1,)
        for table, key in (("event_outbox", ("id",)), ("event_read", ("event_id", "reader"))):
            cold = {tuple(row[name] for name in key) for row in archived(folder / "archive" / table)}
            assert len(cold) == trail[table] > 0
            assert not cold & set(connection.execute(f"SELECT {', '.join(key)} FROM {table}"))
