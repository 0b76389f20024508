"""Where an archive may be: a folder of any name that Delta Lake and Spark can have, and an error before anything moves for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from archive.cold import CONTRACT, PACE, cold_keeper, events
from archive.test_expire import KEPT, old_events
from archive.test_upkeep import age, everything, files, on_disk
from servers import SqliteDatabase
from wane._archive.cold_table import folder_of
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, ContractError


@pytest.mark.on_spark
@pytest.mark.sampled
def test_an_archive_with_a_special_path_lives_its_whole_life(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    folder = tmp_path / "My Project #1 ü u\u0308 %o a?b {c,d} *e* : $f &'\"`~;=@<>,!"
    folder.mkdir()
    old_events(sqlite_database)
    with cold_keeper(sqlite_database, folder, KEPT) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted["event"]) == (Outcome.DONE, 100)
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


@pytest.mark.parametrize("name", ["b[1]", "b]", "c%20d", "e\\f", "g^h", "i|j", "k\tl", "m\x7fn"])
def test_a_path_that_delta_lake_cannot_have_is_refused(
    sqlite_database: SqliteDatabase, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    events(sqlite_database, 3)
    with (
        pytest.raises(ContractError, match="which Delta Lake cannot have in a path"),
        cold_keeper(sqlite_database, folder),
    ):
        raise AssertionError("it was opened")
    assert [place.name for place in folder.iterdir()] == ["wane.toml"]
    with pytest.raises(ArchiveError, match="which Delta Lake cannot have in a path"):
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
