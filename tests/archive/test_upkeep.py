"""Compacting changes no row, and tidying removes nothing that anybody needs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from archive.cold import Cold, cold_keeper, conserve, events, insert_events
from archive.test_expire import EXPIRING, archived
from archive.test_lost_commits import forget_copies
from servers import Database, SqliteDatabase
from wane._archive.delta.files import listing
from wane._archive.maintenance import compact
from wane._archive.maintenance.upkeep import Upkeep
from wane._async_keeper import AsyncKeeper
from wane._prune.sweep import Outcome
from wane.errors import WrongArgument

JUNE_MS = 1_749_600_000_000
"""The 11th of June 2025."""
LONG_AGO = time.time() - 40 * 86_400


def files(cold: Cold, table: str = "event") -> list[str]:
    return sorted(file.path for file in listing(DeltaTable(str(cold.folder / "cold" / table))))


def on_disk(cold: Cold, table: str = "event") -> set[str]:
    folder = cold.folder / "cold" / table
    return {str(path.relative_to(folder)) for path in folder.glob("_month=*/*")}


def everything(cold: Cold) -> dict[str, list[dict[str, Any]]]:
    def key(row: dict[str, Any]) -> int:
        return int(row["id"])

    return {table: sorted(cold.archived(table), key=key) for table in ("event", "event_read")}


def age(cold: Cold, table: str = "event") -> None:
    """Let everything in a table's log and folder have happened long ago."""
    folder = cold.folder / "cold" / table
    for path in folder.glob("_month=*/*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    for entry in (folder / "_delta_log").glob("*.json"):
        lines = entry.read_text().splitlines()
        old = str(int(LONG_AGO * 1000))
        entry.write_text("\n".join(re.sub(r'("deletionTimestamp":)\d+', rf"\g<1>{old}", line) for line in lines) + "\n")
        os.utime(entry, (LONG_AGO, LONG_AGO))


def june(database: Database, ids: range, *more: str) -> None:
    """Insert rows of one month."""
    database.executemany(
        f"INSERT INTO event VALUES (?, 'done', ?, 'x', 1{''.join(f', {one}' for one in more)})",
        [(n, JUNE_MS - n * 1000) for n in ids],
    )


# Compaction


@pytest.mark.on_spark
@pytest.mark.sampled("sqlite")
def test_small_files_become_few_and_no_row_changes(database: Database, tmp_path: Path) -> None:
    events(database, 0)
    june(database, range(1, 71))
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        database.execute("ALTER TABLE event ADD COLUMN note text")
    with cold_keeper(database, tmp_path) as cold:
        june(database, range(300, 400), "'noted'")
        cold.one()
        before, parts = everything(cold), files(cold)
        [shown, _] = cold.keeper.archive.compact(dry_run=True)
        assert (shown.files, files(cold)) == (len(parts), parts)
        [done, reads] = cold.keeper.archive.compact()
        assert (done.outcome, done.files, done.rows) == (Outcome.DONE, len(parts), 170), done.message
        assert cold.progress("compact") == [(0, 170), (170, 170)]
        assert reads.outcome is Outcome.DONE
        assert everything(cold) == before
        assert len(files(cold)) == done.into == 1
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]
        reported = cold.keeper.audit(kind="archive_compact", table="event")
        assert {entry.rows for entry in reported} == {0}
        assert sum(entry.inputs["files"] for entry in reported) == len(parts)
        [repeated, _] = cold.keeper.archive.compact()
        assert (repeated.files, files(cold)) == (0, files(cold))
        # In order of time, so that readers skip.
        times = [row["at_ms"] for row in cold.archived()]
        assert times == sorted(times)


