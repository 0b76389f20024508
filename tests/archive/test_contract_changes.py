"""The contract changes while a sweep or a restore is unfinished: what was begun ends in order, by what its journal
says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, DAY_MS, NOW_MS, STAYING, Cold, cold_keeper, conserve, events, insert_events
from servers import Database, SqliteDatabase
from wane._archive.delta import files
from wane._archive.maintenance import upkeep
from wane._archive.restore import restore
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError

WITH = 'with = ["event_read.event_id"]'
READ, NOTE, TAG = '"event_read.event_id"', '"event_note.event_id"', '"event_tag.event_id"'


def contract(*followers: str, rule: str = "cold") -> str:
    return CONTRACT.replace(WITH, f"with = [{', '.join(followers)}]").replace("rule.cold", f"rule.{rule}")


CHANGES = {
    "a follower removed": (contract(READ, NOTE, TAG), contract(READ, TAG)),
    "a follower added": (contract(READ, TAG), contract(READ, NOTE, TAG)),
    "followers in another order": (contract(READ, NOTE, TAG), contract(READ, TAG, NOTE)),
    "a follower exchanged": (contract(READ, NOTE), contract(READ, TAG)),
    "the rule renamed": (contract(READ, NOTE), contract(READ, NOTE, rule="frozen")),
}


PRUNED = CONTRACT.replace('then = "archive"', 'then = "prune"').replace('[archive.event]\nkeep = "forever"\n', "")


class Cut(BaseException):
    """The process dies here."""


def cut() -> None:
    raise Cut


def prepare(database: Database) -> dict[str, set[int]]:
    """Insert rows with followers that nothing but the contract knows, two tables of one form among them."""
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
@pytest.mark.sampled(
    *("a follower removed-planned", "a follower removed-evicted", "a follower added-written", "a follower added-batch"),
    *("followers in another order-batch", "a follower exchanged-committed", "the rule renamed-evicted"),
)
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


EXPIRING = contract(READ).replace('keep = "forever"', 'keep = "180d"', 1)
EXPIRY_CHANGES = {
    "kept shorter": EXPIRING.replace('keep = "180d"', 'keep = "120d"'),
    "kept forever": EXPIRING.replace('keep = "180d"', 'keep = "forever"'),
    "a follower removed": EXPIRING.replace(WITH, "with = []"),
}


def expiring(database: Database) -> tuple[set[int], set[int]]:
    """Archive rows that have been archived for longer than 180 days, and for less, of several months."""
    events(database, 0)
    ages = {n: 150 + n for n in range(1, 91)}
    database.executemany(
        "INSERT INTO event VALUES (?, 'done', ?, 'x', 1)", [(n, NOW_MS - days * DAY_MS) for n, days in ages.items()]
    )
    database.executemany("INSERT INTO event_read VALUES (?, ?, 'me')", [(n, n) for n in ages])
    return {n for n, days in ages.items() if days >= 180}, {n for n, days in ages.items() if days < 180}


def cut_expiry(cold: Cold, monkeypatch: pytest.MonkeyPatch, *, begun: bool) -> set[int]:
    """Let an expiry die after its first commit, or just before it; return which rows have left."""
    before = set(cold.cold())

    def replace(*arguments: Any, **options: Any) -> None:
        if begun:
            files.replace(*arguments, **options)
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "replace", replace)
        with pytest.raises(Cut):
            cold.keeper.archive.expire()
    return before - set(cold.cold())


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "planned"])
@pytest.mark.parametrize("change", EXPIRY_CHANGES)
def test_an_expiry_that_was_cut_off_ends_under_the_rules_it_began_with(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, begun: bool
) -> None:
    expiry_ends(sqlite_database, tmp_path, monkeypatch, change, begun=begun)


def test_an_expiry_ends_so_on_every_store(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expiry_ends(database, tmp_path, monkeypatch, "kept forever", begun=True)


def expiry_ends(database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch, change: str, *, begun: bool) -> None:
    expiring(database)
    with cold_keeper(database, folder, EXPIRING) as cold:
        assert cold.one().outcome is Outcome.DONE
        gone = cut_expiry(cold, monkeypatch, begun=begun)
        assert bool(gone) is begun
    with cold_keeper(database, folder, EXPIRY_CHANGES[change]) as cold:
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.DONE, done.message
        if change == "kept shorter":
            assert cold.cold() == []
        elif change == "kept forever":
            # Nothing has left but what the unfinished job had begun to take.
            assert set(range(1, 91)) - set(cold.cold()) == gone
        # What left with a row left with it.
        assert cold.cold("event_read") == cold.cold()
        reported = cold.keeper.audit(kind="archive_expire")
        assert sum(entry.counts.get("event", 0) for entry in reported) == 90 - len(cold.cold())
        assert cold.keeper.archive.findings() == []


def test_an_expiry_that_was_cut_off_waits_for_its_folder(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, EXPIRING) as cold:
        cold.one()
        gone = cut_expiry(cold, monkeypatch, begun=True)
    with cold_keeper(sqlite_database, tmp_path, EXPIRING.replace('url = "cold"', 'url = "elsewhere"')) as cold:
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.FAILED
        assert "is not there or empty" in done.message
        assert [one.code for one in cold.keeper.archive.findings()] == ["archive-log", "archive-log"]
        assert set(range(1, 91)) - set(cold.cold()) == gone
        cold.keeper.archive.adopt()
        entry = next(one for one in cold.keeper.audit(kind="archive_adopt") if one.table == "event")
        assert entry.inputs["abandoned"] == ["expire 1"]
    with cold_keeper(sqlite_database, tmp_path, PRUNED) as cold:
        assert cold.keeper.archive.findings() == []


def test_an_expiry_of_a_table_that_is_archived_no_more_is_reported(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, EXPIRING) as cold:
        cold.one()
        gone = cut_expiry(cold, monkeypatch, begun=True)
    with cold_keeper(sqlite_database, tmp_path, PRUNED) as cold:
        [found] = cold.keeper.archive.findings()
        assert "expire job 1 of event is unfinished, and no rule archives the table any more" in found.message
    with cold_keeper(sqlite_database, tmp_path, EXPIRY_CHANGES["kept forever"]) as cold:
        assert {one.outcome for one in cold.keeper.archive.tidy("event")} == {Outcome.DONE}
        assert set(range(1, 91)) - set(cold.cold()) == gone
        assert cold.cold("event_read") == cold.cold()
        assert cold.keeper.archive.findings() == []


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
