"""Guards save rows: while a column is NULL, while it is not, while another row refers to them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from prune.keeping import ago, insert, jobs, keeping, notes, referenced_by, rule, table
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Guard, WhileNotNull, WhileNull
from wane.errors import StoreError


def test_a_row_stays_while_a_column_is_null(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    database.execute("UPDATE job SET resolved_ms = 0 WHERE id IN (1, 2)")
    with keeping(database, table("job", rule(unless=[WhileNull("resolved_ms")]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 2
        assert opened.ids() == [0, 3]


def test_a_row_stays_while_a_column_is_not_null(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    database.execute("UPDATE job SET tenant = '' WHERE id IN (1, 2)")
    with keeping(database, table("job", rule(unless=[WhileNotNull("tenant")]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 2
        assert opened.ids() == [1, 2]


@pytest.mark.parametrize("foreign_key", [None, "job (id)", "job (id) ON DELETE CASCADE", "job (id) ON DELETE SET NULL"])
def test_a_row_stays_while_another_refers_to_it(database: Database, foreign_key: str | None) -> None:
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(5)])
    notes(database, (1, 1, "x"), (2, 3, "x"), (3, 3, "x"), (4, None, "x"), foreign_key=foreign_key)
    with keeping(database, table("job", rule(unless=[referenced_by("note.job_id")]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=2).rows == 2
        assert opened.ids() == [1, 3, 4]
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
        assert (opened.ids(), opened.ids("note")) == ([1, 3], [1, 2, 3, 4])
        database.execute("DELETE FROM note WHERE id IN (1, 2)")
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
        assert opened.ids() == [3]
        assert database.query("SELECT job_id FROM note ORDER BY id") == [(3,), (None,)]


def test_a_reference_of_several_columns_needs_all_of_them(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(1, 5)])
    database.execute("UPDATE job SET tenant = 'x'")
    database.execute("CREATE TABLE note (id integer NOT NULL PRIMARY KEY, job integer, tenant text)")
    insert(database, "note", "id, job, tenant", (1, 1, "x"), (2, 2, "y"), (3, 3, None), (4, None, "x"))
    guard = referenced_by("note.job,tenant", to=["id", "tenant"])
    with keeping(database, table("job", rule(unless=[guard]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 3
        assert opened.ids() == [1]


def test_a_row_may_be_saved_by_one_of_its_own_table(database: Database) -> None:
    """The child leaves first; its parent only when it is gone."""
    jobs(database, (1, "done", ago(40)), (2, "done", ago(30)), (3, "queued", ago(30)), (4, "done", ago(35)))
    database.execute("UPDATE job SET parent_id = 1 WHERE id = 2")
    database.execute("UPDATE job SET parent_id = 4 WHERE id = 3")
    with keeping(database, table("job", rule(unless=[referenced_by("job.parent_id")]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
        assert opened.ids() == [1, 3, 4]
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
        assert opened.ids() == [3, 4]
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 0


@pytest.mark.parametrize("many", [1, 2, 3])
def test_any_of_several_guards_saves(database: Database, many: int) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    database.execute("UPDATE job SET resolved_ms = 1 WHERE id <> 0")
    database.execute("UPDATE job SET tenant = 'x' WHERE id = 1")
    notes(database, (1, 2, "x"))
    guards: list[Guard] = [WhileNull("resolved_ms"), WhileNotNull("tenant"), referenced_by("note.job_id")]
    with keeping(database, table("job", rule(unless=guards[:many]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 4 - many
        assert opened.ids() == list(range(many))


def test_saved_rows_do_not_use_up_the_limit(database: Database) -> None:
    jobs(database, *[(n, "done", ago(60 - n)) for n in range(50)])
    notes(database, *[(n, n, "x") for n in range(40)])
    with keeping(database, table("job", rule(unless=[referenced_by("note.job_id")]))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=5).rows == 5
        assert opened.ids() == [*range(40), *range(45, 50)]


def test_a_reference_in_a_transaction_that_is_not_committed_saves_once_it_is(
    postgres_database: PostgresDatabase,
) -> None:
    """Without a foreign key nothing but the lock on the referring table can show it: while it is written to, nothing
    leaves."""
    jobs(postgres_database, (1, "done", ago(30)), (2, "done", ago(30)))
    notes(postgres_database)
    writer = postgres_database.connect()
    with keeping(postgres_database, table("job", rule(unless=[referenced_by("note.job_id")]))) as opened:
        with writer.transaction():
            writer.execute("INSERT INTO note (id, job_id) VALUES (1, 1)")
            with pytest.raises(StoreError, match="lock contention"):
                opened.keeper.prune("job", rule="old", limit=100)
            assert opened.ids() == [1, 2]
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
        assert opened.ids() == [1]


def test_a_foreign_key_that_was_dropped_after_it_was_read_is_not_relied_upon(
    postgres_database: PostgresDatabase,
) -> None:
    """A schema is trusted for a minute, and a conversion to partitions drops keys within that time."""
    jobs(postgres_database, *[(n, "done", ago(30)) for n in range(4)])
    notes(postgres_database, foreign_key="job (id)")
    writer = postgres_database.connect()
    with keeping(postgres_database, table("job", rule(unless=[referenced_by("note.job_id")]))) as opened:
        with writer.transaction():
            writer.execute("INSERT INTO note (id, job_id) VALUES (1, 1)")
            assert opened.keeper.prune("job", rule="old", limit=1).rows == 1, (
                "the key keeps row 1, and no table is locked"
            )
        [(key,)] = postgres_database.query(
            "SELECT conname FROM pg_constraint WHERE contype = 'f' AND conrelid = 'note'::regclass"
        )
        postgres_database.execute(f"ALTER TABLE note DROP CONSTRAINT {key}")
        with writer.transaction():
            writer.execute("INSERT INTO note (id, job_id) VALUES (2, 2)")
            with pytest.raises(StoreError, match="lock contention"):
                opened.keeper.prune("job", rule="old", limit=100)
            assert opened.ids() == [1, 2, 3]
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
        assert opened.ids() == [1, 2]


PLAIN = """
CREATE TABLE note (id integer NOT NULL PRIMARY KEY, job_id integer CONSTRAINT note_job_fkey REFERENCES job (id), kind text)
"""
PARTITIONED = """
CREATE TABLE note (id integer NOT NULL, job_id integer CONSTRAINT note_job_fkey REFERENCES job (id), kind text)
PARTITION BY LIST (kind);
CREATE TABLE note_x PARTITION OF note FOR VALUES IN ('x')
"""
INHERITED = f"{PLAIN}; CREATE TABLE note_y (FOREIGN KEY (job_id) REFERENCES job (id)) INHERITS (note)"
ENABLE_REPLICA = """
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'note'::regclass LOOP
    EXECUTE format('ALTER TABLE note ENABLE REPLICA TRIGGER %I', name);
  END LOOP;
