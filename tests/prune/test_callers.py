"""A caller's connection: its transaction is used, nothing is committed for it, and everything about it comes back as it
was."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

from prune.keeping import Keeping, ago, follower, insert, jobs, keeping, notes, rule, table
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Table
from wane.errors import StoreError

FOLLOWED = table("job", rule(followers=[follower("note.job_id")]))
# Under a guard or with followers, rows are looked up by key; without them by range.
SHAPES = pytest.mark.parametrize("declared", [table(), FOLLOWED], ids=["range", "keys"])


@contextmanager
def ready(database: Database, declared: Table = FOLLOWED) -> Iterator[Keeping]:
    """Yield three due rows with a note each, and a fourth that is live."""
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(3)], (9, "queued", ago(30)))
    notes(database, *[(n, n, "x") for n in range(3)])
    with keeping(database, declared) as opened:
        yield opened


def untouched(opened: Keeping) -> None:
    assert (opened.ids(), opened.ids("note"), opened.trail()) == ([0, 1, 2, 9], [0, 1, 2], [])


def gone(opened: Keeping, declared: Table) -> None:
    assert (opened.ids(), opened.ids("note")) == ([9], [] if declared is FOLLOWED else [0, 1, 2])
    assert len(opened.trail()) == 1


def engine_url(database: Database) -> str:
    return database.url.replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def engine(database: Database, **options: Any) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(engine_url(database), poolclass=sqlalchemy.NullPool, **options)
    try:
        yield made
    finally:
        made.dispose()


# --- sqlite3 --------------------------------------------------------------------------------------------------------


@contextmanager
def sqlite(database: SqliteDatabase, isolation_level: Any) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database.path, isolation_level=isolation_level)) as connection:
        yield connection


@SHAPES
@pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_a_connection_that_opens_transactions_by_itself_commits_by_itself(
    sqlite_database: SqliteDatabase, declared: Table, level: str
) -> None:
    with ready(sqlite_database, declared) as opened, sqlite(sqlite_database, level) as connection:
        opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        assert connection.in_transaction
        connection.rollback()
        untouched(opened)
        opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        connection.commit()
        assert connection.isolation_level == level
        gone(opened, declared)


@SHAPES
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT mine"])
@pytest.mark.parametrize("level", [None, "", "IMMEDIATE"])
def test_inside_a_transaction_rows_and_audit_row_come_back_together(
    sqlite_database: SqliteDatabase, declared: Table, begin: str, level: str | None
) -> None:
    with ready(sqlite_database, declared) as opened, sqlite(sqlite_database, level) as connection:
        connection.execute(begin)
        connection.execute("INSERT INTO job (id, state, at_ms) VALUES (100, 'done', ?)", (ago(50),))
        pruned = opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        assert pruned.counts["job"] == 4, "its own rows are seen"
        assert connection.in_transaction
        connection.rollback()
        untouched(opened)


@SHAPES
def test_without_a_transaction_an_autocommitting_connection_gets_its_own(
    sqlite_database: SqliteDatabase, declared: Table
) -> None:
    with ready(sqlite_database, declared) as opened, sqlite(sqlite_database, None) as connection:
        opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        assert not connection.in_transaction
        gone(opened, declared)


def break_the_trail(database: Database) -> None:
    if database.store == "sqlite":
        database.execute("CREATE TRIGGER full BEFORE INSERT ON wane_audit BEGIN SELECT RAISE(ABORT, 'no room'); END")
    else:
        database.execute("ALTER TABLE wane.audit ADD CONSTRAINT no_room CHECK (row_count < 0)")


@SHAPES
@pytest.mark.parametrize("level", [None, ""])
def test_an_error_undoes_its_own_part_and_leaves_the_transaction_usable(
    sqlite_database: SqliteDatabase, declared: Table, level: str | None
) -> None:
    with ready(sqlite_database, declared) as opened, sqlite(sqlite_database, level) as connection:
        break_the_trail(sqlite_database)
        connection.execute("BEGIN")
        connection.execute("INSERT INTO job (id, state, at_ms) VALUES (100, 'queued', 5)")
        with pytest.raises(StoreError, match="no room"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        assert connection.in_transaction
        connection.execute("INSERT INTO job (id, state, at_ms) VALUES (101, 'queued', 5)")
        connection.commit()
        assert (opened.ids(), opened.ids("note")) == ([0, 1, 2, 9, 100, 101], [0, 1, 2])


def test_a_failed_call_leaves_no_lock_behind(sqlite_database: SqliteDatabase) -> None:
    with ready(sqlite_database) as opened, sqlite(sqlite_database, "") as connection:
        break_the_trail(sqlite_database)
        with pytest.raises(StoreError, match="no room"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        assert not connection.in_transaction
        sqlite_database.execute("INSERT INTO job (id, state, at_ms) VALUES (100, 'queued', 5)")


def test_how_the_connection_reads_rows_does_not_matter_and_stays(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("""
        CREATE TABLE job (id TEXT PRIMARY KEY, state TEXT, at_ms INTEGER);
        CREATE TABLE note (id INTEGER PRIMARY KEY, job_id TEXT);
    """)
    insert(sqlite_database, "job", "id, state, at_ms", ("a", "done", ago(30)), ("b", "done", ago(20)))
    with keeping(sqlite_database, FOLLOWED) as opened, sqlite(sqlite_database, None) as connection:
        for factory in (bytes, lambda raw: raw.decode("latin-1").upper()):
            connection.text_factory = factory
            connection.row_factory = sqlite3.Row
            assert opened.keeper.prune("job", rule="old", limit=1, connection=connection).rows == 1
            assert connection.text_factory is factory
            assert connection.row_factory is sqlite3.Row
        assert opened.ids() == []


def test_converters_of_the_connection_do_not_touch_keys(sqlite_database: SqliteDatabase) -> None:
    """A type of the application that is read as something else: rows must be found again by what is stored."""
    sqlite3.register_converter("wane_test_code", lambda raw: ("read", raw))
    sqlite_database.script("""
        CREATE TABLE job (id WANE_TEST_CODE PRIMARY KEY, state TEXT, at_ms INTEGER);
        CREATE TABLE note (id INTEGER PRIMARY KEY, job_id WANE_TEST_CODE);
    """)
    insert(sqlite_database, "job", "id, state, at_ms", ("x1", "done", ago(30)), ("x2", "queued", ago(30)))
    insert(sqlite_database, "note", "id, job_id", (1, "x1"), (2, "x2"))
    with (
        keeping(sqlite_database, FOLLOWED) as opened,
        closing(sqlite3.connect(sqlite_database.path, detect_types=sqlite3.PARSE_DECLTYPES)) as connection,
    ):
        counts = opened.keeper.prune("job", rule="old", limit=10, connection=connection).counts
        connection.commit()
        assert counts == {"job": 1, "note": 1}
        assert (opened.ids(), opened.ids("note")) == (["x2"], [2])


def test_another_file_is_refused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with ready(sqlite_database) as opened:
        for path in (tmp_path / "other.db", ":memory:"):
            with closing(sqlite3.connect(path)) as other:
                other.executescript("CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT, at_ms INTEGER)")
                with pytest.raises(StoreError, match="the connection is not to"):
                    opened.keeper.prune("job", rule="old", limit=10, connection=other)
        untouched(opened)


def test_the_same_file_by_another_name_is_the_same(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(sqlite_database.path)
    with ready(sqlite_database) as opened, closing(sqlite3.connect(tmp_path / "link.db")) as connection:
        opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        connection.commit()
        gone(opened, FOLLOWED)


# --- psycopg --------------------------------------------------------------------------------------------------------


@contextmanager
def postgres(database: PostgresDatabase, *, autocommit: bool) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(database.url, autocommit=autocommit)) as connection:
        yield connection


@SHAPES
def test_an_idle_connection_gets_a_transaction_that_is_its_own_to_commit(
    postgres_database: PostgresDatabase, declared: Table
) -> None:
    with ready(postgres_database, declared) as opened, postgres(postgres_database, autocommit=False) as connection:
        opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        connection.rollback()
        untouched(opened)
        opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        connection.commit()
        gone(opened, declared)


@SHAPES
def test_an_autocommitting_connection_has_committed(postgres_database: PostgresDatabase, declared: Table) -> None:
    with ready(postgres_database, declared) as opened, postgres(postgres_database, autocommit=True) as connection:
        opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        gone(opened, declared)


@SHAPES
@pytest.mark.parametrize("autocommit", [True, False])
def test_inside_a_transaction_of_psycopg_everything_comes_back_together(
    postgres_database: PostgresDatabase, declared: Table, autocommit: bool
) -> None:
    with ready(postgres_database, declared) as opened, postgres(postgres_database, autocommit=autocommit) as connection:
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO job (id, state, at_ms) VALUES (100, 'done', %s)", [ago(50)])
            pruned = opened.keeper.prune("job", rule="old", limit=10, connection=connection)
            assert pruned.counts["job"] == 4
        untouched(opened)


@SHAPES
def test_an_error_leaves_the_transaction_of_psycopg_usable(
    postgres_database: PostgresDatabase, declared: Table
) -> None:
    with ready(postgres_database, declared) as opened, postgres(postgres_database, autocommit=False) as connection:
        break_the_trail(postgres_database)
        connection.execute("INSERT INTO job (id, state, at_ms) VALUES (100, 'queued', 5)")
        with pytest.raises(StoreError, match="no_room"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        connection.execute("INSERT INTO job (id, state, at_ms) VALUES (101, 'queued', 5)")
        connection.commit()
        assert (opened.ids(), opened.ids("note")) == ([0, 1, 2, 9, 100, 101], [0, 1, 2])


SETTINGS = {
    "lock_timeout": "1234ms",
    "statement_timeout": "4321ms",
    "row_security": "on",
    "timezone": "Asia/Kolkata",
    "datestyle": "SQL, DMY",
    "bytea_output": "escape",
    "extra_float_digits": "0",
    "intervalstyle": "iso_8601",
    "search_path": "public",
}


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_settings_and_rows_come_back_as_they_were(
    postgres_database: PostgresDatabase, local: bool, fails: bool
) -> None:
    with ready(postgres_database) as opened, postgres(postgres_database, autocommit=True) as connection:
        connection.row_factory = dict_row
        if fails:
            break_the_trail(postgres_database)
        with connection.transaction():
            for name, value in SETTINGS.items():
                connection.execute("SELECT set_config(%s, %s, %s)", [name, value, local])
            before = {name.lower(): value for name, value in SETTINGS.items()}
            try:
                opened.keeper.prune("job", rule="old", limit=10, connection=connection)
            except StoreError:
                assert fails
            columns = {name: connection.execute(f"SELECT current_setting('{name}') AS v").fetchone() for name in before}
            assert {name: row["v"] for name, row in columns.items() if row} == before
            assert connection.row_factory is dict_row
        if not local:
            columns = {name: connection.execute(f"SELECT current_setting('{name}') AS v").fetchone() for name in before}
            assert {name: row["v"] for name, row in columns.items() if row} == before
        else:
            row = connection.execute("SELECT current_setting('lock_timeout') AS v").fetchone()
            assert row == {"v": "0"}


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_would_not_see_others_is_refused(postgres_database: PostgresDatabase, level: str) -> None:
    with ready(postgres_database) as opened, postgres(postgres_database, autocommit=True) as connection:
        with connection.transaction():
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            with pytest.raises(StoreError, match=f"the transaction is {level.lower()}") as caught:
                opened.keeper.prune("job", rule="old", limit=10, connection=connection)
            assert "READ COMMITTED" in caught.value.hint
            connection.execute("SELECT 1")
        connection.execute(f"SET default_transaction_isolation = '{level.lower()}'".encode())
        with pytest.raises(StoreError, match=level.lower()):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        untouched(opened)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_database_with_another_default_does_not_change_our_own(
    postgres_database: PostgresDatabase, level: str
) -> None:
    name = postgres_database.connect().info.dbname
    postgres_database.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    with ready(postgres_database) as opened, opened.keeper.store.transaction() as transaction:
        assert transaction.execute("SHOW transaction_isolation", {}) == [("read committed",)]


def test_a_failed_transaction_is_reported(postgres_database: PostgresDatabase) -> None:
    with ready(postgres_database) as opened, postgres(postgres_database, autocommit=False) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(StoreError, match="aborted"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        connection.rollback()
        untouched(opened)


def test_a_read_only_transaction_is_reported(postgres_database: PostgresDatabase) -> None:
    with ready(postgres_database) as opened, postgres(postgres_database, autocommit=False) as connection:
        connection.read_only = True
        with pytest.raises(StoreError, match="read-only"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        untouched(opened)


def test_another_database_is_refused(postgres_database: PostgresDatabase) -> None:
    """The servers' own database has the same tables; the contract was not bound to it."""
    other = psycopg.conninfo.make_conninfo(postgres_database.url, dbname="postgres")
    with ready(postgres_database) as opened, closing(psycopg.connect(other, autocommit=True)) as connection:
        with pytest.raises(StoreError, match="the connection is to another database"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        untouched(opened)


def test_a_database_of_the_same_name_on_another_server_is_refused(
    clusters: Any, request: pytest.FixtureRequest
) -> None:
    from conftest import POSTGRES_IDS

    if len(POSTGRES_IDS) < 2:
        pytest.skip("one server only")
    first, second = (clusters[name] for name in POSTGRES_IDS)
    with first.database() as database, ready(database) as opened:
        name = database.connect().info.dbname
        admin = psycopg.connect(second.url, autocommit=True)
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        try:
            there = psycopg.connect(psycopg.conninfo.make_conninfo(second.url, dbname=name), autocommit=True)
            there.execute("CREATE TABLE job (id int PRIMARY KEY, state text, at_ms bigint)")
            there.execute("INSERT INTO job VALUES (1, 'done', 1600000000000)")
            with pytest.raises(StoreError, match="the connection is to another database"):
                opened.keeper.prune("job", rule="old", limit=10, connection=there)
            assert there.execute("SELECT count(*) FROM job").fetchone() == (1,)
            there.close()
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            admin.close()


# --- SQLAlchemy -----------------------------------------------------------------------------------------------------


@SHAPES
def test_a_connection_of_sqlalchemy_commits_or_rolls_back_the_whole(database: Database, declared: Table) -> None:
    with ready(database, declared) as opened, engine(database) as made:
        with made.connect() as connection:
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
            assert connection.in_transaction()
        untouched(opened)
        with made.connect() as connection:
            connection.execute(sqlalchemy.text("INSERT INTO job (id, state, at_ms) VALUES (100, 'queued', 5)"))
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
            connection.rollback()
        untouched(opened)
        with made.begin() as connection:
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        gone(opened, declared)


@SHAPES
def test_a_session_of_sqlalchemy_commits_or_rolls_back_the_whole(database: Database, declared: Table) -> None:
    with ready(database, declared) as opened, engine(database) as made, Session(made) as session:
        opened.keeper.prune("job", rule="old", limit=10, connection=session)
        session.rollback()
        untouched(opened)
        session.execute(sqlalchemy.text(f"INSERT INTO job (id, state, at_ms) VALUES (100, 'done', {ago(50)})"))
        assert opened.keeper.prune("job", rule="old", limit=10, connection=session).counts["job"] == 4
        session.commit()
        gone(opened, declared)


def test_a_connection_of_sqlalchemy_that_autocommits_has_committed(database: Database) -> None:
    with ready(database) as opened, engine(database, isolation_level="AUTOCOMMIT") as made:
        with made.connect() as connection:
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        gone(opened, FOLLOWED)


def test_an_error_leaves_a_session_usable(database: Database) -> None:
    with ready(database) as opened, engine(database) as made, Session(made) as session:
        break_the_trail(database)
        session.execute(sqlalchemy.text("INSERT INTO job (id, state, at_ms) VALUES (100, 'queued', 5)"))
        with pytest.raises(StoreError, match=r"no.room"):
            opened.keeper.prune("job", rule="old", limit=10, connection=session)
        session.execute(sqlalchemy.text("INSERT INTO job (id, state, at_ms) VALUES (101, 'queued', 5)"))
        session.commit()
        assert opened.ids() == [0, 1, 2, 9, 100, 101]


def test_a_session_over_the_wrong_driver_is_refused(database: Database, tmp_path: Path) -> None:
    url = "sqlite://" if database.store == "postgres" else "postgresql+psycopg://nobody@localhost:1/none"
    made = sqlalchemy.create_engine(url)
    with ready(database) as opened:
        unusable = made.connect() if database.store == "postgres" else Session(made)
        with unusable as connection, pytest.raises(StoreError, match="cannot be used"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        untouched(opened)
    made.dispose()


# --- What is no connection ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [object(), "sqlite:///x.db", 5, {}])
def test_what_is_no_connection_is_refused(database: Database, wrong: object) -> None:
    with ready(database) as opened:
        with pytest.raises(StoreError, match="cannot be used here") as caught:
            opened.keeper.prune("job", rule="old", limit=10, connection=wrong)
        wanted = "sqlite3.Connection" if database.store == "sqlite" else "psycopg.Connection"
        assert wanted in caught.value.hint
        untouched(opened)


def test_a_closed_connection_is_reported(database: Database) -> None:
    with ready(database) as opened:
        connection = database.connect()
        connection.close()
        with pytest.raises(StoreError, match="closed"):
            opened.keeper.prune("job", rule="old", limit=10, connection=connection)
        with engine(database) as made:
            used = made.connect()
            used.close()
            with pytest.raises(StoreError, match="closed"):
                opened.keeper.prune("job", rule="old", limit=10, connection=used)
        untouched(opened)


def test_the_keepers_own_connection_stays_out_of_it(database: Database) -> None:
    """Two calls of one keeper, one in the caller's transaction and one of its own."""
    with ready(database) as opened, engine(database) as made:
        with made.connect() as connection:
            opened.keeper.prune("job", rule="old", limit=2, connection=connection)
            connection.rollback()
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 6
        gone(opened, FOLLOWED)
