"""Conservation, by a second engine: hot rows and archived rows together are every row that the application has, value
by value.

The same life and the same races (`archive.oracle`) in a folder and in a bucket; with tasks in this process, on a Spark
of its own, on a cluster, and over Spark Connect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from archive.cluster import cluster, connect_server, spark_of
from archive.cold import Cold, cold_keeper
from archive.inline import InlineExecutor, without_spark
from archive.object_server import ObjectServer
from archive.oracle import KINDS, Application, Kind, live, race
from archive.test_plain_rows import one_by_one
from servers import Database, PostgresDatabase
from wane._archive.spark.session import session
from wane._contract.settings import SparkSettings

FOLDER, BUCKET = "folder", "bucket"


@pytest.fixture(params=[FOLDER, BUCKET])
def server_of(request: pytest.FixtureRequest) -> ObjectServer | None:
    """Return the object store that the archive is in; None if it is in a folder."""
    return request.getfixturevalue("server") if request.param == BUCKET else None


@contextmanager
def keeping(database: Database, folder: Path, kind: Kind, server: ObjectServer | None) -> Iterator[Cold]:
    kind.create(database)
    url = "" if server is None else f"{server.bucket()}/cold"
    with cold_keeper(database, folder, kind.contract, server=server, url=url) as cold:
        yield cold


@pytest.mark.sampled("sqlite-folder-plain", "postgres-folder-followers")
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_hot_or_cold_while_the_application_changes_it(
    database: Database, tmp_path: Path, server_of: ObjectServer | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = one_by_one(monkeypatch)
    with keeping(database, tmp_path, KINDS[kind], server_of) as cold:
        live(cold, KINDS[kind], frames=False)
        evicted = sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive"))
    by_range = evicted - sum(checked)
    assert (by_range > 0) is (not KINDS[kind].follows), "plain rows leave by their range, but for what differs"


@pytest.mark.sampled("sqlite-bucket-plain", "postgres-folder-plain")
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_hot_or_cold_while_everything_changes_all_the_time(
    database: Database, tmp_path: Path, server_of: ObjectServer | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application works between any two tasks; beside them on PostgreSQL only, because SQLite's driver for Arrow
    ends the locks of others in its process."""
    acts: list[Callable[[], None]] = []

    class Disturbed(InlineExecutor):
        def run(self, task: Any, count: int, progress: object = None) -> Iterator[str]:
            for answer in super().run(task, count):
                for act in acts:
                    act()
                yield answer

    @contextmanager
    def working(application: Application) -> Iterator[None]:
        acts.append(application.change_any)
        with application.working() if database.store == "postgres" else nullcontext():
            yield
        acts.clear()

    without_spark(monkeypatch, Disturbed)
    with keeping(database, tmp_path, KINDS[kind], server_of) as cold:
        race(cold, KINDS[kind], working=working)


@pytest.mark.on_spark
@pytest.mark.sampled
@pytest.mark.parametrize("scenario", [live, race])
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_hot_or_cold_if_tasks_run_on_spark(
    database: Database,
    tmp_path: Path,
    server_of: ObjectServer | None,
    kind: str,
    scenario: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if server_of is not None:  # Spark may run already; a process that begins it passes its own environment on.
        monkeypatch.setattr(session(SparkSettings()).sparkContext, "environment", dict(server_of.environment))
    with keeping(database, tmp_path, KINDS[kind], server_of) as cold:
        options = {"frames": True} if scenario is live else {}
        scenario(cold, KINDS[kind], **options)


def conserve_elsewhere(database: Database, folder: Path, server: ObjectServer, spark: str) -> None:
    """Run every scenario in a process of its own, because a process has one Spark."""
    (folder / "spark.toml").write_text(spark)
    where = {FOLDER: "", BUCKET: server.bucket()}
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "archive.elsewhere", str(folder), database.url, json.dumps(where), server.address],
        cwd=tests,
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        timeout=2000,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 2 * 2 * len(KINDS)


@pytest.mark.cluster
@pytest.mark.timeout(2400)
def test_every_row_is_hot_or_cold_if_tasks_run_on_a_cluster(
    postgres_database: PostgresDatabase, tmp_path: Path, server: ObjectServer
) -> None:
    with cluster(tmp_path, 2, {**server.environment, "WANE_TASK_URL": postgres_database.url}) as master:
        conserve_elsewhere(postgres_database, tmp_path, server, spark_of(master, tmp_path))


@pytest.mark.cluster
@pytest.mark.timeout(2400)
def test_every_row_is_hot_or_cold_over_spark_connect(database: Database, tmp_path: Path, server: ObjectServer) -> None:
    with connect_server(tmp_path) as remote:
        conserve_elsewhere(database, tmp_path, server, f'remote = "{remote}"\n')
