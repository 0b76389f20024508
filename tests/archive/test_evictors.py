"""Ranges leave over several connections at a time, each with its own audit row; what one may not take, none does."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archive.cold import PACE, cold_keeper
from archive.test_plain_rows import CHANGES, PLAIN, ROWS, fill
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._archive import evictors
from wane._archive.evict import Eviction
from wane._archive.evictors import Halt
from wane._archive.journal import Journal
from wane._prune.sweep import Outcome
from wane.errors import Unreachable

SEVERAL = PLAIN.replace("range_rows = 60", "range_rows = 20\nevictors = 3")
ALL = list(range(1, ROWS + 1))


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictors, "ROWS_EACH", 1)


def test_every_evictor_accounts_for_what_it_took(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted, done.stale) == (Outcome.DONE, {"event": ROWS}, 0), done.message
        assert (cold.hot(), cold.cold()) == ([], ALL)
        entries = cold.keeper.audit(kind="archive")
        assert sorted(entry.counts["event"] for entry in entries) == [20, 40, 40]
        assert {entry.inputs["sweep"] for entry in entries} == {1}
        [status] = cold.keeper.archive.status()
        assert (status.evicted, status.stale, status.absent) == ({"event": ROWS}, 0, 0)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("row", [10, 30, 50])
def test_rows_that_changed_stay_whichever_evictor_finds_them(
    postgres_database: PostgresDatabase, tmp_path: Path, change: str, row: int
) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["committed"] = lambda: postgres_database.execute(CHANGES[change].replace("70", str(row)))
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 1), done.message
        assert (cold.hot(), cold.cold()) == ([row], [one for one in ALL if one != row])
        [status] = cold.keeper.archive.status()
        assert (status.evicted, status.stale) == ({"event": ROWS - 1}, 1)
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS - 1


def test_one_that_fails_stops_the_others_and_the_next_run_goes_on(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database)
    began, run = threading.Event(), Eviction.run

    def break_off(self: Eviction, *arguments: object) -> None:
        if not self.beside:
            began.wait(60)
            raise Unreachable("the connection was lost")
        run(self, *arguments)  # type: ignore[arg-type]
        began.set()

    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        with monkeypatch.context() as patch:
            patch.setattr(Eviction, "run", break_off)
            failed = cold.one()
        assert (failed.outcome, "lost" in failed.message) == (Outcome.FAILED, True)
        gone = ROWS - len(cold.hot())
        assert 0 < gone < ROWS
        assert failed.evicted == {"event": gone}
        [status] = cold.keeper.archive.status()
        assert (status.state, status.evicted) == ("committed", {"event": gone}), "what is gone is shown"
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([], ALL)
        [status] = cold.keeper.archive.status()
        assert status.evicted == {"event": ROWS}
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 5])
def test_a_process_that_ends_in_a_batch_leaves_every_row_in_one_place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, committed: bool
) -> None:
    """Before a batch is committed it never was; afterwards its rows are gone, its copies checked, and both counted."""
    fill(database)
    calls, progress, run = [0], Journal.progress, Eviction._try_transaction

    def die(when: bool) -> None:
        if when is committed:
            calls[0] += 1
            if calls[0] >= batch:
                raise Killed

    def before(self: Journal, *arguments: Any, **options: Any) -> None:
        progress(self, *arguments, **options)
        die(False)

    def after(self: Eviction, *arguments: Any) -> Any:
        done = run(self, *arguments)
        die(True)
        return done

    with cold_keeper(database, tmp_path, SEVERAL) as cold:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "progress", before)
            patch.setattr(Eviction, "_try_transaction", after)
            with pytest.raises(Killed):
                cold.one()
        hot = cold.hot()
        assert len(hot) < ROWS or not committed
        assert (set(hot) | set(cold.cold()), cold.cold()) == (set(ALL), ALL)
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS - len(hot)
        [status] = cold.keeper.archive.status()
        assert status.evicted.get("event", 0) == ROWS - len(hot)
        database.execute("UPDATE event SET body = 'later' WHERE id = 100")
        assert cold.one().outcome is Outcome.DONE
        assert (cold.hot(), cold.cold()) == ([], ALL)
        bodies = {row["id"]: row["body"] for row in cold.archived()}
        assert bodies[100] == ("later" if 100 in hot else "body 100"), "what changed is archived as it is now"
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS


def test_a_writer_who_was_replaced_lets_nothing_go_over_any_connection(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        cold.at["committed"] = lambda: postgres_database.execute(
            "UPDATE wane.lease SET fence = fence + 1, holder = 'another' WHERE name = 'archive event'"
        )
        done = cold.one()
        assert done.outcome is not Outcome.DONE
        assert cold.hot() == ALL


def test_sqlite_has_one_evictor_because_one_connection_writes_at_a_time(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    fill(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, SEVERAL) as cold:
        assert cold.one().evicted == {"event": ROWS}
        assert len(cold.keeper.audit(kind="archive")) == 1


def test_a_pace_with_pauses_has_one_evictor(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    fill(postgres_database)
    with cold_keeper(postgres_database, tmp_path, SEVERAL) as cold:
        [done] = cold.keeper.archive.run(pace=replace(PACE, duty=0.9)).rules
        assert done.evicted == {"event": ROWS}
        assert len(cold.keeper.audit(kind="archive")) == 1


def test_a_halt_is_set_by_the_run_or_by_an_evictor() -> None:
    run = threading.Event()
    one, other = Halt(run), Halt(run)
    one.set()
    assert (one.is_set(), one.wait(0), other.is_set(), other.wait(0)) == (True, True, False, False)
    run.set()
    assert (other.is_set(), other.wait(0)) == (True, True)
