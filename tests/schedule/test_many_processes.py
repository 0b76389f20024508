"""Eight workers and two schedulers, killed and stopped at random: everything that law 5 promises, seen by the database
itself.

Signals are seeded. The run fails if none of them hit a sweep at work. WANE_SOAK_SECONDS says how long it lasts; `make
soak` asks for a minute.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conftest import POSTGRES_IDS
from prune.keeping import ago
from races.racing import await_true
from schedule.evidence import TABLES, Evidence, write_everything_down
from servers import Database
from wane._keeper import Keeper, open_keeper

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("WANE_SOAK_SECONDS", "5"))
SEED = 11
LEASE_SECONDS = 2.0
SLACK_SECONDS = 3.0
"""Between the end of a lease and a new reservation: workers poll every second, and two small cores run them all."""
WORKER_PROCESSES = 4
SCHEDULER_PROCESSES = 2
MOST_WAITING = 500
"""Rows of one table, so that sweeps have something to do and come to an end."""

CONTRACT = """
[scheduler]
tick = { every = "1s" }
[sweep]
batch_ms = 1
duty = 0.25
fuse_rows = 1_000_000
[budget]
rows = 500
[queue]
lease = "2s"
attempts = 500
backoff = "100ms"
""" + "".join(
    f"""
[table.{name}]
scheduler = "tick"
why = "a test"
time = {{ column = "done_at", unit = "ms" }}
[table.{name}.rule.old]
keep = "7d"
"""
    for name in TABLES
)


class Crowd:
    """The processes, and what was done to them."""

    def __init__(self, database: Database, contract: Path) -> None:
        self._database = database
        self._launcher = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("launcher.py"), database.url, contract],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.roles: dict[int, str] = {}
        self.hit: Counter[str] = Counter()
        self.stops: list[tuple[datetime, datetime]] = []
        for role, many in (("worker", WORKER_PROCESSES), ("scheduler", SCHEDULER_PROCESSES)):
            for _ in range(many):
                self.start(role)

    def start(self, role: str) -> None:
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._launcher.stdin.write(f"{role}\n")
        self._launcher.stdin.flush()
        self.roles[int(self._launcher.stdout.readline())] = role

    def at_work(self) -> dict[int, str]:
        """Return the processes that hold a lease, and on what."""
        table = "wane_lease" if self._database.store == "sqlite" else "wane.lease"
        now = datetime.now(UTC)
        found = {}
        for name, holder, until in self._database.query(f"SELECT name, holder, until FROM {table}"):
            end = datetime.fromisoformat(until) if isinstance(until, str) else until
            if end > now:
                found[int(holder.split(":")[1])] = name
        return found

    def kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)
        role = self.roles.pop(process)
        at_work = process in self.at_work()
        self.hit["kills"] += 1
        self.hit["kills of a sweep at work"] += at_work
        self.start(role)

    def stop(self, process: int, seconds: float) -> None:
        began = datetime.now(UTC)
        os.kill(process, signal.SIGSTOP)
        try:
            at_work = process in self.at_work()
            time.sleep(seconds)
        finally:
            os.kill(process, signal.SIGCONT)
        self.stops.append((began, datetime.now(UTC)))
        self.hit["stops"] += 1
        self.hit["stops of a sweep at work"] += at_work

    def end(self, *roles: str) -> None:
        """Signal all processes of some roles to stop, and wait until they have."""
        ending = [process for process, role in self.roles.items() if role in roles]
        for process in ending:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + 15
        for process in ending:
            while alive(process) and time.monotonic() < deadline:
                time.sleep(0.02)
            if alive(process):
                os.kill(process, signal.SIGKILL)
            del self.roles[process]

    def close(self) -> None:
        self.end("scheduler", "worker")
        if self._launcher.stdin is not None:
            self._launcher.stdin.close()
        self._launcher.wait(timeout=20)
        if self._launcher.stdout is not None:
            self._launcher.stdout.close()


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class Application:
    """Puts rows into the tables, all the time, on a connection of its own."""

    def __init__(self, database: Database) -> None:
        self.ever: dict[str, set[int]] = {name: set() for name in TABLES}
        self._connection = database.connect()
        self._mark = "?" if database.store == "sqlite" else "%s"
        self._stop = threading.Event()
        self._next = 1
        self.failed: list[Exception] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.wait(0.1):
                for name in TABLES:
                    [(waiting,)] = self._connection.execute(f"SELECT count(*) FROM {name}").fetchall()
                    if waiting < MOST_WAITING / 5:
                        self._add(name, MOST_WAITING)
        except Exception as problem:
            self.failed.append(problem)

    def _add(self, name: str, rows: int) -> None:
        new = range(self._next, self._next + rows)
        self._next += rows
        values = ", ".join(f"({number}, {ago(30) + number})" for number in new)
        self._connection.execute(f"INSERT INTO {name} (id, done_at) VALUES {values}")
        self.ever[name] |= set(new)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self.failed == []


def make_trouble(database: Database, crowd: Crowd, seconds: float) -> None:
    generator = random.Random(SEED)
    deadline = time.monotonic() + seconds
    wanted = {"kills of a sweep at work", "stops of a sweep at work"}

    def has_hit() -> bool:
        return all(crowd.hit[name] for name in wanted) and bool(Evidence(database).takeovers())

    # On a machine that is busy with something else, trouble lasts until it hit what it must hit and a lease ran out.
    while time.monotonic() < deadline or (time.monotonic() < deadline + 30 and not has_hit()):
        time.sleep(generator.uniform(0.1, 0.6))
        busy = [process for process in crowd.at_work() if process in crowd.roles]
        chosen = busy if busy and generator.random() < 0.8 else list(crowd.roles)
        process = generator.choice(sorted(chosen))
        if generator.random() < 0.5:
            crowd.kill(process)
        else:
            crowd.stop(process, generator.uniform(0.2, 1.6) * LEASE_SECONDS)


def all_done(database: Database) -> bool:
    table = "wane_message" if database.store == "sqlite" else "wane.message"
    [(left,)] = database.query(f"SELECT count(*) FROM {table} WHERE state <> 'done'")
    rows = sum(database.query(f"SELECT count(*) FROM {name}")[0][0] for name in TABLES)
    return bool(left == 0 and rows == 0)


def late(takeovers: list[tuple[datetime, datetime]], stops: list[tuple[datetime, datetime]]) -> list[float]:
    """Return how many seconds after the lease's end each takeover came; what was stopped meanwhile may have stood in
    the way."""
    found = []
    for ended, taken in takeovers:
        free = ended
        for began, over in stops:
            if began <= taken and over >= free:
                free = max(free, min(over, taken))
        found.append((taken - free).total_seconds())
    return found


# Short runs leave the machine's own PostgreSQL out: it is the same store.
@pytest.mark.parametrize("store_id", ["sqlite", *(POSTGRES_IDS if SECONDS > 10 else POSTGRES_IDS[:1])])
@pytest.mark.timeout(SECONDS * 2 + 120)
def test_no_kill_and_no_stop_breaks_what_is_promised(database: Database, tmp_path: Path) -> None:
    contract = tmp_path / "wane.toml"
    contract.write_text(CONTRACT)
    with open_keeper(database.url, contract=contract, actor="test") as keeper:
        prepare(database, keeper)
        crowd = Crowd(database, contract)
        application = Application(database)
        try:
            make_trouble(database, crowd, SECONDS)
            application.stop()
            await_true(lambda: all_done(database), "everything that is due has left, and every message has its end")
            await_true(lambda: len(windows_of(database)) > 1, "a second window was opened")
            status = keeper.status()
            # A window that opens while workers are asked to stop would leave messages behind.
            crowd.end("scheduler")
            await_true(lambda: all_done(database), "every message of the last window has its end")
        finally:
            crowd.close()
        check(database, crowd, application)
        assert status.alive
        assert keeper.status().dead_letters == 0
        assert [
            one for one in keeper.status().executors if not one.silent and alive_by_name(one.heartbeat.executor)
        ] == []


def prepare(database: Database, keeper: Keeper) -> None:
    keeper.migrate()
    keeper.enable()
    keeper.adopt()
    write_everything_down(database)


def alive_by_name(executor: str) -> bool:
    return alive(int(executor.split(":")[1]))


def check(database: Database, crowd: Crowd, application: Application) -> None:
    evidence = Evidence(database)
    hit = crowd.hit
    reported = ", ".join(f"{many} {name}" for name, many in sorted(hit.items()))
    assert hit["kills of a sweep at work"], f"no kill hit a sweep at work: {reported}"
    assert hit["stops of a sweep at work"], f"no stop hit a sweep at work: {reported}"
    evidence.check_sweeps()
    evidence.check_reservations()
    evidence.check_books(application.ever)
    assert len({one.process for one in evidence.deletions}) > 1
    waits = late(evidence.takeovers(), crowd.stops)
    assert waits, "nobody took over from anybody"
    assert max(waits) < SLACK_SECONDS, f"taken over late: {sorted(waits)[-3:]}"
    windows = windows_of(database)
    assert windows == sorted(set(windows))
    assert len(windows) > 1
    # `make soak` shows this.
    fences = max(one.fence for one in evidence.deletions)
    sys.stdout.write(
        f"seed {SEED}: {reported}; {len(evidence.deletions)} rows, {len(windows)} windows, {len(waits)} takeovers"
        f" up to {max(waits):.2f} s after the lease, fences up to {fences}\n"
    )


def windows_of(database: Database) -> list[str]:
    """Return the windows of one table's messages, in the order in which they were enqueued."""
    table = "wane_message" if database.store == "sqlite" else "wane.message"
    found = database.query(
        f"SELECT idempotency_key FROM {table} WHERE kind = ? ORDER BY seq", (f"retention_sweep_{TABLES[0]}",)
    )
    return [key.partition("@")[2] for (key,) in found]


def test_a_takeover_that_waited_for_a_stopped_process_is_not_late() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def at(second: float) -> datetime:
        return start + timedelta(seconds=second)

    assert late([(at(1), at(2))], []) == [1.0]
    assert late([(at(1), at(6))], [(at(0), at(5))]) == [1.0]
    assert late([(at(1), at(6))], [(at(7), at(9))]) == [5.0]
