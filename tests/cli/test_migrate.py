"""`wane migrate`: Wane's own tables, printed or created."""

from __future__ import annotations

from cli.conftest import Wane
from servers import Database


def own_tables(database: Database) -> list[str]:
    if database.store == "sqlite":
        found = database.query("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'wane%'")
    else:
        found = database.query("SELECT tablename FROM pg_tables WHERE schemaname LIKE 'wane%'")
    return [name for (name,) in found]


def test_printing_shows_the_sql_and_runs_nothing(wane: Wane, filled: Database) -> None:
    done = wane("migrate", "--print")
    assert (done.code, done.err) == (0, "")
    assert "CREATE TABLE" in done.out
    assert own_tables(filled) == []


def test_migrating_twice_changes_nothing_more(wane: Wane, filled: Database) -> None:
    first, second = wane("migrate"), wane("migrate")
    assert (first.code, second.code) == (0, 0)
    assert ": applied 0001_" in first.err
    assert second.err.endswith(": up to date\n")
    assert own_tables(filled)
    assert wane("migrate", "--print").out == ""


def test_what_was_applied_is_data(wane: Wane, filled: Database) -> None:
    pending = [one["name"] for one in wane("migrate", "--print", "--json").json["pending"]]
    done = wane("migrate", "--json")
    assert (done.code, done.err) == (0, "")
    assert pending
    assert done.json == {"applied": pending}
    assert wane("migrate", "--json").json == {"applied": []}


def test_a_url_is_enough(wane: Wane, database: Database) -> None:
    assert wane("migrate", "--url", database.url).code == 0
    assert own_tables(database)


def test_own_tables_need_no_mention_in_a_contract(wane: Wane, filled: Database) -> None:
    wane("migrate")
    assert wane("check", "--cover", "--strict").code == 0


def test_tables_of_an_older_version_are_reported_from_none(wane: Wane, filled: Database) -> None:
    assert "does not have Wane's own tables yet" in wane("enable").err
    wane("migrate")
    name = "wane_migration" if filled.store == "sqlite" else "wane.migration"
    filled.execute(f"DELETE FROM {name} WHERE name = (SELECT max(name) FROM {name})")
    done = wane("enable")
    assert done.code == 1
    assert "has an older version of Wane's own tables" in done.err
    assert "wane migrate" in done.err
