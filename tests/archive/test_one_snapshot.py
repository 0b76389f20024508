"""Rows that move while they are copied: no copy is made twice, no copy that is needed is removed, and a copy that was
cut short goes on.

Tasks run one after the other in processes of their own, so that something can happen between two of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive import inline
from archive.cold import OLD_MS, STAYING, Cold, cold_keeper, conserve, events, insert_events
from archive.inline import InlineExecutor
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._archive.delta.cold_table import ColdTable
from wane._archive.pipeline import unique
from wane._archive.pipeline.extract import copy_ranges
from wane._archive.pipeline.removal import GoneCopies, remove_copies
from wane._archive.pipeline.unique import copied_twice
from wane._archive.pipeline.verify import FileJob, ProofJob, prove, read_back
from wane._archive.rows.content import check, content_digest
from wane._archive.spark.connect import exported_snapshot, source_of
from wane._archive.spark.reader import open_reader
from wane._db import open_store
from wane._db.url import resolve_url
from wane._prune.sweep import Outcome

ROWS = 170
"""Three ranges: 1 to 60, 61 to 120, and the rest."""
LAST_MS = OLD_MS + 165 * 3_600_000 + 1
"""In the last range."""
FIRST_MS = OLD_MS + 1
"""In the first."""
LONG_AGO = OLD_MS / 1000


class Died(BaseException):
    """What no product code catches."""


def die() -> None:
    raise Died


class Copying:
    """Copies ranges one after the other, and lets something happen after some of them."""

    def __init__(self) -> None:
        self.after: dict[int, Callable[[], object]] = {}
        self.backwards = False
        self.tasks: list[int] = []
        """How many tasks each copy had."""

    def run(self, task: Callable[[int], str], count: int) -> Iterator[str]:
        self.tasks.append(count)
        for done, number in enumerate(list(range(count))[:: -1 if self.backwards else 1], 1):
            answer = inline.call(task, number)
            if (act := self.after.pop(done, None)) is not None:
                act()
            yield answer


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Copying:
    copying = Copying()

    class Copier(InlineExecutor):
        def run(self, task: Any, count: int, progress: object = None) -> Iterator[str]:
            return copying.run(task, count) if task.func is copy_ranges else super().run(task, count)

    inline.without_spark(monkeypatch, Copier)
    return copying


def ever(database: Database) -> dict[str, set[int]]:
    return {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}


def execute(database: Database, statements: Sequence[str]) -> Callable[[], object]:
    return lambda: [database.execute(statement) for statement in statements]


MOVED = [f"UPDATE event SET at_ms = {LAST_MS}, body = 'moved' WHERE id = 5"]
ACTS = {
    "moved": MOVED,
    "deleted and inserted": [
        "DELETE FROM event_read WHERE event_id = 5",
        "DELETE FROM event WHERE id = 5",
        f"INSERT INTO event VALUES (5, 'done', {LAST_MS}, 'moved', 1)",
        "INSERT INTO event_read VALUES (50, 5, 'me'), (51, 5, 'me')",
    ],
    "a follower moved": ["UPDATE event_read SET event_id = 165 WHERE id = 50"],
    "a key changed": [
        "DELETE FROM event_read WHERE event_id IN (5, 165)",
        "DELETE FROM event WHERE id = 165",
        "UPDATE event SET id = 165 WHERE id = 5",
        f"INSERT INTO event VALUES (5, 'done', {LAST_MS}, 'moved', 1)",
        "INSERT INTO event_read VALUES (50, 5, 'me'), (51, 5, 'me')",
    ],
}


@pytest.mark.parametrize("act", ACTS)
def test_a_row_that_moves_while_it_is_copied_exists_once_and_nothing_is_lost(
    database: Database, tmp_path: Path, copying: Copying, act: str
) -> None:
    events(database, ROWS)
    copying.after[1] = execute(database, ACTS[act])
    with cold_keeper(database, tmp_path) as cold:
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        exist = ever(database)
        for table in exist:
            exist[table] |= set(cold.cold(table))
        assert set(range(1, ROWS + 1)) <= exist["event"]
        conserve(cold, exist, done=True)
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, exist, done=True)
        assert cold.hot() == STAYING
        if act in ("moved", "deleted and inserted"):
            assert [row["body"] for row in cold.archived() if row["id"] == 5] == ["moved"]
            assert {50, 51} <= set(cold.cold("event_read"))
        assert {row["_parent"] for row in cold.archived("event_read")} <= {row["_key"] for row in cold.archived()}


def test_a_row_that_moves_into_a_range_that_is_read_later_though_it_comes_first(
    database: Database, tmp_path: Path, copying: Copying
) -> None:
    events(database, ROWS)
    everything = ever(database)
    copying.backwards = True
    copying.after[1] = execute(database, [f"UPDATE event SET at_ms = {FIRST_MS}, body = 'moved' WHERE id = 165"])
    with cold_keeper(database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, everything, done=True)
        assert cold.one().outcome is Outcome.DONE
        assert [row["body"] for row in cold.archived() if row["id"] == 165] == ["moved"]


def test_all_tasks_of_a_copy_read_one_state_of_the_database(
    database: Database, tmp_path: Path, copying: Copying
) -> None:
    events(database, ROWS)
    copying.after[1] = execute(database, MOVED)
    with cold_keeper(database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.DONE
        # SQLite has no snapshot to share: a copy with a row in it twice is thrown away, and one task reads everything.
        assert copying.tasks == ([3] if database.store == "postgres" else [3, 1])
        assert (5 in cold.hot()) == (database.store == "postgres")


def test_a_type_that_is_newer_than_the_last_snapshot_is_read_like_any_other(
    postgres_database: PostgresDatabase,
) -> None:
    """Readers of one snapshot share what the driver found in the catalogs, and those of two do not."""
    with open_store(resolve_url(postgres_database.url)) as store:
        for kind in ("mood", "humour"):
            postgres_database.execute(f"CREATE TYPE {kind} AS ENUM ('good')")
            with exported_snapshot(store) as snapshot:
                source = replace(source_of(store), snapshot=snapshot)
                for _ in range(2):
                    with open_reader(source) as reader:
                        [batch] = reader.batches(f"SELECT 'good'::public.{kind} AS felt", "SELECT 1")
                    assert batch["felt"].to_pylist() == ["good"]


def test_a_copy_that_was_cut_short_goes_on_with_what_is_missing(
    database: Database, tmp_path: Path, copying: Copying
) -> None:
    events(database, ROWS)
    everything = ever(database)

    with cold_keeper(database, tmp_path) as cold:
        copying.after[3] = die
        with pytest.raises(Died):
            cold.one()
        assert files(cold, "event", 0) == files(cold, "event", 1) == files(cold, "event", 2) == 1
    with cold_keeper(database, tmp_path) as cold:
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        assert copying.tasks == [3, 1]
        assert (files(cold, "event", 0), files(cold, "event", 2)) == (1, 2)
        conserve(cold, everything, done=True)
        assert cold.hot() == STAYING


def test_files_of_a_copy_that_was_cut_short_are_not_tidied(
    sqlite_database: SqliteDatabase, tmp_path: Path, copying: Copying
) -> None:
    events(sqlite_database, 20)

    with cold_keeper(sqlite_database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.DONE
        insert_events(sqlite_database, range(1001, 1001 + ROWS))
        copying.after[3] = die
        with pytest.raises(Died):
            cold.one()
    for file in (tmp_path / "cold").rglob("*.parquet"):
        os.utime(file, (LONG_AGO, LONG_AGO))
    with cold_keeper(sqlite_database, tmp_path) as cold:
        [tidied] = cold.keeper.archive.tidy("event")
        assert (tidied.outcome, tidied.files) == (Outcome.DONE, 0), tidied.message
        assert cold.one().outcome is Outcome.DONE
        assert copying.tasks == [1, 3, 1], "only the range that was missing is copied"
        assert cold.hot() == STAYING


def files(cold: Cold, table: str, number: int) -> int:
    """Return how many attempts of a range have written files."""
    found = (cold.folder / "cold" / table).glob(f"*/sweep-*-{number:06d}-*.parquet")
    return len({file.name for file in found})


def test_a_row_that_moves_before_a_copy_goes_on_exists_once(
    database: Database, tmp_path: Path, copying: Copying
) -> None:
    events(database, ROWS)
    everything = ever(database)

    def die() -> None:
        execute(database, MOVED)()
        raise Died

    with cold_keeper(database, tmp_path) as cold:
        copying.after[2] = die
        with pytest.raises(Died):
            cold.one()
    with cold_keeper(database, tmp_path) as cold:
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        # The rest was read in a later state than the first range, so that row 5 was there twice.
        assert copying.tasks == [3, 2, 3 if database.store == "postgres" else 1]
        conserve(cold, everything, done=True)
        assert [row["body"] for row in cold.archived() if row["id"] == 5] == ["moved"]


def test_files_that_vanished_from_a_copy_that_was_cut_short_are_rewritten(
    database: Database, tmp_path: Path, copying: Copying
) -> None:
    events(database, ROWS)
    everything = ever(database)

    with cold_keeper(database, tmp_path) as cold:
        copying.after[3] = die
        with pytest.raises(Died):
            cold.one()
        next((cold.folder / "cold" / "event").glob("*/sweep-*-000000-*.parquet")).unlink()
        assert cold.one().outcome is Outcome.DONE
        assert copying.tasks == [3, 2]
        conserve(cold, everything, done=True)


def test_a_copy_whose_snapshot_is_lost_fails_and_goes_on_in_another(
    clusters: Any, tmp_path: Path, copying: Copying
) -> None:
    with clusters["postgres"].database() as database:
        events(database, ROWS)
        everything = ever(database)
        copying.after[1] = lambda: lose_snapshot(database)
        with cold_keeper(database, tmp_path) as cold:
            done = cold.one()
            assert done.outcome is Outcome.FAILED
            assert "the snapshot that all tasks of this copy read is gone" in done.message
            assert "run again" in done.message
            assert (cold.cold(), cold.hot()) == ([], sorted(everything["event"]))
            assert cold.one().outcome is Outcome.DONE
            assert copying.tasks == [3, 2]
            conserve(cold, everything, done=True)


def lose_snapshot(database: PostgresDatabase) -> None:
    holding = "query LIKE '%pg_export_snapshot%' AND state = 'idle in transaction' AND datname = current_database()"
    assert database.query(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {holding}") == [(True,)]


def test_a_snapshot_outlives_the_timeouts_of_the_database(clusters: Any, tmp_path: Path, copying: Copying) -> None:
    with clusters["postgres"].database() as database:
        events(database, ROWS)
        [(name,)] = database.query("SELECT current_database()")
        database.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '50ms'")
        copying.after[1] = lambda: database.query("SELECT pg_sleep(0.2)")
        with cold_keeper(database, tmp_path) as cold:
            done = cold.one()
            assert done.outcome is Outcome.DONE, done.message


KEYLESS = """
[store]
url = {url}
[archive]
url = "cold"
[archive.visit]
keep = "forever"
[scheduler]
night = {{ every = "1h" }}
[table.visit]
scheduler = "night"
why  = "a test"
key  = ["code"]
time = {{ column = "at_ms", unit = "ms" }}
rule.cold = {{ keep = "90d", then = "archive" }}
[spark]
range_rows = 10
"""


def test_a_key_that_is_no_key_any_more_is_refused_and_nothing_leaves(
    database: Database, tmp_path: Path, copying: Copying
) -> None:
    database.execute("CREATE TABLE visit (code bigint NOT NULL, at_ms bigint NOT NULL)")
    database.execute("CREATE UNIQUE INDEX visit_code ON visit (code)")
    database.execute("CREATE INDEX visit_due ON visit (at_ms, code)")
    database.executemany("INSERT INTO visit VALUES (?, ?)", [(n, OLD_MS + n) for n in range(30)])
    twice = ["DROP INDEX visit_code", f"INSERT INTO visit VALUES (1, {OLD_MS + 25})"]
    with cold_keeper(database, tmp_path, KEYLESS) as cold:
        cold.at["planned"] = execute(database, twice)
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert "twice in one state of the database" in done.message
        assert len(copying.tasks) == 2
        assert database.query("SELECT count(*) FROM visit") == [(31,)]
        assert cold.archived("visit") == []
        # With its key again it goes on.
        database.execute(f"DELETE FROM visit WHERE at_ms = {OLD_MS + 25} AND code = 1")
        database.execute("CREATE UNIQUE INDEX visit_code ON visit (code)")
        assert cold.one().outcome is Outcome.DONE
        assert sorted(row["code"] for row in cold.archived("visit")) == list(range(30))


@pytest.mark.parametrize("whole_keys", [False, True], ids=["texts", "numbers"])
@pytest.mark.parametrize("at_once", [1_000_000, 7])
def test_keys_are_compared_over_all_files_however_many_tasks_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, whole_keys: bool
) -> None:
    monkeypatch.setattr(unique, "KEYS_AT_ONCE", at_once)

    def written(number: int, part: int, keys: list[str]) -> FileJob:
        path = tmp_path / f"{part}-{number}.parquet"
        pq.write_table(pa.table({"_key": pa.array(keys, pa.string())}), path)
        return FileJob(number, part, str(path), len(keys), [], whole_keys)

    first = [f'["{n}"]' for n in range(40)]
    other = [f'["{n}"]' for n in range(40, 80)]
    apart = [written(0, 0, first), written(1, 0, other), written(0, 1, first), written(1, 1, other)]
    assert copied_twice(InlineExecutor(), apart) is None
    repeated = [*apart[:3], written(2, 1, [*other, '["17"]'])]
    assert copied_twice(InlineExecutor(), repeated) == (1, '["17"]')
    negative = [written(3, 0, [f'["{-n}"]' for n in range(60)]), written(4, 0, ['["-33"]', f'["{-(2**63)}"]'])]
    assert copied_twice(InlineExecutor(), negative) == (0, '["-33"]')
    if not whole_keys:
        assert copied_twice(InlineExecutor(), [written(3, 0, ["", "é", ""]), written(4, 0, ["é"])]) == (0, "")


def test_keys_are_compared_unless_each_file_has_its_own(tmp_path: Path) -> None:
    """Keys that reading back has found in one file only need no task that compares them."""
    compared: list[int] = []

    class Counting(InlineExecutor):
        def run(self, task: Any, count: int, progress: object = None) -> Iterator[str]:
            if task.func is not read_back:
                compared.append(count)
            return super().run(task, count)

    def proven(*files: list[int], whole_keys: bool = True) -> tuple[int, str] | None:
        jobs, manifests = [], []
        for number, keys in enumerate(files):
            path, texts = tmp_path / f"{number}.parquet", pa.array([f'["{n}"]' for n in keys])
            table = pa.table({"id": pa.array(keys, pa.int64()), "_key": texts})
            pq.write_table(table, path)
            digest = [content_digest(table)]
            jobs.append(FileJob(number, 0, str(path), len(keys), digest, whole_keys))
            checks = check(table, shape, strict=False, whole_keys=whole_keys).numbers()
            manifests.append({"range": number, "parts": [{"checks": checks, "files": []}]})
        executor = Counting()
        compared.clear()
        return copied_twice(executor, jobs, prove(executor, ProofJob([shape], jobs, False), manifests, ["t"]))

    shape = [("id", "long")]
    assert (proven([4, 3], [-9, 2], [70, 60, 5]), compared) == (None, [0])
    assert (proven([4, 3], [-9, 2], [70, 60, 1]), compared) == (None, [1]), "between those of another file"
    assert (proven([1, 2], [2, 3]), compared) == ((0, '["2"]'), [1])
    assert (proven([1, 2], [3, 4, 3]), compared) == ((0, '["3"]'), [1])
    assert (proven([1, 2], [3, 4], whole_keys=False), compared) == (None, [1]), "texts have another order"


def test_a_copy_leaves_the_archive_by_its_key_and_version(tmp_path: Path) -> None:
    cold = ColdTable(tmp_path, "event", "origin")
    cold.ensure([["id", "long"]], follows=False)
    from deltalake import write_deltalake

    rows = [('["1"]', "a"), ('["1"]', "b"), ('["2"]', "a"), ('["o\'2"]', "a")]
    table = {
        "id": pa.array(range(len(rows)), pa.int64()),
        "_key": [key for key, _ in rows],
        "_version": [version for _, version in rows],
        "_sweep": pa.array([1] * len(rows), pa.int64()),
        "_month": ["2026-01"] * len(rows),
    }
    write_deltalake(cold.require(), pa.table(table), mode="append")
    stale = [('["1"]', "a"), ('["2"]', "b"), ('["o\'2"]', "a")]
    remove_copies(InlineExecutor(), cold, GoneCopies.stale(1, stale, follows=False), [], why="a test")
    left = pa.table(cold.require().to_pyarrow_table())
    assert sorted(zip(left["_key"].to_pylist(), left["_version"].to_pylist(), strict=True)) == [
        ('["1"]', "b"),
        ('["2"]', "a"),
    ]
    remove_copies(InlineExecutor(), cold, GoneCopies.stale(1, [], follows=False), [], why="a test")
    assert pa.table(cold.require().to_pyarrow_table()).num_rows == 2
