"""How long SQLite's write-ahead log is, as its file states, beside what SQLite itself counts."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from covering import numbers
from servers import SqliteDatabase
from wane._db.sqlite.log import pages_in_log


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_the_log_is_as_long_as_sqlite_counts_after_every_commit(tmp_path: Path, page_size: int) -> None:
    path = tmp_path / "one.db"
    counted: list[tuple[int, int]] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE one (id integer, body text)")
        # A long log first: what is left of it lies behind every later one.
        for rows in (2_000, 1, 300, 1, 1, 50):
            connection.execute(f"INSERT INTO one SELECT n, '{'x' * 200}' FROM {numbers(rows)}")
            pages = pages_in_log(path)
            [(_, own, _)] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            counted.append((pages, own))
    assert all(pages == own > 0 for pages, own in counted)
    assert max(counted) > min(counted)


def test_a_transaction_that_is_not_committed_and_a_linked_path_change_nothing(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    sqlite_database.execute("CREATE TABLE one (id integer)")
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_database.path)
    before = pages_in_log(sqlite_database.path)
    with closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO one VALUES (1)")
        assert pages_in_log(sqlite_database.path) == before > 0
        connection.execute("COMMIT")
        assert pages_in_log(link) == pages_in_log(sqlite_database.path) > before


@pytest.mark.parametrize("content", [None, b"", b"x" * 20, b"\0" * 32, b"\xff" * 5_000])
def test_a_log_that_is_missing_empty_or_cut_has_no_pages(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "one.db-wal").write_bytes(content)
    assert pages_in_log(tmp_path / "one.db") == 0


def test_reading_the_log_releases_no_lock_of_the_process(sqlite_database: SqliteDatabase) -> None:
    """As closing the database's file would, of every connection of the process."""
    sqlite_database.execute("CREATE TABLE one (id integer)")
    with closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            pages_in_log(sqlite_database.path)
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        done = subprocess.run(
            [sys.executable, "-c", other, str(sqlite_database.path)], capture_output=True, text=True, timeout=60
        )
        assert "database is locked" in done.stderr
        connection.execute("COMMIT")
