"""What the database refuses to show fails alone: it is reported, and everything else is still checked."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit, urlunsplit

import pytest

from covering import EVENTS, HEALTHY, RULE_PATH, codes, finding, findings, loaded, role
from servers import Database, PostgresDatabase
from wane._check.cover import cover
from wane._db import open_store
from wane._db.url import resolve_url
from wane._prune.build_plan import build_plan
from wane.errors import Unreachable

TWO = f"""{EVENTS}
[table.others]
scheduler = "s"
why = "A test."
time = {{ column = "at", unit = "ms" }}
[table.others.rule.old]
keep = "7d"
"""
OTHERS = HEALTHY + HEALTHY.replace("events", "others")
GRANT = (
    "let a superuser, or the owner of the tables and of schema wane, run `wane roles --apply`, and grant the contract's"
    " admin role to the role that runs Wane"
)


def test_a_table_that_may_not_be_read_does_not_fail_others(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(OTHERS)
    postgres_database.execute("INSERT INTO others VALUES (1, 5)")
    with role(postgres_database, "GRANT SELECT ON others TO ROLE") as url:
        message = "the database refused to answer: permission denied for table events"
        refused = finding("error", "unreadable-table", "events", RULE_PATH, message, GRANT)
        assert findings(postgres_database, TWO, url=url) == [
            refused,
            finding(
                "error",
                "wrong-encoding",
                "others",
                "table.others.rule.old",
                "at is declared ms, but none of 1 sampled values is a timestamp",
                "name the column that holds timestamps",
            ),
            finding(
                "note",
                "never-due",
                "others",
                "table.others.rule.old",
                "1 of its rows has no usable time in at (NULL, a placeholder or another encoding) and never leave",
            ),
        ]
        with open_store(resolve_url(url), read_only=True) as store:
            plan = build_plan(store, loaded(TWO))
        assert [(step.table, step.due.rows) for step in plan.steps if step.due] == [("others", 0)]
        assert [(one.code, one.path, one.message) for one in plan.problems] == [
            ("unreadable-table", RULE_PATH, "the database refused to answer: permission denied for table events")
        ]


def test_a_state_column_or_an_excused_table_that_may_not_be_read_is_reported(
    postgres_database: PostgresDatabase,
) -> None:
    postgres_database.script("CREATE TABLE cache (id integer PRIMARY KEY)")
    with role(postgres_database, "SELECT 1") as url:
        [one] = findings(postgres_database, "[excused]\ncache = { singleton = 'one' }", url=url)
    assert (one.code, one.path) == ("unreadable-table", "excused.cache")


def test_row_security_that_would_hide_rows_is_refused(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{HEALTHY} ALTER TABLE events ENABLE ROW LEVEL SECURITY; CREATE POLICY mine ON events USING (id < 5)"
    )
    postgres_database.executemany("INSERT INTO events VALUES (?, 1700000000000)", ((n,) for n in range(10)))
    with role(postgres_database, "GRANT SELECT ON events TO ROLE") as url:
        found = findings(postgres_database, EVENTS, url=url)
        assert codes(found) == ["row-security", "unreadable-table"]
        assert found[1].message.startswith(
            "the database refused to answer: query would be affected by row-level security policy"
        )
        with open_store(resolve_url(url), read_only=True) as store:
            plan = build_plan(store, loaded(EVENTS))
        assert (plan.steps, [one.code for one in plan.problems]) == ((), ["unreadable-table"])
    # The owner sees all of them.
    with open_store(resolve_url(postgres_database.url), read_only=True) as store:
        [step] = build_plan(store, loaded(EVENTS)).steps
    assert step.due is not None
    assert step.due.rows == 10


def test_a_role_that_may_only_read_can_plan_and_is_reported_why_there_is_no_query_plan(
    postgres_database: PostgresDatabase,
) -> None:
    postgres_database.script(HEALTHY)
    with (
        role(postgres_database, "GRANT SELECT ON events TO ROLE") as url,
        open_store(resolve_url(url), read_only=True) as store,
    ):
        [step] = build_plan(store, loaded(EVENTS), explain=True).steps
    assert step.statements[-1].query_plan == "the statement cannot be explained: permission denied for table events"


def test_a_locked_table_is_not_waited_for(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(OTHERS)
    postgres_database.execute("INSERT INTO others VALUES (1, 1700000000000)")
    blocker = postgres_database.connect()
    with blocker.transaction():
        blocker.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        with open_store(resolve_url(postgres_database.url), read_only=True) as store:
            store._connection.execute("SET lock_timeout = '300ms'")  # type: ignore[attr-defined]
            plan = build_plan(store, loaded(TWO), seconds=0.3)
        [events, others] = plan.steps
        assert (events.due, events.oldest, events.table_rows, events.share, events.takes) == (None,) * 5
        assert others.due is not None
        assert others.due.rows == 1
        # No report may call a table healthy that could not be read.
        assert "times-unchecked" in codes(findings(postgres_database, TWO, seconds=0.3))


def test_a_server_that_goes_away_stops_the_check_and_is_no_refusal(
    postgres_database: PostgresDatabase,
) -> None:
    postgres_database.script(HEALTHY)
    parts = urlsplit(postgres_database.url)
    name = parts.path.removeprefix("/")
    with (
        open_store(resolve_url(postgres_database.url), read_only=True) as store,
        closing(PostgresDatabase(urlunsplit(parts._replace(path="/postgres")))) as admin,
    ):
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.query("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = ?", (name,))
        for read in (build_plan, cover):
            with pytest.raises(Unreachable):
                read(store, loaded(EVENTS))


def test_the_check_changes_nothing(database: Database) -> None:
    """Every write is refused by the database itself."""
    database.script(HEALTHY)
    with (
        open_store(resolve_url(database.url), read_only=True) as store,
        pytest.raises(Exception, match=r"(?i)read-?only"),
    ):
        store.migrate()
    assert findings(database, EVENTS, strict=True) == []
