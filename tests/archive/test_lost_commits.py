"""A log of the archive that has lost commits is noticed by every command, nothing is written or tidied, and what can be
is committed again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from archive.cold import CONTRACT, Cold, cold_keeper, conserve, events, insert_events
from servers import Database, SqliteDatabase
from wane._archive.delta.cold_table import ColdTable
from wane._prune.sweep import Outcome
from wane._sqlfunctions import install
from wane.errors import ArchiveError
from wane.observe._metrics import Metrics
from wane.observe._recording import HealthChore

LONG_AGO = time.time() - 40 * 86_400


class Died(BaseException):
    """What no product code catches."""


def log(cold: Cold, table: str = "event") -> Path:
    return cold.folder / "cold" / table / "_delta_log"


def last(cold: Cold, table: str = "event") -> Path:
    return max(log(cold, table).glob("*.json"))


def on_disk(cold: Cold) -> set[Path]:
    return set((cold.folder / "cold").glob("*/_month=*/*.parquet"))


def age(cold: Cold) -> None:
    for path in on_disk(cold):
        os.utime(path, (LONG_AGO, LONG_AGO))


def deleted(cold: Cold) -> None:
    last(cold).unlink()


def emptied(cold: Cold) -> None:
    last(cold).write_text("")


def of_a_follower(cold: Cold) -> None:
    last(cold, "event_read").unlink()


def without_log(cold: Cold) -> None:
    shutil.rmtree(log(cold))


def without_folder(cold: Cold) -> None:
    shutil.move(cold.folder / "cold" / "event", cold.folder / "away")


@pytest.mark.parametrize("lose", [deleted, emptied, of_a_follower, without_log, without_folder])
def test_a_log_that_lost_a_commit_is_noticed_and_nothing_is_erased(
    database: Database, tmp_path: Path, lose: Callable[[Cold], None]
) -> None:
    events(database, 20)
    contract = CONTRACT.replace('keep = "forever"', 'keep = "100d"', 1)
    with cold_keeper(database, tmp_path, contract) as cold:
        archive = cold.keeper.archive
        assert cold.one().outcome is Outcome.DONE
        assert (archive.findings(), cold.keeper.check_live()) == ([], [])
        lose(cold)
        age(cold)
        before = on_disk(cold)
        table = "event_read" if lose is of_a_follower else "event"
        insert_events(database, [500])

        assert [(one.code, one.table) for one in cold.keeper.check_live()] == [("archive-log", table)]
        assert ("archive-log", table) in [(one.code, one.table) for one in cold.keeper.health().findings]
        [broken] = [proof for proof in archive.verify(table) if proof.problems]
        assert broken.table == table
        assert "from a backup" in broken.problems[0]
        run = cold.one()
        assert (run.outcome, cold.hot()[-1]) == (Outcome.FAILED, 10_003)
        assert "from a backup" in run.message
        assert {one.outcome for one in archive.expire()} == {Outcome.FAILED}
        for dry_run in (True, False):
            maintained: list[Any] = [*archive.compact(table, dry_run=dry_run), *archive.tidy(table, dry_run=dry_run)]
            for done in maintained:
                assert (done.outcome, done.files) == (Outcome.FAILED, 0)
        with pytest.raises(ArchiveError, match="from a backup"):
            archive.restore("event", where="id = 3")
        assert on_disk(cold) == before


def test_a_folder_that_was_restored_from_an_older_backup_is_noticed_after_others_committed_to_it(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        shutil.copytree(log(cold), tmp_path / "backup")
        insert_events(sqlite_database, [500])
        cold.one()
        shutil.rmtree(log(cold))
        shutil.copytree(tmp_path / "backup", log(cold))
        DeltaTable(str(cold.folder / "cold" / "event")).alter.set_table_properties({"delta.appendOnly": "false"})
        assert DeltaTable(str(cold.folder / "cold" / "event")).version() == 2
        assert "has lost 1 of 2 commits" in cold.one().message


def forget_copies(database: Database) -> None:
    """Let the database have no copy of the logs' entries, as if they had been made before it stored any."""
    database.execute(f"DELETE FROM {'wane_' if database.store == 'sqlite' else 'wane.'}archive_log_entry")


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "journaled"])
def test_lost_sweeps_are_recommitted(database: Database, tmp_path: Path, copied: bool) -> None:
    events(database, 70)
    ever = {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}
    with cold_keeper(database, tmp_path) as cold:
        cold.at["committed"] = lambda: database.execute("UPDATE event SET body = 'changed' WHERE id = 3")
        assert cold.one().stale == 1
        insert_events(database, range(500, 510))
        ever["event"] |= set(range(500, 510))
        ever["event_read"] |= {n * 10 + m for n in range(500, 510) for m in range(n % 3)}
        cold.one()
        # All but the commits that made the tables.
        before = {path: path.read_bytes() for path in (tmp_path / "cold").glob("*/_delta_log/*.json")}
        for table in ("event", "event_read"):
            for commit in sorted(log(cold, table).glob("*.json"))[1:]:
                commit.unlink()
        if not copied:
            forget_copies(database)
        assert cold.cold() == []
        reported = len(cold.events)
        [repaired] = cold.keeper.archive.repair()
        assert (repaired.sweeps, bool(repaired.written_back), repaired.given_up) == ((1, 2), copied, ())
        assert [event for event in cold.events[reported:] if type(event).__name__ != "ArchiveProgress"] == []
        conserve(cold, ever, done=True)
        if copied:
            assert {path: path.read_bytes() for path in (tmp_path / "cold").glob("*/_delta_log/*.json")} == before
        [entry] = cold.keeper.audit(kind="archive_repair")
        assert entry.inputs["sweeps"] == [1, 2]
        assert cold.keeper.check_live() == []
        insert_events(database, [600])
        assert cold.one().outcome is Outcome.DONE
        assert [one.lost for one in cold.keeper.archive.repair()] == [0]


