"""How fast rows leave, beside the ways that people do it by hand.

    .venv/bin/python -m bench.prune [--rows 1000000] [--rounds 3] [--only sqlite|postgres]

Every round gives each contender a fresh copy of the same table with the same index, and takes them in turns; the yardstick is one
DELETE of everything due. Batches are of 1,000 rows without pauses. Everybody's connection is open, and nobody's commits wait for the
disk, as those of a sweep do not (SQLite: a write-ahead log with synchronous = NORMAL; PostgreSQL, on disk: synchronous_commit = off).
Raw samples and plans go to bench/results/prune.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import ROOT, machine, postgres_url, print_line, timed
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._contract.settings import Budget
from wane._db import open_store
from wane._db.url import resolve_url
from wane._prune.gates import set_gate
from wane._prune.pace import Pace
from wane._prune.sweep import Sweeper
from wane.events import BatchTaken, Event

RESULTS = ROOT / "bench" / "results" / "prune.json"
NOW = datetime.now(UTC)
BATCH = 1_000
STEADY = Pace(target_seconds=1.0, duty=1.0, first_batch=BATCH, least_batch=BATCH, most_batch=BATCH)
NO_LIMIT = Budget(rows=10**9, seconds=10**6, batches=10**9)
DUE_SHARE = 0.4

TABLE = """
CREATE TABLE jobs (
  id bigint NOT NULL PRIMARY KEY, status text NOT NULL, finished_at_ms bigint NOT NULL, payload text NOT NULL
)
"""
INDEX = "CREATE INDEX jobs_age ON jobs (status, finished_at_ms, id)"
CHILD = """
CREATE TABLE replies (id bigint NOT NULL PRIMARY KEY, job_id bigint NOT NULL REFERENCES jobs (id));
CREATE INDEX replies_job ON replies (job_id);
"""


def rows(count: int) -> Iterator[tuple[int, str, int, str]]:
    """Evenly over a hundred days; two states in three are terminal, and DUE_SHARE of all rows is due."""
    first = int((NOW - timedelta(days=100)).timestamp() * 1000)
    for number in range(count):
        status = ("done", "done", "done", "failed", "queued")[number % 5]
        yield (
            number,
            status,
            first + number * 100 * 86_400_000 // count,
            f"payload of job {number}, with some bytes in it",
        )


def contract(folder: Path, *, guarded: bool) -> Contract:
    file = folder / f"wane-{guarded}.toml"
    guard = 'unless = [{ referenced_by = "replies.job_id" }]' if guarded else ""
    file.write_text(f"""
