"""Where an archive may be: a folder of any name that Delta Lake and Spark can have, and an error before anything moves
for the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, PACE, cold_keeper, events
from archive.page_cache import folder_on_disk, resident_pages
from archive.test_expire import EXPIRING, old_events
from archive.test_upkeep import age, everything, files, on_disk
from servers import SqliteDatabase
from wane._archive.delta.cold_table import folder_of
from wane._archive.delta.paths import sync_file
from wane._archive.maintenance import compact
from wane._archive.pipeline import extract
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, ContractError


@pytest.mark.on_spark
@pytest.mark.sampled
def test_an_archive_with_a_special_path_lives_its_whole_life(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    folder = tmp_path / "My Project #1 ü u\u0308 %o : $f &'\"`~;=@<>,!"
    folder.mkdir()
    old_events(sqlite_database)
    with cold_keeper(sqlite_database, folder, EXPIRING) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted["event"]) == (Outcome.DONE, 100), done.message
        archive = cold.keeper.archive
        assert {proof.rows: proof.problems for proof in archive.verify("event")} == {100: ()}
        assert archive.query("event", where="id IN (5, 60)").count() == 2
        assert archive.restore("event", where="id IN (12, 60)", pace=PACE, dry_run=True).chosen["event"] == 2
        assert archive.restore("event", where="id IN (12, 60)", pace=PACE).restored["event"] == 2
        assert archive.restore("event", where="id = 61", into="side", pace=PACE).restored["event"] == 1
        compacted = archive.compact()
        assert [one.outcome for one in compacted] == [Outcome.DONE, Outcome.DONE]
        [expired] = archive.expire()
        assert (expired.outcome, sum(expired.rows["event"].values())) == (Outcome.DONE, 48), expired.message
        assert cold.cold() == [n for n in range(50, 101) if n != 60]
        assert {one.tier: one.rows for one in archive.survey("event")} == {"hot": 5, "archive": 50}
        before, needed = everything(cold), set(files(cold))
        for table in ("event", "event_read"):
            age(cold, table)
        [tidied, _] = archive.tidy()
        assert (tidied.outcome, tidied.waiting) == (Outcome.DONE, 0)
        assert tidied.files > 0
        assert on_disk(cold) == needed
        assert everything(cold) == before


@pytest.mark.parametrize("name", ["b[1]", "b]", "a?b", "{c,d}", "*e*", "c%20d", "e\\f", "g^h", "i|j", "k\tl", "m\x7fn"])
def test_a_path_that_delta_lake_cannot_have_is_refused(
    sqlite_database: SqliteDatabase, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    events(sqlite_database, 3)
    with (
        pytest.raises(ContractError, match="which Delta Lake and Spark cannot have in a path"),
        cold_keeper(sqlite_database, folder),
    ):
        raise AssertionError("it was opened")
    assert [path.name for path in folder.iterdir()] == ["wane.toml"]
    with pytest.raises(ArchiveError, match="which Delta Lake and Spark cannot have in a path"):
        folder_of("cold", folder)


def test_a_link_to_such_a_folder_is_refused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    (tmp_path / "b[1]").mkdir()
    (tmp_path / "cold").symlink_to(tmp_path / "b[1]")
    with pytest.raises(ContractError, match="Delta Lake"), cold_keeper(sqlite_database, tmp_path):
        raise AssertionError("it was opened")


def test_a_url_is_decoded_once(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    assert folder_of(f"file://{tmp_path}/a%20b", None) == tmp_path / "a b"
    with pytest.raises(ArchiveError, match="Delta Lake"):
        folder_of(f"file://{tmp_path}/a%2520b", None)


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_is_never_an_empty_text(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("WANE_TEST_ROOT", raising=False)
    if value is not None:
        monkeypatch.setenv("WANE_TEST_ROOT", value)
    contract = CONTRACT.replace('url = "cold"', 'url = "${{WANE_TEST_ROOT}}/cold"')
    with pytest.raises(ContractError, match="WANE_TEST_ROOT"), cold_keeper(sqlite_database, tmp_path, contract):
        raise AssertionError("it was opened")
    with pytest.raises(ArchiveError, match="WANE_TEST_ROOT"):
        folder_of("${WANE_TEST_ROOT}/cold", tmp_path)
    monkeypatch.setenv("WANE_TEST_ROOT", str(tmp_path / "there"))
    assert folder_of("${WANE_TEST_ROOT}/cold", tmp_path) == tmp_path / "there" / "cold"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with folder_on_disk(tmp_path) as folder:
        yield folder


def test_what_was_written_is_read_from_the_disk_next(disk: Path) -> None:
    content, path = os.urandom(1_000_000), disk / "written"
    with path.open("xb") as sink:
        sink.write(content)
        sync_file(path, sink)
        assert resident_pages(path) == 0
    assert path.read_bytes() == content
    assert resident_pages(path) > 0, "it was read"


def test_what_spark_wrote_is_read_from_the_disk_next(disk: Path) -> None:
    content, part = os.urandom(1_000_000), disk / "part-00000.parquet"
    part.write_bytes(content)
    assert compact._moved(disk, part, "_month=2026-01/compact.parquet") == "_month=2026-01/compact.parquet"
    moved = disk / "_month=2026-01" / "compact.parquet"
    assert resident_pages(moved) == 0
    assert moved.read_bytes() == content


def test_every_file_of_a_sweep_is_read_back_from_the_disk(
    sqlite_database: SqliteDatabase, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = {}

    def synced(path: Path, sink: Any) -> None:
        sync_file(path, sink)
        resident[path.name] = resident_pages(path)

    monkeypatch.setattr(extract, "sync_file", synced)
    events(sqlite_database, 100)
    with cold_keeper(sqlite_database, disk) as cold:
        assert cold.one().outcome is Outcome.DONE
        assert {Path(one).name for one in (*files(cold), *files(cold, "event_read"))} <= resident.keys()
    assert set(resident.values()) == {0}
