"""Pressure as SQL: inside PostgreSQL, and on a connection of SQLite, the view shows what the command shows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import wane.sqlite
from observe.unhealthy import CONTRACT, World, ago, contract, healthy
from prune.keeping import insert
from servers import PostgresDatabase, SqliteDatabase
from wane._sqlfunctions import install, uninstall
from wane.observe._pressure import Pressure

COLUMNS = (
    *("tbl", "rows", "oldest", "newest", "due", "share"),
    *("rows_exactness", "due_exactness", "share_exactness"),
)


def as_row(one: Pressure) -> tuple[Any, ...]:
    return tuple(one.as_dict()[name] for name in COLUMNS)


def fill(world: World) -> None:
    """Insert more than is counted, of every kind."""
    world.settle(counted_rows=20)
    insert(world.database, "job", "id, state, at_ms", *((n, "done", ago(n / 100)) for n in range(100, 900)))
    insert(world.database, "presence", "id, seen_ms, ends_ms", *((n, ago(n / 100), ago(5)) for n in range(100, 150)))
    if world.keeper.store.kind == "postgres":
        world.database.script("ANALYZE")


def test_the_view_of_postgresql_is_what_the_command_prints(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        fill(world)
        install(world.keeper)
        reported = postgres_database.query("SELECT * FROM wane.v_queue_retention_pressure")
        assert reported == [as_row(one) for one in world.keeper.pressure()]
        exactness = {row[0]: row[6:] for row in reported}
        assert exactness["job"] == ("estimate", "estimate", "estimate")
        assert {row[0]: row[4] for row in reported}["job"] > 100, "the planner's estimate, not the least that is known"
        assert exactness["presence"] == ("estimate", "estimate", "estimate")
        assert exactness["inbox"] == ("exact", "exact", "exact")
        assert exactness["reply"] == ("exact", None, None)
        names = postgres_database.query(
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'v_queue_retention_pressure'"
            " ORDER BY ordinal_position"
        )
        assert tuple(name for (name,) in names) == COLUMNS


def test_an_estimate_is_of_the_rows_not_of_a_subquery_beside_them(postgres_database: PostgresDatabase) -> None:
    """The planner lists subqueries of conditions first."""
    with healthy(postgres_database) as world:
        install(world.keeper)
        postgres_database.execute("CREATE TABLE measured AS SELECT n FROM generate_series(1, 1000) AS n")
        postgres_database.execute("ANALYZE measured")
        beside = "SELECT count(*) FROM public.measured WHERE (SELECT n FROM public.measured LIMIT 1) > 0 OR n > 0"
        assert postgres_database.query("SELECT wane.sql_estimate(?)", (beside,)) == [(1_000,)]


def test_the_view_does_not_prevent_changes_of_a_table(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        postgres_database.script("ALTER TABLE job ALTER COLUMN id TYPE bigint; DROP TABLE inbox")
        reported = {row[0]: row for row in postgres_database.query("SELECT * FROM wane.v_queue_retention_pressure")}
        assert reported["inbox"][1:] == (None,) * 8
        assert reported["job"][1] == 3


def test_functions_of_an_earlier_version_leave_with_the_view_that_depended_on_them(
    postgres_database: PostgresDatabase,
) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        [(stamp,)] = postgres_database.query("SELECT obj_description('wane.sql_pressure()'::regprocedure)")
        postgres_database.script(
            "CREATE FUNCTION wane.sql_watch(boolean) RETURNS SETOF record LANGUAGE sql AS 'SELECT * FROM wane.sql_pressure()';"
            f"COMMENT ON FUNCTION wane.sql_watch(boolean) IS '{stamp}';"
            "DROP VIEW wane.v_queue_retention_pressure; CREATE VIEW wane.v_queue_retention_pressure AS SELECT w.*, w.due::float8 / 1 AS share, 'exact' AS rows_exactness,"
            " 'exact' AS due_exactness FROM wane.sql_watch(false) AS w(tbl text, rows bigint, oldest timestamptz, newest timestamptz, due bigint)"
        )
        install(world.keeper)
        assert postgres_database.query("SELECT to_regprocedure('wane.sql_watch(boolean)')") == [(None,)]
        assert postgres_database.query("SELECT rows FROM wane.v_queue_retention_pressure WHERE tbl = 'job'") == [(3,)]


def test_the_view_is_replaced_with_its_rights_and_leaves_with_the_rest(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        postgres_database.script("GRANT SELECT ON wane.v_queue_retention_pressure TO PUBLIC")
        install(world.keeper)
        rights = "SELECT has_table_privilege('pg_monitor', 'wane.v_queue_retention_pressure', 'SELECT')"
        assert postgres_database.query(rights) == [(True,)]
        uninstall(world.keeper.store)
        assert postgres_database.query("SELECT to_regclass('wane.v_queue_retention_pressure')") == [(None,)]
        assert postgres_database.query("SELECT to_regprocedure('wane.fn_retention_health()')") == [(None,)]


def test_a_registered_connection_of_sqlite_reports_it_too(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    path = tmp_path / "wane.toml"
    path.write_text(CONTRACT.replace("[health]", "[health]\ncounted_rows = 20"))
    with healthy(sqlite_database) as world:
        fill(world)
        before = sqlite_database.query("SELECT count(*) FROM sqlite_master")
        with closing(sqlite3.connect(sqlite_database.path)) as connection:
            wane.sqlite.register(connection, contract=contract())
            wane.sqlite.register(connection, contract=path)
            cursor = connection.execute("SELECT * FROM v_queue_retention_pressure")
            assert tuple(name for name, *_ in cursor.description) == COLUMNS
            requested = json.loads(
                json.dumps([one.as_dict() for one in world.keeper.pressure()], default=datetime.isoformat)
            )
            assert cursor.fetchall() == [tuple(one.values()) for one in requested]
            [(health,)] = connection.execute("SELECT wane_health()").fetchall()
            assert [one["code"] for one in json.loads(health)["findings"]] == [one for one, _ in world.codes()]
            # It may stand in a statement that writes.
            connection.execute("CREATE TEMP TABLE seen AS SELECT tbl, rows FROM v_queue_retention_pressure")
            assert connection.execute("SELECT rows FROM seen WHERE tbl = 'cache'").fetchall() == [(1,)]
        assert sqlite_database.query("SELECT count(*) FROM sqlite_master") == before