[scheduler]
s = {{ every = "5m" }}
[table.jobs]
scheduler = "s"
why = "A benchmark."
state = "status"
live = ["queued"]
time = {{ column = "finished_at_ms", unit = "ms" }}
[table.jobs.rule.old]
when = ["done", "failed"]
keep = "50d"
{guard}
""")
    return load_contract(file)


def cutoff_ms() -> int:
    return int((NOW - timedelta(days=50)).timestamp() * 1000)


# --- Contenders: each takes everything due and returns (rows, seconds, longest transaction in seconds, seconds of each batch) ---------

Result = tuple[int, float, float, list[float]]


def wane(url: str, promised: Contract) -> Result:
    batches: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            batches.append(event.seconds)

    with open_store(resolve_url(url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        sweeper = Sweeper(store, promised, listener=listen, pace=STEADY, unattended=False)
        seconds, sweep = timed(lambda: sweeper.sweep(budget=NO_LIMIT))
    [swept] = sweep.rules
    assert swept.outcome == "done", swept
    return swept.rows, seconds, max(batches), batches


def copy_then_delete(execute: Callable[[str], int]) -> Result:
    """Copy what is due to another table, then delete by `IN (SELECT key)`, in one transaction: how `airflow db clean` works."""
    seconds, count = timed(
        lambda: (
            execute(
                f"CREATE TABLE gone AS SELECT * FROM jobs WHERE status IN ('done', 'failed') AND finished_at_ms < {cutoff_ms()}"
            ),
            execute("DELETE FROM jobs WHERE id IN (SELECT id FROM gone)"),
        )[1]
    )
    execute("DROP TABLE gone")
    return count, seconds, seconds, []


def one_delete(execute: Callable[[str], int]) -> Result:
    text = f"DELETE FROM jobs WHERE status IN ('done', 'failed') AND finished_at_ms < {cutoff_ms()}"
    seconds, count = timed(lambda: execute(text))
    return count, seconds, seconds, []


# --- The databases --------------------------------------------------------------------------------------------------------------


class Postgres:
    kind = "postgres"

    def __init__(self, url: str, count: int) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SET synchronous_commit = off")
        self.connection.execute("CREATE SCHEMA IF NOT EXISTS template")
        self.connection.execute("DROP TABLE IF EXISTS template.jobs")
        self.connection.execute(TABLE.replace("jobs", "template.jobs").encode())
        with self.connection.cursor() as cursor, cursor.copy(b"COPY template.jobs FROM STDIN") as copy:
            for row in rows(count):
                copy.write_row(row)

    def fresh(self, *, guarded: bool) -> None:
        for text in ("DROP TABLE IF EXISTS replies", "DROP TABLE IF EXISTS jobs", TABLE):
            self.connection.execute(text.encode())
        self.connection.execute("INSERT INTO jobs SELECT * FROM template.jobs ORDER BY id")
        self.connection.execute(INDEX)
        if guarded:
            self.connection.execute(CHILD.encode())
            # A tenth of what is due is still referred to.
            self.connection.execute("INSERT INTO replies SELECT id, id FROM jobs WHERE id % 10 = 0")
        self.connection.execute("VACUUM ANALYZE")
        self.connection.execute("CHECKPOINT")

    def execute(self, text: str) -> int:
        return self.connection.execute(text.encode()).rowcount

    def written(self) -> int:
        """Bytes of write-ahead log so far."""
        [(position,)] = self.connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchall()
        return int(position)


class Sqlite:
    kind = "sqlite"

    def __init__(self, folder: Path, count: int) -> None:
        self.path = folder / "bench.db"
        self.template = folder / "template.db"
        self.url = f"sqlite:///{self.path}"
        with closing(sqlite3.connect(self.template)) as connection, connection:
            connection.execute(TABLE)
            connection.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?)", rows(count))
        self.connection: sqlite3.Connection | None = None

    def fresh(self, *, guarded: bool) -> None:
        if self.connection is not None:
            self.connection.close()
        for file in self.path.parent.glob("bench.db*"):
            file.unlink()
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.executescript("PRAGMA journal_mode = wal; PRAGMA synchronous = normal;")
        self.connection.execute(TABLE)
        self.connection.execute("ATTACH ? AS template", (str(self.template),))
        self.connection.execute("INSERT INTO jobs SELECT * FROM template.jobs ORDER BY id")
        self.connection.execute("DETACH template")
        self.connection.execute(INDEX)
        if guarded:
            self.connection.executescript(CHILD)
            self.connection.execute("INSERT INTO replies SELECT id, id FROM jobs WHERE id % 10 = 0")
        self.connection.execute("ANALYZE")
        self.connection.execute("PRAGMA wal_checkpoint(truncate)")

    def execute(self, text: str) -> int:
        assert self.connection is not None
        return self.connection.execute(text).rowcount

    def written(self) -> int:
        return 0


# --- Measuring --------------------------------------------------------------------------------------------------------------------


def measure(database: Postgres | Sqlite, folder: Path, rounds: int) -> dict[str, Any]:
    plain, guarded = contract(folder, guarded=False), contract(folder, guarded=True)
    contenders: dict[str, tuple[bool, Callable[[], Result]]] = {
        "one_delete": (False, lambda: one_delete(database.execute)),
        "wane": (False, lambda: wane(database.url, plain)),
        "wane_guarded": (True, lambda: wane(database.url, guarded)),
        "copy_then_delete": (False, lambda: copy_then_delete(database.execute)),
    }
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, (needs_guard, contender) in contenders.items():
            database.fresh(guarded=needs_guard)
            before = database.written()
            count, seconds, longest, batches = contender()
            written = database.written() - before
            sample = {
                "rows": count,
                "seconds": round(seconds, 4),
                "rows_per_second": round(count / seconds),
                "longest_transaction_seconds": round(longest, 5),
                "wal_bytes_per_row": round(written / count, 1) if written else None,
            }
            if batches:
                tenth = max(1, len(batches) // 10)
                sample |= {
                    "batches": len(batches),
                    "first_tenth_ms": round(statistics.median(batches[:tenth]) * 1000, 3),
                    "last_tenth_ms": round(statistics.median(batches[-tenth - 1 : -1]) * 1000, 3),
                }
            samples[name].append(sample)
            print_line(f"{database.kind} round {number + 1} {name}: {sample}")
    return {"samples": samples, "ratios": ratios(samples)}


def ratios(samples: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    def median(name: str, field: str = "rows_per_second") -> float:
        return float(statistics.median(sample[field] for sample in samples[name]))

    found = {
        "wane / one_delete": median("wane") / median("one_delete"),
        "wane / copy_then_delete": median("wane") / median("copy_then_delete"),
        "wane_guarded / wane": median("wane_guarded") / median("wane"),
        "longest transaction, wane / one_delete": median("wane", "longest_transaction_seconds")
        / median("one_delete", "longest_transaction_seconds"),
        "last tenth of batches / first tenth": median("wane", "last_tenth_ms") / median("wane", "first_tenth_ms"),
    }
    if samples["wane"][0]["wal_bytes_per_row"]:
        found["WAL per row, wane / one_delete"] = median("wane", "wal_bytes_per_row") / median(
            "one_delete", "wal_bytes_per_row"
        )
    return {name: round(value, 3) for name, value in found.items()}


def foreground(database: Postgres, folder: Path, rounds: int, seconds: float = 6.0) -> dict[str, Any]:
    """The application's p99 with and without a sweep at the default pace beside it."""
    promised = contract(folder, guarded=False)
    samples: dict[str, list[float]] = {"alone": [], "beside": []}
    for _ in range(rounds):
        for name in samples:
            database.fresh(guarded=False)
            # A process of its own, as in life: threads of one process would wait for each other's interpreter.
            context = multiprocessing.get_context("spawn")
            stop = context.Event()
            process = context.Process(target=sweep_until, args=(database.url, promised, stop))
            if name == "beside":
                process.start()
                time.sleep(1.0)
            samples[name].append(p99_ms(database.url, seconds))
            stop.set()
            if name == "beside":
                process.join()
        print_line(f"foreground p99 ms: {samples}")
    ratio = statistics.median(samples["beside"]) / statistics.median(samples["alone"])
    return {"p99_ms": samples, "ratio": round(ratio, 3)}


