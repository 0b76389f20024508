"""How fast caps take what is beyond them, beside one DELETE of the same rows.

    .venv/bin/python -m bench.caps [--most 100000] [--rounds 3] [--only sqlite|postgres] [--cpu]

A table with twice as many rows as its cap, and one with two scopes that each have twice as many as theirs, with the
index that Wane asks for; batches as large as fit into the default 5 ms, without pauses. The DELETE knows where to end,
and audits nothing. Raw samples go to bench/results/caps.json.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import ROOT, machine, postgres_url, print_line, with_cpu
from bench.prune import ADAPTIVE, NO_LIMIT, NOW
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.postgres.store import PostgresStore
from wane._db.url import resolve_url
from wane._prune.gates import set_gate
from wane._prune.sweep import Sweeper

RESULTS = ROOT / "bench" / "results" / "caps.json"
SCOPES = {"table": 1, "scope": 2}
TABLE = "CREATE TABLE beats (id bigint NOT NULL PRIMARY KEY, tenant bigint NOT NULL, seen_at_ms bigint NOT NULL)"
INDEXES = {
    "table": "CREATE INDEX beats_age ON beats (seen_at_ms, id)",
    "scope": "CREATE INDEX beats_age ON beats (tenant, seen_at_ms, id)",
}
FIRST = int(NOW.timestamp() * 1000) - 10_000_000_000
Sample = tuple[int, float, float]


def contract(folder: Path, shape: str, most: int) -> Contract:
    file = folder / f"{shape}.toml"
    per = 'per = "tenant"' if shape == "scope" else ""
    file.write_text(f"""
[scheduler]
s = {{ every = "5m" }}
[table.beats]
scheduler = "s"
why = "A benchmark."
time = {{ column = "seen_at_ms", unit = "ms" }}
[table.beats.rule.cap]
most = {most}
{per}
""")
    return load_contract(file)


def rows_of(shape: str, most: int) -> list[tuple[int, int, int]]:
    scopes = SCOPES[shape]
    return [(number, number % scopes, FIRST + number) for number in range(2 * most * scopes)]


class Sqlite:
    kind, server = "sqlite", None

    def __init__(self, folder: Path) -> None:
        self.path = folder / "caps.db"
        self.url = f"sqlite:///{self.path}"
        self.connection: sqlite3.Connection | None = None

    def fresh(self, shape: str, most: int) -> None:
        if self.connection is not None:
            self.connection.close()
        for file in self.path.parent.glob("caps.db*"):
            file.unlink()
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.executescript("PRAGMA journal_mode = wal; PRAGMA synchronous = normal")
        self.connection.execute("BEGIN")
        self.connection.execute(TABLE)
        self.connection.executemany("INSERT INTO beats VALUES (?, ?, ?)", rows_of(shape, most))
        for text in (INDEXES[shape], "COMMIT", "ANALYZE", "PRAGMA wal_checkpoint(truncate)"):
            self.connection.execute(text)

    def execute(self, text: str) -> int:
        assert self.connection is not None
        return self.connection.execute(text).rowcount


class Postgres:
    kind = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url
        self.connect()

    def connect(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.connection.execute("SET synchronous_commit = off")

    @property
    def server(self) -> int:
        return self.connection.info.backend_pid

    def fresh(self, shape: str, most: int) -> None:
        self.connection.execute(f"DROP TABLE IF EXISTS beats; {TABLE}".encode())
        with self.connection.cursor() as cursor, cursor.copy(b"COPY beats FROM STDIN") as copy:
            for row in rows_of(shape, most):
                copy.write_row(row)
        for text in (INDEXES[shape], "CHECKPOINT", "VACUUM ANALYZE beats", "VACUUM beats"):
            self.connection.execute(text.encode())
        # A session that has read the table before saves the first access to each of its pages, which Wane's has to
        # make.
        self.connection.close()
        self.connect()

    def execute(self, text: str) -> int:
        return self.connection.execute(text.encode()).rowcount


def one_delete(database: Sqlite | Postgres, shape: str, most: int) -> Sample:
    text = f"DELETE FROM beats WHERE seen_at_ms < {FIRST + most * SCOPES[shape]}"
    seconds, cpu, count = with_cpu(database.server, lambda: database.execute(text))
    return count, seconds, cpu


def wane(database: Sqlite | Postgres, promised: Contract) -> Sample:
    with open_store(resolve_url(database.url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        server = store._connection.info.backend_pid if isinstance(store, PostgresStore) else None
        sweeper = Sweeper(store, promised, pace=ADAPTIVE, unattended=False)
        seconds, cpu, sweep = with_cpu(server, lambda: sweeper.sweep(budget=NO_LIMIT))
    [swept] = sweep.rules
    assert swept.outcome == "done", swept
    return swept.counts["beats"], seconds, cpu


def measure(database: Sqlite | Postgres, folder: Path, most: int, rounds: int, measured: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for shape in SCOPES:
        promised = contract(folder, shape, most)
        contenders: dict[str, Callable[[], Sample]] = {
            "one_delete": lambda shape=shape: one_delete(database, shape, most),  # type: ignore[misc]
            "wane": lambda promised=promised: wane(database, promised),  # type: ignore[misc]
        }
        samples: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, contender in contenders.items():
                database.fresh(shape, most)
                count, seconds, cpu = contender()
                assert count == most * SCOPES[shape], (name, count)
                samples[name].append({"seconds": round(seconds, 4), "cpu_seconds": round(cpu, 4)})
            print_line(f"{database.kind} cap per {shape}: {samples}")
        medians = {name: statistics.median(one[measured] for one in values) for name, values in samples.items()}
        found[shape] = {"samples": samples, "ratio": round(medians["one_delete"] / medians["wane"], 3)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--cpu", action="store_true", help="Ratios of CPU time, of client and server together.")
    options = parser.parse_args()
    measured = "cpu_seconds" if options.cpu else "seconds"
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if options.only and RESULTS.exists() else {}
    results |= {"most": options.most, "ratios_of": "CPU time" if options.cpu else "time", **machine()}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as place:
        folder = Path(place)
        if options.only != "postgres":
            results["sqlite"] = measure(Sqlite(folder), folder, options.most, options.rounds, measured)
        if options.only != "sqlite":
            with postgres_url() as url:
                results["postgres"] = measure(Postgres(url), folder, options.most, options.rounds, measured)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
