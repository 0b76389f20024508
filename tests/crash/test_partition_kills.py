"""`kill -9` at any time of a conversion, of making months, of going back: the application goes on, no row is lost or
doubled, and the next process finishes. Kills are seeded and uniform in time; each reports the step that it hit, and the
run fails if some step was never hit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from crash.partition_launcher import LEAVING, STEPS
from crash.test_kills import await_silence
from partition.partitioning import CONTRACT, RICH, Application, dump, keeping
from partition.test_retire import RULES, SCHEMA, aged
from servers import PostgresDatabase
from wane._partition import work
from wane._prune.pace import FAST

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("WANE_KILLS", "0")) // 4
"""Kills at random times; then one at every step that none of them hit. `make crash` asks for dozens; the ordinary tests
kill at some steps."""
SOME = 1 if KILLS else 4
WINDOW_SECONDS = 0.5
PATIENCE_SECONDS = 200
"""How long a process may take to come to a step: which steps it takes on its way is random."""
SEED = 11
BEFORE = {"discard": ["validate"], "discard split": ["copy"]}
"""Where to kill first, so that there is something to take back."""


class Launcher:
    """Starts processes that change partitions, and kills them."""

    def __init__(self, database: PostgresDatabase, folder: Path, near: Path, further: Path | str) -> None:
        self._log = folder / "steps"
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("partition_launcher.py"), database.url, near, further, self._log],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )

    def kill_one(self, seed: int, seconds: float, target: str = "-") -> str:
        """Let one work for that long, or until it comes to a step, kill it, and return the step that it was in."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._log.write_text("")
        self._process.stdin.write(f"{seed} {target}\n")
        self._process.stdin.flush()
        child = int(self._process.stdout.readline())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (not self._last() or target not in ("-", self._last())) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        assert self._process.stdout.readline() == f"{-signal.SIGKILL}\n", "it ended by itself"
        return self._last()

    def _last(self) -> str:
        return (self._log.read_text().splitlines() or [""])[-1]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.timeout(max(600, 10 * KILLS))
def test_killed_anywhere_it_recovers_and_no_query_fails(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LEASE_SECONDS", 1)
    wanted = set(sorted(STEPS.values())[::SOME])
    postgres_database.script(RICH)
    before = dump(postgres_database)
    generator = random.Random(SEED)
    hit: Counter[str] = Counter()
    with keeping(postgres_database, tmp_path):
        pass
    further = tmp_path / "further.toml"
    further.write_text(CONTRACT.replace("ahead = 2", "ahead = 4"))
    launcher = Launcher(postgres_database, tmp_path, tmp_path / "wane.toml", further)
    try:
        with Application(postgres_database) as application:
            for target in ["-"] * KILLS + sorted(wanted):
                if target in hit:
                    continue
                # Only what was interrupted before its swap is taken back.
                for step in (*BEFORE.get(target, ()), target):
                    seconds = generator.uniform(0, WINDOW_SECONDS) if step == "-" else 0.0
                    hit[launcher.kill_one(generator.randrange(2**32), seconds, step)] += 1
                    await_silence(postgres_database)
                    # Its holder is dead: no process has to wait until it ends by itself.
                    postgres_database.execute("UPDATE wane.lease SET until = now()")
                    application.await_statements(5)
                    assert application.problems == []
    finally:
        launcher.close()
    application.check()
    assert set(hit) >= wanted, f"never hit: {', '.join(sorted(wanted - set(hit)))}; hit: {dict(hit)}"
    with keeping(postgres_database, tmp_path) as keeper:
        plan = keeper.partition.plan("event")
        if {plan.state, plan.along[0].state} != {"plain"}:
            assert keeper.partition.undo("event", pace=FAST).problems == ()
    application.check()
    # A table that was split came back from another partition than it went: the same lines, some in another order.
    assert sorted(dump(postgres_database).splitlines()) == sorted(before.splitlines())
    reported = ", ".join(f"{step} {count}" for step, count in sorted(hit.items()))
    sys.stdout.write(f"seed {SEED}: {sum(hit.values())} kills: {reported}; {application.statements} statements\n")


@pytest.mark.timeout(max(600, 10 * KILLS))
@pytest.mark.sampled
def test_killed_while_months_leave_none_is_lost(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LEASE_SECONDS", 1)
    postgres_database.script(SCHEMA)
    everything = "SELECT 'e', e::text FROM event AS e WHERE code NOT LIKE 'app %' UNION ALL SELECT 'r', r::text FROM event_read AS r"
    with keeping(postgres_database, tmp_path, RULES) as keeper:
        aged(postgres_database, keeper)
    before = sorted(postgres_database.query(everything))
    generator = random.Random(SEED)
    hit: Counter[str] = Counter()
    launcher = Launcher(postgres_database, tmp_path, tmp_path / "wane.toml", "-")
    back = sorted(set(LEAVING.values()) - {"drop"})[:: min(SOME, 2)]
    try:
        with Application(postgres_database, reading=False) as application:
            for target in ["-"] * KILLS + back + ["drop"]:
                if target in hit:
                    continue
                if target == "drop":
                    reattach_all(postgres_database, tmp_path)
                    assert sorted(postgres_database.query(everything)) == before
                seconds = generator.uniform(0, WINDOW_SECONDS) if target == "-" else 0.0
                hit[launcher.kill_one(generator.randrange(2**32), seconds, target)] += 1
                await_silence(postgres_database)
                postgres_database.execute("UPDATE wane.lease SET until = now()")
                application.await_statements(5)
                assert application.problems == []
    finally:
        launcher.close()
    application.check()
    assert set(hit) >= {*back, "drop"}, f"hit: {dict(hit)}"
    with keeping(postgres_database, tmp_path, RULES) as keeper:
        postgres_database.execute("UPDATE wane.partition_retired SET drop_at = now() WHERE state = 'quarantined'")
        keeper.partition.retire("event")
        postgres_database.execute("UPDATE wane.partition_retired SET drop_at = now() WHERE state = 'quarantined'")
        keeper.partition.retire("event")
        dropped = sum(sum(entry.counts.values()) for entry in keeper.audit(kind="drop", limit=1000))
    assert dropped == len(before) - len(postgres_database.query(everything)), "the audit has exactly what is gone"
    reported = ", ".join(f"{step} {count}" for step, count in sorted(hit.items()))
    sys.stdout.write(f"seed {SEED}: {sum(hit.values())} kills: {reported}\n")


def reattach_all(database: PostgresDatabase, folder: Path) -> None:
    with keeping(database, folder, RULES) as keeper:
        keeper.partition.retire("event")
        for (partition,) in database.query("SELECT partition FROM wane.partition_retired WHERE state = 'quarantined'"):
            keeper.partition.reattach("event", partition)
