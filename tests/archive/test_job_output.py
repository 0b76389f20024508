"""Tables that Spark jobs of others write: one commit by the driver, once for each number of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from archive.cold import cold_keeper, events
from archive.object_server import ObjectServer
from servers import SqliteDatabase
from wane._archive.delta import job_output
from wane._archive.delta.job_output import JobOutput
from wane._archive.delta.object_store import ObjectPath
from wane.contrib.spark import ColdSource, _ColdMessage, _ColdWriter
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


@pytest.mark.parametrize("overtaking", [1, 2])
def test_a_job_that_is_overtaken_after_it_has_read_the_log_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overtaking: int
) -> None:
    """Another run of the job, under its number or a later one, commits after it has read the log."""
    path = tmp_path / "report"
    before = writer(path, 1, app="hourly")
    before.commit([before.write(rows(9))])
    slow, fast = writer(path), writer(path, overtaking)
    message = slow.write(rows(1))
    is_done = JobOutput._is_done

    def overtaken(output: JobOutput, table: DeltaTable) -> bool:
        done = is_done(output, table)
        monkeypatch.setattr(JobOutput, "_is_done", is_done)
        fast.commit([fast.write(rows(2))])
        return done

    monkeypatch.setattr(JobOutput, "_is_done", overtaken)
    refused = pytest.raises(WrongArgument, match="sequence 2 already") if overtaking == 2 else nullcontext()
    with refused:
        slow.commit([message])
    assert (stored(path), files(path)) == ([2, 9], 2)


def test_files_that_the_driver_does_not_see_are_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "report"
    made = writer(path)
    messages = [made.write(rows(1)), made.write(rows(2))]
    next(path.glob("*.parquet")).unlink()  # As on a worker with a disk of its own.
    with pytest.raises(ArchiveError, match="is not what a task wrote") as refused:
        made.commit([*messages])
    assert "that the driver and all tasks can reach" in refused.value.hint
    assert (stored(path), files(path)) == ([], 0)


def test_an_object_store_that_ignores_conditional_puts_is_refused(server: ObjectServer) -> None:
    made = writer(f"{server.bucket()}/report")
    message = made.write(rows(1))
    with server.failing("strip", method="PUT"), pytest.raises(ArchiveError, match="ignores conditional puts"):
        made.commit([message])


def test_a_task_begins_another_file_when_one_is_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report"
    monkeypatch.setattr(job_output, "GROUP_ROWS", 1_000)
    bodies = pa.array([os.urandom(20).hex() for _ in range(1_000)])
    batch = pa.RecordBatch.from_pydict({"id": pa.array(range(1_000)), "body": bodies})
    options = {"path": str(path), "app": "nightly", "sequence": "1"}
    made = ColdSource({**options, "file_bytes": "100000"}).writer(SCHEMA, overwrite=False)
    made.commit([made.write(iter([batch] * 20))])
    sizes = [file.stat().st_size for file in path.glob("*.parquet")]
    assert len(sizes) > 3
    assert sum(size < 100_000 for size in sizes) <= 1, "the last one"
    assert max(sizes) < 200_000, "a group of rows more than requested at most"
    assert len(stored(path)) == 20_000
    for wrong in ("0", "128 MB"):
        with pytest.raises(WrongArgument, match="file_bytes"):
            ColdSource({**options, "file_bytes": wrong}).writer(SCHEMA, overwrite=False)


def test_what_a_failed_job_wrote_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "report"
    made = writer(path)
    made.abort([made.write(rows(1)), None, _ColdMessage([])])
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
        with pytest.raises(WrongArgument, match="by its name and a number from 1"):
            ColdSource({"path": str(path), **options}).writer(SCHEMA, overwrite=False)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ArchiveError, match="cannot be written"):
        writer(tmp_path / "file")
