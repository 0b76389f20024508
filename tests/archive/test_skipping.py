"""Files that cannot hold what is asked for are not read: by queries, restores and holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive.cold import Cold, cold_keeper, events
from servers import SqliteDatabase
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.comparison import groups
from wane._archive.delta.files import ColdFile
from wane._archive.maintenance import archived_holds
from wane._archive.query.plain_condition import PlainCondition
from wane._archive.query.skipping import FileToRead, all_files, key_condition, kinds_of, without_others
from wane._archive.query.staging import Choice
from wane._contract.settings import SparkSettings
from wane.errors import Unproven


@pytest.fixture
def cold(sqlite_database: SqliteDatabase, tmp_path: Path) -> Iterator[Cold]:
    events(sqlite_database, 200)
    with cold_keeper(sqlite_database, tmp_path) as keeping:
        keeping.one()  # In ranges of 60 rows, so that there are at least four files.
        yield keeping


def table(cold: Cold) -> ColdTable:
    with cold.keeper.store.transaction() as transaction:
        [(origin,)] = transaction.execute("SELECT origin FROM wane_archive_origin", {})
    return ColdTable(cold.folder / "cold", "event", origin)


def read(cold: Cold, condition: PlainCondition | None) -> set[int]:
    """Return the ids in the files that are left."""
    archived = table(cold)
    handle = archived.require()
    files = without_others(all_files(archived.folder, handle), condition)
    return {
        number for file in files for group in groups(file.path, [["id", "long"]]) for number in group["id"].to_pylist()
    }


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (Choice(where="id = 7"), {7}),
        (Choice(where="id > 190 AND amount IS NOT NULL"), {191, 200}),
        (Choice(keys=({"id": "7"},)), {7}),
        (Choice(keys=({"id": "7"}, {"id": "199"})), {7, 199}),
        (Choice(keys=({"id": "7", "body": "it's"},)), set()),
    ],
)
def test_a_restore_reads_only_files_that_can_hold_what_is_chosen(cold: Cold, choice: Choice, wanted: set[int]) -> None:
    everything = read(cold, None)
    left = read(cold, choice.condition(kinds_of(table(cold).require()), SparkSettings()))
    assert wanted <= left
    assert len(left) < len(everything) == 200


def test_a_sweep_that_filled_no_file_reads_none(cold: Cold) -> None:
    kinds = kinds_of(table(cold).require())
    assert read(cold, Choice(sweep=2).condition(kinds, SparkSettings())) == set()
    assert len(read(cold, Choice(sweep=1).condition(kinds, SparkSettings()))) == 200


def test_what_only_spark_understands_reads_everything(cold: Cold) -> None:
    kinds = kinds_of(table(cold).require())
    assert Choice(where="upper(body) = 'X'").condition(kinds, SparkSettings()) is None
    other = SparkSettings(settings=(("spark.sql.caseSensitive", "true"),))
    assert Choice(where="id = 7").condition(kinds, other) is None


@pytest.mark.parametrize(
    "key", [{"id": "seven"}, {"id": "7.0"}, {"amount": "1"}, {"body": "a\\b"}, {"b`": "1"}, {}, {"id": "9" * 30}]
)
def test_a_key_of_which_nothing_is_known_reads_everything(key: dict[str, str]) -> None:
    assert key_condition([{"id": "7"}, key], {"id": "long", "amount": "decimal(12,2)", "body": "string"}) is None


def test_a_hold_reads_only_files_that_can_hold_its_row(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    def counted(path: Path, shape: Any) -> Any:
        opened.append(path)
        return groups(path, shape)

    monkeypatch.setattr(archived_holds, "groups", counted)
    cold.keeper.hold("event", {"id": 199}, reason="asked for")
    assert len(opened) == 1
    assert len(list((cold.folder / "cold" / "event").rglob("*.parquet"))) >= 4


def test_a_file_that_is_not_as_the_log_has_it_is_read(cold: Cold) -> None:
    tables = {
        file: pq.read_table(file, partitioning=None) for file in (cold.folder / "cold" / "event").rglob("*.parquet")
    }
    file, rows = next((file, rows) for file, rows in tables.items() if 1 in rows["id"].to_pylist())
    forged = pa.array([number + 1_000 for number in rows["id"].to_pylist()])
    pq.write_table(rows.set_column(0, "id", forged), file)
    assert 1_001 in read(cold, key_condition([{"id": "1"}], {"id": "long"}))
    with pytest.raises(Unproven, match="cannot be trusted"):
        cold.keeper.archive.read("event", where="id = 1")


def test_a_key_among_a_thousand_files_reads_one(tmp_path: Path) -> None:
    files = []
    for number in range(1_000):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number * 10, number * 10 + 9]}), path)
        files.append(FileToRead(path, ColdFile(path.name, "2026-01", 2, path.stat().st_size, (1, 1))))
    [found] = without_others(files, key_condition([{"id": "7004"}], {"id": "long"}))
    assert found.path.name == "700.parquet"


@pytest.mark.frames_on_spark
def test_a_frame_has_only_files_that_can_match(cold: Cold) -> None:
    every, some = cold.keeper.archive.query("event"), cold.keeper.archive.query("event", where="id = 7")
    assert len(some.inputFiles()) == 1 < len(every.inputFiles())
    assert [row.id for row in some.collect()] == [7]
    assert cold.keeper.archive.query("event", where="id = 777").count() == 0
    done = cold.keeper.archive.restore("event", keys=[{"id": 7}], into="side", dry_run=True)
    assert done.chosen == {"event": 1, "event_read": 1}