def sweep_until(url: str, promised: Contract, stop: Any) -> None:
    with open_store(resolve_url(url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        Sweeper(store, promised, unattended=False, stop=stop).sweep(budget=NO_LIMIT)


def p99_ms(url: str, seconds: float, per_second: int = 400) -> float:
    """An application that inserts, claims and finishes jobs at a steady rate."""
    taken: list[float] = []
    with psycopg.connect(url, autocommit=True) as connection:
        start = time.perf_counter()
        number = 0
        while (due := start + number / per_second) < start + seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter()
            key = 10**9 + number
            connection.execute("INSERT INTO jobs VALUES (%s, 'queued', 1, 'x')", [key])
            connection.execute("UPDATE jobs SET status = 'done', finished_at_ms = %s WHERE id = %s", [10**14, key])
            taken.append(time.perf_counter() - began)
            number += 1
    return round(statistics.quantiles(taken, n=100)[98] * 1000, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    results: dict[str, Any] = {"rows": options.rows, "batch": BATCH, **machine()}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as place:
        folder = Path(place)
        if options.only != "postgres":
            results["sqlite"] = measure(Sqlite(folder, options.rows), folder, options.rounds)
        if options.only != "sqlite":
            with postgres_url() as url:
                database = Postgres(url, options.rows)
                results["postgres"] = measure(database, folder, options.rounds)
                results["postgres"]["foreground"] = foreground(database, folder, options.rounds)
        results["peak_memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    text = json.dumps(results, indent=2) + "\n"
    assert place not in text
    RESULTS.write_text(text)
    for kind in ("sqlite", "postgres"):
        for name, value in results.get(kind, {}).get("ratios", {}).items():
            print(f"| {kind} | {name} | {value} |")


if __name__ == "__main__":
    main()
