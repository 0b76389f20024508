"""States: every state that a row has, or could have, is live, ruled or excused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from covering import codes, finding, findings, numbers
from servers import Database, PostgresDatabase, SqliteDatabase


def contract(live: str, when: str, excused: str = "") -> str:
    return f"""
[scheduler]
s = {{ every = "5m" }}
[table.events]
scheduler = "s"
why = "A test."
state = "status"
live = {live}
{excused}
time = {{ column = "at", unit = "ms" }}
[table.events.rule.old]
when = {when}
keep = "7d"
"""


NAMED = contract('["new"]', '["done"]', 'excused = { lost = { inline = "found again" } }')
ADD = "add it to `live`, to a rule's `when` or to `excused`"


def create(database: Database, kind: str, states: Sequence[object], index: str = "(status, at, id)") -> None:
    database.script(f"CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, status {kind}, at bigint)")
    database.script(f"CREATE INDEX events_at ON events {index}")
    rows = [(number, state, 1_700_000_000_000 + number) for number, state in enumerate(states)]
    database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)


def unlisted(severity: str, state: str) -> object:
    message = f"the state {state} is in no rule, not live and not excused, so its rows never leave"
    return finding(severity, "unlisted-state", "events", "table.events.live", message, ADD)


@pytest.mark.parametrize("index", ["(status, at, id)", "(at, id)"], ids=["indexed", "read"])
def test_an_unmentioned_text_state_is_reported(database: Database, index: str) -> None:
    create(database, "text", ["new", "done", "lost", "stuck", "stuck"], index)
    found = [one for one in findings(database, NAMED) if one.code != "no-index"]
    assert found == [unlisted("warning", "'stuck'")]
    strictly = [one for one in findings(database, NAMED, strict=True) if one.code != "no-index"]
    assert strictly == [unlisted("error", "'stuck'")]
    database.execute("DELETE FROM events WHERE status = 'stuck'")
    assert [one for one in findings(database, NAMED, strict=True) if one.code != "no-index"] == []


def absent(fix: str, state: str = "'don'") -> object:
    message = f"no row has the state {state} in status"
    return finding("warning", "absent-state", "events", "table.events.rule.old.when", message, fix)


@pytest.mark.parametrize("index", ["(status, at, id)", "(at, id)"], ids=["indexed", "read"])
def test_a_rules_state_that_no_row_has_is_reported(database: Database, index: str) -> None:
    create(database, "text", ["new", "done", "lost"], index)
    mistyped = NAMED.replace('["done"]', '["don"]')
    found = [one for one in findings(database, mistyped) if one.code != "no-index"]
    assert found == [absent("did you mean 'done'? rows have 'done', 'lost', 'new'"), unlisted("warning", "'done'")]
    database.execute("UPDATE events SET status = 'x' || id WHERE status = 'done'")
    [first, _] = [one for one in findings(database, mistyped) if one.code != "no-index"]
    assert first == absent("rows have 'x1', 'lost', 'new'")
    # Every state that rows have is named: those in this one may be gone.
    database.execute("DELETE FROM events WHERE status = 'x1'")
    assert [one for one in findings(database, mistyped) if one.code != "no-index"] == []
    database.execute("DELETE FROM events")
    assert [one for one in findings(database, mistyped) if one.code != "no-index"] == []


def test_a_number_that_no_row_has_is_reported(database: Database) -> None:
    create(database, "integer", [0, 2])
    [first, _] = findings(database, contract("[0]", "[1]"))
    assert first == absent("rows have 2, 0", "1")


def test_beside_a_rule_for_all_other_states_only_a_similar_name_is_a_mistake(database: Database) -> None:
    create(database, "text", ["new", "done", "lost"])
    text = (
        NAMED.replace('["done"]', '["gone"]')
        + """
