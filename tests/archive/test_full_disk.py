"""A file system that is really full: an error that names it and says what to do, nothing lost, and the next run
finishes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archive.cold import cold_keeper, conserve, events, insert_events
from archive.test_upkeep import everything, files, june
from servers import Database, SqliteDatabase
from wane._archive.pipeline import removal
from wane._archive.restore import restore
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, StoreError

FREE = "free space on its file system"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 4 MB, in memory, where the archive is."""
    folder = tmp_path / "cold"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False, text=True)
    if mounted.returncode:
        pytest.skip(f"mounting a small file system was refused: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path, leaving: int = 0) -> Path:
    """Take all the space but some; return the file that takes it."""
    found = os.statvfs(folder)
    filler = folder / "filler"
    filler.write_bytes(b"x" * (found.f_bavail * found.f_frsize - leaving))
    return filler


def all_rows(database: Database) -> dict[str, set[int]]:
    return {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}


@pytest.mark.parametrize("state", ["planned", "written"])
def test_a_sweep_stops_and_the_next_run_finishes_it(
    database: Database, tmp_path: Path, small: Path, state: str
) -> None:
    events(database, 20)
    ever = all_rows(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.at[state] = lambda: fill(small)
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert f"{small}" in done.message
        assert "cannot be written: No space left on device" in done.message
        assert FREE in done.message
        conserve(cold, ever, done=True)
        assert cold.cold() == []
        (small / "filler").unlink()
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        assert len(cold.cold()) == 20


def test_a_restore_stops_and_the_next_one_finishes_it(
    database: Database, tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 20)
    ever = all_rows(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        filler = fill(small)
        for into in ("side", None):
            with pytest.raises(ArchiveError, match=rf"{small}.* cannot be written: No space left") as refused:
                cold.keeper.archive.restore("event", where="id <= 5", into=into)
            assert FREE in refused.value.hint
            assert len(cold.cold()) == 20
        filler.unlink()
        assert cold.keeper.archive.restore("event", where="id <= 5", into="side").restored["event"] == 5

        def full(*arguments: Any, **options: Any) -> None:
            if not filler.exists():
                fill(small)
            remove_copies(*arguments, **options)

        remove_copies = removal.remove_copies
        monkeypatch.setattr(restore, "remove_copies", full)
        with pytest.raises(ArchiveError, match=rf"{small / 'event'} cannot be written: No space left") as refused:
            cold.keeper.archive.restore("event", where="id <= 5")
        assert FREE in refused.value.hint
        monkeypatch.setattr(restore, "remove_copies", remove_copies)
        conserve(cold, ever, done=False)
        filler.unlink()
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        assert len(cold.cold()) == 15


def test_a_database_without_space_for_a_side_table(tmp_path: Path, small: Path) -> None:
    database = SqliteDatabase(small / "test.db")
    try:
        events(database, 60)
        database.execute("UPDATE event SET body = hex(randomblob(1000))")
        folder = tmp_path / "contract"
        folder.mkdir()
        with cold_keeper(database, folder) as cold:
            cold.one()
            before = cold.cold(), cold.hot()
            database.execute("VACUUM")
            filler = fill(small, 65_536)
            with pytest.raises((StoreError, ArchiveError), match="full"):
                cold.keeper.archive.restore("event", where="id <= 60", into="side")
            assert (cold.cold(), cold.hot()) == before
            filler.unlink()
            # A lease that could not be ended for lack of space ends by itself, after some time.
            database.execute("UPDATE wane_lease SET until = '2020-01-01T00:00:00.000000Z'")
            cold.keeper.archive.restore("event", where="id <= 60", into="side")
            assert (cold.cold(), cold.hot()) == before
            assert database.query("SELECT count(*) FROM side") == [(60,)]
    finally:
        database.close()


@pytest.mark.frames_on_spark
def test_a_compaction_stops_and_changes_nothing(sqlite_database: SqliteDatabase, tmp_path: Path, small: Path) -> None:
    events(sqlite_database, 0)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        for ids in (range(1, 5), range(5, 9)):
            june(sqlite_database, ids)
            cold.one()
        before = everything(cold), files(cold)
        for leaving in (0, 8_192):
            filler = fill(small, leaving)
            [done] = cold.keeper.archive.compact("event")
            assert done.outcome is Outcome.FAILED
            assert f"{small / 'event'} cannot be written: No space left on device" in done.message
            assert FREE in done.message
            assert (everything(cold), files(cold)) == before
            filler.unlink()
        [done] = cold.keeper.archive.compact("event")
        assert done.outcome is Outcome.DONE, done.message
        assert (everything(cold), len(files(cold))) == (before[0], 1)


def test_more_rows_than_the_archive_has_space_for(sqlite_database: SqliteDatabase, tmp_path: Path, small: Path) -> None:
    events(sqlite_database, 100)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        fill(small, 65_536)
        sqlite_database.execute("UPDATE event SET body = hex(randomblob(2000)) WHERE id <= 100")
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert "No space left on device" in done.message
        assert cold.archived() == []
        (small / "filler").unlink()
        insert_events(sqlite_database, [500])
        assert cold.one().outcome is Outcome.DONE
        assert len(cold.cold()) == 101
