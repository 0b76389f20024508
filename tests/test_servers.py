"""The ground the other tests stand on: databases are real, empty and separate, and no server stays behind."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Clusters
from servers import (
    Cluster,
    Database,
    Installation,
    PostgresDatabase,
    PostgresServer,
    Run,
    SqliteDatabase,
    packaged_installation,
    pooler_program,
    system_installation,
    with_percent_s,
)


def table_names(database: Database) -> list[str]:
    catalogue = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
        "postgres": "SELECT relname FROM pg_class WHERE relnamespace >= 16384 OR relnamespace = 'public'::regnamespace",
    }
    return [name for (name,) in database.query(catalogue[database.store])]


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_test_starts_with_an_empty_database(database: Database, attempt: int) -> None:
    assert table_names(database) == []
    database.script("CREATE TABLE a (id integer PRIMARY KEY); CREATE TABLE b (id integer REFERENCES a (id));")
    assert sorted(set(table_names(database)) & {"a", "b"}) == ["a", "b"]


def test_statements_share_one_parameter_style_and_commit_by_themselves(database: Database) -> None:
    database.execute("CREATE TABLE t (id integer, body text)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"row {n}") for n in range(1000)])
    assert database.execute("UPDATE t SET body = '100% sure?' WHERE id < ?", (3,)) == 3
    assert database.query("SELECT count(*) FROM t WHERE body LIKE '100% sure?' AND id >= ?", (1,)) == [(2,)]
    other = database.connect()
    assert other.execute("SELECT count(*) FROM t").fetchone() == (1000,)


def test_a_failing_batch_of_rows_leaves_nothing(database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        database.executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (1,)])
    assert database.query("SELECT id FROM t") == []


def test_foreign_keys_hold_on_every_store(database: Database) -> None:
    database.script("CREATE TABLE a (id integer PRIMARY KEY); CREATE TABLE b (id integer REFERENCES a (id));")
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.ForeignKeyViolation)):
        database.execute("INSERT INTO b VALUES (?)", (1,))


def test_reset_removes_tables_views_triggers_and_references(database: Database) -> None:
    database.script("""
        CREATE TABLE "a""b" (id integer PRIMARY KEY);
        CREATE TABLE child (id integer REFERENCES "a""b" (id));
        CREATE VIEW seen AS SELECT id FROM child;
        INSERT INTO "a""b" VALUES (1);
        INSERT INTO child VALUES (1);
    """)
    database.reset()
    assert table_names(database) == []
    database.execute("CREATE TABLE child (id integer)")
    assert database.query("SELECT count(*) FROM child") == [(0,)]


def test_reset_removes_schemas(postgres_database: PostgresDatabase) -> None:
    postgres_database.script('CREATE SCHEMA "Other one"; CREATE TABLE "Other one".t (id integer);')
    postgres_database.reset()
    schemas = postgres_database.query("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")
    assert sorted(schemas) == [("information_schema",), ("public",)]


@given(ids=st.sets(st.integers(0, 1000), max_size=5))
def test_property_tests_share_a_database_through_reset(database: Database, ids: set[int]) -> None:
    database.reset()
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    database.executemany("INSERT INTO t VALUES (?)", [(n,) for n in ids])
    assert {n for (n,) in database.query("SELECT id FROM t")} == ids


def test_sqlite_writes_ahead(sqlite_database: SqliteDatabase) -> None:
    assert sqlite_database.query("PRAGMA journal_mode") == [("wal",)]
    assert sqlite_database.url == f"sqlite:///{sqlite_database.path}"


def test_a_used_database_is_dropped_together_with_forgotten_connections(postgres_database: PostgresDatabase) -> None:
    cluster = Cluster(postgres_database.url)
    with cluster.database() as first:
        name = first.query("SELECT current_database()")
        forgotten = psycopg.connect(first.url)
    cluster.close()
    with pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")
    forgotten.close()
    assert postgres_database.query("SELECT datname FROM pg_database WHERE datname = ?", name[0]) == []


SYSTEM = system_installation()

# Defined, not skipped: before 15 a server has only the locales of its machine, which may be none.
if SYSTEM is not None and SYSTEM.major >= 15:

    def test_the_system_server_orders_text_by_a_locale(clusters: Any) -> None:
        with clusters["postgres-system"].database() as database:
            words = database.query("SELECT word FROM (VALUES ('b'), ('B'), ('a'), ('A')) AS words (word) ORDER BY word")
            assert words == [("a",), ("A",), ("b",), ("B",)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = ? AND b = ?", "a = %s AND b = %s"),
        ("a LIKE '50%?' AND b = ?", "a LIKE '50%%?' AND b = %s"),
        ("'it''s ?' || ?", "'it''s ?' || %s"),
        ('"odd?""name" = ?', '"odd?""name" = %s'),
        ("$$ ? $$ || $x$ ? $$ $x$ || ?", "$$ ? $$ || $x$ ? $$ $x$ || %s"),
        ("? -- why?\n + ? /* ? */", "%s -- why?\n + %s /* ? */"),
        ("a % ?", "a %% %s"),
    ],
)
def test_placeholders_are_translated_outside_of_text_and_comments(sql: str, expected: str) -> None:
    assert with_percent_s(sql) == expected


# --- Servers --------------------------------------------------------------------------------------------------------


INSTALLATIONS = [found for found in (packaged_installation(), system_installation()) if found]
SMALL = {"shared_buffers": "16MB"}


@pytest.fixture(params=INSTALLATIONS, ids=lambda installation: f"postgres-{installation.major}")
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    installation: Installation = request.param
    run = Run.create()  # for a directory that the server's user can reach
    with PostgresServer(installation, run.directory / "server", durable=True, settings=SMALL) as started:
        yield started
    run.close()


def test_a_server_has_the_settings_that_it_was_given(server: PostgresServer) -> None:
    """Its guard is another process, so what this one changes in the defaults does not reach it."""
    with psycopg.connect(server.url) as connection:
        shown = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in ("shared_buffers", "fsync")]
    assert shown == [("16MB",), ("on",)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie is not running; it waits for the process that collects orphans on this machine
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still running: {[pid for pid in pids if is_running(pid)]}"
        time.sleep(0.02)


def test_a_durable_server_keeps_what_was_committed_through_a_crash(server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("CREATE TABLE t AS SELECT 1 AS id")
        pid = server.pid
        server.crash()
    assert not is_running(pid)
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]


def test_a_stopped_server_leaves_no_process_and_no_file(server: PostgresServer) -> None:
    pid = server.pid
    assert is_running(pid)
    server.__exit__(None, None, None)
    assert not is_running(pid)
    assert not server.directory.exists()


@pytest.mark.skipif(pooler_program() is None, reason="this machine has no PgBouncer")
def test_what_one_of_several_clients_leaves_in_a_session_of_the_pooler_is_found(clusters: Clusters) -> None:
    pooler = clusters.pooler()
    with clusters["postgres"].database() as database:
        assert pooler.left_behind(database.url) == []
        with psycopg.connect(pooler.url(database.url)) as one, psycopg.connect(pooler.url(database.url)) as two:
            one.execute("SELECT 1")
            two.execute("SET work_mem = '123kB'")
        assert pooler.left_behind(database.url) == [("setting", "work_mem", "123")]


RUN_IN_ANOTHER_PROCESS = """
    import sys, time
    from servers import Run, packaged_installation
    run = Run.create()
    run.server_url("server", packaged_installation(), locale=False)
    print(run.directory, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["tests", "guard"])
def test_a_server_ends_when_its_run_or_its_guard_is_killed(victim: str) -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN_IN_ANOTHER_PROCESS)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert tests.stdout is not None
        directory = Path(tests.stdout.readline().strip())
        tests.stdout.close()
        server = int((directory / "server" / "data" / "postmaster.pid").read_text().split()[0])
        guard = int(Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(tests.pid if victim == "tests" else guard, signal.SIGKILL)
        wait_until_gone(server)
    finally:
        tests.kill()
        tests.wait()
    wait_until_gone(guard)
    shutil.rmtree(directory, ignore_errors=True)
