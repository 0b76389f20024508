"""SQLite: a database whose file is moved, replaced or deleted while it is open is noticed, and nothing is written into
the old file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from prune.keeping import Keeping, ago, jobs, keeping
from servers import SqliteDatabase
from wane._db.statement import Statement
from wane._prune.sweep import Outcome
from wane.errors import BindError, NotMigrated, PlanError, StoreError, Unreachable

REPLACED = "was replaced by another file while it was open"


@pytest.fixture
def opened(sqlite_database: SqliteDatabase) -> Iterator[Keeping]:
    """Yield a keeper whose schema is bound, with three due rows; no other process has the file open."""
    jobs(sqlite_database, *[(n, "done", ago(30 + n)) for n in (1, 2, 3)])
    with keeping(sqlite_database) as opened:
        opened.keeper.enable()
        assert opened.keeper.prune("job", rule="old", limit=1).rows == 1
        sqlite_database.close()
        yield opened


def path_of(opened: Keeping) -> Path:
    assert isinstance(opened.database, SqliteDatabase)
    return opened.database.path


def checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def replace(path: Path) -> Path:
    """Restore the database from a backup, as people do; return a name of the old file."""
    checkpoint(path)
    backup, old = path.with_name("backup"), path.with_name("old")
    shutil.copy(path, backup)
    os.link(path, old)
    backup.replace(path)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    return old


def ids(path: Path) -> list[int]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [number for (number,) in connection.execute("SELECT id FROM job ORDER BY id")]


def test_nothing_is_written_into_a_file_that_was_replaced(opened: Keeping) -> None:
    path = path_of(opened)
    old = replace(path)
    with pytest.raises(Unreachable, match=REPLACED) as reported:
        opened.keeper.prune("job", rule="old", limit=1)
    assert "the next call opens the new one" in reported.value.hint
    assert opened.keeper.prune("job", rule="old", limit=1).rows == 1
    assert (ids(path), ids(old)) == ([1], [1, 2])
    assert len(opened.keeper.audit()) == 2


def test_a_transaction_that_the_replacement_overtakes_is_not_committed(opened: Keeping) -> None:
    path, store = path_of(opened), opened.keeper.store
    checkpoint(path)
    shutil.copy(path, path.with_name("backup"))

    def overtaken() -> None:
        with store.transaction() as transaction:
            transaction.change(Statement("DELETE FROM job", {}))
            os.link(path, path.with_name("old"))
            path.with_name("backup").replace(path)
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink()

    with pytest.raises(Unreachable, match=REPLACED):
        overtaken()
    with store.transaction() as transaction:
        assert transaction.execute("SELECT count(*) FROM job", {}) == [(2,)]
    assert ids(path.with_name("old")) == [1, 2]


USES: dict[str, Callable[[Keeping], object]] = {
    "read": lambda opened: opened.keeper.store.read(Statement("SELECT 1", {}), 1.0),
    "run": lambda opened: opened.keeper.store.run("SELECT 1", {}),
    "clock": lambda opened: opened.keeper.store.clock(),
    "reflect": lambda opened: opened.keeper.store.reflect(),
    "migrations": lambda opened: opened.keeper.store.applied_migrations(),
    "explain": lambda opened: opened.keeper.store.planner.explain(Statement("SELECT 1", {})),
    "plan": lambda opened: opened.keeper.plan(),
    "pressure": lambda opened: opened.keeper.pressure(),
    "health": lambda opened: opened.keeper.health(),
    "hold": lambda opened: opened.keeper.hold("job", reason="a test"),
    "enqueue": lambda opened: opened.keeper.queue("mine").enqueue("work"),
}


@pytest.mark.parametrize("use", list(USES))
def test_every_use_notices_once_and_then_goes_on_with_the_new_file(opened: Keeping, use: str) -> None:
    path = path_of(opened)
    old = replace(path)
    with closing(sqlite3.connect(old)) as connection:
        before = list(connection.iterdump())
    with pytest.raises(Unreachable, match=REPLACED):
        USES[use](opened)
    USES[use](opened)
    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before


def test_a_consumer_that_waits_for_a_message_notices(opened: Keeping) -> None:
    queue = opened.keeper.queue("mine")
    sequence = queue.read_wakeup_sequence()
    assert queue.wait_for_wakeup(sequence, timeout=0.01) is None
    replace(path_of(opened))
    with pytest.raises(Unreachable, match=REPLACED):
        queue.wait_for_wakeup(sequence, timeout=20)
    with pytest.raises(Unreachable, match=REPLACED):
        queue.enqueue("work")
    queue.enqueue("work")
    assert queue.wait_for_wakeup(sequence, timeout=20) is not None
    queue.close()


def test_a_callers_connection_to_the_old_file_is_refused(opened: Keeping) -> None:
    path = path_of(opened)
    with closing(sqlite3.connect(path, isolation_level=None)) as caller:
        assert caller.execute("SELECT count(*) FROM job").fetchall() == [(2,)]
        old = replace(path)
        with pytest.raises(Unreachable, match=REPLACED):
            opened.keeper.prune("job", rule="old", limit=1, connection=caller)
        for _ in range(2):
            with pytest.raises(StoreError, match="but to a file that was there before"):
                opened.keeper.prune("job", rule="old", limit=1, connection=caller)
        assert (ids(path), ids(old)) == ([1, 2], [1, 2])
    with closing(sqlite3.connect(path, isolation_level=None)) as caller:
        assert opened.keeper.prune("job", rule="old", limit=1, connection=caller).rows == 1


def test_a_file_that_was_deleted_is_gone_until_it_is_put_back(opened: Keeping) -> None:
    path = path_of(opened)
    checkpoint(path)
    shutil.copy(path, path.with_name("backup"))
    path.unlink()
    [swept] = opened.keeper.sweep().rules
    assert (swept.outcome, "was moved or deleted while it was open" in swept.message) == (Outcome.FAILED, True)
    with closing(sqlite3.connect(path.with_name("backup"))) as caller:
        for connection in (None, caller):
            with pytest.raises(Unreachable, match="there is no database at"):
                opened.keeper.prune("job", rule="old", limit=1, connection=connection)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    path.with_name("backup").replace(path)
    assert opened.keeper.prune("job", rule="old", limit=10).rows == 2


def test_a_file_that_is_no_database_is_refused_until_there_is_one(opened: Keeping) -> None:
    path = path_of(opened)
    checkpoint(path)
    shutil.copy(path, path.with_name("backup"))
    path.with_name("text").write_text("not a database, but long enough to be one: " * 100)
    path.with_name("text").replace(path)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    with pytest.raises(Unreachable, match=REPLACED):
        opened.keeper.prune("job", rule="old", limit=1)
    for _ in range(2):
        with pytest.raises(Unreachable, match="file is not a database"):
            opened.keeper.prune("job", rule="old", limit=1)
    path.with_name("backup").replace(path)
    assert opened.keeper.prune("job", rule="old", limit=10).rows == 2


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_log_that_was_removed_is_noticed(opened: Keeping, end: str) -> None:
    path = path_of(opened)
    path.with_name(path.name + end).unlink()
    with pytest.raises(Unreachable, match=f"{end} was removed or replaced while the database was open"):
        opened.keeper.prune("job", rule="old", limit=1)
    assert opened.keeper.prune("job", rule="old", limit=10).rows == 2
    assert ids(path) == []


def test_a_link_that_names_another_file_is_noticed(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    jobs(sqlite_database, (1, "done", ago(30)))
    with keeping(sqlite_database):
        pass
    checkpoint(sqlite_database.path)
    sqlite_database.close()
    real = sqlite_database.path.rename(tmp_path / "blue")
    shutil.copy(real, tmp_path / "green")
    sqlite_database.path.symlink_to(real)
    with keeping(sqlite_database, migrate=False) as opened:
        assert opened.keeper.store.applied_migrations()
        (tmp_path / "link").symlink_to(tmp_path / "green")
        (tmp_path / "link").replace(sqlite_database.path)
        with pytest.raises(Unreachable, match=REPLACED):
            opened.keeper.prune("job", rule="old", limit=1)
        assert opened.keeper.prune("job", rule="old", limit=1).rows == 1
        assert (ids(tmp_path / "blue"), ids(tmp_path / "green")) == ([1], [])


def test_closing_the_old_file_does_not_change_the_log_of_the_new_one(opened: Keeping) -> None:
    path = path_of(opened)
    replace(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as application:
        application.execute("PRAGMA wal_autocheckpoint = 0")
        application.execute("INSERT INTO job (id, state, at_ms) VALUES (50, 'queued', 1)")
        log = path.with_name(path.name + "-wal")
        before = log.stat().st_ino, log.stat().st_size
        with pytest.raises(Unreachable, match=REPLACED):
            opened.keeper.prune("job", rule="old", limit=1)
        opened.keeper.holds()
        assert (log.stat().st_ino, log.stat().st_size) >= before
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 2
        assert application.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert application.execute("SELECT id FROM job").fetchall() == [(50,)]


def test_rules_are_bound_to_the_schema_of_the_new_file(opened: Keeping) -> None:
    """The old file's table has no child; in the new one a cascade would take rows that nobody counts. The versions of
    two files' schemas may be equal by chance."""
    path = path_of(opened)
    replace(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as application:
        [version] = application.execute("PRAGMA schema_version").fetchone()
        application.execute(
            "CREATE TABLE part (id integer PRIMARY KEY, job_id integer REFERENCES job ON DELETE CASCADE)"
        )
        application.execute("CREATE INDEX part_job ON part (job_id)")
        application.execute("INSERT INTO part VALUES (1, 2)")
        application.execute(f"PRAGMA schema_version = {version}")
    with pytest.raises(Unreachable, match=REPLACED):
        opened.keeper.prune("job", rule="old", limit=1)
    with pytest.raises(BindError, match="uncounted"):
        opened.keeper.prune("job", rule="old", limit=10)
    assert ids(path) == [1, 2]


def test_a_new_file_without_our_tables_loses_nothing(opened: Keeping) -> None:
    path = path_of(opened)
    replace(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as application:
        names = application.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'wane%'"
        ).fetchall()
        for (name,) in names:
            application.execute(f"DROP TABLE {name}")
    with pytest.raises(Unreachable, match=REPLACED):
        opened.keeper.prune("job", rule="old", limit=1)
    with pytest.raises(NotMigrated):
        opened.keeper.prune("job", rule="old", limit=10)
    assert ids(path) == [1, 2]


def test_a_plan_of_the_old_file_is_not_applied_to_the_new_one(opened: Keeping) -> None:
    plan = opened.keeper.plan()
    replace(path_of(opened))
    with pytest.raises(PlanError, match="another database"):
        opened.keeper.apply(plan)


def test_a_file_that_stays_is_never_taken_for_another(sqlite_database: SqliteDatabase) -> None:
    """Checkpoints, other connections that come and go, and VACUUM change no inode that is compared."""
    jobs(sqlite_database, *[(n, "done", ago(30)) for n in range(5)])
    with keeping(sqlite_database) as opened:
        sqlite_database.close()
        for number in range(5):
            with closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                other.execute("VACUUM")
                insert_one(other, 100 + number)
            assert opened.keeper.prune("job", rule="old", limit=1).rows == 1


def insert_one(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("INSERT INTO job (id, state, at_ms) VALUES (?, 'queued', ?)", (number, ago(1)))
