"""Tables that Spark jobs of others write: one commit by the driver, once for each number of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from archive.cold import cold_keeper, events
from archive.object_server import ObjectServer
from servers import SqliteDatabase
from wane._archive.delta import job_output
from wane._archive.delta.object_store import ObjectPath
from wane._archive.spark.session import session
from wane._contract.settings import SparkSettings
from wane.contrib.spark import ColdSource, _ColdMessage, _ColdWriter, register
from wane.errors import ArchiveError, WrongArgument

SCHEMA = StructType().add("id", LongType()).add("body", StringType())


def writer(path: Path | str, sequence: int = 1, app: str = "nightly", schema: StructType = SCHEMA) -> _ColdWriter:
    options = {"path": str(path), "app": app, "sequence": str(sequence)}
    return ColdSource(options).writer(schema, overwrite=False)


def rows(*ids: int) -> Iterator[pa.RecordBatch]:
    for one in ids:
        yield pa.RecordBatch.from_pydict({"id": [one], "body": [f"body {one}"]})


def stored(path: Path) -> list[int]:
    return sorted(pa.table(DeltaTable(str(path)).to_pyarrow_table())["id"].to_pylist())


def files(path: Path) -> int:
    return len(list(path.glob("*.parquet")))


def test_what_tasks_write_appears_with_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "report"
    made = writer(path)
    messages = [made.write(rows(1, 2)), made.write(rows()), made.write(rows(3))]
    assert not (path / "_delta_log").exists()
    made.commit([*messages, None])
    assert (stored(path), files(path)) == ([1, 2, 3], 2)
    later = writer(path, 2)
    later.commit([later.write(rows(4))])
    assert stored(path) == [1, 2, 3, 4]
    assert DeltaTable(str(path)).version() == 2, "the table itself, and two commits"


def test_a_job_that_is_repeated_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report"
    first = writer(path, 2)
    first.commit([first.write(rows(1))])
    repeated = writer(path, 2)
    repeated.commit([repeated.write(rows(1))])
    assert (stored(path), files(path)) == ([1], 1)
    other = writer(path, 2, app="hourly")
    other.commit([other.write(rows(9))])
    assert stored(path) == [1, 9]


def test_a_job_with_a_lower_number_than_the_last_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report"
    late = writer(path, 2)
    message = late.write(rows(2))
    first = writer(path, 3)
    first.commit([first.write(rows(1))])
    with pytest.raises(WrongArgument, match="has rows of nightly with sequence 3 already: nothing is added with 2"):
        writer(path, 2)
    with pytest.raises(WrongArgument, match="sequence 3 already"):
        late.commit([message])
    assert (stored(path), files(path)) == ([1], 1)
    other = writer(path, 2, app="back-fill")
    other.commit([other.write(rows(9))])
    assert stored(path) == [1, 9]


def failing(*ids: int) -> Iterator[pa.RecordBatch]:
    yield from rows(*ids)
    raise ZeroDivisionError("a mistake in the job")


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report"
    made = writer(path)
    monkeypatch.setattr(job_output, "GROUP_ROWS", 1)  # So that something is written before it fails.
    with pytest.raises(ZeroDivisionError):
        made.write(failing(1, 2))
    assert list(path.iterdir()) == []


def test_a_task_that_fails_leaves_no_object(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{server.bucket()}/report"
    made = writer(url)
    monkeypatch.setattr(job_output, "GROUP_ROWS", 1)
    with pytest.raises(ZeroDivisionError):
        made.write(failing(1, 2))
    assert list(ObjectPath.read(url).iterdir()) == []
    made.commit([made.write(rows(1))])
    assert [row["id"] for row in server.archived(url)] == [1]


def test_a_commit_whose_answer_is_lost_keeps_its_files(server: ObjectServer) -> None:
    url = f"{server.bucket()}/report"
    first = writer(url)
    first.commit([first.write(rows(1))])
    second = writer(url, 2)
    message = second.write(rows(2))
    with server.failing("lose", method="PUT", path="_delta_log", times=1):
        try:
            second.commit([message])
        except ArchiveError:
            second.abort([message])  # As Spark does.
    repeated = writer(url, 2)
    repeated.commit([repeated.write(rows(2))])
    assert sorted(row["id"] for row in server.archived(url)) == [1, 2]


def test_two_commits_of_one_number_add_one(tmp_path: Path) -> None:
    path = tmp_path / "report"
    one, two = writer(path), writer(path)
    message = two.write(rows(2))
    one.commit([one.write(rows(1))])
    two.commit([message])
    assert (stored(path), files(path)) == ([1], 1)


def test_what_a_failed_job_wrote_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "report"
    made = writer(path)
    made.abort([made.write(rows(1)), None, _ColdMessage(None)])
    assert (files(path), (path / "_delta_log").exists()) == (0, False)


def test_an_archive_is_written_by_sweeps_only(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
    with pytest.raises(WrongArgument, match="only sweeps write to"):
        writer(tmp_path / "cold" / "event")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report"
    made = writer(path)
    made.commit([made.write(rows(1))])
    with pytest.raises(WrongArgument, match="has other columns"):
        writer(path, 2, schema=StructType().add("id", StringType()).add("body", StringType()))
    with pytest.raises(WrongArgument, match=r"body is .*cannot write"):
        writer(path, 2, schema=StructType().add("body", ArrayType(TimestampType())))
    with pytest.raises(WrongArgument, match="only adds rows"):
        ColdSource({"path": str(path), "app": "x", "sequence": "1"}).writer(SCHEMA, overwrite=True)
    for options in ({}, {"app": "x"}, {"app": "x", "sequence": "0"}, {"app": "x", "sequence": "one"}):
        with pytest.raises(WrongArgument, match="by its name and a number"):
            ColdSource({"path": str(path), **options}).writer(SCHEMA, overwrite=False)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ArchiveError, match="cannot be written"):
        writer(tmp_path / "file")


@pytest.mark.on_spark
def test_a_job_writes_a_table_once(tmp_path: Path) -> None:
    spark = session(SparkSettings())
    register(spark)
    for _ in range(2):
        job = spark.range(0, 20, 1, 2).selectExpr("id", "concat('body ', id) AS body").write.format("wane_cold")
        job.mode("append").option("app", "nightly").option("sequence", "7").save(str(tmp_path / "report"))
    assert stored(tmp_path / "report") == list(range(20))
    assert spark.read.format("wane_cold").load(str(tmp_path / "report")).count() == 20
