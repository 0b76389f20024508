"""What the archive could not keep is found before anything is archived."""

from __future__ import annotations

from covering import EVENTS, codes, findings
from servers import Database
from wane._findings import Severity

ARCHIVED = f"""{EVENTS}then = "archive"
[archive]
url = "./archive"
[archive.events]
keep = "forever"
"""


def create(database: Database, columns: str) -> None:
    database.script(
        f"CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, at bigint, {columns});"
        " CREATE INDEX events_at ON events (at, id);"
    )


def test_a_table_that_the_archive_can_keep_has_no_findings(database: Database) -> None:
    create(database, "body text, price numeric(10, 2)")
    assert findings(database, ARCHIVED) == []


def test_a_name_that_the_archive_has_already(database: Database) -> None:
    create(database, '"a,b" text, body text')
    assert findings(database, ARCHIVED) == []
    assert codes(findings(database, f'{ARCHIVED}renamed = {{ body = "a,b" }}\n')) == ["unarchivable-name"] * 2
    assert codes(findings(database, f'{ARCHIVED}renamed = {{ text = "a,b" }}\n')) == ["missing-column"]


def test_a_type_that_would_lose_something_is_named_with_its_fix(database: Database) -> None:
    create(database, "price" if database.store == "sqlite" else "price money")
    [one] = findings(database, ARCHIVED)
    assert one.code == "unarchivable-type"
    assert "events.price" in one.message
    assert 'cast = { price = "text" }' in one.fix
    assert findings(database, f'{ARCHIVED}cast = {{ price = "text" }}\n') == []
    [one] = findings(database, f'{ARCHIVED}cast = {{ price = "text", cost = "text" }}\n')
    assert one.code == "missing-column"


def test_a_projection_that_no_spark_checks_is_noted(database: Database) -> None:
    create(database, "body text")
    projected = f'{ARCHIVED}transform = {{ select = ["id", "at", "upper(body) AS body"] }}\n'
    [one] = findings(database, f'{projected}[spark]\nremote = "sc://127.0.0.1:1"\n')
    assert (one.code, one.severity) == ("unchecked-projection", Severity.NOTE)
    assert "Spark does not start: no Spark answers at sc://127.0.0.1:1" in one.message


def test_rows_that_would_be_archived_twice(database: Database) -> None:
    create(database, "body text")
    database.script(
        "CREATE TABLE reads (id bigint NOT NULL PRIMARY KEY, first bigint, second bigint);"
        " CREATE INDEX reads_first ON reads (first); CREATE INDEX reads_second ON reads (second);"
    )
    twice = ARCHIVED.replace('then = "archive"', 'then = "archive"\nwith = ["reads.first", "reads.second"]')
    assert "archived-twice" in codes(findings(database, twice))


def test_sqlite_has_no_schema_for_archived_rows(sqlite_database: Database) -> None:
    create(sqlite_database, "body text")
    tier = ARCHIVED.replace('url = "./archive"\n', "").replace(
        'keep = "forever"', 'keep = "forever"\ntier = "database"'
    )
    assert codes(findings(sqlite_database, tier)) == ["refused-tier"]
