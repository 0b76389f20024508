"""What only a real process shows: pipes, signals, terminals, encodings."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import AT
from servers import Database, SqliteDatabase

WANE = [sys.executable, "-m", "wane"]


def test_the_module_and_the_script_are_one_command(process: Wane, filled: Database) -> None:
    script = Path(sys.executable).with_name("wane")
    done = subprocess.run(
        [script, "plan", "--at", AT, "--json"], capture_output=True, text=True, check=True, timeout=60
    )
    assert process("plan", "--at", AT, "--json").out == done.stdout


@pytest.mark.parametrize("words", ["plan", "plan -v", "plan --json -v", "check --show", "schema", "migrate --print"])
def test_a_reader_that_leaves_early_causes_no_trace(filled: Database, words: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m wane {words} | true"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # What is written last is written while Python ends.
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_interrupt_ends_the_command_quietly(folder: Path) -> None:
    """The demonstration is the longest command; it is interrupted as soon as it has begun to build."""
    running = subprocess.Popen(
        [*WANE, "demo", "--rows", "5000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    with running, running.stdout, running.stderr:
        while not (folder / ".demo" / "state.db").exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
        assert "Traceback" not in running.stderr.read()


WAITS = """
import sys, time
class Waits:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Waits())
"""


@pytest.mark.parametrize("name", ["wane._cli", "typer", "pydantic"])
def test_an_interrupt_while_commands_are_imported_causes_no_trace(folder: Path, name: str) -> None:
    (folder / "sitecustomize.py").write_text(WAITS.format(name=name))
    running = subprocess.Popen(
        [*WANE, "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert running.stdout is not None
    assert running.stderr is not None
    with running, running.stdout, running.stderr:
        assert running.stdout.readline() == "importing\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) in (-signal.SIGINT, 130)
        assert running.stderr.read() == ""


def test_the_package_itself_imports_nothing_heavy() -> None:
    lightly = "import sys, wane, wane.__main__; print([one for one in ('pydantic', 'typer', 'psycopg', 'wane._cli') if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", lightly], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_what_needs_no_command_imports_none(word: str) -> None:
    lightly = (
        "import sys, wane.__main__\n"
        f"sys.argv = ['wane', {word!r}]\n"
        "try: wane.__main__.main()\n"
        "except SystemExit: pass\n"
        "heavy = ('pydantic', 'pyarrow', 'pyspark', 'psycopg', 'sqlite3', 'wane._keeper')\n"
        "print([one for one in heavy if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", lightly], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.endswith("[]\n")


HIDDEN = """
import contextlib, io, json, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "deltalake", "adbc_driver_manager", "pandas", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from importlib import util
known = util.find_spec
def find_spec(name, package=None):
    try:
        return known(name, package)
    except ModuleNotFoundError:
        return None
util.find_spec = find_spec
from wane._cli import main
reported = {}
for words in json.loads(sys.argv[1]):
    sys.argv = ["wane", *words.split()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException as problem:
            code = repr(problem)
    reported[words] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(reported))
"""
MISSING = (
    "archive run",
    "archive ls",
    "archive verify",
    "archive query job",
    "archive tidy",
    "archive compact",
    "archive expire",
    "archive survey",
    "archive restore job --key id=1",
)
WITHOUT = ("archive status", "archive restores", "plan", "check --cover")


def test_without_the_libraries_of_the_archive_every_command_reports_it(
    sqlite_database: SqliteDatabase, folder: Path
) -> None:
    sqlite_database.execute("CREATE TABLE job (id integer PRIMARY KEY, at integer NOT NULL)")
    sqlite_database.execute("CREATE INDEX job_at ON job (at, id)")
    (folder / "wane.toml").write_text(
        f'[store]\nurl = "{sqlite_database.url}"\n[scheduler]\nt = {{ every = "1m" }}\n[archive]\nurl = "cold"\n'
        '[archive.job]\nkeep = "30d"\n[table.job]\nwhy = "x"\nscheduler = "t"\n'
        'time = { column = "at", unit = "s" }\nrule.cold = { keep = "7d", then = "archive" }\n'
    )
    words = ["migrate", "enable", *MISSING, *WITHOUT]
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, json.dumps(words)], capture_output=True, text=True, check=True, timeout=120
    )
    reported = json.loads(done.stdout)
    for command in MISSING:
        code, out, err = reported[command]
        assert (code, out) == (1, ""), command
        assert err.splitlines()[0].startswith("error: the archive's libraries are missing: pyspark"), command
        assert err.splitlines()[1:] == ["hint: pip install 'wane[spark]'"], command
    for command in WITHOUT:
        assert reported[command][0] == 0, reported[command]
    assert not (folder / "cold").exists()


def test_on_a_terminal_a_table_is_as_wide_as_the_terminal(filled: Database) -> None:
    shown = on_terminal("plan", "--at", AT, columns=70)
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in shown.splitlines()]
    assert any(line.startswith("inbox.failed") for line in lines)
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("rule ")) :]
    table = [line for line in table if not line.startswith("not swept: ")]  # The terminal folds these lines.
    assert max(map(len, table)) <= 70
    assert "\x1b[" in shown


def test_into_a_pipe_nothing_is_coloured(process: Wane, filled: Database) -> None:
    done = process("plan", "--at", AT, TERM="xterm-256color")
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_the_output_cannot_write_fail_nothing(process: Wane, folder: Path, encoding: str) -> None:
    (folder / "wane.toml").write_text(
        '[excused]\n"größe—表" = { singleton = "une ligne, élève 表" }\n', encoding="utf-8"
    )
    assert process("check", "--show", PYTHONIOENCODING=encoding).code == 0
    done = process("check", "--show", "--json", PYTHONIOENCODING=encoding)
    assert done.code == 0
    assert done.json["tables"][0]["table"] == "größe—表"


def on_terminal(*words: str, columns: int) -> str:
    """Return what the command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    with subprocess.Popen([*WANE, *words], stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux says so when the other side is gone.
                break
            if not piece:
                break
            shown += piece
        assert running.wait(timeout=60) == 0
    os.close(ours)
    return shown.decode()
