"""The contract changes while a sweep or a restore is unfinished: what was begun ends in order, by what its journal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from archive.cold import CONTRACT, STAYING, Cold, cold_keeper, conserve, events, insert_events
from archive.forked import without_spark
from servers import Database, SqliteDatabase
from wane.archive import restore
from wane.errors import ArchiveError
from wane.prune.sweep import Outcome

WITH = 'with = ["event_read.event_id"]'
READ, NOTE, TAG = '"event_read.event_id"', '"event_note.event_id"', '"event_tag.event_id"'


def contract(*followers: str, rule: str = "cold") -> str:
    return CONTRACT.replace(WITH, f"with = [{', '.join(followers)}]").replace("rule.cold", f"rule.{rule}")


CHANGES = {
    "a follower removed": (contract(READ, NOTE, TAG), contract(READ, TAG)),
    "a follower added": (contract(READ, TAG), contract(READ, NOTE, TAG)),
    "followers in another order": (contract(READ, NOTE, TAG), contract(READ, TAG, NOTE)),
    "the rule renamed": (contract(READ, NOTE), contract(READ, NOTE, rule="frozen")),
}


PRUNED = CONTRACT.replace('then = "archive"', 'then = "prune"').replace('[archive.event]\nkeep = "forever"\n', "")


class Cut(BaseException):
    """The process dies here."""


def cut() -> None:
    raise Cut


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


def prepare(database: Database) -> dict[str, set[int]]:
    """Rows with followers that nothing but the contract knows, two tables of one form among them."""
    events(database, 0)
    for table in ("event_note", "event_tag"):
        database.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, event_id bigint NOT NULL, who text)")
        database.execute(f"CREATE INDEX {table}_event ON {table} (event_id)")
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, 'x')", [(n * 7, n) for n in range(1, 101, 2)])
    insert_events(database, range(1, 101))
    tables = "event", "event_read", "event_note", "event_tag"
    return {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in tables}


@pytest.mark.parametrize("when", ["planned", "written", "committed", "batch", "evicted"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_sweep_that_was_cut_off_ends_in_order(
    sqlite_database: SqliteDatabase, tmp_path: Path, change: str, when: str
) -> None:
    ends_in_order(sqlite_database, tmp_path, change, when)


@pytest.mark.parametrize("when", ["written", "committed"])
@pytest.mark.parametrize("change", ["a follower removed", "followers in another order"])
def test_so_it_does_on_every_store(database: Database, tmp_path: Path, change: str, when: str) -> None:
    ends_in_order(database, tmp_path, change, when)


def ends_in_order(database: Database, folder: Path, change: str, when: str) -> None:
    before, after = CHANGES[change]
    ever = prepare(database)
    with cold_keeper(database, folder, before) as cold:
        cold.at[when] = cut
        with pytest.raises(Cut):
            cold.run()
    with cold_keeper(database, folder, after) as cold:
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        conserve(cold, ever, done=True)
        assert cold.hot() == STAYING
        assert {one.state for one in cold.keeper.archive.status()} == {"done"}


def test_a_sweep_of_a_table_that_is_archived_no_more_is_reported(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.at["committed"] = cut
        with pytest.raises(Cut):
            cold.run()
    with cold_keeper(sqlite_database, tmp_path, PRUNED) as cold:
        [found] = [one for one in cold.keeper.check_live() if one.code == "unfinished-sweep"]
        assert "sweep 1 of event is unfinished (committed)" in found.message
    with cold_keeper(sqlite_database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.DONE
        assert cold.keeper.check_live() == []


def removed(cold: Cold) -> str:
    [done] = cold.run().rules
    return done.message if done.outcome is Outcome.FAILED else ""


@pytest.mark.parametrize("change", ["a follower removed", "followers in another order"])
def test_a_restore_that_was_cut_off_waits_for_its_tables(
    sqlite_database: SqliteDatabase, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = CHANGES[change]
    ever = prepare(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, before) as cold:
        cold.one()
        with monkeypatch.context() as patched:
            patched.setattr(restore, "remove_copies", lambda *_, **__: cut())
            with pytest.raises(Cut):
                cold.keeper.archive.restore("event", where="id <= 30")
    with cold_keeper(sqlite_database, tmp_path, after) as cold:
        assert "put `with` of its rules back" in removed(cold)
        with pytest.raises(ArchiveError, match="other tables leave with its rows"):
            cold.keeper.archive.restore("event", where="id = 3")
    with cold_keeper(sqlite_database, tmp_path, before) as cold:
        assert removed(cold) == ""
        conserve(cold, ever, done=True)
        assert len(cold.hot()) == 30 + 3
