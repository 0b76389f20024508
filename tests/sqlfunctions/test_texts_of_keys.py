"""A hold knows a row by the text of its key: `wane.prune()` writes the same text, whatever the session is set to."""

from __future__ import annotations

import pytest

from prune.keeping import KEEP_WEEK, ago, keeping, rule, table
from servers import PostgresDatabase
from wane._db.postgres.settings import TEXT_SETTINGS
from wane._sqlfunctions import install, pressure, take

KEYS = [
    ("bytea", "'\\x00ff01'", "\\x00ff01", "SET bytea_output = 'escape'"),
    ("interval", "'1 year 2 days'", "1 year 2 days", "SET intervalstyle = 'iso_8601'"),
    ("double precision", "0.1::float8 + 0.2", "0.30000000000000004", "SET extra_float_digits = -10"),
    (
        "timestamptz",
        "'2020-01-02 03:04:05+00'",
        "2020-01-02 03:04:05+00",
        "SET datestyle = 'German'; SET timezone = 'Asia/Tokyo'",
    ),
    (
        "tstzrange",
        "'[2020-01-02 00:00+00,)'",
        "[2020-01-02 00:00+00,)",
        "SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Tokyo'",
    ),
    ("regclass", "'pg_catalog.pg_class'", "pg_class", "SET quote_all_identifiers = on"),
    ("regclass", "'other.thing'", "other.thing", "SET search_path = other, public"),
]


@pytest.mark.parametrize(("kind", "value", "key", "setting"), KEYS, ids=[f"{one[0]}-{one[3]}" for one in KEYS])
def test_a_held_row_stays_whatever_the_session_is_set_to(
    postgres_database: PostgresDatabase, kind: str, value: str, key: str, setting: str
) -> None:
    database = postgres_database
    database.script(
        "CREATE SCHEMA other; CREATE TABLE other.thing ();"
        f"CREATE TABLE job (id {kind} PRIMARY KEY, at_ms bigint); CREATE INDEX ON job (at_ms, id);"
        f"INSERT INTO job VALUES ({value}, {ago(30)})"
    )
    with keeping(database, table("job", rule("old", KEEP_WEEK, when=()), state=None)) as opened:
        install(opened.keeper)
        opened.keeper.hold("job", {"id": key}, reason="court")
        connection = database.connect()
        connection.execute(setting.encode())
        [(done,)] = connection.execute("SELECT wane.prune('job', 'old', 10)").fetchall()
        assert done["rows"] == 0
        assert database.query("SELECT count(*) FROM job") == [(1,)]


def test_the_engine_and_what_it_installs_write_texts_alike() -> None:
    for settings in (take.SETTINGS, pressure.SETTINGS):
        written = dict(line.removeprefix("SET ").split(" = ") for line in settings.splitlines())
        assert {name: written[name].strip("'") for name in TEXT_SETTINGS} == TEXT_SETTINGS
        assert written["search_path"] == "pg_catalog, pg_temp"