@pytest.mark.frames_on_spark
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "journaled"])
def test_a_lost_compaction_is_remade(database: Database, tmp_path: Path, copied: bool) -> None:
    events(database, 0)
    with cold_keeper(database, tmp_path) as cold:
        for ids in (range(1, 5), range(5, 9)):
            june(database, ids)
            cold.one()
        old = set(files(cold))
        before = everything(cold)
        [compacted] = cold.keeper.archive.compact("event")
        assert compacted.outcome is Outcome.DONE, compacted.message
        for path in old:
            (tmp_path / "cold" / "event" / path).unlink()  # As tidying does, later.
        max((tmp_path / "cold" / "event" / "_delta_log").glob("*.json")).unlink()
        assert set(files(cold)) == old
        if not copied:
            forget_copies(database)
        [repaired] = cold.keeper.archive.repair()
        assert (repaired.lost, repaired.sweeps, repaired.given_up) == (1, (), ())
        assert len(files(cold)) == 1
        assert everything(cold) == before
        assert cold.keeper.archive.findings() == []
        assert [proof.problems for proof in cold.keeper.archive.verify("event")] == [()]


@pytest.mark.frames_on_spark
def test_a_lost_compaction_whose_files_are_gone_is_given_up(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 0)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        for ids in (range(1, 5), range(5, 9)):
            june(sqlite_database, ids)
            cold.one()
        old = set(files(cold))
        before = everything(cold)
        cold.keeper.archive.compact("event")
        [compacted] = files(cold)
        (tmp_path / "cold" / "event" / compacted).unlink()
        max((tmp_path / "cold" / "event" / "_delta_log").glob("*.json")).unlink()
        [repaired] = cold.keeper.archive.repair()
        assert repaired.given_up == ("compact 1 of event",)
        assert (set(files(cold)), everything(cold)) == (old, before)
        assert cold.keeper.archive.findings() == []
        [repeated] = cold.keeper.archive.compact("event")
        assert repeated.outcome is Outcome.DONE, repeated.message
        assert everything(cold) == before


@pytest.mark.frames_on_spark
def test_a_sweep_that_was_not_finished_goes_on_after_a_compaction(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    database = sqlite_database
    events(database, 0)
    june(database, range(1, 71))
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        june(database, range(300, 400))
        ever = {"event": {n for (n,) in database.query("SELECT id FROM event")} | set(range(1, 71))}
        cold.at["committed"] = lambda: cold.keeper.disable("event")
        cold.one()
        cold.keeper.enable("event")
        unfinished = {path for path in files(cold) if "sweep-0000000002" in path}
        [done, _] = cold.keeper.archive.compact()
        assert done.outcome is Outcome.DONE, done.message
        assert unfinished <= set(files(cold))
        assert done.files > 0
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)


@pytest.mark.frames_on_spark
def test_a_compaction_over_the_delete_of_another_writer_restores_nothing(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 0)
    june(sqlite_database, range(1, 101))
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        planned = Upkeep.plan

        def plan(this: Upkeep, *arguments: Any) -> None:
            planned(this, *arguments)
            DeltaTable(str(cold.folder / "cold" / "event")).delete("id = 1")

        monkeypatch.setattr(Upkeep, "plan", plan)
        done = cold.keeper.archive.compact("event")[0]
        assert done.outcome is Outcome.FAILED
        assert "no longer a part of the archive" in done.message
        assert 1 not in cold.cold()
        assert len(cold.cold()) == 99
        monkeypatch.undo()
        assert cold.keeper.archive.compact("event")[0].files == 2
        assert sorted(cold.cold()) == list(range(2, 101))


@pytest.mark.frames_on_spark
def test_a_compaction_that_would_change_a_row_is_not_committed(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 0)
    june(sqlite_database, range(1, 101))
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        before, named = everything(cold), files(cold)
        moving = compact._moved

        def moved(table: Any, part: Path, *more: Any) -> Any:
            rows = pq.ParquetFile(part).read()
            at = rows.column_names.index("body")
            pq.write_table(rows.set_column(at, "body", pa.array(["forged"] * len(rows))), part)
            return moving(table, part, *more)

        monkeypatch.setattr(compact, "_moved", moved)
        [done] = cold.keeper.archive.compact("event")
        assert done.outcome is Outcome.FAILED
        assert "changed rows" in done.message
        assert (everything(cold), files(cold)) == (before, named)


