"""`kill -9` of a driver whose tasks run on a cluster, or at a server of Spark Connect, where they may outlive it: no
row is lost or in two tiers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from archive.cluster import cluster, connect_server, spark_of
from archive.cold import cold_keeper, conserve
from archive.oracle import KINDS
from servers import Database, PostgresDatabase

ROWS = 100
STATES = ["planned", "written", "committed", "batch", "evicted"]
SHORT_RANGES = KINDS["plain"].contract.replace("range_rows = 60", "range_rows = 25").replace("198d", "forever")

pytestmark = [pytest.mark.cluster, pytest.mark.crash]


def killed_at(folder: Path, state: str) -> None:
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "archive.killed_writer", str(folder), state, "spark"],
        cwd=tests,
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr + done.stdout


def kill_at_every_state(database: Database, folder: Path, spark: str) -> None:
    kind = KINDS["plain"]
    kind.create(database, 0)
    ever: set[int] = set()
    with cold_keeper(database, folder, SHORT_RANGES + spark) as cold:
        lease = cold.keeper.store.dialect.own_table("lease")
        for number, state in enumerate(STATES):
            ids = range(number * 1_000 + 1, number * 1_000 + 1 + ROWS)
            kind.insert(database, ids)
            ever |= set(ids)
            killed_at(folder, state)
            conserve(cold, {"event": ever}, done=False)
            database.execute(f"UPDATE {lease} SET until = '2020-01-01T00:00:00.000000Z'")
            killed_at(folder, "done")
            conserve(cold, {"event": ever}, done=True)
            assert (cold.hot(), len(cold.cold())) == ([], len(ever))
            assert sum(entry.counts["event"] for entry in cold.keeper.audit(kind="archive")) == len(ever)
            database.execute(f"UPDATE {lease} SET until = '2020-01-01T00:00:00.000000Z'")


@pytest.mark.timeout(2400)
def test_a_driver_of_a_cluster_survives_kills(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    with cluster(tmp_path, 2, {"WANE_TASK_URL": postgres_database.url}) as master:
        kill_at_every_state(postgres_database, tmp_path, spark_of(master, tmp_path))


@pytest.mark.timeout(2400)
def test_a_driver_over_spark_connect_survives_kills(database: Database, tmp_path: Path) -> None:
    with connect_server(tmp_path) as remote:
        kill_at_every_state(database, tmp_path, f'remote = "{remote}"\n')
