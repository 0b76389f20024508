"""`wane space` and `wane roles`: what they print, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, fill, write_contract
from servers import Database, PostgresDatabase, SqliteDatabase


def test_every_table_fits_into_eighty_columns(wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wane("migrate").code == 0
    assert wane("growth", "snapshot").code == 0
    assert wane("prune", "inbox.failed", "--limit", "10").code == 0
    monkeypatch.setenv("COLUMNS", "80")
    done = wane("space")
    assert done.code == 0
    lines = done.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines] == ["table", "inbox", "note", "settings"]
    assert "the database takes" in done.err
    found = {one["table"]: one for one in wane("space", "--json").json["tables"]}
    assert found["inbox"]["pruned_rows"] == 4
    assert found["note"]["pruned_rows"] == 2
    assert [one["table"] for one in wane("space", "note", "--since", "1h", "--json").json["tables"]] == ["note"]


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--budget", "10s"], "only --vacuum has a budget"),
        (["--vacuum", "inbox"], "leave TABLE and --since out"),
        (["--vacuum", "--budget", "soon"], "neither a duration"),
        (["--vacuum", "--budget", "0 pages"], "at least 1"),
        (["--vacuum", "--budget", "-5 pages"], "neither a duration"),
        (["--vacuum", "--budget", ""], "neither a duration"),
        (["--since", "whenever"], "neither an ISO"),
    ],
)
def test_wrong_usage_exits_two(wane: Wane, filled: Database, words: list[str], reported: str) -> None:
    assert wane("migrate").code == 0
    done = wane("space", *words)
    assert (done.code, done.out) == (2, "")
    assert reported in " ".join(done.err.replace("│", " ").split())


def test_giving_back_pages(wane: Wane, sqlite_database: SqliteDatabase, folder: Path) -> None:
    sqlite_database.script("PRAGMA journal_mode = delete; PRAGMA auto_vacuum = incremental; VACUUM")
    fill(sqlite_database)
    write_contract(folder, sqlite_database.url)
    assert wane("migrate").code == 0
    sqlite_database.script("CREATE TABLE big (b); INSERT INTO big VALUES (zeroblob(400000)); DROP TABLE big")
    done = wane("space", "--vacuum", "--budget", "5s, 20 pages", "--json").json
    assert (done["pages"], done["ended"]) == (20, "pages")
    done = wane("space", "--vacuum")
    assert done.code == 0
    assert done.err.startswith("gave back ")
    assert "left" not in done.err


def test_postgresql_is_not_vacuumed(wane: Wane, postgres_database: PostgresDatabase, folder: Path) -> None:
    fill(postgres_database)
    write_contract(folder, postgres_database.url)
    done = wane("space", "--vacuum")
    assert (done.code, done.out) == (1, "")
    assert "which Wane does not run" in done.err


def test_roles_are_printed_and_applied(wane: Wane, postgres_database: PostgresDatabase, folder: Path) -> None:
    fill(postgres_database)
    names = f"cli_{postgres_database.url.partition('wane_test_')[2][:12]}"
    roles = f'\n[roles]\nadmin = "{names}_admin"\nreader = "{names}_reader"\n'
    write_contract(folder, postgres_database.url, CONTRACT + roles)
    assert wane("migrate").code == 0
    for words in ([], ["--print", "--apply"]):
        assert wane("roles", *words).code == 2
    printed = wane("roles", "--print")
    assert printed.code == 0
    assert f'CREATE ROLE "{names}_admin" NOLOGIN;' in printed.out
    assert "enabled = true" in printed.err
    try:
        assert wane("roles", "--apply").code == 0
        repeated = wane("roles", "--print")
        assert (repeated.out, "every role has what it needs" in repeated.err) == ("", True)
        reported = wane("roles", "--print", "--json").json
        assert reported["statements"]
        assert all(one["done"] for one in reported["statements"])
        assert wane("roles", "--apply", "--json").json == {
            "applied": True,
            "enabled": False,
            "statements": [],
            "notes": [],
        }
    finally:
        for role in ("admin", "reader"):
            postgres_database.script(f'DROP OWNED BY "{names}_{role}"; DROP ROLE "{names}_{role}"')


def test_roles_on_sqlite_are_explained(wane: Wane, sqlite_database: SqliteDatabase, folder: Path) -> None:
    fill(sqlite_database)
    write_contract(folder, sqlite_database.url, CONTRACT + "\n[roles]\nenabled = true\n")
    assert wane("migrate").code == 0
    done = wane("roles", "--print")
    assert (done.code, done.out) == (1, "")
    assert "SQLite has no roles" in done.err
    assert "chmod" in done.err
    done = wane("sweep")
    assert (done.code, done.out) == (1, "")
    assert "sweeping needs the role workflow_admin" in done.err
