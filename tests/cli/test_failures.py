"""Everything that can be wrong with a database: one sentence, a hint, exit code 1, and never a secret."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from servers import Database
from wane._cli import commands
from wane._cli.confirm import NOTHING_DONE
from wane._db.counting import Count
from wane._prune.plan import Plan

SECRET = "hunter2"
COMMANDS = [("check", "--cover"), ("plan",), ("plan", "--json"), ("migrate",), ("migrate", "--print")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_database_that_does_not_exist_is_never_created(wane: Wane, folder: Path, words: tuple[str, ...]) -> None:
    write_contract(folder, "sqlite:///nowhere.db")
    done = wane(*words)
    assert (done.code, done.out) == (1, "")
    assert "error: there is no database at " in done.err
    assert "hint: " in done.err
    assert not (folder / "nowhere.db").exists()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_file_that_is_no_database_is_refused(wane: Wane, folder: Path, words: tuple[str, ...]) -> None:
    (folder / "letter.db").write_text("Dear Sir or Madam, " * 100)
    write_contract(folder, "sqlite:///letter.db")
    done = wane(*words)
    assert (done.code, done.out) == (1, "")
    assert "not a SQLite database" in done.err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_url_the_hint_names_the_section(wane: Wane, folder: Path, words: tuple[str, ...]) -> None:
    (folder / "wane.toml").write_text(CONTRACT.format(url="x").partition("\n\n")[2])
    done = wane(*words)
    assert (done.code, done.out) == (1, "")
    assert "error: no database is named" in done.err
    assert "under [store] in the contract" in done.err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_unset_variable_is_named(wane: Wane, folder: Path, words: tuple[str, ...]) -> None:
    write_contract(folder, "DATABASE_URL")
    done = wane(*words)
    assert done.code == 1
    assert "error: the environment variable DATABASE_URL is not set" in done.err


WORDS: dict[str, tuple[str, ...]] = {
    "init": ("${WANE_TEST_UNSET}", "--out", "-"),
    "check": ("--cover",),
    "apply": ("plan.json",),
    "prune": ("inbox.failed",),
    "why": ("inbox", "1"),
    "token create": ("ada", "--role", "viewer"),
    "token revoke": ("1",),
    "hold add": ("inbox", "--reason", "x"),
    "hold release": ("1",),
    "archive query": ("inbox",),
    "archive restore": ("inbox", "--key", "id=1"),
    "archive cancel-restore": ("1",),
    "partition plan": ("inbox",),
    "partition convert": ("inbox",),
    "partition retire": ("inbox",),
    "partition undo": ("inbox",),
    "queue show": ("1",),
    "queue enqueue": ("mail",),
    "queue dead show": ("1",),
    "queue dead resolve": ("1",),
    "queue dead requeue": ("1",),
    "roles": ("--print",),
    "claims show": ("task",),
    "claims vacuum": ("--completed-age-hours", "1", "--abandoned-age-hours", "1"),
    "coordination work-vacuum": ("--completed-age-hours", "1", "--abandoned-age-hours", "1"),
}
"""What a command must be given."""
WITHOUT_DATABASE = {"schema", "explain", "demo", "alerts"}


@pytest.mark.parametrize("name", [" ".join(path) for path, _ in commands() if " ".join(path) not in WITHOUT_DATABASE])
@pytest.mark.parametrize("url", ["${WANE_TEST_UNSET}", "sqlite:///${WANE_TEST_UNSET}/state.db"], ids=["all", "part"])
def test_every_command_that_needs_the_database_names_an_unset_variable(
    wane: Wane, folder: Path, name: str, url: str
) -> None:
    write_contract(folder, url)
    Plan(datetime(2026, 1, 1, tzinfo=UTC), fingerprint="", database="", url="", steps=(), total=Count(0)).write(
        folder / "plan.json"
    )
    before = sorted(folder.iterdir())
    done = wane(*name.split(), *WORDS.get(name, ()))
    assert (done.code, done.out) == (1, "")
    reported = "error: the environment variable WANE_TEST_UNSET, which the database URL uses, is not set"
    assert reported in done.err
    assert "hint: " in done.err
    assert sorted(folder.iterdir()) == before


def test_without_a_database_an_unset_variable_is_a_warning(wane: Wane, folder: Path) -> None:
    write_contract(folder, "${WANE_TEST_UNSET}")
    done = wane("check")
    assert done.code == 0
    assert "WANE_TEST_UNSET is not set" in done.out


UNREACHABLE = [
    f"postgresql://me:{SECRET}@127.0.0.1:1/state",
    f"postgresql://me:{SECRET}@/state?host=/nowhere",
    f"postgresql://me@/state?host=/nowhere&password={SECRET}",
    f"postgresql://me:%2{SECRET}@127.0.0.1:1/state",
    f"postgresql://me:{SECRET}@127.0.0.1:port/state",
    f"postgresql://me:{SECRET}@[::1/state",
    f"postgresql://me:pass@{SECRET}@127.0.0.1:1/state",
    f"postgresql://me:pass/{SECRET}@127.0.0.1:1/state",
    f"mysql://me:{SECRET}@127.0.0.1:1/state",
]


@pytest.mark.parametrize("url", UNREACHABLE)
@pytest.mark.parametrize("words", [*COMMANDS, ("init", "DATABASE_URL", "-o", "-")], ids=" ".join)
def test_a_server_that_does_not_answer_is_reported_without_the_password(
    wane: Wane, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    write_contract(folder, "DATABASE_URL")
    done = wane(*words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert "hint: " in done.err
    assert SECRET not in done.err


def test_a_password_never_appears_where_everything_works(
    wane: Wane, postgres_database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test server trusts everybody, so any password is right.
    monkeypatch.setenv("PASSWORD", SECRET)
    postgres_database.execute("CREATE TABLE settings (id integer PRIMARY KEY)")
    url = postgres_database.url.replace("postgres@", "postgres:${PASSWORD}@", 1)
    (folder / "wane.toml").write_text(
        f'[store]\nurl = "{url}"\n[excused]\nsettings = {{ singleton = "one row, id = 1" }}\n'
    )
    for words in (
        *[(*words, "--json") for words in COMMANDS],
        *COMMANDS,
        ("plan", "-v", "--out", "plan.json"),
        ("check", "--show"),
        ("init", url, "-o", "-"),
    ):
        done = wane(*words)
        assert done.code == (NOTHING_DONE if words[0] == "plan" else 0), done.err
        assert SECRET not in done.out + done.err
    assert SECRET not in (folder / "plan.json").read_text()


def test_a_password_in_the_contract_is_reported_and_not_repeated(wane: Wane, folder: Path) -> None:
    write_contract(folder, f"postgresql://me:{SECRET}@localhost/state")
    done = wane("check")
    assert done.code == 0
    assert "warning password-in-file" in done.out
    assert SECRET not in done.out + done.err


# --- What was probably meant
# --------------------------------------------------------------------------------------------


def test_the_path_of_a_database_suggests_its_url(wane: Wane, folder: Path) -> None:
    done = wane("init", "shop.db")
    assert (done.code, done.out) == (1, "")
    assert "hint: did you mean 'sqlite:///shop.db'?" in done.err


def test_a_similar_file_is_suggested(wane: Wane, folder: Path) -> None:
    (folder / "shop.db").touch()
    assert "hint: did you mean 'shop.db'?; Wane never creates" in wane("init", "sqlite:///shpo.db").err
    absolute = str(folder / "shop.db")
    assert f"an absolute path has four slashes: sqlite:///{absolute}" in wane("init", f"sqlite://{absolute}").err
    assert "hint: check the path; Wane never creates" in wane("init", "sqlite:///zzz/other.sqlite").err


COMMANDS_WITH_A_TABLE = ["plan", "sweep", "enable", "disable", "growth show", "space", "hold add --reason r"]


@pytest.mark.parametrize("command", COMMANDS_WITH_A_TABLE)
def test_a_similar_table_is_suggested(wane: Wane, filled: Database, command: str) -> None:
    wane("migrate")
    done = wane(*command.split(), "inbx")
    assert (done.code, done.out) == (1, "")
    assert "hint: did you mean 'inbox'?" in done.err


def test_the_tables_are_listed_where_none_is_similar(wane: Wane, filled: Database) -> None:
    assert "hint: its tables: inbox\n" in wane("plan", "zzzzz").err
