"""Excuses that promise a number of rows must be true."""

from __future__ import annotations

import pytest

from covering import EVENTS, HEALTHY, finding, findings, loaded, numbers
from servers import Database
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Severity
from wane._keeper import Keeper

SCHEDULED_NOTHING = "[sweep]\nduty = 0.5\n"


def excused(kind: str, reason: str, rows: str = "") -> str:
    return f"[excused]\ncache = {{ {kind} = '{reason}'{rows} }}"


def fill(database: Database, rows: int) -> None:
    database.script("CREATE TABLE cache (id bigint NOT NULL PRIMARY KEY)")
    if rows:
        database.execute(f"INSERT INTO cache SELECT n FROM {numbers(rows)}")


def false_excuse(kind: str, rows: str) -> list[object]:
    message = f"cache is excused as {kind} (a reason), which promises {rows}, but it has more"
    fix = "give the table rules, or fix what writes it"
    return [finding("error", "false-excuse", "cache", "excused.cache", message, fix)]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_singleton_has_one_row_at_most(database: Database, rows: int) -> None:
    fill(database, rows)
    assert findings(database, excused("singleton", "a reason"), strict=True) == []


def test_a_singleton_with_two_rows_is_none(database: Database) -> None:
    fill(database, 2)
    assert findings(database, excused("singleton", "a reason")) == false_excuse("singleton", "one row")


@pytest.mark.parametrize("kind", ["inline", "in_place", "constant", "mirror", "append_only", "elsewhere"])
def test_an_excuse_holds_up_to_the_rows_it_promises(database: Database, kind: str) -> None:
    fill(database, 1_200)
    text = excused(kind, "a reason", ", rows = 1_200")
    assert findings(database, text, strict=True) == []
    database.execute("INSERT INTO cache VALUES (9999)")
    assert findings(database, text) == false_excuse(kind, "at most 1,200 rows")
    assert findings(database, excused(kind, "a reason"), strict=True) == []


def test_an_excuse_that_takes_too_long_to_check_is_stated_not_to_be_checked(database: Database) -> None:
    fill(database, 300_000)
    assert findings(database, excused("constant", "a reason", ", rows = 299_000"), seconds=0) == [
        finding(
            "note",
            "excuse-unchecked",
            "cache",
            "excused.cache",
            "whether it has at most 299,000 rows, as its excuse promises, was not checked: reading them takes too long",
        )
    ]


PATTERNS = """
[excused]
"auth_*" = { elsewhere = 'the identity server cleans them' }
"auth_log_*" = { constant = 'one row a level', rows = 2 }
auth_key = { singleton = 'one row' }
"nothing_*" = { mirror = 'a copy' }
"""


def tables(database: Database, *names: str) -> None:
    for name in names:
        database.execute(f"CREATE TABLE {name} (id bigint NOT NULL PRIMARY KEY)")


def test_a_pattern_excuses_what_nothing_else_names_and_is_listed(database: Database) -> None:
    tables(database, "auth_user", "auth_group", "auth_log_level", "auth_key", "authors")
    database.execute(f"INSERT INTO auth_log_level SELECT n FROM {numbers(3)}")
    database.execute(f"INSERT INTO auth_user SELECT n FROM {numbers(3)}")
    contract = EVENTS + PATTERNS
    database.script(HEALTHY)

    def listed() -> dict[tuple[str, str], str]:
        return {(one.code, one.path or one.table): one.message for one in findings(database, contract)}

    assert listed() == {
        ("excused-by-pattern", 'excused."auth_*"'): "auth_* excuses 2 tables: auth_group, auth_user",
        ("excused-by-pattern", 'excused."auth_log_*"'): "auth_log_* excuses 1 table: auth_log_level",
        ("false-excuse", 'excused."auth_log_*"'): (
            "auth_log_level is excused as constant (one row a level), which promises at most 2 rows, but it has more"
        ),
        ("missing-table", 'excused."nothing_*"'): (
            "the database has no table that matches nothing_* and is not named elsewhere"
        ),
        ("uncovered-table", "authors"): "the contract does not name this table, so its rows never leave",
    }
    tables(database, "auth_later")
    later = listed()["excused-by-pattern", 'excused."auth_*"']
    assert later == "auth_* excuses 3 tables: auth_group, auth_later, auth_user", "one that matches later is listed"


