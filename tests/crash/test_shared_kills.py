"""`kill -9` while members of a fleet are committed together: every member's rows are somewhere, and once when all is
done."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from archive.cold import STAYING, archived, insert_events
from archive.fleet import Ships, ships
from archive.object_server import ObjectServer, object_server
from archive.test_shared import SHARED
from crash.test_archive_kills import MORE_TRIES, PATIENCE_SECONDS, SEED, Launcher, end_leases
from crash.test_kills import await_silence
from servers import Database, PostgresDatabase, SqliteDatabase

pytestmark = pytest.mark.crash

DIRECTED = [
    "to verified",
    "commit event_read",
    "committed event_read",
    "commit event",
    "committed event",
    "to committed",
]
"""Before, between and after the commits of both tables, and when one member's journal knows of them and the others' do
not."""
ROWS = 3


class SharedLauncher(Launcher):
    script = "shared_launcher.py"


class Books:
    """What must hold of all hot tables and the one archive together, which `archived` reads by its tables' names."""

    def __init__(self, fleet: Ships, archived: Callable[[str], list[dict[str, Any]]]) -> None:
        self.fleet = fleet
        self.archived = archived
        self.ever: dict[str, set[int]] = {name: set() for name in fleet.databases}

    def fill(self, first: int) -> None:
        for number, (name, database) in enumerate(self.fleet.databases.items()):
            ids = range(number * 100_000 + first, number * 100_000 + first + ROWS)
            insert_events(database, ids)
            self.ever[name] |= set(ids)

    def balance(self, *, done: bool) -> None:
        cold = Counter(row["id"] for row in self.archived("event"))
        reads = Counter(row["id"] for row in self.archived("event_read"))
        for name, ever in self.ever.items():
            hot = set(self.fleet.hot(name)) - set(STAYING)
            assert ever <= hot | set(cold), f"{name}: lost {sorted(ever - hot - set(cold))}"
            hot_reads = set(self.fleet.hot(name, "event_read"))
            assert {n * 10 + m for n in ever for m in range(n % 3)} <= hot_reads | set(reads)
            if done:
                assert not hot
                assert not hot_reads
        if done:
            assert set(cold.values()) == set(reads.values()) == {1}
            assert set(cold) == set().union(*self.ever.values())


def kill_and_check(database: Database, folder: Path, steps: list[str], server: ObjectServer | None = None) -> None:
    url = str(folder / "cold") if server is None else f"{server.bucket()}/cold"
    with ships(database, folder, rows=0, contract=SHARED.replace("../cold", url)) as fleet:
        launcher = SharedLauncher(fleet.path, folder / "steps")
        books = Books(
            fleet, lambda table: archived(Path(url) / table) if server is None else server.archived(f"{url}/{table}")
        )
        tries, hit = 0, set[str]()
        try:
            while set(steps) - hit and tries < len(steps) + MORE_TRIES:
                books.fill(1 + tries * 10)
                target = next(step for step in steps if step not in hit)
                hit.add(launcher.kill_at(SEED + tries, target))
                tries += 1
                for one in fleet.databases.values():
                    await_silence(one)
                    end_leases(one)
                books.balance(done=False)
            assert set(steps) <= hit, "a step was never reached"
            launcher.finish(SEED)
            books.balance(done=True)
        finally:
            launcher.close()
        made = [one.get("wane.origin", "") for one in DeltaTable(f"{url}/event").history()]
        assert max(origins.count(",") for origins in made) == 2, "all three were committed together"


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_members_of_sqlite_that_are_committed_together_survive_kills(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    everything = "WANE_KILLS" in os.environ
    kill_and_check(sqlite_database, tmp_path, DIRECTED if everything else ["committed event_read", "committed event"])


@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.sampled
def test_members_of_postgres_that_are_committed_together_survive_kills(
    durable_database: PostgresDatabase, tmp_path: Path
) -> None:
    kill_and_check(durable_database, tmp_path, DIRECTED)


@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.sampled("sqlite")
def test_members_that_are_committed_together_in_a_bucket_survive_kills(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = "WANE_KILLS" in os.environ
    with object_server() as server:
        for name, value in {**server.environment, "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        kill_and_check(database, tmp_path, DIRECTED if everything else ["committed event"], server)
