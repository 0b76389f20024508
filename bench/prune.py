"""How fast rows leave, beside the ways that people do it by hand.

    .venv/bin/python -m bench.prune [--rows 1000000] [--rounds 3] [--only sqlite|postgres] [--cpu] [--idle-rows 4000000]
        [--foreground-rows 8000000] [--foreground-seconds 20] [--foreground-rounds 7]

Every round gives each contender a fresh copy of the same table with the same index, and takes them in turns; the
yardstick is one DELETE of everything due, of rows that nothing refers to (guarded), or with the rows that refer to them
(followed). Batches are of 1,000 rows, or as large as fit into the default 5 ms, without pauses; then the default pace,
which pauses, on a database that has been idle for some seconds, beside `--fast`, by the clock, with --idle-rows; and an
application that works beside such a sweep, or without one, in turns: its latencies are counted only while the sweep
works, which ends the run if it has taken all of --foreground-rows before. With --cpu the other ratios are of CPU time,
client and server process together: on a busy machine, that counts. Every connection is new, and no commits wait for
the disk, as those of a sweep do not (SQLite: a write-ahead log with synchronous = NORMAL; PostgreSQL, on disk:
synchronous_commit = off). Raw samples go to bench/results/prune-sqlite.json and prune-postgres.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import ROOT, machine, postgres_url, print_line, with_cpu
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._contract.settings import Budget
from wane._db import open_store
from wane._db.postgres.store import PostgresStore
from wane._db.url import resolve_url
from wane._prune.gates import set_gate
from wane._prune.pace import FAST, Pace
from wane._prune.sweep import Sweeper
from wane.events import BatchTaken, Event

RESULTS = ROOT / "bench" / "results"
NOW = datetime.now(UTC)
BATCH = 1_000
ADAPTIVE = Pace(duty=1.0)
STEADY = Pace(target_seconds=1.0, duty=1.0, first_batch=BATCH, least_batch=BATCH, most_batch=BATCH)
NO_LIMIT = Budget(rows=10**9, seconds=10**6, batches=10**9)
DUE_DAYS = 50
"""Rows that are spread over so many days, from a hundred days ago on, are due unless their state is live."""
BEFORE_SECONDS = 1.0
"""How long an application works before anything is measured beside it."""
PER_SECOND = 400
IDLE_SECONDS = 3.0
"""How long a database is idle before it is swept as an idle one: longer than a sweep needs to detect that it is."""

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


def rows(count: int, days: int = 100) -> Iterator[tuple[int, str, int, str]]:
    """Yield rows evenly over so many days, from a hundred days ago on; four rows in five are in a terminal state.

    Of a hundred days, DUE_SHARE of all rows is due; of fifty, four rows in five.
    """
    first = int((NOW - timedelta(days=100)).timestamp() * 1000)
    for number in range(count):
        status = ("done", "done", "done", "failed", "queued")[number % 5]
        yield (
            number,
            status,
            first + number * days * 86_400_000 // count,
            f"payload of job {number}, with some bytes in it",
        )


SHAPES = {
    "plain": "",
    "guarded": 'unless = [{ referenced_by = "replies.job_id" }]',
    "followed": 'with = ["replies.job_id"]',
}


def contract(folder: Path, shape: str) -> Contract:
    file = folder / f"wane-{shape}.toml"
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
{SHAPES[shape]}
""")
    return load_contract(file)


def cutoff_ms() -> int:
    return int((NOW - timedelta(days=50)).timestamp() * 1000)


# --- Contenders: each takes everything due and returns (jobs, seconds, CPU seconds, seconds of each batch) ------------

Result = tuple[int, float, float, list[float]]


