"""Commands that speak of Wane's own tables work with a URL alone; a contract that is named must be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Wane
from servers import Database
from wane._db import open_store
from wane._db.url import resolve_url

COMMANDS = (
    "audit list",
    "queue enqueue sweep --id m",
    "queue list",
    "queue show m",
    "queue notify",
    "queue expire",
    "queue dead list",
    "hold add job --reason because",
    "hold list",
    "hold release 1",
)


@pytest.fixture
def migrated(database: Database) -> Database:
    database.script("CREATE TABLE job (id integer PRIMARY KEY)")
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
    return database


def test_a_url_is_enough(migrated: Database, wane: Wane) -> None:
    for command in COMMANDS:
        done = wane(*command.split(), "--url", migrated.url, "--json")
        assert done.code == 0, f"{command}: {done.err}"
        assert done.json is not None


def test_a_contract_that_is_there_is_read(migrated: Database, wane: Wane, folder: Path) -> None:
    (folder / "wane.toml").write_text("[queue]\npool = 5\n")
    for command in COMMANDS:
        done = wane(*command.split(), "--url", migrated.url)
        assert (done.code, "pool" in done.err) == (1, True), command


def test_a_contract_that_is_named_must_be_there(migrated: Database, wane: Wane) -> None:
    for command in COMMANDS:
        done = wane(*command.split(), "--url", migrated.url, "--contract", "mine.toml")
        assert (done.code, "mine.toml" in done.err) == (1, True), command


def test_without_a_url_the_contract_is_missed(wane: Wane) -> None:
    for command in COMMANDS:
        done = wane(*command.split())
        assert (done.code, "wane.toml" in done.err) == (1, True), command
    assert list(Path.cwd().iterdir()) == []
