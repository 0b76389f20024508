"""How long commands take to start, beside Python itself.

    .venv/bin/python -m bench.start [--rounds 9]

`wane --help`, and `wane plan` on a small SQLite file, as processes; CPU time of each and the time by the clock,
medians, taken in turns. All of them have compiled modules, as an installation by pip has, whatever
PYTHONDONTWRITEBYTECODE says here. Raw samples go to bench/results/start.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from bench.measuring import ROOT, machine, print_line

RESULTS = ROOT / "bench" / "results" / "start.json"
CONTRACT = """
[store]
url = "sqlite:///small.db"
[scheduler]
s = { every = "5m" }
[table.jobs]
scheduler = "s"
why = "A benchmark."
time = { column = "at", unit = "s" }
[table.jobs.rule.old]
keep = "7d"
"""


def taken_by(command: list[str], folder: Path) -> tuple[float, float]:
    """CPU seconds of a process, and seconds by the clock."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    before = resource.getrusage(
        resource.RUSAGE_CHILDREN
    )  # To the microsecond, where os.times() has hundredths of a second.
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


def beside_python(samples: dict[str, list[float]]) -> dict[str, float]:
    medians = {name: statistics.median(values) for name, values in samples.items()}
    return {name: round(medians[name] / medians["python"], 1) for name in medians if name != "python"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    wane = str(Path(sys.executable).with_name("wane"))
    commands = {"python": [sys.executable, "-c", ""], "help": [wane, "--help"], "plan": [wane, "plan"]}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    clock: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as place:
        folder = Path(place)
        (folder / "wane.toml").write_text(CONTRACT)
        with closing(sqlite3.connect(folder / "small.db")) as connection:
            connection.execute("CREATE TABLE jobs (id integer PRIMARY KEY, at integer NOT NULL)")
        for number in range(options.rounds + 1):
            for name, command in commands.items():
                used, seconds = taken_by(command, folder)
                if number:  # The first round warms caches and is not counted.
                    cpu[name].append(round(used, 4))
                    clock[name].append(round(seconds, 4))
    found = {"cpu_seconds": cpu, "ratios": beside_python(cpu), "seconds": clock, "clock_ratios": beside_python(clock)}
    for name, samples in (("CPU seconds", cpu), ("seconds by the clock", clock)):
        medians = {command: statistics.median(values) for command, values in samples.items()}
        print_line(f"{name} {medians}, beside python {beside_python(samples)}")
    RESULTS.write_text(json.dumps({**machine(), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
