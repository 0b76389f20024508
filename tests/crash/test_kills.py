"""`kill -9` at any time: the books balance, and the next sweep finishes.

Kills are seeded and uniform in time, and then one comes at each step that none has hit. WANE_KILLS says
how many there are on each store; `make crash` asks for hundreds.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from crash.world import World
from servers import Database, PostgresDatabase, PostgresServer, SqliteDatabase
from wane._keeper import open_keeper
from wane._prune.pace import FAST
from wane._prune.sweep import Outcome, Sweeper

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("WANE_KILLS", "8"))
STEPS = {"look", "lock", "recheck", "followers", "take", "audit", "commit", "pause"}
WINDOW_SECONDS = 0.4
ENOUGH = 150
"""Rows of each table that keep a sweep busy until it is killed."""
SEED = 3


class Launcher:
    """Starts processes that sweep, and kills them."""

    def __init__(self, database: Database, world: World, log: Path) -> None:
        self._log = log
        self._child: int | None = None
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("launcher.py"), database.url, world.contract, log],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kill_one(self, seed: int, seconds: float, target: str = "-") -> str:
        """Let one sweep for that long, or until it comes to a step, kill it, and return the step that it was in."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._log.write_text("")
        self._process.stdin.write(f"{seed} {target}\n")
        self._process.stdin.flush()
        self._child = child = int(self._process.stdout.readline())
        deadline = time.monotonic() + 20
        while not self._log.read_text() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(seconds)
        while target not in ("-", self._last()) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        assert self._process.stdout.readline() == f"{-signal.SIGKILL}\n", "it ended by itself"
        self._child = None
        return self._last()

    def _last(self) -> str:
        return self._log.read_text().splitlines()[-1]

    def close(self) -> None:
        self._process.kill()
        if self._child is not None:  # A failure left it alive, and it would sweep for ever.
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
        self._process.communicate()


@contextmanager
def launched(database: Database, world: World, folder: Path) -> Iterator[Launcher]:
    launcher = Launcher(database, world, folder / "steps")
    try:
        yield launcher
    finally:
        launcher.close()


def kill_and_check(database: Database, folder: Path, crash: PostgresServer | None = None) -> Counter[str]:
    world = World(database, folder)
    world.fill(300)
    with open_keeper(database.url, contract=world.contract) as keeper:
        keeper.store.migrate()
        keeper.enable()
    generator = random.Random(SEED)
    hit: Counter[str] = Counter()
    with launched(database, world, folder) as launcher:
        for number in range(KILLS + len(STEPS)):
            missed = sorted(STEPS - set(hit))
            if number >= KILLS and not missed:
                break
            if min(world.due().values()) < ENOUGH:
                world.fill(300)
            # Beyond the number asked for only to hit the steps that none has hit yet.
            target = "-" if number < KILLS else missed[0]
            seconds = generator.uniform(0, WINDOW_SECONDS if number < KILLS else 0)
            hit[launcher.kill_one(generator.randrange(2**32), seconds, target)] += 1
            if crash is not None and number % 10 == 5:
                # The machine goes down too: whatever was not on disk is lost.
                database.close()
                crash.crash()
                crash.start()
                database = world.database = PostgresDatabase(crash.url)
            await_silence(database)
            world.balance()
    assert set(hit) >= STEPS, f"never hit: {', '.join(sorted(STEPS - set(hit)))}; hit: {dict(hit)}"
    finish(database, world)
    database.close()
    # `make crash` shows this.
    reported = ", ".join(f"{step} {count}" for step, count in sorted(hit.items()))
    sys.stdout.write(f"seed {SEED}: {sum(hit.values())} kills: {reported}\n")
    return hit


def await_silence(database: Database) -> None:
    """Wait until the server has noticed: it notices only after a while that a client is dead, and finishes the
    statement that it is at."""
    if database.store == "sqlite":
        return
    alive = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'wane' AND datname = current_database()"
    deadline = time.monotonic() + 20
    while database.query(alive) != [(0,)]:
        assert time.monotonic() < deadline, "the killed client's backend lives on"
        time.sleep(0.005)


def finish(database: Database, world: World) -> None:
    """Require that the next sweep takes all that is due, and the books still balance."""
    with open_keeper(database.url, contract=world.contract) as keeper:
        swept = Sweeper(keeper.store, keeper.contract, pace=FAST, unattended=False).sweep()
        assert {rule.outcome for rule in swept.rules} == {Outcome.DONE}
    world.balance()
    assert not any(world.due().values())


@pytest.mark.timeout(max(300, 5 * KILLS))
def test_sqlite_survives_kills(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    hit = kill_and_check(sqlite_database, tmp_path)
    assert sum(hit.values()) >= KILLS


@pytest.mark.timeout(max(300, 5 * KILLS))
def test_postgres_survives_kills_and_crashes(
    durable_server: PostgresServer, durable_database: PostgresDatabase, tmp_path: Path
) -> None:
    hit = kill_and_check(durable_database, tmp_path, crash=durable_server)
    assert sum(hit.values()) >= KILLS
