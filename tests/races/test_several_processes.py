"""Several processes prune one table: every row leaves once and is counted once, and no cap is ever undercut."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from races.racing import (
    CAPPED,
    FOLLOWED,
    GUARDED,
    JOBS,
    OLD,
    Background,
    audited,
    create,
    enabled_keeper,
    fill,
    ids,
    ms,
)
from servers import Database
from together import run_together
from wane._keeper import Keeper

WAYS = ["prune", "sweep", "prune", "sweep"]
THREADS = 4
MARKED = JOBS + 'then = { mark = "seen" }\n[table.jobs.rule.seen]\nwhen = ["seen"]\nkeep = "forever"\n'


def prune_at_once(database: Database, contract: Path, name: str, how: list[str], limit: int) -> list[dict[str, Any]]:
    """Start one process for each way, let them go together, and return what each says that it took."""
    return run_together("races.pruning", [[database.url, str(contract), name, one, limit] for one in how])


@pytest.mark.slow
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED, MARKED], ids=["plain", "guarded", "followed", "marked"])
@pytest.mark.sampled("sqlite-followed", "sqlite-marked", "postgres-plain", "postgres-guarded")
def test_every_row_leaves_once_and_is_counted_once(database: Database, tmp_path: Path, contract: str) -> None:
    create(database, "REFERENCES jobs" if contract in (GUARDED, FOLLOWED) else "")
    fill(database, 3_000)
    if contract in (GUARDED, FOLLOWED):
        database.executemany("INSERT INTO notes (id, job_id) VALUES (?, ?)", [(n, n) for n in range(5, 3_000, 10)])
    with enabled_keeper(database, tmp_path, contract) as keeper:
        answers = prune_at_once(database, tmp_path / "wane.toml", "jobs.done", WAYS, limit=37)
        reported = {name: sum(answer["taken"].get(name, 0) for answer in answers) for name in ("jobs", "notes")}
        assert reported == {"jobs": audited(keeper), "notes": audited(keeper, "notes")}
        if contract is MARKED:
            assert database.query("SELECT status, count(*) FROM jobs GROUP BY status") == [("seen", 3_000)]
            assert reported["jobs"] == 3_000
            return
        left, notes = ids(database), ids(database, "notes")
        assert left == (list(range(5, 3_000, 10)) if contract is GUARDED else [])
        assert reported["jobs"] == 3_000 - len(left)
        assert reported["notes"] == (300 if contract is FOLLOWED else 0)
        assert len(notes) == (300 if contract is GUARDED else 0)
        assert sum(1 for answer in answers if answer["taken"].get("jobs")) > 1, "one did it all: that was no race"
        _every_entry_adds_up(keeper)


def _every_entry_adds_up(keeper: Keeper) -> None:
    for entry in keeper.audit(limit=10_000):
        assert entry.rows == sum(entry.counts.values())
        assert entry.batches >= 1


@pytest.mark.slow
def test_a_cap_is_never_undercut_beside_heartbeats(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE beats (id bigint PRIMARY KEY, seen_at bigint NOT NULL)")
    database.execute("CREATE INDEX beats_seen ON beats (seen_at, id)")
    database.executemany("INSERT INTO beats VALUES (?, ?)", [(n, ms(OLD) + n) for n in range(1, 401)])
    stop = threading.Event()
    lowest = [400]
    generator = random.Random(20)
    beating, watching = database.connect(), database.connect()
    mark = "?" if database.store == "sqlite" else "%s"

    def heartbeat() -> int:
        beats = 0
        while not stop.is_set():
            beats += 1
            timestamp = ms(OLD) + 1_000 + beats
            if beats <= 200:  # Without an end to newcomers, there would be no end to evictions.
                beating.execute(f"INSERT INTO beats VALUES ({mark}, {mark})", (1_000 + beats, timestamp))
            beating.execute(
                f"UPDATE beats SET seen_at = {mark} WHERE id = {mark}", (timestamp, generator.randint(1, 1_000 + beats))
            )
            time.sleep(0.001)
        return beats

    def watch() -> None:
        while not stop.is_set():
            [(count,)] = watching.execute("SELECT count(*) FROM beats").fetchall()
            lowest[0] = min(lowest[0], count)

    with enabled_keeper(database, tmp_path, CAPPED) as keeper:
        heart, watcher = Background(heartbeat), Background(watch)
        try:
            answers = prune_at_once(database, tmp_path / "wane.toml", "beats.cap", WAYS, limit=7)
        finally:
            stop.set()
        assert heart.result() > 10
        watcher.result()
        assert lowest[0] >= 50
        assert sum(answer["taken"]["beats"] for answer in answers) == audited(keeper, "beats") >= 350
        keeper.prune("beats", rule="cap", limit=1_000)
        assert len(ids(database, "beats")) == 50


def test_threads_that_share_a_keeper_take_turns(database: Database, tmp_path: Path) -> None:
    create(database)
    database.execute("DROP TABLE notes")
    fill(database, 600)
    with enabled_keeper(database, tmp_path, JOBS) as keeper:

        def prune() -> int:
            taken = 0
            while rows := keeper.prune("jobs", rule="done", limit=7).rows:
                taken += rows
            return taken

        threads = [Background(prune) for _ in range(THREADS)]
        assert sum(thread.result() for thread in threads) == 600 == audited(keeper)
        assert ids(database) == []
