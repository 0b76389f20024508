"""What a fleet of small SQLite databases costs: one process, one Spark application, a few rows due in each.

    python -m bench.fleet --members 1000

Each member has ten rows due. Measured are CPU seconds of the process with all its descendants (driver, Java, tasks) and
wall seconds, for a pass that moves rows, a second pass that finds nothing due, and one that moves rows once more, with
an archive for each database and with one that all share. The first pass includes the start of Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.archive import family
from bench.measuring import machine, print_line
from wane._keeper import open_keeper

RESULTS = Path(__file__).parent / "results" / "fleet.json"
DUE = 10
_DAY_MS = 86_400_000
_POLL_SECONDS = 0.25

CONTRACT = """
[store]
url = "sqlite:///unused.db"
[archive]
url = "cold"
shared = {shared}
[archive.event]
keep = "forever"
[scheduler]
night = {{ every = "1h" }}
[table.event]
scheduler = "night"
why  = "a benchmark"
time = {{ column = "at_ms", unit = "ms" }}
rule.cold = {{ keep = "90d", then = "archive" }}
"""


def fill(path: Path, first: int) -> None:
    """Insert rows that are due."""
    old = int(time.time() * 1000) - 200 * _DAY_MS
    connection = sqlite3.connect(path)
    rows = [(number, old + number, f"the body of event {number}") for number in range(first, first + DUE)]
    connection.executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()


def build(folder: Path, members: int, parallel: int, *, shared: bool) -> None:
    """Create the databases, all alike, with their contract and the fleet file."""
    (folder / "databases").mkdir(parents=True)
    (folder / "wane.toml").write_text(CONTRACT.format(shared=str(shared).lower()))
    archive = "" if shared else 'archive = "cold/{name}"\n'
    (folder / "fleet.toml").write_text(
        f'parallel = {parallel}\n[member.shop]\ncontract = "wane.toml"\nurl = "sqlite:///databases/*.db"\n{archive}'
    )
    template = folder / "template"
    connection = sqlite3.connect(template)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, body TEXT)")
    connection.execute("CREATE INDEX event_at ON event (at_ms, id)")
    connection.close()
    with open_keeper(f"sqlite:///{template}", contract=folder / "wane.toml") as keeper:
        keeper.migrate()
        keeper.enable()
    for number in range(members):
        shutil.copy(template, folder / "databases" / f"{number:05d}.db")


def cpu_of_family(pid: int) -> float:
    """Return CPU seconds of a process and its descendants, those that have ended included."""
    total = 0
    for one, _ in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(number) for number in fields[11:15])  # utime, stime, and those of ended children.
    return total / os.sysconf("SC_CLK_TCK")


def run(folder: Path) -> dict[str, Any]:
    """Archive the fleet in a process of its own."""
    words = [sys.executable, "-m", "wane", "archive", "run", "--fast", "--json", "--fleet", str(folder / "fleet.toml")]
    began, cpu = time.monotonic(), 0.0
    with (folder / "out.json").open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            cpu = max(cpu, cpu_of_family(process.pid))
            time.sleep(_POLL_SECONDS)
    total = json.loads((folder / "out.json").read_text())["total"]
    assert process.returncode == 0, total
    return {"wall_seconds": time.monotonic() - began, "cpu_seconds": cpu, "with_work": total["with_work"]}


def measure(folder: Path, members: int, parallel: int, *, shared: bool) -> dict[str, Any]:
    build(folder, members, parallel, shared=shared)
    passes = {}
    for name, first in (("first", 1), ("idle", 0), ("second", 1 + DUE)):
        for path in sorted((folder / "databases").glob("*.db")) if first else ():
            fill(path, first)
        found = run(folder)
        assert found["with_work"] == (members if first else 0)
        passes[name] = {
            "cpu_seconds_a_member": round(found["cpu_seconds"] / members, 4),
            "wall_seconds_a_member": round(found["wall_seconds"] / members, 4),
            "cpu_seconds": round(found["cpu_seconds"], 1),
            "wall_seconds": round(found["wall_seconds"], 1),
        }
        print_line(f"{'shared' if shared else 'separate'} {name}: {passes[name]}, load {os.getloadavg()[0]:.0f}")
    logs = list((folder / "cold").rglob("_delta_log/*.json"))
    return {**passes, "commits": len(logs), "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--only", choices=["separate", "shared"])
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {"rows_due_a_member": DUE, "parallel": options.parallel, **machine()}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as folder:
        for name in ("separate", "shared"):
            if options.only in (None, name):
                found = measure(Path(folder) / name, options.members, options.parallel, shared=name == "shared")
                results[name] = {"members": options.members, **found}
                RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
