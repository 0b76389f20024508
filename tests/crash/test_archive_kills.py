"""`kill -9` at every step of the archive's journal, and at any time: no row is ever in neither place, and when a sweep
is done, none is in both.

Meanwhile the application goes on changing its rows. At the end every row, by key and content, is as the application
left it, in one place.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, STAYING, archived, events
from archive.oracle import KINDS, Kind
from archive.test_plain_rows import PLAIN
from crash.test_kills import await_silence
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._keeper import open_keeper

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("WANE_KILLS", "0")) // 4
"""Kills at random times, after one at every step; `make crash` asks for dozens."""
DIRECTED = [
    *("cut", "plan", "copy", "write", "to written", "read back", "to verified", "commit", "to committed"),
    *("claim", "evict", "progress", "to evicted", "remove", "removed", "to done"),
]
"""Every step; the ordinary tests kill at half of them on each store."""
ROWS = 30
SEED = 5
PATIENCE_SECONDS = 900
"""How long a test may take besides its kills at random times: each kill starts a process, and a machine may be busy."""
STEP_SECONDS = 120
"""How long a process may take to come to its step."""
MORE_TRIES = 5
"""How many kills may come before their step was reached, as on a busy machine."""


class Launcher:
    """Starts processes that archive, and kills them."""

    script = "archive_launcher.py"

    def __init__(self, contract: Path, log: Path) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name(self.script), contract, log],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )

    def _start(self, seed: int, target: str) -> int:
        assert self._process.stdin is not None
        self._log.write_text("")
        self._process.stdin.write(f"{seed} {target}\n")
        self._process.stdin.flush()
        return int(self._listen())

    def _listen(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def kill_at(self, seed: int, target: str) -> str:
        """Let one archive until it comes to a step, or for a while, and kill it; return the step that it was in."""
        child = self._start(seed, target)
        deadline = time.monotonic() + STEP_SECONDS
        if target == "-":
            time.sleep(1.0 + random.Random(seed).uniform(0, 2.0))
        while target not in ("-", self._last()) and time.monotonic() < deadline:
            time.sleep(0.002)
        self.kill(child)
        assert self._listen() == f"{-signal.SIGKILL}\n", "it ended by itself"
        return self._last()

    def kill(self, child: int) -> None:
        """Kill a process with the tasks that it started, as a machine does that fails."""
        os.killpg(child, signal.SIGKILL)

    def _last(self) -> str:
        return (self._log.read_text().splitlines() or [""])[-1]

    def finish(self, seed: int) -> None:
        """Let one archive until nothing is due."""
        self._start(seed, "finish")
        assert self._listen() == "0\n"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Application:
    """Goes on changing rows that are about to leave, and knows what it wrote."""

    def __init__(self, database: Database, kind: Kind = KINDS["followers"]) -> None:
        self.database = database
        self.kind = kind
        self.bodies: dict[int, str] = {}
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        generator = random.Random(SEED)
        number = 0
        while not self._stop.wait(0.02):
            with self._turn:
                if self.bodies:
                    number += 1
                    row = generator.choice(list(self.bodies)[-ROWS:])
                    # Not by the number of changed rows: of SQLite that is the connection's, which another thread uses
                    # too.
                    change = "UPDATE event SET body = ? WHERE id = ? RETURNING id"
                    if self.database.query(change, (f"again {number}", row)):
                        self.bodies[row] = f"again {number}"

    def fill(self, ids: range) -> None:
        with self._turn:
            self.kind.insert(self.database, ids)
            self.bodies |= {n: f"body {n} \U0001f600" for n in ids}

    @contextmanager
    def working(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


class Books:
    """What must hold of hot tables and archive together."""

    def __init__(self, application: Application, cold: Path) -> None:
        self.application = application
        self.database = application.database
        self.follows = application.kind.follows
        self.staying = set(STAYING) if self.follows else set()
        self.cold = cold
        self.reads: set[int] = set()

    def fill(self, ids: range) -> None:
        self.application.fill(ids)
        if self.follows:
            self.reads |= {n * 10 + m for n in ids for m in range(n % 3)}

    def balance(self, *, done: bool) -> None:
        # The archive first: what leaves the hot table meanwhile is then in both reads, and never in neither.
        every = {"event": set(self.application.bodies) | self.staying, "event_read": self.reads}
        for table, ever in every.items() if self.follows else [("event", every["event"])]:
            hot = {row for (row,) in self.database.query(f"SELECT id FROM {table}")}
            cold = Counter(row["id"] for row in archived(self.cold / table))
            assert hot | set(cold) == ever, f"{table}: lost {sorted(ever - hot - set(cold))[:10]}"
            if done:
                assert max(cold.values(), default=1) == 1
                assert not hot & set(cold)
        if done:
            contents: dict[int, Any] = {row["id"]: row["body"] for row in archived(self.cold / "event")}
            contents |= dict(self.database.query("SELECT id, body FROM event"))
            assert {n: contents[n] for n in self.application.bodies} == self.application.bodies
            reported = self.reported()
            assert reported["event"] == len(archived(self.cold / "event"))
            assert reported["event_read"] == len(archived(self.cold / "event_read"))

    def reported(self) -> Counter[str]:
        """Return what left for the archive, by the trail."""
        audit = "wane_audit" if self.database.store == "sqlite" else "wane.audit"
        reported: Counter[str] = Counter()
        for counts in self.database.query(f"SELECT counts FROM {audit} WHERE kind = 'archive'"):
            reported.update(json.loads(counts[0]) if isinstance(counts[0], str) else counts[0])
        return reported


def begin(database: Database, folder: Path, contract: str = CONTRACT, kind: Kind = KINDS["followers"]) -> Path:
    path = folder / "wane.toml"
    path.write_text(contract.format(url=json.dumps(database.url)))
    kind.create(database, 0)
    with open_keeper(contract=path) as keeper:
        keeper.migrate()
        keeper.enable()
    return path


def end_leases(database: Database) -> None:
    """Let the next process begin at once: until the leases of the dead end, it would only ask for them."""
    table = "wane_lease" if database.store == "sqlite" else "wane.lease"
    database.execute(f"UPDATE {table} SET until = '2020-01-01T00:00:00.000000Z'")


def kill_everywhere(
    database: Database,
    launcher: Launcher,
    every: list[str],
    *,
    fill: Callable[[range], None],
    balance: Callable[[], None],
    more_tries: int = 0,
) -> None:
    """Kill one at each of these steps and some at any time, each with new rows.

    Of the steps that were not reached in time, as on a busy machine, so many may be tried again.
    """
    generator = random.Random(SEED)
    hit: Counter[str] = Counter()
    # In any order, so that every step follows on every other one sooner or later.
    targets = [*generator.sample(every, len(every)), *["-"] * KILLS]
    for number, target in enumerate(targets):
        fill(range(number * 100 + 1, number * 100 + 1 + ROWS))
        hit[launcher.kill_at(generator.randrange(2**32), target)] += 1
        await_silence(database)
        end_leases(database)
        balance()
        if target not in ("-", *hit) and len(targets) < len(every) + KILLS + more_tries:
            targets.append(target)
    missed = set(every) - set(hit)
    assert not missed, f"never hit: {missed}; hit: {dict(hit)}"
    sys.stdout.write(f"seed {SEED}: {hit.total()} kills: {dict(sorted(hit.items()))}\n")


def kill_while_it_works(launcher: Launcher, books: Books, every: list[str], journal: str) -> None:
    """Kill at these steps while the application goes on; at the end everything is in its place, and the journal says
    so."""
    database = books.database
    try:
        with books.application.working():
            kill_everywhere(
                database,
                launcher,
                every,
                fill=books.fill,
                balance=lambda: books.balance(done=False),
                more_tries=MORE_TRIES,
            )
        # Not before the application is at rest: what it changed under the last sweep's eyes would stay hot.
        launcher.finish(SEED)
        books.balance(done=True)
    finally:
        launcher.close()
    assert {row for (row,) in database.query("SELECT id FROM event")} == books.staying
    assert len(archived(books.cold / "event")) == len(books.application.bodies)
    journal = f"wane_{journal}" if database.store == "sqlite" else f"wane.{journal}"
    assert database.query(f"SELECT DISTINCT state FROM {journal}") == [("done",)]


def kill_and_check(database: Database, folder: Path, every: list[str]) -> None:
    launcher = Launcher(begin(database, folder), folder / "steps")
    books = Books(Application(database), folder / "cold")
    kill_while_it_works(launcher, books, DIRECTED if KILLS else every, "archive_sweep")


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
@pytest.mark.sampled
def test_the_archive_of_sqlite_survives_kills(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    kill_and_check(sqlite_database, tmp_path, DIRECTED[::2])


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
def test_the_archive_of_postgres_survives_kills(durable_database: PostgresDatabase, tmp_path: Path) -> None:
    kill_and_check(durable_database, tmp_path, DIRECTED[1::2])


BY_RANGE = [
    *("plan", "copy", "write", "read back", "commit", "to committed", "claim", "take range", "took range"),
    *("progress", "to evicted", "to done"),
]
"""Every step of rows that leave by their range, in the driver or, on PostgreSQL, in tasks."""
ONE_BY_ONE = [
    *("plan", "copy", "write", "read back", "commit", "to committed", "evict task", "claim", "evict", "progress"),
    *("to evicted", "remove", "removed", "to done"),
]
"""Every step of rows that are checked one by one in tasks, because others follow them."""


def kill_by_range(database: Database, folder: Path, kind: str, every: list[str]) -> None:
    made = KINDS[kind]
    contract = (CONTRACT if made.follows else PLAIN).replace("range_rows = 60", "range_rows = 10")
    launcher = Launcher(begin(database, folder, contract, made), folder / "steps")
    books = Books(Application(database, made), folder / "cold")
    kill_while_it_works(launcher, books, every, "archive_sweep")


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
@pytest.mark.sampled("plain")
@pytest.mark.parametrize("kind", ["plain", "pairs"])
def test_rows_that_leave_sqlite_by_their_range_survive_kills(
    sqlite_database: SqliteDatabase, tmp_path: Path, kind: str
) -> None:
    kill_by_range(sqlite_database, tmp_path, kind, BY_RANGE if KILLS else ["take range", "took range"])


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["plain", "pairs"])
def test_rows_that_leave_postgres_by_their_range_survive_kills(
    durable_database: PostgresDatabase, tmp_path: Path, kind: str
) -> None:
    tasks = ["evict task", "took range"]
    kill_by_range(durable_database, tmp_path, kind, ["evict task", *BY_RANGE] if KILLS else tasks)


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
def test_rows_that_others_follow_leave_postgres_in_tasks_and_survive_kills(
    durable_database: PostgresDatabase, tmp_path: Path
) -> None:
    kill_by_range(durable_database, tmp_path, "followers", ONE_BY_ONE if KILLS else ["evict task", "evict", "progress"])


@pytest.mark.slow
@pytest.mark.skipif(not KILLS, reason="two Java processes for each: `make crash` has the time")
@pytest.mark.parametrize("state", ["planned", "written", "verified", "committed"])
def test_a_driver_with_a_real_spark_survives_kills(sqlite_database: SqliteDatabase, tmp_path: Path, state: str) -> None:
    database = sqlite_database
    events(database, 150)
    contract = tmp_path / "wane.toml"
    contract.write_text(CONTRACT.format(url=json.dumps(database.url)))
    with open_keeper(contract=contract) as keeper:
        keeper.migrate()
        keeper.enable()
    command = [sys.executable, "-m", "wane", "archive", "run", "--contract", str(contract)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as driver:
        assert driver.stderr is not None
        for line in driver.stderr:
            if re.search(f"is {state}", line):
                break
        driver.kill()
    end_leases(database)
    finished = subprocess.run([*command, "--json", "--fast"], capture_output=True, text=True, timeout=100, check=False)
    done = json.loads(finished.stdout)["rules"][0]
    assert done["outcome"] == "done", done
    assert sorted(row["id"] for row in archived(tmp_path / "cold" / "event")) == list(range(1, 151))
    assert [row for (row,) in database.query("SELECT id FROM event ORDER BY id")] == STAYING
