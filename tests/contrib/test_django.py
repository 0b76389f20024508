"""Wane in a Django project: its commands, its checks, and migrations that leave Wane's own tables alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from contrib.shop import DUE, left_over, make_shop
from servers import Database

SETTINGS = """\
SECRET_KEY = "for tests"
INSTALLED_APPS = ["django.contrib.contenttypes", "wane.contrib.django"]
USE_TZ = True
DATABASES = {{"default": {database!r}, "other": {{"ENGINE": "django.db.backends.mysql", "NAME": "x"}}}}
WANE = {{"contract": "wane.toml"}}
"""
# What manage.py does, several times in one process: starting Python takes longer than most commands.
MANAGE = """\
import contextlib, io, json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "project_settings"
from django.conf import settings
from django.core.management import execute_from_command_line
done = []
for wane, *command in json.loads(sys.argv[1]):
    settings.WANE = wane
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = execute_from_command_line(["manage.py", *command])
        except SystemExit as end:
            code = end.code
    done.append((code or 0, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""


@dataclass(frozen=True)
class Managed:
    """What a command of manage.py left behind."""

    code: int
    out: str
    err: str


def django_database(url: str) -> dict[str, object]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    named = conninfo_to_dict(url)
    words = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    given = {key: str(named[word]) for key, word in words.items() if named.get(word)}
    return {"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"pool": False, "connect_timeout": 10}, **given}


def manage(database: Database, folder: Path, *commands: str, wane: dict[str, str] | None = None) -> list[Managed]:
    """Run commands of manage.py, one after the other."""
    (folder / "project_settings.py").write_text(
        SETTINGS.format(database=django_database(database.url)), encoding="utf-8"
    )
    given = [({"contract": "wane.toml"} if wane is None else wane, *command.split()) for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", MANAGE, json.dumps(given)],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("WANE_")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Managed(*one) for one in json.loads(done.stdout)]


def test_a_project_prunes_its_own_database(database: Database, tmp_path: Path) -> None:
    make_shop(database, tmp_path)
    before = ("migrate", "wane migrate", "makemigrations --check --dry-run", "wane enable")
    *prepared, planned, swept, migrated = manage(
        database, tmp_path, *before, "wane plan --json --exit-code", "wane sweep", "migrate --check"
    )
    assert [one for one in prepared if one.code] == []
    assert planned.code == 3
    assert sum(step["due"] for step in json.loads(planned.out)["steps"]) == DUE
    assert (swept.code, migrated.code) == (0, 0)
    assert left_over(database) == [100, 101]


def test_the_contract_is_checked_where_the_project_is(sqlite_database: Database, tmp_path: Path) -> None:
    contract = make_shop(sqlite_database, tmp_path)
    sqlite_database.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")
    plain, checked = manage(sqlite_database, tmp_path, "check", "check --database default --fail-level WARNING")
    assert plain.code == 0
    assert checked.code == 1
    assert "wane.uncovered-table" in checked.err
    contract.write_text(contract.read_text(encoding="utf-8").replace("keep", "kept"), encoding="utf-8")
    (broken,) = manage(sqlite_database, tmp_path, "check")
    assert broken.code == 1
    assert "wane.unknown-key" in broken.err


def test_wrong_settings_are_an_error_with_its_fix(sqlite_database: Database, tmp_path: Path) -> None:
    make_shop(sqlite_database, tmp_path)
    for wane, reported in (
        ({"database": "nosuch"}, "DATABASES has no 'nosuch', which WANE names: write one of default, other"),
        ({"database": "other"}, "DATABASES['other'] uses django.db.backends.mysql"),
        ({"contrat": "wane.toml"}, "WANE in the settings has unknown keys: contrat"),
    ):
        planned, checked = manage(sqlite_database, tmp_path, "wane plan", "check", wane=wane)
        assert (planned.code, checked.code) == (1, 1)
        assert reported in planned.err
        assert "wane.unusable" in checked.err
