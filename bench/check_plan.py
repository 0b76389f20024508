"""How long `check --cover` and `plan` take on 100 tables with five million rows in one of them.

    .venv/bin/python -m bench.check_plan [--rows 5000000] [--rounds 7] [--only sqlite|postgres]

The yardstick is one sequential scan of the large table (`count(*)` that uses no index), taken in turns with what is
measured, so that a busy machine slows both. PostgreSQL is one of its own, durable and on disk, or the one that
WANE_BENCH_POSTGRES_URL names, in a schema that is dropped afterwards. Raw samples and the query plans go to
bench/results/check_plan.json.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import machine, measured, postgres_url, print_line, timed, version_of
from wane._check.cover import cover
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import Store, open_store
from wane._db.postgres.store import PostgresStore
from wane._db.url import resolve_url
from wane._findings import Finding, Severity
from wane._prune.build_plan import build_plan
from wane._prune.plan import Plan
from wane._rules.queries import queries_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "check_plan.json"

Measure = Callable[[str, str, Contract, int, bool], dict[str, Any]]
"""Measures a store: its name, its URL, the contract, rounds, and whether CPU time is measured."""
SMALL_TABLES = 99
SMALL_ROWS = 1_000
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPAN_SECONDS = 100 * 86_400
"""The rows were written evenly over the last hundred days; the rules below keep 7 and 30 of them."""

BIG = """
CREATE TABLE big (
  id bigint NOT NULL PRIMARY KEY, status text NOT NULL, created_at_ms bigint NOT NULL, finished_at_ms bigint, payload text NOT NULL
)
"""
BIG_INDEXES = (
    "CREATE INDEX big_status_finished ON big (status, finished_at_ms, id)",
    "CREATE INDEX big_created ON big (created_at_ms, id)",
)
STATES = (
    "queued",
    "running",
    "failed",
    "succeeded",
    "succeeded",
    "succeeded",
    "succeeded",
    "cancelled",
    "succeeded",
    "succeeded",
)


# --- The databases ----------------------------------------------------------------------------------------------------


def big_rows(rows: int) -> Iterator[tuple[int, str, int, int | None, str]]:
    first = int(NOW.timestamp() * 1000) - SPAN_SECONDS * 1000
    for number in range(rows):
        created = first + number * SPAN_SECONDS * 1000 // rows
        status = STATES[number * 7919 % 10]
        finished = None if status in ("queued", "running") else created + 30_000
        yield number, status, created, finished, f"payload of message {number}: nothing of interest, but some bytes"


def small_rows(table: int) -> Iterator[tuple[int, int]]:
    expires = int(NOW.timestamp() * 1000)
    for number in range(SMALL_ROWS):
        yield number, expires + (number - SMALL_ROWS // 2) * 60_000 + table


def build_sqlite(path: Path, rows: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode = wal; PRAGMA synchronous = off;")
        with connection:
            connection.execute(BIG)
            connection.executemany("INSERT INTO big VALUES (?, ?, ?, ?, ?)", big_rows(rows))
        for statement in BIG_INDEXES:
            connection.execute(statement)
        with connection:
            for number in range(SMALL_TABLES):
                for statement in small_ddl(number):
                    connection.execute(statement)
                connection.executemany(f"INSERT INTO small_{number:02} VALUES (?, ?)", small_rows(number))
        connection.execute("PRAGMA wal_checkpoint(truncate)")


def build_postgres(url: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BIG)
        copy_rows(connection, "big", big_rows(rows))
        for statement in BIG_INDEXES:
            connection.execute(statement.encode())
        for number in range(SMALL_TABLES):
            for statement in small_ddl(number):
                connection.execute(statement.encode())
            copy_rows(connection, f"small_{number:02}", small_rows(number))
        connection.execute("VACUUM ANALYZE")


def copy_rows(connection: psycopg.Connection[Any], table: str, rows: Iterator[tuple[Any, ...]]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def small_ddl(number: int) -> tuple[str, str]:
    name = f"small_{number:02}"
    return (
        f"CREATE TABLE {name} (id bigint NOT NULL PRIMARY KEY, expires_at_ms bigint NOT NULL)",
        f"CREATE INDEX {name}_expires ON {name} (expires_at_ms, id)",
    )


def contract(directory: Path) -> Contract:
    small = "".join(
        f"""
[table.small_{number:02}]
scheduler = "s"
why = "A benchmark."
[table.small_{number:02}.rule.expired]
expires = {{ column = "expires_at_ms", unit = "ms" }}
"""
        for number in range(SMALL_TABLES)
    )
    file = directory / "wane.toml"
    file.write_text(f"""
