"""Restoring on Spark itself: what is chosen, by whom, and that it comes back exactly."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from archive.cold import STAYING, Cold, cold_keeper, conserve, damage, events, insert_events
from archive.test_restore import EVENT, READ, back, content, ever, trail
from servers import Database, SqliteDatabase
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, UnknownTable, Unproven, WrongArgument
from wane.events import RowsRestored, WorkProgressed

pytestmark = pytest.mark.on_spark


@pytest.mark.sampled("postgres")
def test_chosen_rows_move_back_exactly_and_are_protected_until_their_time(database: Database, tmp_path: Path) -> None:
    events(database, 150)
    before, known = content(database), ever(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        done = back(cold, where="id BETWEEN 11 AND 100")
        reads = sum(n % 3 for n in range(11, 101))
        assert done.restored == done.chosen == {"event": 90, "event_read": reads}
        assert (done.existing, done.replaced, done.unrestored) == (0, 0, 0)
        assert set(cold.hot()) == {*range(11, 101), *STAYING}
        assert [row for row in before["event"] if row in database.query(EVENT)] == database.query(EVENT)
        assert [row for row in before["event_read"] if 11 <= row[1] <= 100] == database.query(READ)
        conserve(cold, known, done=True)
        assert trail(database, "restore") == Counter(done.restored)
        assert [event.restored for event in cold.events if isinstance(event, RowsRestored)] == [done.restored]
        assert len(cold.keeper.holds(limit=1_000)) == 90 + reads
        repeated = cold.one()
        assert (repeated.outcome, repeated.archived["event"]) == (Outcome.DONE, 0), "they are protected"
        for hold in cold.keeper.holds(limit=1_000):
            assert hold.id is not None
            cold.keeper.release_hold(hold.id)
        database.execute("UPDATE event SET body = 'changed since' WHERE id = 50")
        assert cold.one().archived == {"event": 90, "event_read": reads}
        conserve(cold, known, done=True)
        assert [row["body"] for row in cold.archived() if row["id"] == 50] == ["changed since"]
        assert not list((tmp_path / "cold" / ".restore").glob("*/*")), "nothing staged is left behind"


@pytest.mark.sampled
def test_a_stop_cancels_the_tasks_and_the_same_restore_resumes(database: Database, tmp_path: Path) -> None:
    events(database, 300)
    known, stop = ever(database), threading.Event()
    slow = Pace(target_seconds=1.0, duty=0.5, first_batch=5, least_batch=5, most_batch=5)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        cold.hears.append(lambda event: stop.set() if isinstance(event, WorkProgressed) and event.done else None)
        half = cold.keeper.archive.restore("event", where="id <= 300", pace=slow, stop=stop)
        assert half.stopped
        assert half.restored["event"] == len(cold.hot()) - len(STAYING)
        conserve(cold, known, done=False)
        done = back(cold, where="id <= 300")
        assert (done.id, done.restored["event"], done.stopped) == (half.id, 300, False)
        conserve(cold, known, done=True)


@pytest.mark.sampled
def test_rows_are_chosen_by_sweep_and_by_key(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    known = ever(database)
    with cold_keeper(database, tmp_path) as cold:
        [first] = cold.one().sweeps
        insert_events(database, range(21, 31))
        known = {table: rows | ever(database)[table] for table, rows in known.items()}
        [second] = cold.one().sweeps
        assert back(cold, keys=[{"id": 3}, {"id": 21}, {"id": 4711}]).restored["event"] == 2
        assert back(cold, sweep=second).restored["event"] == 9
        assert set(cold.hot()) == {3, *range(21, 31), *STAYING}
        assert back(cold, keys=[{"id": 4711}]).chosen == {"event": 0, "event_read": 0}
        with pytest.raises(WrongArgument, match="event has no sweep 99"):
            back(cold, sweep=99)
        assert first != second
        conserve(cold, known, done=True)
        with pytest.raises(WrongArgument, match="has no column"):
            back(cold, keys=[{"nothing": 1}])
        with pytest.raises(WrongArgument, match="the archive condition failed"):
            back(cold, keys=[{"id": "not a number"}])
        with pytest.raises(WrongArgument, match="not allowed"):
            back(cold, where="id IN (SELECT 1)")
        with pytest.raises(WrongArgument, match="exactly one"):
            back(cold, where="id = 1", sweep=1)
        with pytest.raises(UnknownTable, match=r"leave with those of event\.cold"):
            cold.keeper.archive.restore("event_read", where="id = 1")


def test_a_column_whose_name_spark_would_take_apart_comes_back(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    sqlite_database.execute('ALTER TABLE event ADD COLUMN "a.b`c" text')
    sqlite_database.execute('UPDATE event SET "a.b`c" = id')
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        assert back(cold, keys=[{"id": 3}]).restored["event"] == 1
        assert back(cold, where="`a.b``c` = '4'").restored["event"] == 1
        assert sqlite_database.query('SELECT id, "a.b`c" FROM event WHERE id IN (3, 4)') == [(3, "3"), (4, "4")]


@pytest.mark.sampled
def test_a_byte_that_changed_in_the_archive_lets_nothing_come_back(database: Database, tmp_path: Path) -> None:
    events(database, 30)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        for file in files(cold):
            damage(file, "amount")
        before = cold.hot()
        for options in ({}, {"into": "side"}, {"dry_run": True}):
            with pytest.raises(Unproven, match=r"/cold/event/_month=\S+ cannot be trusted"):
                back(cold, where="id < 10", **options)
        assert (cold.hot(), len(cold.keeper.archive.restores())) == (before, 0)


def test_a_value_that_was_changed_in_the_archive_does_not_come_back(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    """On SQLite, where the archive keeps every row's digest as its version."""
    events(sqlite_database, 30)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        for file in files(cold):
            table = pq.read_table(file, partitioning=None)
            bodies = ["forged" if body.startswith("body 7 ") else body for body in table["body"].to_pylist()]
            forged = table.set_column(table.column_names.index("body"), "body", pa.array(bodies))
            pq.write_table(forged, file, compression="zstd", write_page_checksum=True)
        before = cold.hot()
        with pytest.raises(ArchiveError, match="is not what was archived"):
            back(cold, where="id < 10")
        assert (cold.hot(), len(cold.keeper.archive.restores())) == (before, 0)
        assert back(cold, where="id = 8", dry_run=True).restored["event"] == 1, "the others are what they were"


def files(cold: Cold) -> list[Path]:
    return [Path(path) for path in DeltaTable(str(cold.folder / "cold" / "event")).file_uris()]
