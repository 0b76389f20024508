"""What Spark's own Parquet reader decodes of a file has the digests that the database computes: of every kind, edges
included."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive.object_server import ObjectServer
from wane._archive.delta.object_store import ObjectPath
from wane._archive.query import second_reader
from wane._archive.query.second_reader import read_by_spark
from wane._archive.rows import content
from wane._archive.rows.types import KEY
from wane._archive.spark.executor import SparkExecutor
from wane._archive.spark.session import session
from wane._contract.settings import SparkSettings
from wane.errors import ArchiveError, Unproven

VALUES: dict[str, list[Any]] = {
    "short": [1, -32_768],
    "integer": [0, -(2**31)],
    "long": [-(2**63), 2**63 - 1],
    "float": [-0.0, float("nan"), float("-inf"), 1.5, -3.4e38],
    "double": [-0.0, float("nan"), float("inf"), 0.1, -1e-320],
    "boolean": [True, False],
    "string": ["", "ü\U0001f600\x00", "a\nb"],
    "binary": [b"", b"\x00\xff"],
    "date": [date(1, 1, 1), date(1500, 3, 1), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(9999, 12, 30, 1, 2, 3, 4)],
    "decimal(38,18)": [Decimal("0E-18"), Decimal("-0.000000000000000001"), Decimal("99999999999999999999.5")],
    "decimal(12,2)": [Decimal("1.50"), Decimal("-0.05")],
}
ROWS = 12


def written(path: Path, columns: int) -> tuple[pa.Table, list[list[str]]]:
    """Write a file with columns of every kind; the values of no two of them are paired alike."""
    kinds = list(VALUES)
    shape = [[f"c.{number} {kinds[number % len(kinds)]}", kinds[number % len(kinds)]] for number in range(columns)]
    made: dict[str, Any] = {}
    for number, (name, kind) in enumerate(shape):
        values = [*VALUES[kind], None]
        found = [values[(row + number * (row + 1)) % len(values)] for row in range(ROWS)]
        made[name] = pa.array(found, content.arrow_type(kind))
    made[KEY] = pa.array([f'["{row - 5}"]' for row in range(ROWS)])
    table = pa.table(made)
    pq.write_table(table, path, compression="zstd", write_page_checksum=True, row_group_size=5)
    return table, shape


@pytest.mark.frames_on_spark
@pytest.mark.parametrize(
    "columns", [len(VALUES), pytest.param(110, marks=pytest.mark.sampled)], ids=["every kind", "digested in pieces"]
)
def test_spark_computes_the_digests_of_every_kind(tmp_path: Path, columns: int) -> None:
    table, shape = written(tmp_path / "rows.parquet", columns)
    for whole_keys in (True, False):
        read = read_by_spark(session(SparkSettings()), [str(tmp_path / "rows.parquet")], shape, whole_keys=whole_keys)
        assert read == content.check(table, shape, strict=True, whole_keys=whole_keys)


@pytest.mark.frames_on_spark
def test_another_value_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table, shape = written(path, len(VALUES))
    before = content.check(table, shape, strict=True, whole_keys=True)
    column = table["c.6 string"].to_pylist()
    for changed in ([*column[:-1], "forged"], [None if one == "" else one for one in column]):
        pq.write_table(table.set_column(6, "c.6 string", pa.array(changed, pa.string())), path)
        read = read_by_spark(session(SparkSettings()), [str(path)], shape, whole_keys=True)
        assert (read.rows, read.keys) == (before.rows, before.keys)
        assert (read.row_first, read.row_second) != (before.row_first, before.row_second)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Unproven, match="Spark cannot read what was written"):
        read_by_spark(session(SparkSettings()), [str(path)], shape, whole_keys=True)


@pytest.mark.frames_on_spark
def test_objects_are_copied_for_spark_to_read(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(second_reader, "_COPIED_BYTES", 1)  # Each in a portion of its own.
    table, shape = written(tmp_path / "rows.parquet", len(VALUES))
    folder = ObjectPath.read(f"{server.bucket()}/event")
    names = [str(folder / f"_month=2026-01/sweep-{number}.parquet") for number in range(3)]
    for name in names:
        with ObjectPath.read(name).open("xb") as sink:
            sink.write((tmp_path / "rows.parquet").read_bytes())
    one = content.check(table, shape, strict=True, whole_keys=True)
    executor = SparkExecutor(SparkSettings())
    assert executor.reread(names, shape, whole_keys=True) == one + one + one
    assert list(temporary.iterdir()) == [], "nothing of them stays on this machine"
    with pytest.raises(ArchiveError, match="cannot be copied"):
        executor.reread([*names, str(folder / "gone.parquet")], shape, whole_keys=True)


@pytest.mark.parametrize("settings", [{"master": "spark://elsewhere:7077"}, {"remote": "sc://elsewhere:15002"}])
def test_objects_are_not_read_by_spark_of_another_machine(settings: dict[str, str]) -> None:
    """Without starting it, and without a copy of theirs that it could not reach."""
    executor = SparkExecutor(SparkSettings(**settings))  # type: ignore[arg-type]
    assert executor.reread(["s3://bucket/event/one.parquet"], [["id", "long"]], whole_keys=True) is None
