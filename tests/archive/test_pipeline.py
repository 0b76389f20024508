"""Rows past their hot window move to the archive, exactly those, once, and can be read there by anybody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from archive.cold import CONTRACT, DAY_MS, NOW_MS, OLD_MS, STAYING, Cold, cold_keeper, conserve, events, insert_events
from servers import Database, SqliteDatabase
from wane._archive.journal import Journal, JournaledRange
from wane._archive.model import ArchivedRule
from wane._archive.pipeline import sweep
from wane._cli import main
from wane._contract.names import TableName
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, WrongArgument
from wane.events import ArchiveStep, RowsArchived


@pytest.mark.on_spark
def test_due_rows_move_with_their_followers_and_everything_else_stays(database: Database, tmp_path: Path) -> None:
    events(database)
    rows = {row[0]: row for row in database.query("SELECT id, status, at_ms, body, amount FROM event WHERE id <= 200")}
    reads = {row[0]: row for row in database.query("SELECT id, event_id, who FROM event_read")}
    with cold_keeper(database, tmp_path) as cold:
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 0), done.message
        assert done.archived == done.evicted == {"event": 200, "event_read": len(reads)}
        assert cold.hot() == STAYING
        assert cold.hot("event_read") == []
        assert {
            row["id"]: (row["id"], row["status"], row["at_ms"], row["body"], type(rows[1][4])(row["amount"]))
            for row in cold.archived()
        } == rows
        assert {row["id"]: (row["id"], row["event_id"], row["who"]) for row in cold.archived("event_read")} == reads
        assert all(row["_month"] for row in cold.archived("event_read"))
        entries = cold.keeper.audit(kind="archive")
        assert {(entry.table, entry.rule, entry.actor) for entry in entries} == {("event", "cold", "tester")}
        ranges = [(entry.inputs["sweep"], entry.inputs["range"], entry.counts["event"]) for entry in entries]
        assert sorted(ranges) == [(1, 0, 60), (1, 1, 60), (1, 2, 60), (1, 3, 20)]
        assert {table: sum(entry.counts[table] for entry in entries) for table in done.evicted} == done.evicted
        assert all(set(entry.counts) == set(done.evicted) for entry in entries)
        assert all(entry.batches > 1 for entry in entries)
        states = [event.state for event in cold.events if isinstance(event, ArchiveStep)]
        assert states == ["planned", "written", "verified", "committed", "evicted", "done"]
        [reported] = [event for event in cold.events if isinstance(event, RowsArchived)]
        assert reported.archived == done.archived


def test_a_second_run_moves_nothing_and_reports_it(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        repeated = cold.one()
        assert (repeated.outcome, repeated.sweeps, repeated.archived) == (Outcome.DONE, (), {"event": 0})
        assert len(cold.cold()) == 10
        assert [entry.rows for entry in cold.keeper.audit(kind="archive")] == [0, 20]  # Newest first.


@pytest.mark.on_spark
@pytest.mark.sampled("sqlite")
def test_later_sweeps_add_to_the_archive_and_are_proven_by_samples(database: Database, tmp_path: Path) -> None:
    events(database, 70)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        insert_events(database, range(900, 1_100))
        assert cold.one().archived["event"] == 200
        assert [status.strict for status in cold.keeper.archive.status()] == [False, True]
        assert cold.cold() == [*range(1, 71), *range(900, 1_100)]
        assert cold.one(strict=True).outcome is Outcome.DONE
        [rows, reads] = cold.keeper.archive.tables()
        assert (rows.table, rows.rows) == ("event", 270)
        months = {row["_month"] for row in cold.archived()}
        assert (rows.oldest_month, rows.newest_month) == (min(months), max(months))
        assert reads.rows == len(cold.archived("event_read"))
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]


def test_more_than_one_sweep_takes_is_moved_by_several(database: Database, tmp_path: Path) -> None:
    events(database, 150)
    with cold_keeper(database, tmp_path, CONTRACT + "sweep_rows = 70\n") as cold:
        cold.at["evicted"] = lambda: become_due(cold, 9_000)
        done = cold.one()
        assert (len(done.sweeps), done.archived["event"]) == (3, 150)
        assert cold.hot() == [9_000, *STAYING], "it was not due when the run began"
        assert len({entry.cutoff for entry in cold.keeper.audit(kind="archive")}) == 1
        assert cold.one().archived["event"] == 1


def test_a_sweep_begins_behind_the_one_before_in_the_same_run(database: Database, tmp_path: Path) -> None:
    events(database, 150)
    early = f"INSERT INTO event (id, status, at_ms) VALUES (8999, 'done', {OLD_MS - 1})"
    with cold_keeper(database, tmp_path, CONTRACT + "sweep_rows = 70\n") as cold:
        cold.at["evicted"] = lambda: database.execute(early)
        done = cold.one()
        assert (len(done.sweeps), done.archived["event"]) == (3, 150)
        assert cold.hot() == [8_999, *STAYING], "it was added behind the first sweep"
        first, second = journaled_ranges(cold, done.sweeps[0])[-1], journaled_ranges(cold, done.sweeps[1])[0]
        assert second.bounds["floor"] == first.bounds["ceiling"], "what has left is walked over once more"
        assert cold.one().archived["event"] == 1


def journaled_ranges(cold: Cold, sweep: int) -> list[JournaledRange]:
    with cold.keeper.store.transaction() as transaction:
        return Journal(transaction).ranges(sweep)


def become_due(cold: Cold, number: int) -> None:
    """Insert a row that is due by the clock, and was not when the run began."""
    at = int(cold.keeper.store.now().timestamp() * 1_000) - 90 * DAY_MS
    cold.database.execute("INSERT INTO event (id, status, at_ms) VALUES (?, 'done', ?)", (number, at))
    while cold.keeper.store.now().timestamp() * 1_000 <= at + 90 * DAY_MS + 1:
        pass


@pytest.mark.frames_on_spark
@pytest.mark.sampled("postgres")
def test_rows_can_be_requested(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        found = cold.keeper.archive.query("event", where="id BETWEEN 3 AND 5", columns=["id", "body"]).collect()
        assert sorted(tuple(row) for row in found) == [(n, f"body {n} \U0001f600") for n in (3, 4, 5)]
        assert cold.keeper.archive.query("event_read").count() == len(cold.archived("event_read"))
        assert cold.keeper.archive.query("event", limit=2).count() == 2
        with pytest.raises(WrongArgument, match="the archive has no column"):
            cold.keeper.archive.query("event", where="no_such_column = 1")
        with pytest.raises(WrongArgument, match="no rule archives"):
            cold.keeper.archive.query("event_guard")


KEYS: dict[str, tuple[str, str, Callable[[int], tuple[object, ...]]]] = {
    "integer": ("id integer", "id", lambda n: (n,)),
    "uuid": ("id uuid", "id", lambda n: (f"{n * 7919 % 1000:08x}-0000-4000-8000-{n:012x}",)),
    "text": ("id text", "id", lambda n: (f"k'{n * 7919 % 1000}é\"%",)),
    "composite": ("tenant text NOT NULL, n bigint NOT NULL", "tenant, n", lambda n: (f"t{n % 3}", n)),
}


@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_key_is_cut_into_ranges(database: Database, tmp_path: Path, kind: str) -> None:
    declared, key, make = KEYS[kind]
    if database.store == "sqlite":
        declared = declared.replace("uuid", "text")
    database.execute(f"CREATE TABLE event ({declared}, at_ms bigint NOT NULL, PRIMARY KEY ({key}))")
    database.execute(f"CREATE INDEX event_due ON event (at_ms, {key})")
    # Many rows of the same timestamp: the key decides between them.
    rows = [(*make(n), OLD_MS + n // 40 * DAY_MS) for n in range(150)] + [(*make(999), NOW_MS)]
    marks = ", ".join("?" * len(rows[0]))
    database.executemany(f"INSERT INTO event VALUES ({marks})", rows)
    text = CONTRACT.replace('state = "status"\nlive  = ["open"]\n', "").replace('when = ["done"]\n', "")
    text = text.replace('with = ["event_read.event_id"]\n', "").replace(
        'unless = [{{ referenced_by = "event_guard.event_id" }}]\n', ""
    )
    with cold_keeper(database, tmp_path, text) as cold:
        assert cold.one().archived == {"event": 150}
        assert database.query("SELECT count(*) FROM event") == [(1,)]
        names = key.split(", ")
        found = sorted(tuple(row[name] for name in names) for row in cold.archived())
        assert found == sorted(make(n) for n in range(150))
        with cold.keeper.store.transaction() as transaction:
            [(ranges,)] = transaction.execute(
                f"SELECT count(*) FROM {transaction.dialect.own_table('archive_range')}", {}
            )
        assert ranges == 3


@pytest.mark.frames_on_spark
def test_an_added_column_comes_into_the_archive(database: Database, tmp_path: Path) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        database.execute("ALTER TABLE event ADD COLUMN note text")
        insert_events_with_note(database, 7)
    with cold_keeper(database, tmp_path) as cold:
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        assert {row["id"]: row["note"] for row in cold.archived()} == {**dict.fromkeys(range(1, 6)), 7: "noted"}
        assert cold.keeper.archive.status()[0].strict  # A new shape is proven in full.
        assert cold.keeper.archive.query("event", where="note = 'noted'").count() == 1


def insert_events_with_note(database: Database, number: int) -> None:
    database.execute("INSERT INTO event VALUES (?, 'done', ?, 'x', 1, 'noted')", (number, OLD_MS + number))


def test_flags_gate_it(database: Database, tmp_path: Path) -> None:
    events(database, 100)
    ever = {"event": set(cold_ids(database)), "event_read": set(cold_ids(database, "event_read"))}
    with cold_keeper(database, tmp_path, enable=False) as cold:
        off = cold.one()
        assert (off.outcome, off.archived) == (Outcome.OFF, {"event": 0})
        assert "master flag" in off.message
        cold.keeper.enable()
        cold.at["committed"] = lambda: cold.keeper.disable("event")
        half = cold.one()
        assert half.outcome is Outcome.OFF
        assert half.evicted == {"event": 0}
        conserve(cold, ever, done=False)
        assert [status.state for status in cold.keeper.archive.status()] == ["committed"]
        cold.keeper.enable("event")
        done = cold.one()
        assert (done.outcome, done.evicted["event"]) == (Outcome.DONE, 100)
        conserve(cold, ever, done=True)
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == 100


def test_what_was_copied_is_not_archived_before_it_is_committed(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    events(database, 30)
    with cold_keeper(database, tmp_path) as cold:

        def stop() -> None:
            raise ArchiveError("stopped", "")

        def printed() -> str:
            with monkeypatch.context() as here:
                here.setattr("sys.argv", ["wane", "archive", "status", "-c", str(tmp_path / "wane.toml")])
                with suppress(SystemExit):
                    main()
            return capfd.readouterr().out

        cold.at["written"] = stop
        assert cold.one().outcome is Outcome.FAILED
        copies = {"event": 30, "event_read": 30}
        [status] = cold.keeper.archive.status()
        assert (status.state, status.archived, status.copied) == ("written", {}, copies)
        assert cold.cold() == []
        assert "not yet: copied event 30, event_read 30" in printed()
        cold.at.clear()
        assert cold.one().outcome is Outcome.DONE
        [status] = cold.keeper.archive.status()
        assert (status.state, status.archived, status.copied) == ("done", copies, copies)
        assert "not yet" not in printed()


def test_a_flag_that_closes_stops_it_at_the_next_batch(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 100)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.at["batch"] = lambda: cold.keeper.disable("event")
        half = cold.one()
        assert half.outcome is Outcome.OFF
        assert 0 < half.evicted["event"] <= 40
        assert len(cold.hot()) == 100 - half.evicted["event"] + len(STAYING)


def cold_ids(database: Database, table: str = "event") -> list[int]:
    return [number for (number,) in database.query(f"SELECT id FROM {table}")]


def test_an_append_only_table_is_unchanged(database: Database, tmp_path: Path) -> None:
    events(database, 5)
    with cold_keeper(
        database,
        tmp_path,
        CONTRACT.replace('with = ["event_read.event_id"]\n', "")
        .replace("state =", "append_only = true\nstate =")
        .replace('scheduler = "night"\n', ""),
    ) as cold:
        assert cold.keeper.contract.table(TableName.parse("event")).append_only
        done: ArchivedRule = cold.one()
        assert done.outcome is Outcome.OFF
        assert cold.hot()[:5] == [1, 2, 3, 4, 5]


def test_a_file_is_written_once_more_however_many_of_its_copies_are_stale(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_STALE_AT_ONCE", 4)
    events(database, 30)
    with cold_keeper(database, tmp_path) as cold:
        cold.at["committed"] = lambda: database.execute("UPDATE event SET body = 'changed' WHERE id <= 20")
        done = cold.one()
        assert (done.outcome, done.stale, done.evicted["event"]) == (Outcome.DONE, 20, 10), done.message
        assert cold.cold() == list(range(21, 31))
        assert cold.hot() == [*range(1, 21), *STAYING]
        for table in ("event", "event_read"):
            months = list((tmp_path / "cold" / table).glob("_month=*"))
            assert months
            assert all(len(list(month.glob("part-*"))) <= 1 for month in months)
        assert any((tmp_path / "cold").rglob("part-*")), "something is left of a file"
        assert cold.one().archived["event"] == 20
        conserve(cold, {"event": {*range(1, 31), *STAYING}}, done=True)
