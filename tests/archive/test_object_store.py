"""An archive in an object store: the same pipeline, against a server that speaks S3's protocol and whose connections
fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import wane
from archive.cold import CONTRACT, Cold, cold_keeper, conserve, events, insert_events
from archive.inline import InlineExecutor
from archive.object_server import ObjectServer, object_server
from archive.test_expire import EXPIRING, GOING, ROWS, old_events, reads
from archive.test_full_disk import all_rows
from archive.test_upkeep import everything, june
from servers import Database, SqliteDatabase
from wane._archive.delta.cold_table import ColdTable, folder_of
from wane._archive.delta.object_store import ObjectPath
from wane._archive.maintenance import tidy
from wane._archive.pipeline.unique import copied_twice
from wane._archive.pipeline.verify import FileJob
from wane._archive.spark.session import session
from wane._keeper import open_keeper
from wane._leases import Lease
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, ContractError


@pytest.fixture
def url(server: ObjectServer) -> str:
    return f"{server.bucket()}/app/cold"


def test_a_whole_life_in_a_bucket(
    database: Database, tmp_path: Path, server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 40)
    ever = all_rows(database)
    with cold_keeper(database, tmp_path, server=server, url=url) as cold:
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        assert len(cold.cold()) == 40
        archive = cold.keeper.archive
        [status, _] = archive.tables()
        assert (status.location, status.rows) == (f"{url}/event", 40)
        assert all(proof.problems == () for proof in archive.verify())
        found = archive.read("event", where="id = 7", columns=["id", "body"])
        assert list(found) == [(7, "body 7 \U0001f600")]
        assert archive.restore("event", keys=[{"id": "7"}]).restored == {"event": 1, "event_read": 1}
        conserve(cold, ever, done=True)
        assert 7 in cold.hot()
        assert 7 not in cold.cold()
        # What the restore replaced is part of nothing, and goes when it is old enough.
        monkeypatch.setattr(tidy, "LEAST", timedelta(0))
        tidied = archive.tidy(older_than=timedelta(microseconds=1))
        assert {one.outcome for one in tidied} == {Outcome.DONE}
        assert sum(one.files for one in tidied) > 0
        assert all(proof.problems == () for proof in archive.verify())
        conserve(cold, ever, done=True)


def test_rows_of_a_bucket_expire(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str
) -> None:
    old_events(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, EXPIRING, server=server, url=url) as cold:
        cold.one()
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.DONE, done.message
        left = set(range(1, ROWS + 1)) - GOING
        assert set(cold.cold()) == left
        assert cold.cold("event_read") == reads(left)
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]


@pytest.mark.on_spark
@pytest.mark.sampled
def test_spark_sweeps_compacts_queries_and_restores_in_a_bucket(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 0)
    june(sqlite_database, range(1, 71))
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:
        # Spark may run already; a process that begins it passes its own environment on.
        monkeypatch.setattr(session(cold.keeper.contract.spark).sparkContext, "environment", dict(server.environment))
        assert cold.one().outcome is Outcome.DONE
        june(sqlite_database, range(300, 400))
        assert cold.one().outcome is Outcome.DONE
        before = everything(cold)
        [compacted, _] = cold.keeper.archive.compact()
        assert (compacted.outcome, compacted.into) == (Outcome.DONE, 1), compacted.message
        assert everything(cold) == before
        assert compacted.files > 1
        archive = cold.keeper.archive
        some = "length(body) > 0 AND id % 50 = 3"
        found = list(archive.read("event", where=some, columns=["id", "_month"]))
        assert found == list(archive.read("event", where="id IN (3, 53, 303, 353)", columns=["id", "_month"]))
        assert len(found) == 4
        frame = archive.query("event", where="id < 3")
        assert sorted(row.id for row in frame.collect()) == [1, 2]
        ids = set(range(1, 71)) | set(range(300, 400))
        restored = archive.restore("event", where=some)
        assert restored.restored["event"] == 4
        assert set(cold.hot()) & ids == {3, 53, 303, 353}
        assert set(cold.cold()) == ids - {3, 53, 303, 353}
        assert [proof.problems for proof in archive.verify()] == [(), ()]


STATES = ["planned", "written", "verified", "committed", "batch", "evicted"]


@pytest.mark.crash
@pytest.mark.sampled("sqlite-committed", "postgres-batch")
@pytest.mark.parametrize("state", STATES)
def test_a_sweep_that_was_killed_at_any_step_is_finished_in_a_bucket(
    database: Database, tmp_path: Path, server: ObjectServer, url: str, state: str
) -> None:
    events(database, 20)
    ever = all_rows(database)
    with cold_keeper(database, tmp_path, server=server, url=url) as cold:
        kill_in(cold, state)
        conserve(cold, ever, done=False)
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        assert len(cold.cold()) == 20


def kill_in(cold: Cold, *step: str) -> None:
    """Let a process die at a step, and let the next one begin at once."""
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-m", "archive.killed_writer", str(cold.folder), *step]
    killed = subprocess.run(command, cwd=tests, env={**os.environ, "PYTHONPATH": str(tests)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    lease = cold.keeper.store.dialect.own_table("lease")
    cold.database.execute(f"UPDATE {lease} SET until = '2020-01-01T00:00:00.000000Z'")


@pytest.mark.crash
@pytest.mark.sampled
@pytest.mark.parametrize(
    "step",
    ["expire begin", "expire written", "expire end", "expire replace", "expire replaced", "expire recorded"],
)
def test_an_expiry_that_was_killed_at_any_step_is_finished_in_a_bucket(
    database: Database, tmp_path: Path, server: ObjectServer, url: str, step: str
) -> None:
    old_events(database)
    left = set(range(1, ROWS + 1)) - GOING
    with cold_keeper(database, tmp_path, EXPIRING, server=server, url=url) as cold:
        assert cold.one().outcome is Outcome.DONE
        kill_in(cold, step)
        assert left <= set(cold.cold())
        [done] = cold.keeper.archive.expire()
        assert done.outcome is Outcome.DONE, done.message
        assert (set(cold.cold()), cold.cold("event_read")) == (left, reads(left))
        counts = [entry.counts for entry in cold.keeper.audit(kind="archive_expire")]
        assert sum(one["event"] for one in counts) == len(GOING), "it is recorded once"
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]


@pytest.mark.crash
@pytest.mark.sampled
@pytest.mark.parametrize(
    "step",
    [
        *("restore stage", "restore plan", "restore insert", "restore progress", "restore remove"),
        *("restore removed", "restore report"),
    ],
)
def test_a_restore_that_was_killed_at_any_step_is_finished_in_a_bucket(
    database: Database, tmp_path: Path, server: ObjectServer, url: str, step: str
) -> None:
    events(database, 40)
    ever = all_rows(database)
    with cold_keeper(database, tmp_path, server=server, url=url) as cold:
        assert cold.one().outcome is Outcome.DONE
        kill_in(cold, step)
        conserve(cold, ever, done=False)
        cold.keeper.archive.restore("event", where="id < 30", on_conflict="skip")
        conserve(cold, ever, done=True)
        assert cold.cold() == list(range(30, 41))
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]


@pytest.mark.sampled("sqlite-commits-unanswered", "postgres-put", "sqlite-throttled")
@pytest.mark.parametrize(
    "fault",
    [
        {"do": "lose", "method": "PUT", "path": "_delta_log/", "times": 2},
        {"do": "lose", "method": "PUT", "path": "event/_month", "times": 1},
        {"do": "drop", "method": "PUT", "times": 1},
        {"do": "drop", "method": "GET", "times": 1},
        {"do": "drop", "method": "HEAD", "times": 1},
        {"do": "throttle", "times": 3},
    ],
    ids=["commits-unanswered", "file-unanswered", "put", "get", "head", "throttled"],
)
def test_a_connection_that_is_lost_loses_no_row(
    database: Database, tmp_path: Path, server: ObjectServer, url: str, fault: dict[str, Any]
) -> None:
    """A commit whose answer is lost was made: it is neither repeated nor taken for the one of another writer."""
    events(database, 20)
    ever = all_rows(database)
    with cold_keeper(database, tmp_path, server=server, url=url) as cold:

        def fail() -> None:
            stack.enter_context(server.failing(**fault))

        with ExitStack() as stack:
            cold.at["planned"] = fail
            assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        assert len(cold.cold()) == 20
        assert len([entry for entry in history(f"{url}/event") if entry.get("wane.sweep") == "1"]) == 1


def test_a_server_that_is_down_is_named_within_seconds(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 20)
    ever = all_rows(database)
    with object_server() as stopped:
        for name, value in stopped.environment.items():
            monkeypatch.setenv(name, value)
        url = f"{stopped.bucket()}/cold"
    with cold_keeper(database, tmp_path, server=stopped, url=url) as cold:
        began = time.monotonic()
        failed = cold.one()
        seconds = time.monotonic() - began
        with pytest.raises(ArchiveError) as refused:
            cold.keeper.archive.tables()
        hot = {table: set(cold.hot(table)) for table in ever}
    assert failed.outcome is Outcome.FAILED
    for text in (failed.message, str(refused.value)):
        assert f"the object store at {stopped.address} cannot be reached: Connection refused" in text
        assert "start it, or correct AWS_ENDPOINT_URL" in text
    assert seconds < 6, "the clients' own retries take 16"
    assert hot == ever


def history(url: str) -> list[dict[str, Any]]:
    return list(DeltaTable(url, storage_options={"allow_http": "true"}).history())


@pytest.mark.sampled("verified")
@pytest.mark.parametrize("state", ["planned", "verified", "committed"])
def test_credentials_that_are_withdrawn_stop_a_sweep_until_they_are_back(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str, state: str
) -> None:
    events(sqlite_database, 20)
    ever = all_rows(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:
        with ExitStack() as stack:
            cold.at[state] = lambda: stack.enter_context(server.refusing())
            done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert url in done.message
        assert "check the bucket, the credentials in the environment and the network" in done.message
        assert "test-secret" not in done.message
        conserve(cold, ever, done=False)
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)


def test_wrong_credentials_and_a_missing_bucket_are_named(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str
) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold, server.refusing():
        refused = cold.one()
        assert refused.outcome is Outcome.FAILED
        assert "InvalidAccessKeyId" in refused.message
        assert "credentials in the environment" in refused.message
        assert "test-secret" not in refused.message
    with cold_keeper(sqlite_database, tmp_path, server=server, url="s3://no-such-bucket/cold") as cold:
        missing = cold.one()
        assert missing.outcome is Outcome.FAILED
        assert "s3://no-such-bucket/cold/event cannot be read: NoSuchBucket" in missing.message
        assert len(cold.hot()) == 8


def test_a_bucket_that_vanished_is_no_empty_archive(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str
) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:
        cold.one()
        events_before = len(cold.hot())
    with cold_keeper(sqlite_database, tmp_path, server=server, url=f"{url}-other") as cold:
        insert_events(sqlite_database, [6])
        gone = cold.one()
        assert gone.outcome is Outcome.FAILED
        assert "the archive of event is missing" in gone.message
        assert len(cold.hot()) == events_before + 1


def test_an_object_that_was_written_by_half_is_never_proof(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str
) -> None:
    events(sqlite_database, 20)
    ever = all_rows(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:

        def cut() -> None:
            objects = [path for month in ObjectPath.read(f"{url}/event").glob("_month=*") for path in month.iterdir()]
            for one in objects:
                content = one.read_bytes()
                one.write_bytes(content[: len(content) // 2])

        cold.at["written"] = cut
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert "cannot be trusted" in done.message
        conserve(cold, ever, done=True)
        assert cold.cold() == []
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        cut()
        assert any(proof.problems for proof in cold.keeper.archive.verify())


def test_keys_of_objects_are_compared_by_the_archives_own_client(
    server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(number: int, keys: list[str]) -> FileJob:
        path = ObjectPath.read(f"{url}/{number}.parquet")
        with path.open("xb") as sink:
            pq.write_table(pa.table({"_key": pa.array(keys, pa.string())}), sink)
        return FileJob(number, 0, str(path), len(keys), [])

    files = [written(0, ["a", "b"]), written(1, ["c", "a"])]
    assert copied_twice(InlineExecutor(), files) == (0, "a")
    with server.refusing(), pytest.raises(ArchiveError, match=rf"{url}/0\.parquet cannot be read: ") as refused:
        copied_twice(InlineExecutor(), files)
    assert "check the bucket, the credentials in the environment and the network" in str(refused.value)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    azure = [replace(file, path=file.path.replace("s3://", "az://")) for file in files]
    with pytest.raises(ArchiveError, match="AZURE_STORAGE_ACCOUNT_NAME is not set"):
        copied_twice(InlineExecutor(), azure)


def test_every_file_of_an_archive_is_read_through_its_path() -> None:
    """Arrow would open a URL with a client of its own, without the archive's timeouts, attempts and messages."""
    sources = (Path(wane.__file__).parent / "_archive").rglob("*.py")
    opened = [
        (path.name, line.strip())
        for path in sources
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bpq\.(ParquetFile|read_\w+)\(", line)
    ]
    assert len(opened) > 10
    assert [one for one in opened if not re.search(r"\bpq\.\w+\(source\(", one[1])] == []


def test_racing_writers_all_commit_and_each_once(server: ObjectServer, url: str) -> None:
    shape = [["id", "long"]]
    ColdTable(ObjectPath.read(url), "event", "origin").ensure(shape, follows=False)

    def commit(number: int) -> None:
        # Every sweep is committed by two processes that each believe that it is theirs.
        writer = f"writer {number // 2}"
        lease = Lease(writer, "holder", 1, datetime(2026, 1, 1, tzinfo=UTC))
        ColdTable(ObjectPath.read(url), "event", "origin").commit(writer, 1, [], [lease])

    with ThreadPoolExecutor(8) as pool:
        outcomes = [pool.submit(commit, number) for number in range(8)]
    table = ColdTable(ObjectPath.read(url), "event", "origin")
    failed = [str(one.exception()) for one in outcomes if one.exception() is not None]
    made = [entry for entry in history(f"{url}/event") if entry.get("wane.sweep") == "1"]
    assert {table.last_sweep(f"writer {number}") for number in range(4)} <= {0, 1}
    assert len(made) == sum(table.last_sweep(f"writer {number}") for number in range(4))
    assert len(made) == 4, failed


def test_a_store_that_ignores_conditions_is_refused(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str
) -> None:
    events(sqlite_database, 5)
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:
        with server.failing("strip", method="PUT"):
            refused = [cold.one() for _ in range(2)]
        assert {one.outcome for one in refused} == {Outcome.FAILED}
        assert all("ignores conditional puts" in one.message for one in refused)
        assert (cold.cold(), len(cold.hot())) == ([], 8)
        assert cold.one().outcome is Outcome.DONE


def test_an_environment_that_turns_conditions_off_is_refused(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 5)
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:
        refused = cold.one()
        assert refused.outcome is Outcome.FAILED
        assert "AWS_S3_ALLOW_UNSAFE_RENAME is set" in refused.message
        assert len(cold.hot()) == 8


def test_a_log_that_lost_its_newest_commit_is_written_back_in_a_bucket(
    sqlite_database: SqliteDatabase, tmp_path: Path, server: ObjectServer, url: str
) -> None:
    events(sqlite_database, 20)
    ever = all_rows(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, server=server, url=url) as cold:
        cold.one()
        log = ObjectPath.read(f"{url}/event/_delta_log")
        max(log.glob("*.json"), key=str).unlink()
        assert "has lost 1 of" in cold.one().message
        [repaired] = cold.keeper.archive.repair()
        assert repaired.written_back == 1
        conserve(cold, ever, done=True)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://key:secret@bucket/cold", "has more than a bucket and a prefix"),
        ("s3://bucket/cold?region=eu", "has more than a bucket and a prefix"),
        ("s3://", "names no bucket"),
        ("s3:///cold", "names no bucket"),
        ("gs://Bucket/cold", "names no bucket"),
        ("az://container/a//b", "as a part of its prefix"),
        ("s3://bucket/../cold", "as a part of its prefix"),
        ("s3://bucket/a b", "as a part of its prefix"),
    ],
)
def test_urls_that_name_no_prefix_are_refused(
    sqlite_database: SqliteDatabase, tmp_path: Path, url: str, why: str
) -> None:
    events(sqlite_database, 1)
    contract = CONTRACT.format(url='"sqlite:///x.db"').replace('"cold"', f'"{url}"')
    (tmp_path / "wane.toml").write_text(contract)
    with pytest.raises(ContractError, match=why) as raised:
        open_keeper(contract=tmp_path / "wane.toml")
    assert "secret" not in str(raised.value)


def test_prefixes_of_object_stores_are_read_without_requests() -> None:
    for url in ("s3://my-bucket", "gs://my-bucket/a/b", "az://container/a=1/b_c"):
        assert str(folder_of(f"{url}/", None)) == url
    path = folder_of("s3://my-bucket/a", None) / "event" / "x.tar.parquet"
    assert (path.name, path.suffix, str(path.parent)) == ("x.tar.parquet", ".parquet", "s3://my-bucket/a/event")


def test_an_azure_archive_needs_the_name_of_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ArchiveError, match="AZURE_STORAGE_ACCOUNT_NAME is not set"):
        list(ObjectPath.read("az://container/cold").iterdir())