[table.events.rule.rest]
when = "*"
keep = "9d"
"""
    )
    assert [one.fix for one in findings(database, text) if one.code == "absent-state"] == [
        "did you mean 'done'? rows have 'done', 'lost', 'new'"
    ]
    rare = text.replace('["gone"]', '["retried"]')
    assert [one for one in findings(database, rare) if one.code == "absent-state"] == []


def test_states_that_differ_in_case_or_space_are_different_states(database: Database) -> None:
    create(database, "text", ["new", "done", "Done", "done "])
    assert sorted(one.message for one in findings(database, NAMED)) == sorted(
        f"the state {state!r} is in no rule, not live and not excused, so its rows never leave"
        for state in ("Done", "done ")
    )


@pytest.mark.parametrize("index", ["(status, at, id)", "(at, id)"])
def test_sqlite_distinguishes_states_that_the_column_treats_as_one(sqlite_database: SqliteDatabase, index: str) -> None:
    create(sqlite_database, "text COLLATE NOCASE", ["new", "done", "DONE"], index)
    assert [one for one in findings(sqlite_database, NAMED) if one.code != "no-index"] == [
        unlisted("warning", "'DONE'")
    ]


def test_an_unmentioned_numeric_state_is_reported(database: Database) -> None:
    create(database, "integer", [0, 1, 2, 7])
    text = contract("[0]", "[1]", 'excused = { 2 = { inline = "soon" } }')
    assert findings(database, text) == [unlisted("warning", "7")]
    database.execute("DELETE FROM events WHERE status = 7")
    assert findings(database, text, strict=True) == []


def test_a_state_that_is_a_boolean_is_found_on_both_stores(database: Database) -> None:
    create(database, "boolean", [True, False, None])
    text = contract("[false]", "[true]")
    [one] = findings(database, text)
    assert one.message == "rows without a state (status is NULL) are never selected and never leave"
    database.execute("DELETE FROM events WHERE status IS NULL")
    assert findings(database, text, strict=True) == []


def test_rows_without_a_state_are_reported(database: Database) -> None:
    create(database, "text", ["new", "done", None])
    assert findings(database, NAMED) == [
        finding(
            "warning",
            "unlisted-state",
            "events",
            "table.events.live",
            "rows without a state (status is NULL) are never selected and never leave",
            "give them a state",
        )
    ]


def test_a_label_of_an_enum_is_reported_before_any_row_has_it(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE TYPE mood AS ENUM ('new', 'done', 'lost', 'stuck')")
    create(postgres_database, "mood", ["new", "done"])
    assert findings(postgres_database, NAMED) == [unlisted("warning", "'stuck'")]
    postgres_database.execute("INSERT INTO events VALUES (9, 'stuck', 1700000000009)")
    assert findings(postgres_database, NAMED) == [unlisted("warning", "'stuck'")]
    listed = NAMED.replace('["new"]', '["new", "stuck"]')
    assert findings(postgres_database, listed, strict=True) == []


def test_padding_is_not_a_part_of_a_state(postgres_database: PostgresDatabase) -> None:
    create(postgres_database, "character(10)", ["new", "done", "stuck"])
    assert findings(postgres_database, NAMED) == [unlisted("warning", "'stuck'")]


def test_too_many_different_values_are_no_states(database: Database) -> None:
    create(database, "text", ["new", *(f"state {number}" for number in range(101))])
    assert findings(database, NAMED) == [
        finding(
            "note",
            "states-unchecked",
            "events",
            "table.events.live",
            "the states in status were not checked: more than 100 different values",
        )
    ]


def test_states_that_take_too_long_to_read_are_stated_not_to_be_checked(database: Database) -> None:
    create(database, "text", [], "(at, id)")
    database.execute(f"INSERT INTO events SELECT n, 'new', n FROM {numbers(150_000)}")
    found = findings(database, NAMED, seconds=0)
    assert (
        finding(
            "note",
            "states-unchecked",
            "events",
            "table.events.live",
            "the states in status were not checked: too many rows to read",
        )
        in found
    )


# Types


def wrong_type(message: str) -> list[object]:
    return [finding("error", "wrong-state-type", "events", "table.events.state", message)]


@pytest.mark.parametrize(
    ("kind", "live", "when", "message"),
    [
        ("TEXT", "[1]", "[2]", "status is declared TEXT, and 1 is not a text"),
        ("INTEGER", '["new"]', '["done"]', "status is declared INTEGER, and 'new' is not a number"),
    ],
)
def test_sqlite_refuses_states_of_another_type(
    sqlite_database: SqliteDatabase, kind: str, live: str, when: str, message: str
) -> None:
    create(sqlite_database, kind, [])
    assert findings(sqlite_database, contract(live, when)) == wrong_type(message)


@pytest.mark.parametrize(
    ("kind", "live", "when", "message"),
    [
        ("text", "[1]", "[2]", "status is text, and 1 is not of that type"),
        ("integer", '["new"]', '["done"]', "status is integer, and 'new' is not of that type"),
        ("boolean", "[0]", "[1]", "status is boolean, and 0 is not of that type"),
        (
            "json",
            '["new"]',
            '["done"]',
            "status is json: only texts, whole numbers, booleans and enums are compared with values",
        ),
        (
            "uuid",
            '["new"]',
            '["done"]',
            "status is uuid: only texts, whole numbers, booleans and enums are compared with values",
        ),
    ],
)
def test_postgres_refuses_states_of_another_type(
    postgres_database: PostgresDatabase, kind: str, live: str, when: str, message: str
) -> None:
    postgres_database.script(f"CREATE TABLE events (id bigint PRIMARY KEY, status {kind}, at bigint)")
    assert findings(postgres_database, contract(live, when)) == wrong_type(message)


def test_a_state_that_is_no_label_is_refused(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE TYPE mood AS ENUM ('new', 'done')")
    create(postgres_database, "mood", [])
    text = contract('["new"]', '["finished"]')
    assert findings(postgres_database, text) == wrong_type("'finished' is not a label of public.mood: new, done")


def test_a_condition_of_a_follower_has_the_type_of_its_column(database: Database) -> None:
    create(database, "text", [])
    database.script(
        "CREATE TABLE jobs (id bigint NOT NULL PRIMARY KEY, event_id bigint, lane integer);"
        "CREATE INDEX jobs_event ON jobs (event_id)"
    )
    follow = 'with = [{{ table = "jobs", columns = ["event_id"], where = {{ lane = {} }} }}]'
    text = contract('["new"]', '["done"]')
    [one] = findings(database, text + follow.format('"a"'))
    assert (one.code, one.path) == ("wrong-value-type", "table.events.rule.old.with")
    assert codes(findings(database, text + follow.format("1"), strict=True)) == []


WHERE = """
[scheduler]
s = { every = "5m" }
[table.events]
scheduler = "s"
why = "A test."
state = "status"
live = ["new"]
time = { column = "at", unit = "ms" }
[table.events.rule]
early = { when = ["done"], where = { id = { "<" = 2 } }, keep = "7d" }
lost  = { when = ["lost"], keep = "7d" }
"""


def test_rows_that_no_where_selects_are_counted(database: Database) -> None:
    create(database, "text", ["done", "done", "done", "done", "new", "lost"])
    found = [one for one in findings(database, WHERE) if one.code == "unselected-rows"]
    message = "2 rows fulfil the `where` of no rule and never leave"
    fix = "add a rule for them, unless they are to stay"
    assert found == [finding("note", "unselected-rows", "events", "table.events", message, fix)]
    rest = 'rest = { when = ["done"], where = { id = { ">=" = 2 } }, keep = "9d" }\n'
    assert "unselected-rows" not in codes(findings(database, WHERE + rest))
