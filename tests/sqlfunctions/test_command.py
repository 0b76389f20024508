"""`wane sql install | uninstall | print | status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import wane
from servers import Database, PostgresDatabase
from sqlfunctions.tables import CONTRACT, SCHEMA, contract_file
from wane._cli import app
from wane._cli.output import FORMAT
from wane._contract.fingerprint import fingerprint
from wane._contract.load import load_contract
from wane.errors import StoreError


class Wane:
    """The command, with this database and this contract."""

    def __init__(self, database: Database, contract: Path) -> None:
        self.options = ["--url", database.url, "--contract", str(contract)]

    def __call__(self, *words: str) -> Any:
        return CliRunner().invoke(app, ["sql", *words, *self.options], catch_exceptions=False)


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    postgres_database.script(SCHEMA)
    return postgres_database


@pytest.fixture
def command(database: PostgresDatabase, tmp_path: Path) -> Wane:
    path = contract_file(tmp_path)
    with wane.open(database.url, contract=path) as keeper:
        keeper.store.migrate()
    return Wane(database, path)


def test_from_nothing_to_installed_and_back(command: Wane, database: PostgresDatabase, tmp_path: Path) -> None:
    mark = fingerprint(load_contract(tmp_path / "wane.toml"))
    none = command("status")
    assert (none.exit_code, none.stdout) == (1, "")
    assert "nothing is installed" in none.stderr
    done = command("install", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "format": FORMAT,
        "fingerprint": mark,
        "replaced": None,
        "refused": [],
        "roles_missing": 0,
    }
    assert database.query("SELECT wane.contract_fingerprint()") == [(mark,)]
    assert command("status").exit_code == 0
    assert json.loads(command("status", "--json").stdout) == {
        "format": FORMAT,
        "installed": mark,
        "contract": mark,
        "current": True,
    }
    assert json.loads(command("uninstall", "--json").stdout) == {"format": FORMAT, "removed": mark}
    assert "nothing was installed" in command("uninstall").stderr


def test_drift_is_reported_and_replaced(command: Wane, database: PostgresDatabase, tmp_path: Path) -> None:
    command("install")
    mark = fingerprint(load_contract(tmp_path / "wane.toml"))
    contract_file(tmp_path, CONTRACT.replace('keep = "5d"', 'keep = "6d"'))
    drifted = command("status")
    assert drifted.exit_code == 1
    assert f"installed for another contract, {mark}" in drifted.stderr
    assert f"in place of {mark}" in command("install").stderr
    assert command("status").exit_code == 0


def test_a_rule_that_is_left_out_is_named_and_the_exit_code_reports_it(command: Wane, tmp_path: Path) -> None:
    contract_file(tmp_path, CONTRACT.replace('zone = "UTC"', 'zone = "Europe/Berlin"'))
    done = command("install")
    assert done.exit_code == 1
    assert "left out 1 rule" in done.stderr
    assert "post.old" in done.stderr
    assert [one["rule"] for one in json.loads(command("install", "--json").stdout)["refused"]] == ["post.old"]
    assert command("status").exit_code == 0


def test_print_changes_nothing_and_its_script_installs(command: Wane, database: PostgresDatabase) -> None:
    printed = command("print")
    assert printed.exit_code == 0
    assert command("status").exit_code == 1
    assert json.loads(command("print", "--json").stdout)["sql"] == printed.stdout
    database.script(printed.stdout)
    assert command("status").exit_code == 0


def test_sqlite_is_reported_what_to_do_instead(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    words = ["sql", "install", "--url", f"sqlite:///{path}", "--contract", str(contract_file(tmp_path, ""))]
    with pytest.raises(StoreError, match=r"wane\.sqlite\.register"):
        CliRunner().invoke(app, words, catch_exceptions=False)