def wane(url: str, promised: Contract, pace: Pace = STEADY) -> Result:
    batches: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            batches.append(event.seconds)

    with open_store(resolve_url(url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        sweeper = Sweeper(store, promised, listener=listen, pace=pace, unattended=False)
        server = store._connection.info.backend_pid if isinstance(store, PostgresStore) else None
        seconds, cpu, sweep = with_cpu(server, lambda: sweeper.sweep(budget=NO_LIMIT))
    [swept] = sweep.rules
    assert swept.outcome == "done", swept
    return swept.counts["jobs"], seconds, cpu, batches


DUE = "status IN ('done', 'failed') AND finished_at_ms < {}"


def by_hand(database: Postgres | Sqlite, *statements: str) -> Result:
    """Run statements in one transaction; the last one deletes the jobs."""
    due = DUE.format(cutoff_ms())
    texts = ["BEGIN", *(one.format(due=due) for one in statements)]
    seconds, cpu, counts = with_cpu(
        database.server, lambda: ([database.execute(one) for one in texts], database.execute("COMMIT"))[0]
    )
    return counts[-1], seconds, cpu, [seconds]


# How `airflow db clean` works.
COPY_THEN_DELETE = (
    "CREATE TABLE gone AS SELECT * FROM jobs WHERE {due}",
    "DELETE FROM jobs WHERE id IN (SELECT id FROM gone)",
)
ONE_DELETE = "DELETE FROM jobs WHERE {due}"
ONE_GUARDED = ONE_DELETE + " AND NOT EXISTS (SELECT 1 FROM replies WHERE replies.job_id = jobs.id)"
FOLLOWERS_FIRST = "DELETE FROM replies WHERE job_id IN (SELECT id FROM jobs WHERE {due})"


# --- The databases ----------------------------------------------------------------------------------------------------


# A tenth of what is due is still referred to; or half of it has one row that leaves with it.
REPLIES = {
    "guarded": "INSERT INTO replies SELECT id, id FROM jobs WHERE id % 10 = 0",
    "followed": "INSERT INTO replies SELECT id, id FROM jobs WHERE id % 2 = 0",
}


class Postgres:
    kind = "postgres"

    def __init__(self, url: str, count: int, days: int = 100) -> None:
        self.url = url
        self.connect()
        self.connection.execute("CREATE SCHEMA IF NOT EXISTS template")
        self.connection.execute("DROP TABLE IF EXISTS template.jobs")
        self.connection.execute(TABLE.replace("jobs", "template.jobs").encode())
        with self.connection.cursor() as cursor, cursor.copy(b"COPY template.jobs FROM STDIN") as copy:
            for row in rows(count, days):
                copy.write_row(row)
        with open_store(resolve_url(url)) as store:
            store.migrate()  # Not in the log of what is measured.

    def connect(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.connection.execute("SET synchronous_commit = off")

    @property
    def server(self) -> int:
        return self.connection.info.backend_pid

    def fresh(self, shape: str) -> None:
        for text in ("DROP TABLE IF EXISTS gone, replies, jobs", TABLE):
            self.connection.execute(text.encode())
        self.connection.execute("INSERT INTO jobs SELECT * FROM template.jobs ORDER BY id")
        self.connection.execute(INDEX)
        if shape != "plain":
            self.connection.execute(CHILD.encode())
            self.connection.execute(REPLIES[shape])
        # Rows that are old are visible to all in every page, as far as the server knows; the first VACUUM only learns
        # it.
        for text in ("CHECKPOINT", "VACUUM ANALYZE", "VACUUM", "CHECKPOINT"):
            self.connection.execute(text.encode())
        # A session that has read the table before saves the first access to each of its pages, which Wane's has to
        # make.
        self.connection.close()
        self.connect()

    def execute(self, text: str) -> int:
        return self.connection.execute(text.encode()).rowcount

    def written(self) -> int:
        """Return the bytes of write-ahead log so far, with those in the server's buffers: no commits wait for the
        disk."""
        [(position,)] = self.connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchall()
        return int(position)


class Sqlite:
    kind = "sqlite"
    server = None

    def __init__(self, folder: Path, count: int, days: int = 100) -> None:
        self.path = folder / "bench.db"
        self.template = folder / "template.db"
        self.url = f"sqlite:///{self.path}"
        self.template.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.template)) as connection, connection:
            connection.execute(TABLE)
            connection.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?)", rows(count, days))
        self.connection: sqlite3.Connection | None = None

    def fresh(self, shape: str) -> None:
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
        if shape != "plain":
            self.connection.executescript(CHILD)
            self.connection.execute(REPLIES[shape])
        self.connection.execute("ANALYZE")
        self.connection.execute("PRAGMA wal_checkpoint(truncate)")

    def execute(self, text: str) -> int:
        assert self.connection is not None
        return self.connection.execute(text).rowcount

    def written(self) -> int:
        return 0


# --- Measuring --------------------------------------------------------------------------------------------------------


