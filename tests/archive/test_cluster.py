"""The same pipeline on a real cluster: a master and two workers, which share nothing with the driver but the archive's
folder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archive.cluster import cluster, environment
from archive.cold import CONTRACT, DAY_MS, NOW_MS, OLD_MS, STAYING, archived, cold_keeper, events
from archive.test_restore import EVENT
from servers import PostgresDatabase, SqliteDatabase
from wane._prune.sweep import Outcome

SECRET = "sekret-83c1"
KEEP_DAYS = 197
CLUSTER = """
[spark]
master = "{master}"
url_variable = "WANE_TASK_URL"
range_rows = 25
[spark.settings]
"spark.archives" = "{environment}#env"
"spark.pyspark.python" = "./env/bin/python"
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "512m"
"spark.eventLog.enabled" = true
"spark.eventLog.dir" = "{log}"
"spark.eventLog.compress" = false
"""


def wane(folder: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "wane", "archive", *words, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert SECRET not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def tasks(log: Path, but: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    for file in log.rglob("events_*"):
        if str(file) in but:
            continue
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                yield event["Task Info"]


LATER = """
import dataclasses, json, wane
from wane._prune.pace import FAST

with wane.open(contract="wane.toml") as keeper:
    archive = keeper.archive
    back = archive.restore("event", where="id > 150", pace=FAST)
    side = archive.restore("event", where="id <= 10", into="side", pace=FAST)
    [gone] = archive.expire()
    rows, reads = archive.compact()
    reported = [dataclasses.asdict(one) for one in (back, side, gone, rows, reads, *archive.verify())]
print(json.dumps(reported, default=str))
"""
"""What becomes of the archive later: rows come back, expire, and lie in fewer files."""


def live_on(database: PostgresDatabase, folder: Path, log: Path) -> None:
    """Run it in one process, because starting a session on a cluster takes longer than everything that it does here."""
    before = {str(file) for file in log.rglob("events_*")}
    known = database.query(EVENT)
    command = [sys.executable, "-c", LATER]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200, check=False)
    assert SECRET not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr + done.stdout
    back, side, gone, rows, reads, *proofs = json.loads(done.stdout)
    assert back["restored"] == back["chosen"] == {"event": 50, "event_read": sum(n % 3 for n in range(151, 201))}
    assert [row[0] for row in database.query(EVENT)] == [*range(151, 201), *STAYING]
    assert [row for row in database.query(EVENT) if row in known] == known
    assert side["restored"]["event"] == len(database.query("SELECT id FROM side")) == 10
    # The clock has gone on since, so that the row at the boundary is due too.
    going = [n for n in range(1, 151) if OLD_MS + n * 3_600_000 <= NOW_MS - KEEP_DAYS * DAY_MS]
    assert (gone["outcome"], sum(gone["rows"]["event"].values())) == ("done", len(going))
    assert (rows["outcome"], reads["outcome"], rows["files"] > rows["into"] > 0) == ("done", "done", True)
    assert sorted(row["id"] for row in archived(folder / "cold" / "event")) == list(range(len(going) + 1, 151))
    assert [proof["problems"] for proof in proofs] == [[], []]
    assert {task["Executor ID"] for task in tasks(log, before)} == {"0", "1"}


@pytest.mark.cluster
@pytest.mark.timeout(2400)
def test_ranges_run_on_both_workers_and_nothing_secret_is_sent_to_them(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    events(postgres_database, 200)
    secret = re.sub(r"//([^@/]*)@", rf"//\1:{SECRET}@", postgres_database.url)
    log = tmp_path / "log"
    log.mkdir()
    with cluster(tmp_path, 2, {"WANE_TASK_URL": secret}) as master:
        settings = CLUSTER.format(master=master, environment=environment(tmp_path), log=log.as_uri())
        contract = CONTRACT[: CONTRACT.index("[spark]")].format(url=json.dumps(postgres_database.url)) + settings
        contract = contract.replace('keep = "forever"', f'keep = "{KEEP_DAYS}d"')
        (tmp_path / "wane.toml").write_text(contract)
        with cold_keeper(postgres_database, tmp_path, contract.replace("{", "{{").replace("}", "}}")):
            pass
        [rule] = wane(tmp_path, "run", "--fast")["rules"]
        assert (rule["outcome"], rule["archived"]["event"], rule["evicted"]["event"]) == ("done", 200, 200)
        ran = list(tasks(log))
        assert {task["Executor ID"] for task in ran} == {"0", "1"}
        assert len(ran) >= 16, "eight ranges, and at least as many files"
        shipped = list(tmp_path.glob("work-*/app-*/*/env/bin/python"))
        assert len(shipped) == 2
        live_on(postgres_database, tmp_path, log)
    for file in [*log.rglob("*"), *tmp_path.glob("*.log"), *tmp_path.glob("work-*/app-*/*/std*")]:
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"url_variable": None}, "url_variable"),
        ({"settings": (("spark.executorEnv.WANE_TASK_URL", "x"),)}, "show WANE_TASK_URL to everyone"),
    ],
)
def test_without_a_way_to_the_database_nothing_begins(
    postgres_database: PostgresDatabase, tmp_path: Path, change: dict[str, Any], reported: str
) -> None:
    events(postgres_database, 10)
    with cold_keeper(postgres_database, tmp_path) as cold:
        contract = cold.keeper.archive._contract
        settings = replace(contract.spark, master="spark://127.0.0.1:1", url_variable="WANE_TASK_URL")
        cold.keeper.archive._contract = replace(contract, spark=replace(settings, **change))
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert reported in done.message
        assert cold.keeper.archive.status() == []
        assert len(cold.hot()) == 13


def test_sqlite_is_read_where_it_lies(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 10)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        contract = cold.keeper.archive._contract
        cold.keeper.archive._contract = replace(contract, spark=replace(contract.spark, master="spark://127.0.0.1:1"))
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert "tasks must run on the host of the SQLite file" in done.message
        assert cold.keeper.archive.status() == []
