"""The table of before, split into months beside the application."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from partition.partitioning import CONTRACT, PLAIN, RICH, AfterOneBatch, Application, dump, keeping, partitions, rows
from servers import PostgresDatabase
from wane._partition.sql import PostgresPartitions
from wane._prune.pace import FAST, Pace
from wane.errors import PartitionError

SMALL = Pace(target_seconds=1.0, duty=0.9, first_batch=20, least_batch=20, most_batch=20)


def test_every_month_gets_its_rows_and_going_back_still_works(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(RICH)
    tables = ("event", "event_read", "note")
    before, was = dump(postgres_database), rows(postgres_database, *tables)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        done = keeper.partition.split("event", pace=SMALL)
        assert (done.did, done.rows) == ("split", 400 + 133)
        assert rows(postgres_database, *tables) == was
        assert not any("_p_before_" in name for name in partitions(postgres_database))
        found = postgres_database.query("SELECT DISTINCT tableoid::regclass::text FROM event")
        assert len(found) >= 4
        assert postgres_database.query("SELECT count(*) FROM event_p_before") == [(0,)]
        assert keeper.partition.split("event").did == "nothing"
        assert keeper.partition.maintain("event")[0].did == "nothing"
        keeper.partition.undo("event", pace=FAST)
    assert rows(postgres_database, *tables) == was
    assert sorted(dump(postgres_database).splitlines()) == sorted(before.splitlines())


def test_what_the_application_changes_meanwhile_is_carried_along(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(RICH)
    with keeping(postgres_database, tmp_path) as keeper, Application(postgres_database) as application:
        keeper.partition.convert("event", accept=True)
        application.await_statements(200)
        keeper.partition.split("event", pace=SMALL)
        application.await_statements(100)
    application.check()


@pytest.mark.parametrize("then", ["split", "undo"])
def test_stopped_or_broken_it_goes_on_or_is_taken_back(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    postgres_database.script(RICH)
    before, was = dump(postgres_database), rows(postgres_database)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        stop = threading.Event()
        stop.set()
        assert keeper.partition.split("event", stop=stop).stopped
        with monkeypatch.context() as patch:
            patch.setattr(PostgresPartitions, "swap_split", broken)
            with pytest.raises(KeyboardInterrupt):
                keeper.partition.split("event", pace=SMALL)
        postgres_database.execute(
            "DELETE FROM event WHERE code IN ('old 3', 'old 4') AND id NOT IN (SELECT event_id FROM event_read) AND id NOT IN (SELECT id FROM note)"
        )
        was = rows(postgres_database)
        if then == "split":
            assert keeper.partition.split("event").did == "split"
            assert rows(postgres_database) == was
        keeper.partition.undo("event", pace=FAST)
    assert rows(postgres_database) == was
    assert sorted(dump(postgres_database).splitlines()) == sorted(before.splitlines())


def test_a_copy_that_is_not_what_it_was_copied_from_is_not_swapped(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_database.script(PLAIN)
    original = PostgresPartitions.differs

    def spoiled(this: PostgresPartitions, *arguments: object) -> str:
        postgres_database.execute("UPDATE wane.public_event_root SET body = 'forged' WHERE id = 5")
        return original(this, *arguments)  # type: ignore[arg-type]

    with keeping(postgres_database, tmp_path, CONTRACT) as keeper:
        keeper.partition.convert("event", accept=True)
        was = rows(postgres_database)
        monkeypatch.setattr(PostgresPartitions, "differs", spoiled)
        with pytest.raises(PartitionError, match="is not what it was copied from"):
            keeper.partition.split("event", pace=SMALL)
        assert rows(postgres_database) == was
        with pytest.raises(PartitionError, match="is being split into months"):
            keeper.partition.retire("event")
        assert keeper.partition.maintain("event")[0].did == "nothing", "months that come do not wait for it"


def test_a_batch_of_the_copy_reads_its_rows_whatever_indexes_there_are(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an index by time, going by time would read and sort the whole table for every batch."""
    postgres_database.script(PLAIN)
    postgres_database.script(
        "DROP INDEX event_age; INSERT INTO event (code, created_at)"
        " SELECT 'old', date_trunc('month', now()) - g * interval '1 hour' FROM generate_series(1, 4000) AS g; ANALYZE event"
    )

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PostgresPartitions, "swap_split", broken)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        [old] = [name for name in partitions(postgres_database) if "_p_before_" in name]
        read = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = ?"
        postgres_database.execute("SELECT pg_stat_force_next_flush()")
        keeper.store.run("SELECT pg_stat_force_next_flush()", {})
        [(before,)] = postgres_database.query(read, (old,))
        pace = Pace(target_seconds=1.0, duty=1.0, first_batch=100, least_batch=100, most_batch=100)
        with pytest.raises(KeyboardInterrupt):
            keeper.partition.split("event", pace=pace)
    postgres_database.execute("SELECT pg_stat_clear_snapshot()")
    [(after,)] = postgres_database.query(read, (old,))
    assert after - before <= 3 * 4400, "once for its edges and once for the proof, however many batches there were"


def test_a_split_that_was_stopped_goes_on_with_the_conversion(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(PLAIN)
    with keeping(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        stopped = keeper.partition.split("event", pace=SMALL, stop=AfterOneBatch())
        assert (stopped.did, stopped.rows, stopped.stopped) == ("copied", 20, True)
        with pytest.raises(PartitionError, match="is being split into months"):
            keeper.partition.retire("event")
        # The same command again: what is converted stays so, and the copy goes on.
        assert keeper.partition.convert("event", accept=True).did == "nothing"
        done = keeper.partition.split("event", pace=FAST)
        assert (done.did, done.rows) == ("split", 400 + 133 - 20)


def test_rows_that_are_added_meanwhile_are_not_copied_once_more(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that adds rows faster than they are copied would keep the copy from its end."""
    postgres_database.script(PLAIN)
    original, batches = PostgresPartitions.copy_some, 0

    def beside(this: PostgresPartitions, *arguments: object) -> object:
        nonlocal batches
        batches += 1
        if batches <= 50:
            postgres_database.execute("INSERT INTO event (code) SELECT 'app' FROM generate_series(1, 25)")
        return original(this, *arguments)  # type: ignore[arg-type]

    with keeping(postgres_database, tmp_path, CONTRACT) as keeper:
        keeper.partition.convert("event", accept=True)
        monkeypatch.setattr(PostgresPartitions, "copy_some", beside)
        assert keeper.partition.split("event", pace=SMALL).rows == 400 + 133
    assert batches >= 20
    assert postgres_database.query("SELECT count(*) FROM event WHERE code = 'app'") == [(25 * min(batches, 50),)]