def measure(database: Postgres | Sqlite, folder: Path, rounds: int, measure_cpu: bool) -> dict[str, Any]:
    promised = {shape: contract(folder, shape) for shape in SHAPES}
    contenders: dict[str, tuple[str, Callable[[], Result]]] = {
        "one_delete": ("plain", lambda: by_hand(database, ONE_DELETE)),
        "wane": ("plain", lambda: wane(database.url, promised["plain"])),
        "wane_adaptive": ("plain", lambda: wane(database.url, promised["plain"], ADAPTIVE)),
        "copy_then_delete": ("plain", lambda: by_hand(database, *COPY_THEN_DELETE)),
        "one_guarded_delete": ("guarded", lambda: by_hand(database, ONE_GUARDED)),
        "wane_guarded": ("guarded", lambda: wane(database.url, promised["guarded"])),
        "one_followed_delete": ("followed", lambda: by_hand(database, FOLLOWERS_FIRST, ONE_DELETE)),
        "wane_followed": ("followed", lambda: wane(database.url, promised["followed"])),
    }
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, (shape, contender) in contenders.items():
            database.fresh(shape)
            before = database.written()
            count, seconds, cpu, batches = contender()
            written = database.written() - before
            tenth = max(1, len(batches) // 10)
            sample = {
                "rows": count,
                "seconds": round(seconds, 4),
                "cpu_seconds": round(cpu, 4),
                "longest_transaction_seconds": round(max(batches), 5),
                "wal_bytes_per_row": round(written / count, 1) if written else None,
                "batches": len(batches),
                "first_tenth_ms": round(statistics.median(batches[:tenth]) * 1000, 3),
                "last_tenth_ms": round(statistics.median(batches[-tenth - 1 : -1] or batches) * 1000, 3),
            }
            samples[name].append(sample)
            print_line(f"{database.kind} round {number + 1} {name}: {sample}")
    return {"samples": samples, "ratios": ratios(samples, "cpu_seconds" if measure_cpu else "seconds")}


BESIDE = (
    ("wane", "one_delete"),
    ("wane_adaptive", "one_delete"),
    ("wane", "copy_then_delete"),
    ("wane_guarded", "one_guarded_delete"),
    ("wane_followed", "one_followed_delete"),
)


def ratios(samples: dict[str, list[dict[str, Any]]], measured: str) -> dict[str, float]:
    def median(name: str, field: str = measured) -> float:
        return float(statistics.median(sample[field] for sample in samples[name]))

    found = {f"{ours} / {theirs}": median(theirs) / median(ours) for ours, theirs in BESIDE}
    longest = "longest_transaction_seconds"
    found["longest transaction, wane / one_delete"] = median("wane", longest) / median("one_delete", longest)
    found["last tenth of batches / first tenth"] = median("wane", "last_tenth_ms") / median("wane", "first_tenth_ms")
    if samples["wane"][0]["wal_bytes_per_row"]:
        written = "wal_bytes_per_row"
        found["WAL per row, wane / one_delete"] = median("wane", written) / median("one_delete", written)
    return {name: round(value, 3) for name, value in found.items()}


def on_idle_database(database: Postgres | Sqlite, folder: Path, rounds: int, shape: str) -> dict[str, Any]:
    """Return rows per second at the default pace, which pauses, and at that of `--fast`; both by the clock."""
    promised = contract(folder, shape)
    samples: dict[str, list[float]] = {"default": [], "fast": []}
    for _ in range(rounds):
        for name, pace in (("default", Pace()), ("fast", FAST)):
            database.fresh(shape)
            with open_store(resolve_url(database.url), promised.store) as store:
                store.migrate()
                set_gate(store, None, promised.sweep, enabled=True)
                sweeper = Sweeper(store, promised, pace=pace, unattended=False)
                time.sleep(IDLE_SECONDS)
                [swept] = sweeper.sweep(budget=replace(NO_LIMIT, seconds=60)).rules
            samples[name].append(round(swept.rows / swept.seconds, 1))
        print_line(f"{database.kind} {shape} rows per second on an idle database: {samples}")
    ratio = statistics.median(samples["default"]) / statistics.median(samples["fast"])
    return {"rows_per_second": samples, "ratio": round(ratio, 3)}


def idle(database: Postgres | Sqlite, folder: Path, rounds: int) -> dict[str, Any]:
    return {shape: on_idle_database(database, folder, rounds, shape) for shape in ("plain", "followed")}


def foreground(database: Postgres | Sqlite, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the application's p99 with and without a sweep at the default pace beside it, in turns."""
    promised = contract(folder, "plain")
    undisturbed: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    for number in range(options.foreground_rounds):
        # Each is first in every other round.
        for samples in (undisturbed, beside) if number % 2 else (beside, undisturbed):
            database.fresh("plain")
            if samples is undisturbed:
                latencies = application(database.url, options.foreground_seconds)
                samples.append(percentiles(latencies))
            else:
                samples.append(beside_a_sweep(database.url, promised, options.foreground_seconds))
        print_line(f"{database.kind} foreground, undisturbed: {undisturbed[-1]}, beside: {beside[-1]}")

    def median(samples: list[dict[str, Any]]) -> float:
        return float(statistics.median(sample["p99_ms"] for sample in samples))

    return {
        "rows": options.foreground_rows,
        "seconds": options.foreground_seconds,
        "samples": {"undisturbed": undisturbed, "beside": beside},
        "ratio": round(median(beside) / median(undisturbed), 3),
    }


def beside_a_sweep(url: str, promised: Contract, seconds: float) -> dict[str, Any]:
    """Return what the application measures while a sweep of another process works all the time.

    A process of its own, as in life: threads of one process would wait for each other's interpreter. The application
    works already when the sweep begins.
    """
    context = multiprocessing.get_context("spawn")
    ready, begin, stop, answers = context.Event(), context.Event(), context.Event(), context.SimpleQueue()
    process = context.Process(target=sweep_until, args=(url, promised, ready, begin, stop, answers))
    process.start()
    try:
        ready.wait()
        latencies = application(url, seconds, begin.set)
    finally:
        stop.set()
        begin.set()
        outcome, taken, batches = answers.get()
        process.join()
    if outcome != "stopped":
        raise SystemExit(f"the sweep was not there all the time ({outcome}, {taken} rows): increase --foreground-rows")
    return {**percentiles(latencies), "swept_rows": taken, "batches": batches}


def sweep_until(url: str, promised: Contract, ready: Any, begin: Any, stop: Any, answers: Any) -> None:
    with open_store(resolve_url(url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        sweeper = Sweeper(store, promised, unattended=False, stop=stop)
        ready.set()
        begin.wait()
        [swept] = sweeper.sweep(budget=NO_LIMIT).rules
        answers.put((swept.outcome.value, swept.rows, swept.batches))


def connected(url: str) -> tuple[Any, str]:
    """Return a connection of an application, and how it writes a placeholder."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
        connection.execute("PRAGMA synchronous = normal")
        return connection, "?"
    return psycopg.connect(url, autocommit=True), "%s"


def application(url: str, seconds: float, begin: Callable[[], None] = lambda: None) -> list[float]:
    """Insert, claim and finish jobs at a steady rate, as an application does; return the seconds that each took.

    They are counted from `begin` on, after a time in which it works already.
    """
    taken: list[float] = []
    connection, mark = connected(url)
    with closing(connection):
        start = time.perf_counter()
        until: float | None = None
        for number in itertools.count():
            time.sleep(max(0.0, start + number / PER_SECOND - time.perf_counter()))
            if until is None and time.perf_counter() > start + BEFORE_SECONDS:
                begin()
                taken.clear()
                until = time.perf_counter() + seconds
            began = time.perf_counter()
            if until is not None and began > until:
                break
            key = 10**9 + number
            connection.execute(f"INSERT INTO jobs VALUES ({mark}, 'queued', 1, 'x')", [key])
            connection.execute(
                f"UPDATE jobs SET status = 'done', finished_at_ms = {mark} WHERE id = {mark}", [10**14, key]
            )
            taken.append(time.perf_counter() - began)
    return taken


def percentiles(latencies: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(latencies, n=1000)
    found = {f"p{name}_ms": round(cuts[at - 1] * 1000, 3) for name, at in (("50", 500), ("99", 990), ("99.9", 999))}
    longest = round(max(latencies) * 1000, 3)
    return {"jobs": len(latencies), **found, "longest_ms": longest, "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--idle-rows", type=int, default=4_000_000, help="As many that --fast takes seconds.")
    parser.add_argument("--foreground-rows", type=int, default=8_000_000, help="As many that no sweep ends too early.")
    parser.add_argument("--foreground-seconds", type=float, default=20.0)
    parser.add_argument("--foreground-rounds", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--cpu", action="store_true", help="Ratios of CPU time, of client and server together.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as place:
        folder = Path(place)
        if options.only != "postgres":
            file = Sqlite(folder, options.rows)
            found = measure(file, folder, options.rounds, options.cpu)
            found["foreground"] = foreground(Sqlite(folder, options.foreground_rows, DUE_DAYS), folder, options)
            found["idle"] = idle(Sqlite(folder, options.idle_rows), folder, options.rounds)
            save("sqlite", options, found)
        if options.only != "sqlite":
            with postgres_url() as url:
                database = Postgres(url, options.rows)
                found = measure(database, folder, options.rounds, options.cpu)
                found["foreground"] = foreground(Postgres(url, options.foreground_rows, DUE_DAYS), folder, options)
                found["idle"] = idle(Postgres(url, options.idle_rows), folder, options.rounds)
                save("postgres", options, found)


def save(store: str, options: argparse.Namespace, found: dict[str, Any]) -> None:
    results = {
        "rows": options.rows,
        "idle_rows": options.idle_rows,
        "batch": BATCH,
        "ratios_of": "CPU time" if options.cpu else "time",
        **machine(),
        **found,
    }
    results["peak_memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    (RESULTS / f"prune-{store}.json").write_text(json.dumps(results, indent=2) + "\n")
    for name, value in found["ratios"].items():
        print(f"| {store} | {name} | {value} |")


if __name__ == "__main__":
    main()