END $$
"""
WITHOUT_PROTECTION = {
    "deferred": (PLAIN, "ALTER TABLE note ALTER CONSTRAINT note_job_fkey DEFERRABLE INITIALLY DEFERRED"),
    "deferred by the writer": (PLAIN, "ALTER TABLE note ALTER CONSTRAINT note_job_fkey DEFERRABLE"),
    "disabled": (PLAIN, "ALTER TABLE note DISABLE TRIGGER ALL"),
    "disabled except on replicas": (PLAIN, ENABLE_REPLICA),
    "disabled on a partition": (PARTITIONED, "ALTER TABLE note_x DISABLE TRIGGER ALL"),
    "descendant": (PLAIN, "CREATE TABLE note_x () INHERITS (note)"),
    "descendant of a descendant": (INHERITED, "CREATE TABLE note_x () INHERITS (note_y)"),
    "descendant with a key that is deferred": (
        PLAIN,
        "CREATE TABLE note_x (FOREIGN KEY (job_id) REFERENCES job (id) DEFERRABLE INITIALLY DEFERRED) INHERITS (note)",
    ),
}
WITH_PROTECTION = {
    "immediate": (PLAIN, "SELECT 1"),
    "not validated": (
        PLAIN,
        """
        ALTER TABLE note DROP CONSTRAINT note_job_fkey;
        ALTER TABLE note ADD CONSTRAINT note_job_fkey FOREIGN KEY (job_id) REFERENCES job (id) NOT VALID
        """,
    ),
    "partitioned": (PARTITIONED, "SELECT 1"),
    "descendant with a key": (PLAIN, "CREATE TABLE note_x (FOREIGN KEY (job_id) REFERENCES job (id)) INHERITS (note)"),
}


def guarded_by_key(database: PostgresDatabase, tables: str) -> str:
    """Create two due rows and the table that may refer to them; return the statement by which a writer refers to the
    first."""
    jobs(database, (1, "done", ago(31)), (2, "done", ago(30)))
    database.script(tables)
    database.execute("CREATE INDEX note_job ON note (job_id)")
    return "INSERT INTO {} VALUES (1, 1, 'x')"


@pytest.mark.parametrize("since", [False, True], ids=["from the beginning", "since the schema was read"])
@pytest.mark.parametrize(("tables", "change"), WITHOUT_PROTECTION.values(), ids=WITHOUT_PROTECTION)
def test_a_foreign_key_that_does_not_lock_the_parent_at_once_is_not_relied_upon(
    postgres_database: PostgresDatabase, tables: str, change: str, since: bool
) -> None:
    refer = guarded_by_key(postgres_database, tables)
    writer = postgres_database.connect()
    with keeping(postgres_database, table("job", rule(unless=[referenced_by("note.job_id")]))) as opened:
        if since:
            jobs(postgres_database, (0, "done", ago(40)), create=False)
            assert opened.keeper.prune("job", rule="old", limit=1).rows == 1
        postgres_database.script(change)
        [(to,)] = postgres_database.query("SELECT coalesce(to_regclass('note_x'), 'note')::text")
        with writer.transaction():
            writer.execute("SET CONSTRAINTS ALL DEFERRED")
            writer.execute(refer.format(to))
            with pytest.raises(StoreError, match="lock contention"):
                opened.keeper.prune("job", rule="old", limit=100)
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
        assert (opened.ids(), opened.ids("note")) == ([1], [1])


@pytest.mark.parametrize(("tables", "change"), WITH_PROTECTION.values(), ids=WITH_PROTECTION)
def test_a_foreign_key_that_locks_the_parent_at_once_needs_no_lock_on_its_table(
    postgres_database: PostgresDatabase, tables: str, change: str
) -> None:
    refer = guarded_by_key(postgres_database, tables)
    postgres_database.script(change)
    [(to,)] = postgres_database.query("SELECT coalesce(to_regclass('note_x'), 'note')::text")
    writer = postgres_database.connect()
    with keeping(postgres_database, table("job", rule(unless=[referenced_by("note.job_id")]))) as opened:
        with writer.transaction():
            writer.execute(refer.format(to))
            assert opened.keeper.prune("job", rule="old", limit=100).rows == 1
            assert opened.ids() == [1]
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 0
        assert (opened.ids(), opened.ids("note")) == ([1], [1])


def test_a_deferred_foreign_key_of_sqlite_needs_nothing_but_the_write_lock(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, (1, "done", ago(31)), (2, "done", ago(30)))
    notes(sqlite_database, foreign_key="job (id) DEFERRABLE INITIALLY DEFERRED")
    with (
        keeping(sqlite_database, table("job", rule(unless=[referenced_by("note.job_id")]))) as opened,
        closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as writer,
        closing(sqlite3.connect(sqlite_database.path, isolation_level=None, timeout=0)) as pruner,
    ):
        writer.execute("PRAGMA foreign_keys = ON")
        writer.execute("BEGIN")
        writer.execute("INSERT INTO note (id, job_id) VALUES (1, 1)")
        with pytest.raises(StoreError, match="locked"):
            opened.keeper.prune("job", rule="old", limit=100, connection=pruner)
        writer.execute("COMMIT")
        assert opened.keeper.prune("job", rule="old", limit=100, connection=pruner).rows == 1
        assert (opened.ids(), opened.ids("note")) == ([1], [1])
