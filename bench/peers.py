"""How fast rows leave their own tables, beside the pruning of two job and webhook libraries.

    python3.12 -m venv PEERS && PEERS/bin/pip install -e '.[postgres]' -r bench/peers.txt
    PEERS/bin/python -m bench.peers [--rows 300000] [--rounds 3] [--only knockerlite|procrastinate] [--cpu]

knockerlite's prune_events on its own SQLite file, and procrastinate's delete_old_jobs on its own PostgreSQL schema,
each beside Wane on a copy of the same tables with the same rows, the same index and the same durability (knockerlite
sets synchronous = NORMAL; on PostgreSQL neither waits for the disk), in turns, with every connection open. The
PostgreSQL server is started for the run, or named by WANE_BENCH_POSTGRES_URL. Raw samples go to
bench/results/peers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import ROOT, URL_VARIABLE, describe_server, machine, measured, postgres_url, print_line, with_cpu
from bench.prune import BATCH, NO_LIMIT, STEADY
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.postgres.store import PostgresStore
from wane._db.sqlite.store import SqliteStore
from wane._db.url import resolve_url
from wane._prune.gates import set_gate
from wane._prune.sweep import Sweeper
from wane.events import BatchTaken, Event

RESULTS = ROOT / "bench" / "results" / "peers.json"
NOW = datetime.now(UTC)

WEBHOOKS = """
[scheduler]
s = { every = "5m" }
[table.knocker_events]
scheduler = "s"
why = "A benchmark."
state = "status"
live = ["received", "processing", "failed", "dead"]
time = { column = "received_at", unit = "s" }
[table.knocker_events.rule.settled]
when = ["handled", "ignored"]
keep = "7d"
with = ["knocker_attempts.event_id", "knocker_deliveries.event_id"]
"""

JOBS = """
[scheduler]
s = { every = "5m" }
[table.procrastinate_jobs]
scheduler = "s"
why = "A benchmark."
state = "status"
live = ["todo", "doing"]
time = "scheduled_at"
[table.procrastinate_jobs.rule.old]
when = ["succeeded", "failed", "cancelled", "aborted"]
keep = "7d"
with = ["procrastinate_events.job_id"]
unless = [{ referenced_by = "procrastinate_periodic_defers.job_id" }]
"""


KNOCKER_PRAGMAS = "PRAGMA wal_autocheckpoint = 10000; PRAGMA temp_store = memory; PRAGMA secure_delete = 0"
"""What knockerlite sets and Wane leaves to the application, or to itself: both have 32 MB of cache."""


def contract(folder: Path, name: str, text: str) -> Contract:
    path = folder / name
    path.write_text(text)
    return load_contract(path)


# --- knockerlite ------------------------------------------------------------------------------------------------------


def knocker_template(path: Path, rows: int) -> None:
    import knocker  # type: ignore[import-not-found]

    made = knocker.open(str(path))
    del made
    now = int(NOW.timestamp())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO knocker_endpoints (id, name, path) VALUES (1, 'bench', '/bench')")
        connection.executemany(
            "INSERT INTO knocker_events (id, endpoint_id, received_at, method, headers_json, body_blob, query_json, status)"
            " VALUES (?, 1, ?, 'POST', '{}', ?, '{}', ?)",
            (
                (
                    number,
                    now - 30 * 86_400 + number * 20 * 86_400 // rows,
                    b"some bytes of a body",
                    ("handled", "ignored")[number % 2],
                )
                for number in range(1, rows + 1)
            ),
        )
        connection.execute(
            "INSERT INTO knocker_attempts (event_id, attempted_at, outcome, duration_ms) SELECT id, received_at, 'handled', 5 FROM knocker_events"
        )
        connection.execute(
            "INSERT INTO knocker_deliveries (endpoint_id, event_id, received_at, method, headers_json, body_blob, query_json)"
            " SELECT 1, id, received_at, 'POST', '{}', body_blob, '{}' FROM knocker_events"
        )
        # The index that Wane asks for; both get it.
        connection.execute("CREATE INDEX bench_age ON knocker_events (status, received_at, id)")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ANALYZE")
        connection.execute("PRAGMA wal_checkpoint(truncate)")


def knocker_prunes(path: Path, cpu: bool) -> tuple[float, int]:
    import knocker

    peer = knocker.open(str(path))
    return measured(None, partial(all_of_knocker, peer), cpu)


def all_of_knocker(peer: Any) -> int:
    older_than = int((NOW - timedelta(days=7)).timestamp())
    total = 0
    while True:
        gone = peer.prune_events(statuses=["handled", "ignored"], older_than=older_than, limit=BATCH)
        total += int(gone.events_pruned)
        if gone.events_pruned == 0:
            return total


def wane_prunes(path: Path, promised: Contract, cpu: bool) -> tuple[float, int]:
    with open_store(resolve_url(f"sqlite:///{path}"), promised.store) as store:
        assert isinstance(store, SqliteStore)
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        store._connection.executescript(KNOCKER_PRAGMAS)
        # A batch counts followers too: a thousand events, an attempt and a delivery each.
        pace = replace(STEADY, first_batch=3 * BATCH, least_batch=3 * BATCH, most_batch=3 * BATCH)
        sweeper = Sweeper(store, promised, pace=pace, unattended=False)
        seconds, sweep = measured(None, lambda: sweeper.sweep(budget=NO_LIMIT), cpu)
    return seconds, sweep.rules[0].counts["knocker_events"]


def measure_knocker(folder: Path, rows: int, rounds: int, cpu: bool) -> dict[str, Any]:
    template = folder / "template.db"
    knocker_template(template, rows)
    promised = contract(folder, "webhooks.toml", WEBHOOKS)
    samples: dict[str, list[float]] = {"knockerlite": [], "wane": []}
    for number in range(rounds):
        for name in samples:
            path = folder / f"{name}.db"
            shutil.copy(template, path)
            theirs, ours = partial(knocker_prunes, path), partial(wane_prunes, path, promised)
            seconds, events = (theirs if name == "knockerlite" else ours)(cpu)
            assert events == rows, (name, events)
            samples[name].append(round(seconds, 4))
            for file in folder.glob(f"{name}.db*"):
                file.unlink()
        print_line(f"round {number + 1}: {samples}")
    ratio = statistics.median(samples["knockerlite"]) / statistics.median(samples["wane"])
    return {"events": rows, "limit": BATCH, "seconds": samples, "wane / knockerlite": round(ratio, 3)}


# --- procrastinate ----------------------------------------------------------------------------------------------------


def procrastinate_fresh(connection: psycopg.Connection[Any], rows: int) -> None:
    from importlib.resources import files

    connection.execute("DROP SCHEMA IF EXISTS peers CASCADE; CREATE SCHEMA peers; SET search_path = peers")
    connection.execute(files("procrastinate.sql").joinpath("schema.sql").read_text().encode())
    connection.execute("SET session_replication_role = replica")
    connection.execute(
        "INSERT INTO procrastinate_jobs (id, queue_name, task_name, status, scheduled_at)"
        " SELECT n, 'q', 'task', 'succeeded', now() - interval '30 days' + n * (interval '20 days' / %s)"
        " FROM generate_series(1, %s) AS n",
        [rows, rows],
    )
    connection.execute(
        "INSERT INTO procrastinate_events (job_id, type, at) SELECT id, kind, scheduled_at FROM procrastinate_jobs,"
        " unnest(ARRAY['deferred', 'succeeded']::procrastinate_job_event_type[]) AS kind"
    )
    connection.execute("SET session_replication_role = origin")
    # What Wane asks of a trigger that uses bare names; both pay for it.
    trigger = "procrastinate_unlink_periodic_defers_v1()"
    connection.execute(f"ALTER FUNCTION {trigger} SET search_path = peers, pg_temp".encode())
    connection.execute("CREATE INDEX bench_age ON procrastinate_jobs (status, scheduled_at, id)")
    connection.execute("VACUUM ANALYZE procrastinate_jobs; ")
    connection.execute("VACUUM ANALYZE procrastinate_events")
    connection.execute("CHECKPOINT")


def procrastinate_deletes(connection: psycopg.Connection[Any]) -> tuple[int, float, float, float]:
    from procrastinate.sql import queries  # type: ignore[import-not-found]

    statuses = ["succeeded", "failed", "cancelled", "aborted"]
    delete = partial(
        connection.execute,
        queries["delete_old_jobs"].encode(),
        {"statuses": statuses, "queue": None, "nb_hours": 7 * 24},
    )
    seconds, cpu, done = with_cpu(connection.info.backend_pid, delete)
    return done.rowcount, seconds, cpu, seconds


def wane_deletes(url: str, promised: Contract) -> tuple[int, float, float, float]:
    longest = 0.0

    def listen(event: Event) -> None:
        nonlocal longest
        if isinstance(event, BatchTaken):
            longest = max(longest, event.seconds)

    with open_store(resolve_url(url), promised.store) as store:
        store.migrate()
        set_gate(store, None, promised.sweep, enabled=True)
        sweeper = Sweeper(store, promised, listener=listen, pace=STEADY, unattended=False)
        assert isinstance(store, PostgresStore)
        seconds, cpu, sweep = with_cpu(store._connection.info.backend_pid, lambda: sweeper.sweep(budget=NO_LIMIT))
    [swept] = sweep.rules
    assert swept.outcome == "done", swept
    return swept.counts["procrastinate_jobs"], seconds, cpu, longest


def measure_procrastinate(folder: Path, url: str, rows: int, rounds: int, cpu: bool) -> dict[str, Any]:
    promised = contract(folder, "jobs.toml", JOBS)
    peers_url = url + ("&" if "?" in url else "?") + "options=-csearch_path%3Dpeers"
    samples: dict[str, list[dict[str, float]]] = {"procrastinate": [], "wane": []}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for number in range(rounds):
            for name in samples:
                procrastinate_fresh(connection, rows)
                theirs, ours = partial(procrastinate_deletes, connection), partial(wane_deletes, peers_url, promised)
                jobs, seconds, spent, longest = (theirs if name == "procrastinate" else ours)()
                assert jobs == rows, (name, jobs)
                taken = {"seconds": seconds, "cpu_seconds": spent, "longest_transaction_seconds": longest}
                samples[name].append({field: round(value, 4) for field, value in taken.items()})
            print_line(f"round {number + 1}: {samples}")
        connection.execute("DROP SCHEMA peers CASCADE")

    def median(name: str, field: str) -> float:
        return float(statistics.median(sample[field] for sample in samples[name]))

    measure = "cpu_seconds" if cpu else "seconds"
    return {
        "jobs": rows,
        "events": 2 * rows,
        "samples": samples,
        "wane / procrastinate": round(median("procrastinate", measure) / median("wane", measure), 3),
        "longest transaction, wane / procrastinate": round(
            median("wane", "longest_transaction_seconds") / median("procrastinate", "longest_transaction_seconds"), 4
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["knockerlite", "procrastinate"])
    parser.add_argument("--cpu", action="store_true", help="Ratios of CPU time, of client and server together.")
    options = parser.parse_args()
    names = ("knockerlite", "procrastinate")
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if options.only else {}
    results |= {**machine(), "ratios_of": "CPU time" if options.cpu else "time"}
    results["versions"] = {name: version(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as place:
        folder = Path(place)
        if options.only != "procrastinate":
            results["knockerlite"] = measure_knocker(folder, options.rows, options.rounds, options.cpu)
        if options.only != "knockerlite":
            given = os.environ.get(URL_VARIABLE)
            with nullcontext(given) if given else postgres_url() as url:
                describe_server(url)
                results["procrastinate"] = measure_procrastinate(folder, url, options.rows, options.rounds, options.cpu)
    text = json.dumps(results, indent=2) + "\n"
    assert place not in text
    RESULTS.write_text(text)
    for peer in names:
        for name, value in results.get(peer, {}).items():
            if "/" in name:
                print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