strict = true
[scheduler]
s = {{ every = "5m" }}
[table.big]
scheduler = "s"
why = "A benchmark."
state = "status"
live = ["queued", "running"]
time = {{ column = "finished_at_ms", unit = "ms" }}
[table.big.rule.failed]
when = ["failed"]
keep = "30d"
[table.big.rule.settled]
when = ["succeeded", "cancelled"]
keep = "7d"
{small}""")
    return load_contract(file)


# --- Measuring --------------------------------------------------------------------------------------------------------


def server_of(store: Store) -> int | None:
    return store._connection.info.backend_pid if isinstance(store, PostgresStore) else None


def scan_sqlite(url: str) -> tuple[Callable[[], int], str, None]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    text = "SELECT count(*) FROM big NOT INDEXED WHERE length(payload) >= 0"
    [plan] = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    return lambda: int(connection.execute(text).fetchone()[0]), plan, None


def scan_postgres(url: str) -> tuple[Callable[[], int], str, int]:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off")
    connection.execute("SET max_parallel_workers_per_gather = 0")
    text = "SELECT count(*) FROM big"
    plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {text}".encode()))
    return lambda: int(connection.execute(text.encode()).fetchall()[0][0]), plan, connection.info.backend_pid


def measure(kind: str, url: str, promised: Contract, rounds: int, cpu: bool) -> dict[str, Any]:
    scan, scan_plan, scanning = (scan_sqlite if kind == "sqlite" else scan_postgres)(url)
    samples: dict[str, list[float]] = {"scan": [], "cover": [], "plan": []}
    findings: list[Finding] = []
    with open_store(resolve_url(url), promised.store, read_only=True) as store:
        version, server = version_of(store), server_of(store)
        for number in range(rounds + 1):
            taken = {
                "scan": measured(scanning, scan, cpu),
                "cover": measured(server, lambda: cover(store, promised), cpu),
                "plan": measured(server, lambda: build_plan(store, promised, now=NOW), cpu),
            }
            if number:  # The first round warms caches and is not counted.
                for name, (seconds, _) in taken.items():
                    samples[name].append(round(seconds, 4))
            print_line(
                f"{kind} round {number}: "
                + ", ".join(f"{name} {seconds:.2f} s" for name, (seconds, _) in taken.items())
            )
            findings = taken["cover"][1]
            require_honest(findings, taken["plan"][1])
        explained = build_plan(store, promised, now=NOW, only=["big"], explain=True)
        reads = read_plans(store, promised)
    ratios = {
        name: round(statistics.median(a / b for a, b in zip(samples[name], samples["scan"], strict=True)), 3)
        for name in ("cover", "plan")
    }
    return {
        "version": version,
        "seconds": samples,
        "median_seconds": {name: round(statistics.median(values), 3) for name, values in samples.items()},
        "ratio_to_scan": ratios,
        "notes": [f"{one.code} {one.path}" for one in findings],
        "steps_of_big": [
            {
                "rule": step.rule,
                "due": step.due.rows,
                "exactness": step.due.exactness.value,
                "query_plans": {one.purpose: one.query_plan for one in step.statements},
            }
            for step in explained.steps
            if step.due is not None
        ],
        "plan_of_scan": scan_plan,
        "plans_of_reads": reads,
    }


def require_honest(findings: list[Finding], plan: Plan) -> None:
    """Require that the check found something: what is fast because it found nothing is not fast."""
    assert not [one for one in findings if one.severity is not Severity.NOTE], findings
    assert len(plan.steps) == SMALL_TABLES + 2
    assert not plan.problems
    assert all(step.due is not None and step.due.rows > 0 for step in plan.steps)


def read_plans(store: Store, promised: Contract) -> dict[str, str]:
    """Return how the database answers each read about the large table."""
    from wane._rules.selection import bind_contract

    selections, _ = bind_contract(promised, store.reflect(), store.types)
    plans: dict[str, str] = {}
    for selection in selections:
        if selection.table.name != "big":
            continue
        reads = {
            "count_due": queries_of(store).count_due(selection, NOW),
            "oldest_due": queries_of(store).edge_due(selection, NOW, newest=False),
            "newest_due": queries_of(store).edge_due(selection, NOW, newest=True),
            "never_due": queries_of(store).count_never_due(selection, 10_001),
        }
        plans |= {
            f"{selection.rule.name}.{name}": store.planner.explain(statement) for name, statement in reads.items()
        }
    return plans


def measure_stores(description: str | None, measure: Measure) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Build the database of each store that the command line names, and measure it; return its options and results."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--cpu", action="store_true", help="CPU time instead, of client and server together.")
    options = parser.parse_args()
    results: dict[str, Any] = {
        "rows": options.rows,
        "tables": SMALL_TABLES + 1,
        "seconds_of": "CPU time" if options.cpu else "time",
        **machine(),
    }
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as folder:
        promised = contract(Path(folder))
        if options.only != "postgres":
            path = Path(folder) / "bench.db"
            seconds, _ = timed(lambda: build_sqlite(path, options.rows))
            print_line(f"sqlite built in {timedelta(seconds=round(seconds))}")
            results["sqlite"] = measure("sqlite", f"sqlite:///{path}", promised, options.rounds, options.cpu)
            path.unlink()
        if options.only != "sqlite":
            with postgres_url() as url:
                seconds, _ = timed(lambda: build_postgres(url, options.rows))
                print_line(f"postgres built in {timedelta(seconds=round(seconds))}")
                results["postgres"] = measure("postgres", url, promised, options.rounds, options.cpu)
    assert folder not in json.dumps(results)
    return options, results


def main() -> None:
    _, results = measure_stores(__doc__, measure)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    for kind in ("sqlite", "postgres"):
        if kind in results:
            medians, ratios = results[kind]["median_seconds"], results[kind]["ratio_to_scan"]
            print(
                f"| {results[kind]['version']} | {medians['scan']:.2f} s | {medians['cover']:.2f} s | {ratios['cover']:.2f} "
                f"| {medians['plan']:.2f} s | {ratios['plan']:.2f} |"
            )


if __name__ == "__main__":
    main()