@pytest.mark.parametrize("lose", [deleted, emptied, of_a_follower, without_log])
def test_a_lost_restore_is_written_back(database: Database, tmp_path: Path, lose: Callable[[Cold], None]) -> None:
    events(database, 20)
    ever = {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        assert cold.keeper.archive.restore("event", where="id <= 5").restored["event"] == 5
        archived = cold.archived(), cold.archived("event_read")
        lose(cold)
        assert cold.keeper.archive.findings()
        [repaired] = cold.keeper.archive.repair()
        assert (repaired.lost > 0, repaired.written_back > 0, repaired.given_up) == (True, True, ())
        damaged = "event_read" if lose is of_a_follower else "event"
        assert {one for one, lost in repaired.lost_by_table.items() if lost} == {damaged}
        assert (cold.archived(), cold.archived("event_read")) == archived
        conserve(cold, ever, done=True)
        assert cold.keeper.archive.findings() == []
        insert_events(database, [500])
        assert cold.one().outcome is Outcome.DONE


def test_a_lost_restore_that_the_database_has_no_copy_of_is_refused(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        cold.keeper.archive.restore("event", where="id <= 5")
        insert_events(database, [500])
        cold.one()
        # The sweep alone is committed again; the restore before it is in the log.
        last(cold).unlink()
        forget_copies(database)
        assert cold.keeper.archive.repair()[0].sweeps == (2,)
        cold.keeper.archive.restore("event", where="id = 7")
        last(cold).unlink()
        forget_copies(database)
        with pytest.raises(ArchiveError, match=r"lost the commit of restore 2 of event.* both hot and archived"):
            cold.keeper.archive.repair()
        assert [one.code for one in cold.keeper.archive.findings()] == ["archive-log"]
        assert cold.keeper.archive.adopt().tables == ("event", "event_read")
        assert cold.keeper.archive.findings() == []


def test_entries_are_not_written_over_commits_of_others(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        for row in (500, 600):
            insert_events(sqlite_database, [row])
            cold.one()
        for _ in range(2):
            last(cold).unlink()
        DeltaTable(str(cold.folder / "cold" / "event")).alter.set_table_properties({"delta.appendOnly": "false"})
        other = last(cold).read_bytes()
        [repaired] = cold.keeper.archive.repair()
        assert (repaired.sweeps, repaired.written_back) == ((2, 3), 0)
        assert other in [path.read_bytes() for path in log(cold).glob("*.json")]
        assert cold.cold() == [*range(1, 21), 500, 600]


@pytest.mark.parametrize("copies", [True, False], ids=["from its copy", "from the journal"])
def test_a_lost_sweep_whose_file_is_gone_is_not_recommitted(
    sqlite_database: SqliteDatabase, tmp_path: Path, copies: bool
) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        last(cold).unlink()
        if not copies:
            forget_copies(sqlite_database)
        gone = min((cold.folder / "cold" / "event").glob("_month=*/*.parquet"))
        gone.rename(tmp_path / "away")
        with pytest.raises(ArchiveError, match=gone.name):
            cold.keeper.archive.repair()
        (tmp_path / "away").rename(gone)
        gone.write_bytes(gone.read_bytes()[:-9] + b"!" + gone.read_bytes()[-8:])
        with pytest.raises(ArchiveError, match="cannot be trusted") as damaged:
            cold.keeper.archive.repair()
        assert ("archive verify" if copies else "from a backup") in damaged.value.hint
        assert cold.cold() == []


def test_a_sweep_that_died_after_its_commit_is_not_recommitted(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 20)
    commit = ColdTable.commit

    def die(table: ColdTable, *given: Any) -> None:
        commit(table, *given)
        raise Died

    with cold_keeper(sqlite_database, tmp_path) as cold, monkeypatch.context() as patched:
        patched.setattr(ColdTable, "commit", die)
        with pytest.raises(Died):
            cold.one()
    with cold_keeper(sqlite_database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.DONE
        for table in ("event", "event_read"):
            adding = [entry for entry in log(cold, table).glob("*.json") if '"add":' in entry.read_text()]
            assert len(adding) == 1, table
        assert len(cold.cold()) == 20


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "journaled"])
def test_a_lost_expiry_stays_an_expiry(database: Database, tmp_path: Path, copied: bool) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path, CONTRACT.replace('keep = "forever"', 'keep = "100d"', 1)) as cold:
        cold.one()
        [expired] = cold.keeper.archive.expire()
        assert expired.rows
        assert cold.cold() == []
        last(cold).unlink()
        assert [one.code for one in cold.keeper.check_live()] == ["archive-log"]
        assert cold.keeper.archive.expire()[0].outcome is Outcome.FAILED
        if not copied:
            forget_copies(database)
        [repaired] = cold.keeper.archive.repair()
        assert (repaired.lost, repaired.sweeps, repaired.given_up) == (1, (), ())
        assert (cold.cold(), cold.cold("event_read")) == ([], [])
        assert cold.keeper.archive.expire()[0].rows == {}


def test_what_is_left_of_an_archive_does_not_pass_for_all_of_it(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        away = tmp_path / "away.json"
        last(cold).rename(away)
        archive = cold.keeper.archive
        for read in (archive.tables, archive.survey, lambda: archive.query("event")):
            with pytest.raises(ArchiveError, match="has lost 1 of 1 commits"):
                read()
        away.rename(log(cold) / f"{1:020d}.json")
        assert sum(one.rows for one in archive.tables() if one.table == "event") == 20
        (cold.folder / "cold").rename(cold.folder / "moved")
        with pytest.raises(ArchiveError, match="the archive of event is missing"):
            archive.tables()


def test_what_is_wrong_with_a_log_is_recorded_for_those_who_cannot_see_its_files(
    database: Database, tmp_path: Path
) -> None:
    events(database, 20)

    def reported() -> list[bool]:
        """Return whether the metric, and the function in the database, say that the archive's log is broken."""
        keeper = cold.keeper
        with closing(Metrics(keeper.contract)) as metrics:
            metrics.watch(keeper.store.clone, budget_seconds=30.0, patience_seconds=60.0)
            found = [b'code="archive-log"' in metrics.text()]
        if database.store == "postgres":
            database.script("DELETE FROM wane.health_report; DELETE FROM wane.lease WHERE name = 'health'")
            HealthChore(keeper.contract)(keeper.store, "tester")
            [(health,)] = database.query("SELECT wane.fn_retention_health()")
            broken = [one["table"] for one in health["findings"] if one["code"] == "archive-log"]
            assert broken in ([], ["event"])
            assert not (broken and health["healthy"])
            found.append(bool(broken))
        return found

    with cold_keeper(database, tmp_path) as cold:
        if database.store == "postgres":
            install(cold.keeper)
        cold.one()
        assert not any(reported())
        away = tmp_path / "away.json"
        last(cold).rename(away)
        assert cold.one().outcome is Outcome.FAILED
        assert all(reported())
        away.rename(log(cold) / f"{1:020d}.json")
        assert cold.one().outcome is Outcome.DONE
        assert not any(reported())
        last(cold).unlink()
        assert cold.keeper.archive.verify("event")[0].problems
        assert all(reported())
        cold.keeper.archive.repair()
        assert not any(reported())


def test_files_of_a_lost_sweep_are_not_tidied_whatever_was_accepted(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        last(cold).unlink()
        age(cold)
        with pytest.raises(ArchiveError, match="wane archive repair event"):
            cold.keeper.archive.adopt()
        sqlite_database.execute("DELETE FROM wane_archive_log")
        before = on_disk(cold)
        [done] = cold.keeper.archive.tidy("event")
        assert (done.outcome, done.files) == (Outcome.DONE, 0)
        assert on_disk(cold) == before


def test_an_archive_that_was_moved_away_is_begun_anew_after_it_was_adopted(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        (cold.folder / "cold").rename(cold.folder / "before")
        insert_events(sqlite_database, [500])
        assert "wane archive adopt" in cold.one().message
        assert cold.keeper.archive.adopt().tables == ("event", "event_read")
        assert cold.one().outcome is Outcome.DONE
        assert cold.cold() == [500]
