"""Wane's own tables: created once, however many processes try, whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import wane._db.migrations
from servers import Database, PostgresDatabase
from together import run_together
from wane._db import Store, open_store
from wane._db.migrations import Migration, migrations, pending_script
from wane._db.sqlite.store import statements
from wane._db.url import resolve_url
from wane._rules.rows import rows_of
from wane.errors import StoreError


def opened(database: Database, *, read_only: bool = False) -> Store:
    return open_store(resolve_url(database.url), read_only=read_only)


def names(database: Database) -> list[str]:
    return [one.name for one in migrations(database.store)]


def own_tables(database: Database) -> set[str]:
    text = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'wane\\_%' ESCAPE '\\'",
        "postgres": "SELECT 'wane_' || tablename FROM pg_tables WHERE schemaname = 'wane'",
    }
    return {name for (name,) in database.query(text[database.store])}


def migration_table(database: Database) -> str:
    return "wane_migration" if database.store == "sqlite" else "wane.migration"


def test_migrating_creates_wanes_own_tables_and_nothing_else(database: Database) -> None:
    database.script("CREATE TABLE events (id integer PRIMARY KEY)")
    with opened(database) as store:
        assert store.applied_migrations() == []
        assert store.migrate() == names(database)
        assert store.applied_migrations() == names(database)
        assert [table.name for table in store.reflect().tables] == ["events"]
    assert {"wane_migration", "wane_audit", "wane_hold", "wane_flag"} <= own_tables(database)


def test_a_store_that_was_opened_before_the_migration_notices_it(database: Database) -> None:
    with opened(database) as early, opened(database) as other:
        assert (early.migrated, rows_of(early).holds) == (False, False)
        other.migrate()
        # Else rows under a hold would count as due.
        assert rows_of(early).holds
        assert early.migrated


def test_migrating_twice_changes_nothing(database: Database) -> None:
    with opened(database) as store:
        store.migrate()
        before = database.query(f"SELECT * FROM {migration_table(database)} ORDER BY name")
        assert store.migrate() == []
        assert store.migrate() == []
    with opened(database) as store:
        assert store.migrate() == []
    assert database.query(f"SELECT * FROM {migration_table(database)} ORDER BY name") == before


def test_both_stores_have_the_same_migrations_in_order() -> None:
    [sqlite, postgres] = [[one.name for one in migrations(store)] for store in ("sqlite", "postgres")]
    assert sqlite == postgres == sorted(sqlite)
    assert [int(name[:4]) for name in sqlite] == list(range(1, len(sqlite) + 1))


def test_what_is_printed_is_what_is_applied(database: Database) -> None:
    """The printed SQL may be run by hand, and Wane then finds nothing left to do."""
    with opened(database, read_only=True) as store:
        printed = pending_script(store)
    assert [one.name for one in printed] == names(database)
    for migration in printed:
        database.script(migration.sql)
    with opened(database) as store:
        assert store.applied_migrations() == names(database)
        assert store.is_migrated()
        assert pending_script(store) == []
        assert store.migrate() == []
    by_hand = shape(database)
    database.reset()
    with opened(database) as store:
        store.migrate()
    assert shape(database) == by_hand


def test_only_what_is_missing_is_printed(database: Database) -> None:
    with shipping(FIRST), opened(database) as store:
        store.migrate()
    with shipping(FIRST, SECOND):
        with opened(database) as store:
            [missing] = pending_script(store)
        database.script(missing.sql)
        with opened(database) as store:
            assert (missing.name, store.migrate()) == ("0002_two", [])


def test_flags_that_were_set_under_their_earlier_names_count_under_the_new_ones(database: Database) -> None:
    with opened(database) as store:
        store.migrate()
        own = store.dialect.own_table("flag")
        [renaming] = [one for one in migrations(database.store) if one.name == "0017_flag_names"]
        set_before = [("iu_core.retention_enabled", True), ("queue.retention.a.b.enabled", False), ("other", True)]
        for name, enabled in set_before:
            columns = "(name, enabled, changed_at, changed_by)"
            database.execute(
                f"INSERT INTO {own} {columns} VALUES (?, ?, '2026-01-01 00:00:00+00:00', 'ada')", (name, enabled)
            )
        for _ in range(2):
            database.script(renaming.sql)
        found = {name: bool(enabled) for name, enabled in database.query(f"SELECT name, enabled FROM {own}")}
        assert found == {**dict(set_before), "retention.enabled": True, "retention.a.b.enabled": False}


def shape(database: Database) -> set[str]:
    text = {
        "sqlite": "SELECT coalesce(sql, name) FROM sqlite_master WHERE name LIKE '%wane%'",
        "postgres": "SELECT table_name || column_name || data_type || is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'wane' UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'wane'",
    }
    return {line for (line,) in database.query(text[database.store])}


# Several at once


@pytest.mark.parametrize("processes", [2, 10])
@pytest.mark.sampled("sqlite-10", "postgres-2")
def test_processes_that_start_at_once_apply_each_migration_once_and_none_fails(
    database: Database, processes: int
) -> None:
    answers = run_together("db.migrating", [[database.url]] * processes)
    applied = [name for answer in answers for name in answer]
    assert sorted(applied) == names(database)
    assert database.query(f"SELECT count(*) FROM {migration_table(database)}") == [(len(names(database)),)]


# Half-way

FIRST = Migration("0001_one", "CREATE TABLE {}one (id integer PRIMARY KEY);\nCREATE TABLE {}two (id integer);")
SECOND = Migration("0002_two", "CREATE TABLE {}three (id integer);\nINSERT INTO {}three VALUES (1);")
BROKEN = Migration("0002_two", "CREATE TABLE {}three (id integer);\nINSERT INTO {}nowhere VALUES (1);")


@contextmanager
def shipping(*shipped: Migration) -> Iterator[None]:
    """Replace all migrations by these."""

    def those(store: str) -> list[Migration]:
        prefix = "wane_" if store == "sqlite" else "wane."
        return [Migration(one.name, one.sql.replace("{}", prefix)) for one in shipped]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wane._db.migrations, "migrations", those)
        yield


def test_a_migration_is_known_by_its_title(database: Database) -> None:
    """Numbers only order them: a database that has one under another number is not migrated again."""
    with shipping(FIRST, SECOND), opened(database) as store:
        store.migrate()
    later = Migration("0007_two", SECOND.sql)
    with shipping(FIRST, later), opened(database) as store:
        assert store.is_migrated()
        assert (pending_script(store), store.migrate()) == ([], [])


def test_a_new_migration_is_added_to_those_that_were_applied(database: Database) -> None:
    with shipping(FIRST), opened(database) as store:
        assert store.migrate() == ["0001_one"]
    with shipping(FIRST, SECOND), opened(database) as store:
        assert store.migrate() == ["0002_two"]
        assert store.applied_migrations() == ["0001_one", "0002_two"]
    assert own_tables(database) == {"wane_migration", "wane_one", "wane_two", "wane_three"}


def test_a_migration_that_fails_leaves_nothing_and_can_be_retried(database: Database) -> None:
    with shipping(FIRST), opened(database) as store:
        store.migrate()
    with shipping(FIRST, BROKEN), opened(database) as store:
        with pytest.raises(StoreError, match=r"Wane's own tables cannot be created: .*nowhere"):
            store.migrate()
        assert store.applied_migrations() == ["0001_one"]
    assert own_tables(database) == {"wane_migration", "wane_one", "wane_two"}
    with shipping(FIRST, SECOND), opened(database) as store:
        assert store.migrate() == ["0002_two"]


def test_the_first_migration_that_fails_leaves_an_untouched_database(database: Database) -> None:
    with shipping(BROKEN), opened(database) as store, pytest.raises(StoreError):
        store.migrate()
    assert own_tables(database) == set()


def test_a_database_that_was_left_with_its_list_only_is_completed(database: Database) -> None:
    if database.store == "sqlite":
        database.script("CREATE TABLE wane_migration (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL)")
    else:
        database.script("CREATE SCHEMA wane")
    with opened(database) as store:
        assert store.migrate() == names(database)


def test_a_table_that_is_in_the_way_is_reported(database: Database) -> None:
    if database.store == "postgres":
        database.script("CREATE SCHEMA wane")
    database.script(f"CREATE TABLE {'wane_audit' if database.store == 'sqlite' else 'wane.audit'} (id integer)")
    with (
        opened(database) as store,
        pytest.raises(StoreError, match=r"Wane's own tables cannot be created: .*audit.* already exists"),
    ):
        store.migrate()
    assert len(own_tables(database)) == 1


# Not allowed


def test_a_read_only_connection_does_not_migrate(database: Database) -> None:
    with opened(database, read_only=True) as store, pytest.raises(StoreError) as caught:
        store.migrate()
    message, _, hint = str(caught.value).partition("\n  hint: ")
    assert message.startswith("Wane's own tables cannot be created: ")
    assert (
        hint
        == {
            "sqlite": "let the user that runs Wane write the file and its folder, where SQLite puts its journal"
            " (`chmod`, `chown`), or run Wane as their owner; `wane check`, `plan` and `health` only read",
            "postgres": "connect to the primary if this is a standby; otherwise turn off `default_transaction_read_only`",
        }[database.store]
    )
    assert own_tables(database) == set()


@contextmanager
def plain_role(database: PostgresDatabase) -> Iterator[str]:
    role = f"wane_test_{secrets.token_hex(6)}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        yield role
    finally:
        database.execute("DROP SCHEMA IF EXISTS wane CASCADE")
        database.script(f"DROP OWNED BY {role}; DROP ROLE {role}")


def as_role(database: PostgresDatabase, role: str) -> Store:
    return open_store(resolve_url(database.url.replace("postgres@", f"{role}@")))


def test_a_role_that_may_create_nothing_is_reported_what_to_grant(postgres_database: PostgresDatabase) -> None:
    with plain_role(postgres_database) as role:
        with as_role(postgres_database, role) as store, pytest.raises(StoreError) as caught:
            store.migrate()
        message, _, hint = str(caught.value).partition("\n  hint: ")
        assert message.startswith("Wane's own tables cannot be created: permission denied for database ")
        assert hint == (
            f"let the database's owner run `GRANT CREATE ON DATABASE … TO {role}`, or "
            f"`CREATE SCHEMA wane AUTHORIZATION {role}`, or what `wane migrate --print` prints,"
            " and then `wane roles --apply`, and grant it the contract's admin role"
        )


@pytest.mark.parametrize(
    "grant", ["GRANT CREATE ON DATABASE {database} TO {role}", "CREATE SCHEMA wane AUTHORIZATION {role}"]
)
def test_each_way_out_that_is_reported_works(postgres_database: PostgresDatabase, grant: str) -> None:
    [(name,)] = postgres_database.query("SELECT current_database()")
    with plain_role(postgres_database) as role:
        postgres_database.execute(grant.format(database=name, role=role))
        with as_role(postgres_database, role) as store:
            assert store.migrate() == names(postgres_database)
            assert store.migrate() == []


def test_a_plain_role_finds_a_migrated_database_up_to_date(postgres_database: PostgresDatabase) -> None:
    """`IF NOT EXISTS` alone would ask for the right to create what is there already."""
    with opened(postgres_database) as store:
        store.migrate()
    with plain_role(postgres_database) as role:
        postgres_database.script(
            f"GRANT USAGE ON SCHEMA wane TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA wane TO {role}"
        )
        with as_role(postgres_database, role) as store:
            assert store.migrate() == []
            assert store.is_migrated()


def test_a_role_that_does_not_own_the_schema_is_sent_to_its_owner(postgres_database: PostgresDatabase) -> None:
    with opened(postgres_database) as store:
        store.migrate()
    last = names(postgres_database)[-1]
    postgres_database.execute("DELETE FROM wane.migration WHERE name = ?", (last,))
    with plain_role(postgres_database) as role:
        postgres_database.script(
            f"GRANT USAGE ON SCHEMA wane TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA wane TO {role}"
        )
        with as_role(postgres_database, role) as store, pytest.raises(StoreError) as caught:
            store.migrate()
    assert caught.value.hint == (
        "schema wane belongs to postgres: connect as its owner, or as a member of the owner's role; no grant on it is enough"
    )


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("ALTER TABLE public.thing ADD COLUMN more text", "connect as its owner, or as a member of the owner's role"),
        ("CREATE TABLE wane.thing (id text)", "let a superuser, or the owner of the tables and of schema wane, run"),
        ("SELECT 1 FROM public.thing", "let a superuser, or the owner of the tables and of schema wane, run"),
        ("SELECT 1 FROM public.secret", "run Wane as a role with BYPASSRLS"),
        ("CREATE TABLE public.more (id text)", "let its owner grant the role that runs Wane USAGE on schema public"),
    ],
    ids=["owner", "own schema", "table", "row security", "schema"],
)
def test_the_hint_for_a_missing_privilege_is_what_resolves_it(
    postgres_database: PostgresDatabase, statement: str, hint: str
) -> None:
    with opened(postgres_database) as store:
        store.migrate()
    postgres_database.script(
        "CREATE TABLE public.thing (id text); CREATE TABLE public.secret (id text);"
        " ALTER TABLE public.secret ENABLE ROW LEVEL SECURITY; GRANT SELECT ON public.secret TO PUBLIC"
    )
    with plain_role(postgres_database) as role:
        postgres_database.script(
            f"GRANT USAGE ON SCHEMA wane TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA wane TO {role}"
        )
        with (
            as_role(postgres_database, role) as store,
            pytest.raises(StoreError) as caught,
            store.transaction() as transaction,
        ):
            transaction.execute(statement, {})
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


def test_a_process_that_waits_for_another_migration_does_not_give_up_soon(postgres_database: PostgresDatabase) -> None:
    """An ordinary lock is waited for briefly; the lock of a migration for as long as one may take."""
    with opened(postgres_database) as store:
        store.migrate()
        [(timeout,)] = store._rows("SHOW lock_timeout")  # type: ignore[attr-defined]
    assert timeout == "5s"
    assert wane._db.postgres.store._MIGRATION_MILLISECONDS >= 30_000


# Scripts


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("SELECT 1;\nSELECT 2;\n", ["SELECT 1;", "SELECT 2;"]),
        ("SELECT 1;\nSELECT 2", ["SELECT 1;", "SELECT 2"]),
        ("-- why; not\nSELECT ';'\n;\n", ["-- why; not\nSELECT ';'\n;"]),
        (
            "CREATE TRIGGER t AFTER DELETE ON x BEGIN\n  SELECT 1;\n  SELECT 2;\nEND;\nSELECT 3;",
            ["CREATE TRIGGER t AFTER DELETE ON x BEGIN\n  SELECT 1;\n  SELECT 2;\nEND;", "SELECT 3;"],
        ),
        ("\n\n", []),
    ],
)
def test_a_script_is_taken_apart_without_losing_a_statement(script: str, found: list[str]) -> None:
    assert list(statements(script)) == found
