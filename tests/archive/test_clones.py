"""A clone of a database does not write to the archive of the original until it has adopted it; then the original does
not any more."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from archive.cloning import cloned, reopened
from archive.cold import CONTRACT, Cold, cold_keeper, events, insert_events
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._db import open_store
from wane._db.identity import is_same_database
from wane._db.url import resolve_url
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError


def versions(cold: Cold) -> list[int]:
    return [one.version for one in cold.keeper.archive.tables()]


def test_a_clone_writes_nothing_before_it_adopts_the_archive(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        insert_events(database, range(500, 510))
    with cloned(database, tmp_path) as copy:
        with cold_keeper(copy, tmp_path) as clone:
            before = versions(clone)
            done = clone.one()
            assert done.outcome is Outcome.FAILED
            assert "is a clone" in done.message
            assert "wane archive adopt" in done.message
            archive = clone.keeper.archive
            changes: list[Any] = [*archive.expire(), *archive.compact(), *archive.tidy()]
            assert {one.outcome for one in changes if one.table != "event" or hasattr(one, "files")} == {Outcome.FAILED}
            with pytest.raises(ArchiveError, match="is a clone"):
                archive.restore("event", where="id = 3")
            assert versions(clone) == before
        original = reopened(database)
        with cold_keeper(original, tmp_path) as cold:
            assert cold.one().archived["event"] == 10
            assert len(cold.cold()) == 30
            original.close()


def test_a_database_that_was_replaced_by_its_clone_is_refused_after_the_adoption(
    database: Database, tmp_path: Path
) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        # Unfinished: the clone goes on with it, and knows what is committed.
        insert_events(database, range(500, 510))
        cold.at["committed"] = lambda: cold.keeper.disable()
        cold.one()
        cold.keeper.enable()
    with cloned(database, tmp_path) as copy:
        with cold_keeper(copy, tmp_path) as clone:
            adopted = clone.keeper.archive.adopt()
            assert clone.keeper.archive.adopt() == adopted
            assert clone.keeper.check_live() == []
            assert clone.one().outcome is Outcome.DONE
            assert sorted(set(clone.cold())) == clone.cold()
            assert len(clone.cold()) == 30
            insert_events(copy, [600])
            assert clone.one().archived["event"] == 1
            assert {entry.table for entry in clone.keeper.audit(kind="archive_adopt")} == {"event", "event_read"}
        original = reopened(database)
        with cold_keeper(original, tmp_path) as cold:
            insert_events(original, [700])
            done = cold.one()
            assert done.outcome is Outcome.FAILED
            assert "of another database" in done.message
            assert 700 in cold.hot()
            original.close()


def test_a_clone_with_a_folder_of_its_own_begins_an_archive(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        insert_events(database, range(500, 510))
    own = tmp_path / "own"
    own.mkdir()
    with cloned(database, tmp_path) as copy, cold_keeper(copy, own) as clone:
        assert clone.one().outcome is Outcome.FAILED
        clone.keeper.archive.adopt()
        assert clone.one().archived["event"] == 10
        assert clone.cold() == list(range(500, 510))


def moved(database: SqliteDatabase, folder: Path) -> Path:
    return Path(shutil.move(database.path, folder / "moved.db"))


def restored_to_its_path(database: SqliteDatabase, folder: Path) -> Path:
    shutil.copy(database.path, folder / "backup.db")
    database.path.unlink()
    shutil.copy(folder / "backup.db", database.path)
    return database.path


def vacuumed(database: SqliteDatabase, folder: Path) -> Path:
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("VACUUM INTO ?", (str(folder / "small.db"),))
    (folder / "small.db").replace(database.path)
    return database.path


@pytest.mark.parametrize("change", [moved, restored_to_its_path, vacuumed])
def test_a_file_that_was_moved_or_restored_is_no_clone(
    sqlite_database: SqliteDatabase, tmp_path: Path, change: Callable[[SqliteDatabase, Path], Path]
) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
    sqlite_database.close()
    database = SqliteDatabase(change(sqlite_database, tmp_path))
    with cold_keeper(database, tmp_path) as cold:
        for number in (500, 501):
            insert_events(database, [number])
            assert cold.one().outcome is Outcome.DONE
    database.close()


def test_a_promoted_replica_is_the_same_database_and_a_restored_dump_is_not(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    events(postgres_database, 20)
    with cold_keeper(postgres_database, tmp_path) as cold:
        cold.one()
    with open_store(resolve_url(postgres_database.url)) as store:
        _, system, number = store.identity().split(":")
        # A physical replica has the same two numbers, wherever it runs.
        assert is_same_database(f"postgres:{system}:{number}", store.identity())
        assert not is_same_database(f"postgres:{int(system) + 1}:{number}", store.identity())
        assert not is_same_database(f"postgres:{system}:1{number}", store.identity())
        # Roles without the right to read the system identifier know the number only.
        assert is_same_database(f"postgres::{number}", store.identity())
    postgres_database.execute("UPDATE wane.archive_origin SET identity = 'postgres:7000000000000000000:5'")
    insert_events(postgres_database, [500])
    with cold_keeper(postgres_database, tmp_path) as cold:
        assert "is a clone" in cold.one().message
        cold.keeper.archive.adopt()
        assert cold.one().outcome is Outcome.DONE
        assert 500 in cold.cold()


@pytest.mark.unmigrated
def test_the_identity_of_a_database_needs_no_special_right(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    role = f"wane_plain_{secrets.token_hex(4)}"
    postgres_database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        postgres_database.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC")
        with open_store(resolve_url(postgres_database.url)) as store:
            known = store.identity()
        address = urlsplit(postgres_database.url)
        url = urlunsplit(address._replace(netloc=f"{role}@")) if address.netloc else postgres_database.url
        with open_store(resolve_url(url)) as store:
            assert store.identity().startswith("postgres::")
            assert is_same_database(known, store.identity())
    finally:
        postgres_database.execute(f"DROP ROLE {role}")


def test_an_archive_that_expires_has_one_owner_too(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 20)
    contract = CONTRACT.replace('keep = "forever"', 'keep = "100d"', 1)
    with cold_keeper(sqlite_database, tmp_path, contract) as cold:
        cold.one()
    with cloned(sqlite_database, tmp_path) as copy, cold_keeper(copy, tmp_path, contract) as clone:
        [expired] = clone.keeper.archive.expire()
        assert expired.outcome is Outcome.FAILED
        assert "is a clone" in expired.message
        assert len(clone.cold()) == 20


def test_a_clone_that_begins_anew_leaves_the_archive_to_the_original(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        with pytest.raises(ArchiveError, match="no clone"):
            cold.keeper.archive.adopt(as_new=True)
        # Unfinished: it is the original's to finish, and the clone must evict nothing on its strength.
        insert_events(database, range(500, 510))
        cold.at["committed"] = lambda: cold.keeper.disable()
        cold.one()
        cold.keeper.enable()
    own = tmp_path / "own"
    own.mkdir()
    with cloned(database, tmp_path) as copy:
        with cold_keeper(copy, tmp_path) as clone, pytest.raises(ArchiveError, match="name another folder"):
            clone.keeper.archive.adopt(as_new=True)
        with cold_keeper(copy, own) as clone:
            clone.keeper.archive.adopt(as_new=True)
            entries = clone.keeper.audit(kind="archive_adopt")
            assert [entry.inputs["ended"] for entry in entries] == [["sweep 2 of event"]] * 2
            assert set(range(500, 510)) <= set(clone.hot())
            assert clone.one().archived["event"] == 10
            assert clone.cold() == list(range(500, 510))
            assert clone.keeper.check_live() == []
        original = reopened(database)
        with cold_keeper(original, tmp_path) as cold:
            assert cold.one().outcome is Outcome.DONE
            assert cold.cold() == [*range(1, 21), *range(500, 510)]
            original.close()
