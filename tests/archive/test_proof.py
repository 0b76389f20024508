"""Nothing leaves on the strength of a file that does not hold it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from archive import inline
from archive.cold import Cold, cold_keeper, conserve, events
from archive.object_server import ObjectServer
from servers import Database, SqliteDatabase
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.paths import children
from wane._archive.rows.content import Checks
from wane._archive.rows.types import SAMPLED_EVERY, key_digest
from wane._archive.spark import executor
from wane._prune.sweep import Outcome


def flip(file: Path) -> None:
    """Flip one bit of the largest column's data: no reader checks all of what a page states about itself."""
    group = pq.read_metadata(file).row_group(0)
    largest = max(
        (group.column(number) for number in range(group.num_columns)), key=lambda one: one.total_compressed_size
    )
    start = largest.dictionary_page_offset or largest.data_page_offset
    content = bytearray(file.read_bytes())
    content[start + largest.total_compressed_size - 1] ^= 1
    file.write_bytes(content)


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def swap(file: Path) -> None:
    """Put another file there of the same table: everything in it is well-formed."""
    other = next(one for one in sorted(file.parent.parent.glob("*/*.parquet")) if one != file)
    file.write_bytes(other.read_bytes())


def forge(file: Path) -> None:
    """Change one value, of a row that is not among the samples: everything in it is well-formed, and so are its
    checksums."""
    rows = pq.ParquetFile(file).read()
    digests = key_digest(rows["id"].to_numpy())
    chosen = next(number for number, digest in enumerate(digests) if digest % SAMPLED_EVERY)
    bodies = rows["body"].to_pylist()
    bodies[chosen] = "forged"
    rows = rows.set_column(rows.column_names.index("body"), "body", pa.array(bodies, pa.string()))
    pq.write_table(rows, file, write_page_checksum=True)


@pytest.mark.parametrize(
    ("damage", "strict"),
    [(flip, True), (flip, False), (cut_short, False), (swap, False), (forge, False), (Path.unlink, True)],
)
def test_a_file_that_was_damaged_before_it_was_read_back_stops_everything(
    sqlite_database: SqliteDatabase, tmp_path: Path, damage: Callable[[Path], None], strict: bool
) -> None:
    database = sqlite_database  # Files know nothing of the store that their rows came from.
    events(database, 100)
    if not strict:
        with cold_keeper(database, tmp_path) as cold:
            cold.one()  # The first sweep is strict in any case.
            database.execute("UPDATE event SET status = 'done' WHERE id = 10002")
            refill(database)
    ever = {"event": {number for (number,) in database.query("SELECT id FROM event")}}
    with cold_keeper(database, tmp_path) as cold:
        before = cold.cold()
        cold.at["written"] = lambda: damage(_newest(cold))
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert done.evicted == {"event": 0}
        assert "cannot be trusted" in done.message
        assert cold.cold() == before
        assert set(cold.hot()) == ever["event"]
        assert cold.keeper.archive.status()[0].strict is strict
        # The next run copies again what was damaged.
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, {"event": ever["event"] | set(before)}, done=True)


class _Decaying(inline.InlineSparkExecutor):
    """A file changes after the library that wrote it has read it back."""

    damaged: ClassVar[list[Callable[[], None]]] = []

    def reread(self, *arguments: Any, **options: Any) -> Checks | None:
        while self.damaged:
            self.damaged.pop()()
        return super().reread(*arguments, **options)


@pytest.mark.frames_on_spark
@pytest.mark.parametrize(("damage", "what"), [(forge, "another content"), (cut_short, "Spark cannot read")])
def test_a_first_sweep_is_proven_by_a_second_reader(
    sqlite_database: SqliteDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    what: str,
) -> None:
    events(sqlite_database, 40)
    ever = {"event": {number for (number,) in sqlite_database.query("SELECT id FROM event")}}
    monkeypatch.setattr(executor, "default", _Decaying)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        _Decaying.damaged.append(lambda: damage(_newest(cold)))
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert what in done.message
        assert (cold.cold(), set(cold.hot())) == ([], ever["event"])
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)


@pytest.mark.frames_on_spark
@pytest.mark.sampled
def test_a_first_sweep_in_a_bucket_is_proven_by_a_second_reader(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ObjectServer
) -> None:
    events(sqlite_database, 40)
    monkeypatch.setattr(executor, "default", _Decaying)
    with cold_keeper(sqlite_database, tmp_path, server=server, url=f"{server.bucket()}/cold") as cold:
        hot = cold.hot()

        def damage() -> None:
            months = children(cold.keeper.archive._cold("event").folder, "_month=*")
            written = [file for month in months for file in children(month)][-1]
            local = tmp_path / "written.parquet"
            local.write_bytes(written.read_bytes())
            forge(local)
            written.write_bytes(local.read_bytes())

        _Decaying.damaged.append(damage)
        done = cold.one()
        assert (done.outcome, "another content" in done.message) == (Outcome.FAILED, True), done.message
        assert (cold.cold(), cold.hot()) == ([], hot)
        assert cold.one().outcome is Outcome.DONE
        assert len(cold.cold()) == 40


def refill(database: Database) -> None:
    from archive.cold import insert_events

    insert_events(database, range(500, 600))


def _newest(cold: Cold) -> Path:
    return max((cold.folder / "cold" / "event").glob("*/*.parquet"), key=lambda one: one.stat().st_mtime_ns)


def test_a_file_that_vanished_before_the_commit_is_recopied(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    ever = {"event": {number for (number,) in database.query("SELECT id FROM event")}}
    with cold_keeper(database, tmp_path) as cold:
        cold.at["verified"] = lambda: _newest(cold).unlink()
        assert "is not what was written" in cold.one().message
        conserve(cold, ever, done=False)
        assert cold.cold() == []
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)


def test_damage_in_the_archive_is_found_later(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        flip(_newest(cold))
        [rows, reads] = cold.keeper.archive.verify()
        assert len(rows.problems) == 1
        assert reads.problems == ()


def test_verifying_opens_the_log_of_each_table_once(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 20)
    opened: list[str] = []
    opening = ColdTable.open

    def traced(this: ColdTable) -> DeltaTable | None:
        opened.append(this.name)
        return opening(this)

    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        monkeypatch.setattr(ColdTable, "open", traced)
        assert [one.table for one in cold.keeper.archive.verify()] == ["event", "event_read"]
        assert opened == ["event", "event_read"]
