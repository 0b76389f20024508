"""The same pipeline over Spark Connect: no Java in the process that archives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from archive.cluster import connect_server
from archive.cold import CONTRACT, DAY_MS, NOW_MS, OLD_MS, STAYING, archived, cold_keeper, events
from servers import Database, SqliteDatabase
from wane._archive.spark import remote_session
from wane._archive.spark.reader import Source
from wane._archive.spark.secret import require_reachable
from wane._contract.settings import SparkSettings
from wane.errors import SparkError

SECRET = "sekret-77b2"
KEEP_DAYS = 198
WORK = """
import dataclasses, json, sys, wane
from wane._prune.pace import FAST
from wane.errors import WaneError
from wane.events import ArchiveProgress

received = []
with wane.open(contract="wane.toml", listener=received.append) as keeper:
    archive = keeper.archive
    [rule] = archive.run(pace=FAST, strict=True).rules
    proofs = archive.verify()
    [cold] = [one for one in archive.survey("event") if one.tier == "archive"]
    asked = archive.query("event", where="length(body) > 0 AND pmod(id, 2) = 0", columns=["id"])
    found = sorted(row.id for row in asked.collect())
    refused = ""
    try:
        archive.query("event", where="id IN (SELECT 1)")
    except WaneError as problem:
        refused = str(problem)
    back = archive.restore("event", where="pmod(id, 6) = 5 AND id > 80", pace=FAST)
    [gone] = archive.expire()
    rows, reads = archive.compact()
    proofs += archive.verify()
progress = [(one.done, one.of) for one in received if isinstance(one, ArchiveProgress)]
from pyspark import SparkContext
reported = [dataclasses.asdict(one) for one in (rule, cold, back, gone, rows, *proofs)]
print(json.dumps([reported, found, refused, progress, SparkContext._gateway is None], default=str))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield a server of Spark Connect for all tests here, and the file of its output."""
    folder = tmp_path_factory.mktemp("connect")
    with connect_server(folder) as remote:
        yield remote, folder / "connect.log"


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_everything_runs_over_spark_connect(database: Database, tmp_path: Path, server: tuple[str, Path]) -> None:
    remote, output = server
    events(database, 120)
    url = re.sub(r"(postgresql://[^@/]*)@", rf"\1:{SECRET}@", database.url)
    with cold_keeper(database, tmp_path):
        pass
    contract = CONTRACT.format(url=json.dumps(url)).replace('keep = "forever"', f'keep = "{KEEP_DAYS}d"')
    contract = contract.replace("lease_seconds = 5", "lease_seconds = 60")
    (tmp_path / "wane.toml").write_text(contract + f'remote = "{remote}"\n')
    done = subprocess.run(
        [sys.executable, "-c", WORK], cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False
    )
    log = output.read_text(errors="replace")
    assert done.returncode == 0, done.stderr + done.stdout + log[-3000:]
    (rule, cold, back, gone, rows, *proofs), found, refused, progress, without_java = json.loads(done.stdout)
    assert without_java
    assert (rule["outcome"], rule["archived"]["event"], rule["evicted"]["event"]) == ("done", 120, 120)
    assert [proof["problems"] for proof in proofs] == [[]] * 4
    assert (cold["rows"], cold["rows_exactness"]) == (120, "exact")
    assert found == list(range(2, 121, 2))
    assert "not allowed in an archive condition" in refused
    assert (2, 2) in [tuple(one) for one in progress], "two ranges"
    returned = list(range(83, 121, 6))
    assert back["restored"]["event"] == len(returned)
    assert database.query("SELECT id FROM event ORDER BY id") == [(n,) for n in (*returned, *STAYING)]
    going = [n for n in range(1, 121) if OLD_MS + n * 3_600_000 <= NOW_MS - KEEP_DAYS * DAY_MS]
    assert 20 < len(going) < 80, "a part of one month"
    assert (gone["outcome"], sum(gone["rows"]["event"].values())) == ("done", len(going)), gone
    assert (rows["outcome"], rows["files"] > rows["into"]) == ("done", True)
    left = [n for n in range(1, 121) if n not in returned and n not in going]
    assert sorted(row["id"] for row in archived(tmp_path / "cold" / "event")) == left
    assert SECRET not in done.stdout + done.stderr + log


@pytest.mark.parametrize(
    ("remote", "here"),
    [
        ("sc://localhost", True),
        ("sc://127.0.0.2:99/;user_id=x", True),
        ("sc://[::1]:15002", True),
        ("sc://spark.example.com:15002", False),
        ("sc://10.0.0.1", False),
    ],
)
def test_only_a_server_on_this_machine_may_request_the_address(remote: str, here: bool) -> None:
    settings = SparkSettings(remote=remote)
    source = Source("postgres", secret="postgresql://x")
    assert remote_session.is_loopback(remote) is here
    if here:
        require_reachable(source, settings)
        require_reachable(Source("sqlite", path="x.db"), settings)
        return
    with pytest.raises(SparkError, match=r"sc://.* do not know the database's URL"):
        require_reachable(source, settings)
    with pytest.raises(SparkError, match="tasks must run on the host of the SQLite file"):
        require_reachable(Source("sqlite", path="x.db"), settings)
    require_reachable(source, replace(settings, url_variable="WANE_TASK_URL"))


def test_a_server_that_does_not_answer_is_reported_at_once(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"no Spark answers at sc://127\.0\.0\.1:1: .*refused"):
        remote_session.connected(SparkSettings(remote="sc://127.0.0.1:1"), "sc://127.0.0.1:1", lambda _: None)