def test_a_pattern_protects_its_tables_as_a_name_does(database: Database) -> None:
    """A cascade into a table that is excused as cleaned elsewhere is an error, whichever way it is excused."""
    database.script(HEALTHY)
    database.execute(
        "CREATE TABLE auth_event (id bigint PRIMARY KEY, event_id bigint REFERENCES events (id) ON DELETE CASCADE)"
    )
    found = {one.code: one.message for one in findings(database, EVENTS + PATTERNS)}
    assert found["excuse-broken"].startswith("auth_event is excused as elsewhere, but the foreign key ")
    ruled = EVENTS.replace('keep = "7d"', 'keep = "7d"\nwith = ["auth_event.event_id"]')
    by_name = findings(database, ruled + PATTERNS)
    assert "excuse-broken" not in {one.code for one in by_name}, (
        "a table that follows is named, so no pattern excuses it"
    )


def test_a_pattern_names_a_schema_as_a_table_does(postgres_database: Database) -> None:
    database = postgres_database
    database.script(HEALTHY + "CREATE SCHEMA audit; CREATE TABLE audit.log (id bigint PRIMARY KEY);")
    uncovered = [one.table for one in findings(database, EVENTS + PATTERNS) if one.code == "uncovered-table"]
    assert uncovered == ["audit.log"]
    assert "uncovered-table" not in {
        one.code for one in findings(database, EVENTS + "[excused]\n'audit.*' = { elsewhere = 'an auditor reads it' }")
    }


def test_pressure_shows_the_tables_that_a_pattern_excuses(database: Database) -> None:
    tables(database, "auth_user", "auth_key")
    database.script(HEALTHY)
    with open_store(resolve_url(database.url)) as store:
        shown = {one.table for one in Keeper(loaded(EVENTS + PATTERNS), store, actor="a").pressure()}
    assert shown == {"events", "auth_user", "auth_key"}


@pytest.mark.parametrize(
    ("table", "tool"),
    [
        ("alembic_version (version_num varchar(32) PRIMARY KEY)", "Alembic"),
        ("django_migrations (id bigint PRIMARY KEY, app text, name text, applied text)", "Django"),
        ("schema_migrations (version text PRIMARY KEY)", "Rails, Ecto, golang-migrate or dbmate"),
        ("ar_internal_metadata (key text PRIMARY KEY, value text)", "Rails"),
        ("goose_db_version (id integer PRIMARY KEY, version_id bigint, is_applied boolean, tstamp text)", "goose"),
        ("knex_migrations (id integer PRIMARY KEY, name text, batch integer, migration_time text)", "Knex"),
    ],
)
def test_the_record_of_a_migration_tool_is_recognised(sqlite_database: Database, table: str, tool: str) -> None:
    sqlite_database.execute(f"CREATE TABLE {table}")
    name = table.partition(" ")[0]
    [found] = findings(sqlite_database, SCHEDULED_NOTHING, strict=True)
    assert (found.code, found.severity, found.table) == ("bookkeeping-table", Severity.NOTE, name)
    assert found.message.startswith(f"recognised as {tool}'s record")


def test_a_mere_name_is_no_record_of_a_migration_tool(database: Database) -> None:
    tables(database, "alembic_version")
    assert [one.code for one in findings(database, SCHEDULED_NOTHING)] == ["uncovered-table"]
    database.script("ALTER TABLE alembic_version ADD COLUMN version_num text")
    assert [one.code for one in findings(database, SCHEDULED_NOTHING)] == ["bookkeeping-table"]
