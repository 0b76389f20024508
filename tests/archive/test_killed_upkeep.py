"""`kill -9` of a process that maintains an archive, at every step, in a folder and in a bucket: the next one finishes
or abandons what it left, no row is lost or in two tiers, and each change is recorded once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from archive.cold import STAYING, Cold, cold_keeper, conserve, events, insert_events
from archive.killed_writer import AT_ONCE
from archive.object_server import ObjectServer
from archive.test_conservation import server_of as server_of
from archive.test_full_disk import all_rows
from archive.test_object_store import kill_in
from archive.test_upkeep import everything, june
from servers import Database
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.files import listing
from wane._archive.delta.paths import children
from wane._archive.maintenance import tidy
from wane._archive.maintenance.journal import Jobs
from wane._prune.sweep import Outcome

pytestmark = pytest.mark.crash

ROWS = 40
DELETED = {n for n in range(1, ROWS + 1) if n % 5 == 0}


@pytest.fixture(autouse=True)
def tidying_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy, "LEAST", timedelta(0))


@contextmanager
def archiving(database: Database, folder: Path, server: ObjectServer | None, *, rows: int = ROWS) -> Iterator[Cold]:
    """Insert rows, and open the keeper that archives them in a folder or a bucket."""
    events(database, rows)
    url = "" if server is None else f"{server.bucket()}/cold"
    with cold_keeper(database, folder, server=server, url=url) as cold:
        yield cold


def sound(cold: Cold) -> None:
    """Check that every file of the archive is as its log states, and no job is left."""
    assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]
    with cold.keeper.store.transaction() as transaction:
        assert Jobs(transaction).open() == []


def tables(cold: Cold) -> list[ColdTable]:
    archive = cold.keeper.archive
    return [archive._cold(name) for name in ("event", "event_read")]


def idle(cold: Cold) -> list[str]:
    """Data files that are part of nothing."""
    found = []
    for table in tables(cold):
        handle = table.open()
        assert handle is not None
        active = {file.path for file in listing(handle)}
        files = [f"{month.name}/{one.name}" for month in table.folder.glob("_month=*") for one in month.iterdir()]
        found += [one for one in files if one not in active]
    return found


def tidied(cold: Cold) -> None:
    done = cold.keeper.archive.tidy(older_than=AT_ONCE)
    assert {one.outcome for one in done} == {Outcome.DONE}, done
    assert idle(cold) == []


@pytest.mark.sampled("postgres-bucket-sweep removed")
@pytest.mark.parametrize("step", ["sweep remove", "sweep rewritten", "sweep removed"])
def test_a_sweep_that_was_killed_when_it_removed_stale_copies_is_finished(
    database: Database, tmp_path: Path, server_of: ObjectServer | None, step: str
) -> None:
    with archiving(database, tmp_path, server_of) as cold:
        ever = all_rows(database)
        kill_in(cold, step)
        conserve(cold, ever, done=False)
        assert [cold.one().outcome for _ in range(2)] == [Outcome.DONE] * 2
        conserve(cold, ever, done=True)
        assert cold.hot() == STAYING
        bodies = {row["id"]: row["body"] for row in cold.archived()}
        assert {n for n, body in bodies.items() if body == "changed"} == DELETED
        assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == ROWS
        sound(cold)
        tidied(cold)


@pytest.mark.sampled("sqlite-bucket-erase replaced")
@pytest.mark.parametrize("step", ["begin", "written", "end", "replace", "replaced", "recorded"], ids="erase {}".format)
def test_an_erasure_that_was_killed_is_finished(
    database: Database, tmp_path: Path, server_of: ObjectServer | None, step: str
) -> None:
    left = {n for n in range(1, ROWS + 1) if n not in DELETED}

    def delete() -> None:
        database.execute("DELETE FROM event_read WHERE event_id % 5 = 0")
        database.execute("DELETE FROM event WHERE id % 5 = 0 AND id < 10000")

    with archiving(database, tmp_path, server_of) as cold:
        cold.at["committed"] = delete
        assert cold.one().outcome is Outcome.DONE
        assert len(cold.keeper.archive.absent("event")) == len(DELETED)
        kill_in(cold, f"erase {step}")
        assert left <= set(cold.cold())
        [done] = cold.keeper.archive.expire(erase_absent=True)
        assert done.outcome is Outcome.DONE, done.message
        assert set(cold.cold()) == left
        assert cold.cold("event_read") == sorted(n * 10 + m for n in left for m in range(n % 3))
        counts = [entry.counts for entry in cold.keeper.audit(kind="archive_expire")]
        assert sum(one["event"] for one in counts) == len(DELETED), "it is recorded once"
        assert cold.keeper.archive.absent("event") == []
        sound(cold)
        tidied(cold)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(
    "step", ["begin", "written", "end", "replace", "replaced", "recorded"], ids="compact {}".format
)
def test_a_compaction_that_was_killed_is_finished_or_abandoned(
    database: Database, tmp_path: Path, server_of: ObjectServer | None, step: str
) -> None:
    """On a Spark of the process that dies."""
    with archiving(database, tmp_path, server_of, rows=0) as cold:
        for first in (1, 101):
            june(database, range(first, first + 70))
            assert cold.one().outcome is Outcome.DONE
        before = everything(cold)
        [table, _] = tables(cold)
        many = len(listing(table.require()))
        kill_in(cold, f"compact {step}", "spark")
        assert everything(cold) == before
        june(database, range(201, 211))
        assert cold.one().outcome is Outcome.DONE
        tidied(cold)
        sound(cold)
        now = len(listing(table.require())) - 1
        assert now == (1 if step in ("replaced", "recorded") else many), "once it was committed, it is done"
        assert [row for row in everything(cold)["event"] if row["id"] < 200] == before["event"]


@pytest.mark.sampled("sqlite-bucket-tidy trimmed")
@pytest.mark.parametrize("step", ["tidy removed", "tidy checkpoint", "tidy trim", "tidy trimmed", "tidy record"])
def test_tidying_that_was_killed_is_finished(
    database: Database, tmp_path: Path, server_of: ObjectServer | None, step: str
) -> None:
    with archiving(database, tmp_path, server_of) as cold:
        ever = all_rows(database)
        assert cold.one().outcome is Outcome.DONE
        cold.keeper.archive.restore("event", where="id % 5 = 0")
        assert idle(cold)
        kill_in(cold, step)
        conserve(cold, ever, done=True)
        tidied(cold)
        sound(cold)
        insert_events(database, [500])
        assert cold.one().outcome is Outcome.DONE
        assert 500 in cold.cold()
        conserve(cold, {name: {*ids, *cold.cold(name)} for name, ids in ever.items()}, done=True)


@pytest.mark.sampled
@pytest.mark.parametrize("step", ["repair write", "repair written", "repair record"])
def test_a_repair_that_was_killed_is_finished(
    database: Database, tmp_path: Path, server_of: ObjectServer | None, step: str
) -> None:
    with archiving(database, tmp_path, server_of) as cold:
        assert cold.one().outcome is Outcome.DONE
        for number in (500, 600):
            insert_events(database, [number])
            assert cold.one().outcome is Outcome.DONE
        ever = {name: set(cold.hot(name)) | set(cold.cold(name)) for name in ("event", "event_read")}
        [table, _] = tables(cold)
        for entry in children(table.log, "*.json")[-2:]:
            entry.unlink()
        kill_in(cold, step)
        repaired = cold.keeper.archive.repair()
        assert sum(one.written_back for one in repaired) == (1 if step == "repair write" else 0)
        conserve(cold, ever, done=True)
        assert cold.hot() == STAYING
        sound(cold)
        insert_events(database, [700])
        assert cold.one().outcome is Outcome.DONE
