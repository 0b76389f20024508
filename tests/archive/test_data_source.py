"""The archive as a data source of other Spark jobs: the same rows, without files that cannot match."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThanOrEqual, Not
from pyspark.sql.types import LongType, StringType, StructType

from archive.cold import Cold, cold_keeper, events
from servers import Database, SqliteDatabase
from wane._archive.spark.session import session
from wane.contrib.spark import ColdSource, _ColdReader, _value, register
from wane.errors import Unproven, WrongArgument

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-with-spark.md"
SCHEMA = StructType().add("id", LongType()).add("body", StringType()).add("_month", StringType())


def reader(cold: Cold, *filters: Filter) -> _ColdReader:
    made = _ColdReader(str(cold.folder / "cold" / "event"), SCHEMA)
    # Spark evaluates all of them itself.
    assert list(made.pushFilters(list(filters))) == list(filters)
    return made


def ids(made: _ColdReader) -> list[int]:
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    return sorted(pa.Table.from_batches(batches)["id"].to_pylist()) if batches else []


def test_files_that_cannot_match_are_not_read(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 200)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        every = reader(cold)
        count = len(every.partitions())
        assert count > 3
        assert ids(every) == list(range(1, 201))
        bodies = pa.Table.from_batches([one for part in every.partitions() for one in every.read(part)])
        assert set(bodies["_month"].to_pylist()) == {row["_month"] for row in cold.archived()}
        for filters, least in (
            ([EqualTo(("id",), 7)], {7}),
            ([In(("id",), (7, 8))], {7, 8}),
            ([GreaterThan(("id",), 195), IsNotNull(("id",))], {196, 200}),
            ([LessThanOrEqual(("id",), 3), Not(EqualTo(("id",), 2))], {1, 2, 3}),
        ):
            made = reader(cold, *filters)
            assert 0 < len(made.partitions()) < count
            assert least <= set(ids(made))
        assert reader(cold, EqualTo(("id",), 5_000)).partitions() == []
        months = {row["_month"] for row in cold.archived()}
        assert reader(cold, EqualTo(("_month",), "1999-01")).partitions() == []
        assert sum(len(reader(cold, EqualTo(("_month",), one)).partitions()) for one in months) == count
        for unknown in (EqualTo(("body", "x"), 7), EqualTo(("body",), "a\\b"), In(("id",), (1, True))):
            assert len(reader(cold, unknown).partitions()) == count


def test_a_file_that_is_not_as_the_log_states_is_refused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 20)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        made = reader(cold)
        file = Path(made.partitions()[0].file)
        file.write_bytes(file.read_bytes()[:-20])
        with pytest.raises(Unproven, match="cannot be trusted"):
            made.partitions()


def test_values_are_written_so_that_their_zone_is_known() -> None:
    aware, naive = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 6)
    assert _value(aware, "timestamp") == _value(naive, "timestamp_ntz") == "'2026-01-02 03:04:05.000006'"
    assert _value(naive, "timestamp") is _value(aware, "timestamp_ntz") is _value(1.5, "double") is None
    assert (_value(date(2026, 1, 2), "date"), _value("o'x", "string")) == ("'2026-01-02'", "'o''x'")


def test_a_source_without_a_path_is_refused() -> None:
    with pytest.raises(WrongArgument, match="needs the path"):
        ColdSource({}).schema()


@pytest.mark.on_spark
def test_a_job_reads_the_archive_and_writes_as_the_page_shows(database: Database, tmp_path: Path) -> None:
    events(database, 200)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        archived = cold.archived()
        spark = session(cold.keeper.contract.spark)
    read, write, *_ = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    [(month, _)] = Counter(row["_month"] for row in archived if row["id"] >= 100).most_common(1)
    read = read.replace("archive/event_outbox", str(tmp_path / "cold" / "event")).replace("2026-01", month)
    seen: dict[str, Any] = {"spark": spark}
    exec(read, seen)
    assert "register" in seen
    assert register is seen["register"]
    wanted = sorted((row["id"], row["body"]) for row in archived if row["_month"] == month)
    assert [tuple(row) for row in seen["january"]] == [row for row in wanted if row[0] >= 100]
    assert set(seen["events"].columns) == set(archived[0])
    report = tmp_path / "reports" / "january"
    write = write.replace("2026-01'", f"{month}'").replace("reports/january", str(report))
    for _ in range(2):  # A job that is repeated under its number adds nothing.
        exec(write, seen)
        made = DeltaTable(str(report)).to_pyarrow_table().to_pylist()
        assert sorted((row["id"], row["body"]) for row in made) == wanted
    read_back = spark.read.format("wane_cold").load(str(report))
    assert sorted(tuple(row) for row in read_back.collect()) == wanted


@pytest.mark.on_spark
def test_spark_passes_filters_on_and_files_that_cannot_match_are_not_opened(database: Database, tmp_path: Path) -> None:
    events(database, 200)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        made = reader(cold, EqualTo(("id",), 7))
        [partition] = made.partitions()
        spark = session(cold.keeper.contract.spark)
        for other in reader(cold).partitions():
            if other != partition:
                Path(other.file).unlink()
        register(spark)

        def found(where: str) -> list[int]:
            read = spark.read.format("wane_cold").load(str(cold.folder / "cold" / "event"))
            return sorted(row.id for row in read.where(where).collect())

        assert found("id = 7 AND length(body) > 0") == found("id IN (7) AND _month > '2000-01'") == [7]
        with pytest.raises(PySparkException, match="cannot be trusted"):
            found("length(body) > 0")