@pytest.mark.frames_on_spark
def test_a_compaction_that_spark_refuses_to_sort_fails_by_itself(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 0)
    june(sqlite_database, range(1, 101))
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        before, named = everything(cold), files(cold)
        monkeypatch.setattr(compact.Compaction, "_order", lambda *_: ["no such column"])
        [done, reads] = cold.keeper.archive.compact()
        assert (done.outcome, reads.outcome) == (Outcome.FAILED, Outcome.DONE)
        assert "compacting event failed on Spark" in done.message
        assert (everything(cold), files(cold)) == (before, named)


def test_two_do_not_write_to_one_archive(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        insert_events(sqlite_database, range(2000, 2010))
        seen: list[Any] = []

        def second() -> None:
            with cold_keeper(sqlite_database, tmp_path, EXPIRING) as other:
                archive = other.keeper.archive
                seen.extend([*archive.expire(), *archive.compact(), *archive.tidy()])

        cold.at["written"] = second
        assert cold.one().outcome is Outcome.DONE
        assert {one.outcome for one in seen} == {Outcome.FAILED}
        assert all(one.busy and "is being written by" in one.message for one in seen)


@pytest.mark.frames_on_spark
@pytest.mark.parametrize("work", ["expire", "compact", "tidy"])
def test_a_writer_who_was_replaced_changes_nothing(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        before, named = everything(cold), files(cold)
        entered = Upkeep.leases

        def replaced(this: Upkeep, *arguments: Any) -> Any:
            return _Taken(entered(this, *arguments), sqlite_database)

        monkeypatch.setattr(Upkeep, "leases", replaced)
        done = getattr(cold.keeper.archive, work)("event")[0]
        assert done.outcome is Outcome.FAILED
        assert "lease" in done.message
        assert (everything(cold), files(cold)) == (before, named)
        assert cold.keeper.audit(kind=f"archive_{work}") == []


class _Taken:
    """Leases that another process takes as soon as this one has them."""

    def __init__(self, leases: Any, database: Database) -> None:
        self._leases = leases
        self._database = database

    def __enter__(self) -> Any:
        held = self._leases.__enter__()
        self._database.execute("UPDATE wane_lease SET fence = fence + 1, holder = 'another'")
        return held

    def __exit__(self, *arguments: Any) -> Any:
        return self._leases.__exit__(*arguments)


# Tidying


@pytest.mark.frames_on_spark
def test_files_that_nothing_needs_leave_the_disk_when_they_are_old(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        cold.keeper.archive.expire()
        cold.keeper.archive.compact()
        before, needed = everything(cold), set(files(cold))
        [young, _] = cold.keeper.archive.tidy()
        assert (young.outcome, young.files, young.erased) == (Outcome.DONE, 0, ())
        assert young.waiting == len(on_disk(cold) - needed) > 0
        for table in ("event", "event_read"):
            age(cold, table)
        [shown, _] = cold.keeper.archive.tidy(dry_run=True)
        assert shown.files == young.waiting
        assert on_disk(cold) > needed
        [done, reads_done] = cold.keeper.archive.tidy()
        assert (done.files, done.waiting) == (shown.files, 0)
        assert on_disk(cold) == needed
        assert everything(cold) == before
        expiries = cold.keeper.audit(kind="archive_expire")
        assert set(done.erased) == {entry.id for entry in expiries}
        assert set(reads_done.erased) == {entry.id for entry in expiries if "event_read" in entry.counts}
        reported = cold.keeper.audit(kind="archive_tidy", table="event")[0]
        assert (reported.inputs["files"], reported.inputs["erased"]) == (done.files, list(done.erased))


def outside_the_log(folder: Path) -> set[str]:
    """Return everything but the archive's logs, whose old entries tidying replaces by a checkpoint."""
    return {str(path) for path in folder.rglob("*") if "_delta_log" not in path.parts}


def test_nothing_is_removed_that_a_reader_may_need(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        folder = cold.folder / "cold" / "event"
        month = folder / files(cold)[0].partition("/")[0]
        # Files that a sweep in progress has written and not yet committed: this one is unfinished, that one nobody
        # knows.
        insert_events(sqlite_database, range(2000, 2010))
        cold.at["written"] = lambda: cold.keeper.disable("event")
        cold.one()
        cold.keeper.enable("event")
        written = on_disk(cold) - set(files(cold))
        assert written
        shutil.copy(month.parent / files(cold)[0], month / "sweep-0000000099-000000-aaaaaaaaaaaa.parquet")
        # Files of others: other names, another archive, a link to elsewhere.
        (month / "notes.parquet").write_text("mine")
        (folder / "README").write_text("mine")
        shutil.copytree(cold.folder / "cold" / "event_read", folder / "inner")
        (tmp_path / "precious.parquet").write_text("mine")
        (month / "part-0.parquet").symlink_to(tmp_path / "precious.parquet")
        (folder / "_month=2020-01").symlink_to(month, target_is_directory=True)
        age(cold)
        for path in [*folder.glob("inner/**/*.parquet"), folder / "README", tmp_path / "precious.parquet"]:
            os.utime(path, (LONG_AGO, LONG_AGO))
        was = outside_the_log(folder)
        [done] = cold.keeper.archive.tidy("event")
        assert (done.outcome, done.files) == (Outcome.DONE, 0), done.message
        assert outside_the_log(folder) == was
        assert (tmp_path / "precious.parquet").read_text() == "mine"
        assert cold.one().outcome is Outcome.DONE
        assert set(range(2000, 2010)) <= set(cold.cold())


def test_a_file_that_was_replaced_just_now_stays_however_old_it_is(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        age(cold)
        reading = set(files(cold))
        cold.keeper.archive.expire()
        [done] = cold.keeper.archive.tidy("event", older_than=timedelta(hours=2))
        assert done.files == 0
        assert reading <= on_disk(cold)


def test_no_time_at_all_is_refused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with cold_keeper(sqlite_database, tmp_path) as cold:
        with pytest.raises(WrongArgument, match="at least 1h"):
            cold.keeper.archive.tidy(older_than=timedelta(0))
        with pytest.raises(WrongArgument, match="did you mean 'event'"):
            cold.keeper.archive.tidy("evnt")
        with pytest.raises(WrongArgument, match="at least 2"):
            cold.keeper.archive.compact(least_files=1)


def test_another_databases_archive_is_unchanged(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with archived(sqlite_database, tmp_path) as cold:
        sqlite_database.execute("UPDATE wane_archive_origin SET origin = 'another'")
        before = on_disk(cold)
        archive = cold.keeper.archive
        done: list[Any] = [*archive.expire(), *archive.compact(), *archive.tidy()]
        assert {one.outcome for one in done} == {Outcome.FAILED}
        assert all("of another database" in one.message for one in done)
        assert on_disk(cold) == before


@pytest.mark.frames_on_spark
def test_every_call_can_be_awaited(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    async def use(contract: Path) -> None:
        async with await AsyncKeeper.open(contract=contract) as keeper:
            assert [one.outcome for one in (await keeper.archive.run()).rules] == [Outcome.DONE]
            assert [one.outcome for one in await keeper.archive.expire()] == [Outcome.DONE]
            assert [one.outcome for one in await keeper.archive.compact()] == [Outcome.DONE] * 2
            assert [one.outcome for one in await keeper.archive.tidy()] == [Outcome.DONE] * 2
            assert [one.table for one in await keeper.archive.tables()] == ["event", "event_read"]

    with archived(sqlite_database, tmp_path) as cold:
        asyncio.run(use(cold.folder / "wane.toml"))
