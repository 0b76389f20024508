"""`wane init`: a proposal that decides nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import fill
from servers import Database, SqliteDatabase


@pytest.fixture
def beside(folder: Path) -> SqliteDatabase:
    """Return a SQLite database in the folder where the command runs, so that it has a relative name."""
    database = SqliteDatabase(folder / "a b.db")
    fill(database)
    database.close()
    return database


def test_a_proposal_is_written_and_does_not_pass_until_it_is_decided(wane: Wane, database: Database) -> None:
    fill(database)
    done = wane("init", database.url)
    assert (done.code, done.out) == (0, "")
    assert "wrote wane.toml with " in done.err
    assert "then run wane check --cover\n" in done.err
    checked = wane("check")
    assert checked.code == 1
    assert "'DECIDE' is a placeholder" in checked.out


def test_a_proposal_can_go_to_stdout(wane: Wane, database: Database, folder: Path) -> None:
    fill(database)
    done = wane("init", database.url, "--out", "-")
    assert (done.code, done.err) == (0, "")
    assert "inbox" in tomllib.loads(done.out)["table"]
    assert not list(folder.glob("*.toml"))


def test_a_proposal_is_also_data(wane: Wane, database: Database, folder: Path) -> None:
    fill(database)
    done = wane("init", database.url, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["file"] == "wane.toml"
    assert done.json["contract"] == (folder / "wane.toml").read_text()
    assert done.json["undecided"] > 3
    assert wane("init", database.url, "--json", "--out", "-").json["file"] is None


def test_an_existing_file_is_overwritten_only_by_force(wane: Wane, database: Database, folder: Path) -> None:
    (folder / "wane.toml").write_text("precious")
    done = wane("init", database.url)
    assert done.code == 2
    assert "--force" in done.err
    assert (folder / "wane.toml").read_text() == "precious"
    assert wane("init", database.url, "--force").code == 0
    assert (folder / "wane.toml").read_text() != "precious"


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("out", ["nowhere/wane.toml", "file/wane.toml", "taken", ".", "a" * 300])
def test_a_file_that_cannot_be_written_is_an_error_that_changes_nothing(
    wane: Wane, database: Database, folder: Path, out: str, force: tuple[str, ...]
) -> None:
    (folder / "taken").mkdir(exist_ok=True)
    (folder / "file").write_text("precious")
    before = sorted(folder.iterdir())
    done = wane("init", database.url, "--out", out, *force)
    assert (done.code, done.out) == (2, "")
    reported = " ".join(done.err.replace("│", " ").split())
    assert "cannot be written: " in reported
    assert "name a file in a folder that can be written" in reported
    assert sorted(folder.iterdir()) == before
    assert (folder / "file").read_text() == "precious"


def test_a_proposal_is_written_whole_or_not_at_all(wane: Wane, database: Database, folder: Path) -> None:
    (folder / "wane.toml").write_text("precious")
    (folder / "wane.toml.partial").mkdir()
    assert wane("init", database.url, "--force").code == 2
    assert (folder / "wane.toml").read_text() == "precious"


@pytest.mark.parametrize("out", ["wane.toml", "other/wane.toml", "deep/er/wane.toml", "linked/wane.toml"])
def test_a_relative_path_is_right_from_where_the_contract_lies(
    wane: Wane, beside: SqliteDatabase, folder: Path, out: str
) -> None:
    (folder / "other").mkdir()
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "linked").symlink_to(folder / "deep" / "er")
    assert wane("init", "sqlite:///a%20b.db", "--out", out).code == 0
    text = (folder / out).read_text()
    url = tomllib.loads(text)["store"]["url"]
    contract = folder / out
    contract.write_text(f'[store]\nurl = "{url}"\n[excused]\nsettings = {{ singleton = "one row" }}\n')
    done = wane("check", "--cover", "-c", out)
    assert "there is no database" not in done.err
    assert "uncovered-table inbox" in done.out


@pytest.mark.parametrize("url", ["sqlite:////{folder}/a b.db", "HERE"])
def test_an_absolute_path_and_a_variable_are_written_as_they_are(
    wane: Wane, beside: SqliteDatabase, folder: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (folder / "other").mkdir()
    url = url.format(folder=str(folder).lstrip("/"))
    monkeypatch.setenv("HERE", f"sqlite:///{folder}/a b.db")
    assert wane("init", url, "--out", "other/wane.toml").code == 0
    assert tomllib.loads((folder / "other/wane.toml").read_text())["store"]["url"] == url


def test_a_password_in_the_url_is_not_written_down(wane: Wane, postgres_database: Database, folder: Path) -> None:
    fill(postgres_database)
    assert wane("init", postgres_database.url.replace("postgres@", "postgres:hunter2@", 1)).code == 0
    text = (folder / "wane.toml").read_text()
    assert "hunter2" not in text
    assert 'url = "DATABASE_URL"' in text
