"""Partitions: converting a live table, and letting a month go, beside doing it by hand and beside pg_partman, from one
run.

    python -m bench.partition [--rows 500000] [--rounds 3]

On the machine's own PostgreSQL if there is one, durable and on disk; pg_partman is measured if that server has it
(Debian: postgresql-15-partman).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from bench.measuring import ROOT, describe_server, machine, print_line, timed
from wane._keeper import Keeper, open_keeper
from wane._prune.pace import FAST

MONTHS = 5
"""The oldest of them leaves."""
CONTRACT = """
[scheduler]
s = { every = "1h" }
[table.event]
scheduler = "s"
why = "A benchmark."
time = "created_at"
[table.event.rule.old]
keep = "1d"
budget = { rows = 100000000, seconds = 3600, batches = 1000000 }
[sweep]
first_fuse = 1.0
fuse = 1.0
[partition.event]
time = "created_at"
keep = "1d"
quarantine = "1s"
"""
COLUMNS = "id bigint NOT NULL, body text NOT NULL, created_at timestamptz NOT NULL DEFAULT now()"
FILL = """
INSERT INTO {table} SELECT g, repeat('x', 200), {start} + (g % 28) * interval '1 day' FROM generate_series({first}, {last}) AS g
"""


@contextmanager
def server() -> Iterator[str]:
    sys.path.insert(0, str(ROOT / "tests"))
    from servers import PostgresServer, packaged_installation, system_installation

    installation = system_installation() or packaged_installation()
    assert installation is not None, "no PostgreSQL to measure: run `make setup`"
    directory = Path(tempfile.mkdtemp(prefix="wane-bench-", dir="/tmp"))
    directory.chmod(0o755)
    with PostgresServer(installation, directory, durable=True) as started:
        describe_server(started.url)
        yield started.url


class World:
    """A fresh table for every contender."""

    def __init__(self, url: str, rows: int) -> None:
        self.url = url
        self.rows = rows
        self.connection = psycopg.connect(url, autocommit=True)
        self.folder = Path(tempfile.mkdtemp(prefix="wane-bench-"))
        (self.folder / "wane.toml").write_text(CONTRACT)

    def run(self, text: str) -> None:
        self.connection.execute(text.encode())

    def clear(self) -> None:
        self.run(
            "DROP SCHEMA IF EXISTS wane CASCADE; DROP SCHEMA IF EXISTS partman CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        )

    def month(self, ago: int) -> str:
        return f"(date_trunc('month', now()) - interval '{ago} months')"

    def plain(self, *, filled: bool = True) -> None:
        self.clear()
        self.run(f"CREATE TABLE event ({COLUMNS}, PRIMARY KEY (id)); CREATE INDEX event_age ON event (created_at, id)")
        if filled:
            self.fill("event")

    def fill(self, table: str) -> None:
        each = self.rows // MONTHS
        for number in range(MONTHS):
            self.run(
                FILL.format(
                    table=table, start=self.month(MONTHS - number), first=number * each + 1, last=(number + 1) * each
                )
            )
        self.run("VACUUM ANALYZE event")

    def keeper(self) -> Keeper:
        keeper = open_keeper(self.url, contract=self.folder / "wane.toml", actor="bench")
        keeper.migrate()
        keeper.enable()
        return keeper


class Foreground:
    """An application that inserts and reads, and how long each pair took."""

    def __init__(self, world: World) -> None:
        self.taken: list[float] = []
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Foreground:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        number = 10_000_000 + int(time.time() * 1000) % 1_000_000_000
        with psycopg.connect(self._world.url, autocommit=True) as connection:
            while not self._stop.is_set():
                began = time.perf_counter()
                number += 1
                connection.execute("INSERT INTO event (id, body) VALUES (%s, 'new')", (number,))
                connection.execute("SELECT body FROM event WHERE id = %s", (number,)).fetchall()
                self.taken.append(time.perf_counter() - began)
                time.sleep(0.002)

    def p99_ms(self) -> float:
        return sorted(self.taken)[int(len(self.taken) * 0.99)] * 1000


def convert(world: World) -> dict[str, Any]:
    """Convert with Wane, while an application works."""
    world.plain()
    with world.keeper() as keeper:
        with Foreground(world) as undisturbed:
            time.sleep(3)
        with Foreground(world) as beside:
            seconds, done = timed(lambda: keeper.partition.convert("event", accept=True))
        back, undone = timed(lambda: keeper.partition.undo("event", pace=FAST))
    return {
        "seconds": seconds,
        "longest_lock_ms": done.longest_lock_seconds * 1000,
        "undo_seconds": back,
        "undo_lock_ms": undone.longest_lock_seconds * 1000,
        "p99_alone_ms": undisturbed.p99_ms(),
        "p99_beside_ms": beside.p99_ms(),
    }


def plain_attach(world: World) -> dict[str, Any]:
    """Do the same swap by hand, without the proof that makes ATTACH believe instead of read."""
    world.plain()
    world.run("CREATE UNIQUE INDEX CONCURRENTLY event_key ON event (id, created_at)")
    world.run(f"CREATE TABLE root ({COLUMNS}, PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at)")
    world.run("CREATE INDEX ON root (created_at, id)")
    began = time.perf_counter()
    world.run(
        "BEGIN; LOCK TABLE event IN ACCESS EXCLUSIVE MODE; ALTER TABLE event DROP CONSTRAINT event_pkey;"
        " ALTER TABLE event ADD PRIMARY KEY USING INDEX event_key; ALTER TABLE event RENAME TO event_old; ALTER TABLE root RENAME TO event;"
        " ALTER TABLE event ATTACH PARTITION event_old FOR VALUES FROM (MINVALUE) TO ('2100-01-01'); COMMIT"
    )
    return {"longest_lock_ms": (time.perf_counter() - began) * 1000}


def partman(world: World) -> dict[str, Any]:
    """Convert with pg_partman: a new partitioned table, into which it moves the rows of the old one; then it drops a
    month."""
    world.plain()
    world.run(
        "CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman; ALTER TABLE event RENAME TO event_old"
    )
    world.run(f"CREATE TABLE event ({COLUMNS}) PARTITION BY RANGE (created_at); CREATE INDEX ON event (created_at, id)")
    world.run(
        "CREATE TABLE event_template (LIKE event); ALTER TABLE event_template ADD PRIMARY KEY (id);"
        " SELECT partman.create_parent('public.event', 'created_at', 'native', 'monthly',"
        " p_template_table := 'public.event_template')"
    )
    seconds, _ = timed(
        lambda: world.run("CALL partman.partition_data_proc('public.event', p_source_table := 'public.event_old')")
    )
    world.run(
        f"UPDATE partman.part_config SET retention = (now() - {world.month(MONTHS - 2)})::text, retention_keep_table = false"
        " WHERE parent_table = 'public.event'"
    )
    drop, _ = timed(lambda: world.run("SELECT partman.drop_partition_time('public.event')"))
    left = world.connection.execute("SELECT count(*) FROM event").fetchall()[0][0]
    return {"seconds": seconds, "drop_seconds": drop, "left": left}


def retire(world: World) -> dict[str, Any]:
    """Retire with Wane: estimated twice, counted, audited; detached, then dropped."""
    world.plain(filled=False)
    with world.keeper() as keeper:
        keeper.partition.convert("event", accept=True)
        [(old,)] = world.connection.execute(
            "SELECT relname FROM pg_class WHERE relispartition AND relname LIKE 'event_p_before%' AND relkind = 'r'"
        ).fetchall()
        world.run(f"ALTER TABLE event DETACH PARTITION {old}; DROP TABLE {old}")
        bounds = [
            world.connection.execute(f"SELECT {world.month(ago)}::text").fetchall()[0][0]
            for ago in range(MONTHS, -2, -1)
        ]
        world.run(f"CREATE TABLE event_p_before PARTITION OF event FOR VALUES FROM (MINVALUE) TO ('{bounds[0]}')")
        for lower, upper in pairwise(bounds):
            name = f"event_p_{lower[:7].replace('-', '_')}"
            world.run(f"CREATE TABLE {name} PARTITION OF event FOR VALUES FROM ('{lower}') TO ('{upper}')")
            world.run(f"CREATE UNIQUE INDEX ON {name} (id)")
        world.run("CREATE UNIQUE INDEX ON event_p_before (id)")
        world.fill("event")
        began = time.perf_counter()
        gone = keeper.partition.retire("event")
        detaching = time.perf_counter() - began
        time.sleep(1.1)
        drop, _ = timed(lambda: keeper.partition.retire("event"))
        months = [one for one in gone if one.outcome == "quarantined"]
        assert months, gone
        rows = sum(one.counts["event"] for one in months)
        return {"seconds_per_month": (detaching + drop) / len(months), "rows": rows}


def by_rows(world: World) -> dict[str, Any]:
    """Delete the same rows by Wane's sweep without pauses, and by one DELETE."""
    world.plain()
    with world.keeper() as keeper:
        seconds, swept = timed(lambda: keeper.sweep("event", pace=FAST, approve=["event.old"]))
    rows = swept.rules[0].counts["event"]
    world.plain()
    delete, _ = timed(lambda: world.run(f"DELETE FROM event WHERE created_at < {world.month(MONTHS - 1)}"))
    return {"sweep_seconds": seconds * (world.rows // MONTHS) / rows, "delete_seconds": delete}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    contenders: list[tuple[str, Callable[[World], dict[str, Any]]]] = [
        ("convert", convert),
        ("plain attach", plain_attach),
        ("retire", retire),
        ("by rows", by_rows),
    ]
    with server() as url:
        world = World(url, chosen.rows)
        [(there,)] = world.connection.execute(
            "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman'"
        ).fetchall()
        if there:
            contenders.append(("pg_partman", partman))
        samples: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in contenders}
        for number in range(chosen.rounds):
            for name, work in contenders:
                samples[name].append(work(world))
                print_line(f"round {number + 1}: {name}: {samples[name][-1]}")
        world.connection.close()
    result = {**machine(), "rows": chosen.rows, "months": MONTHS, "samples": samples}
    (ROOT / "bench/results/partition.json").write_text(json.dumps(result, indent=1) + "\n")
    for name, found in samples.items():
        for key in found[0]:
            values = [one[key] for one in found if one[key] is not None]
            if values:
                print_line(f"{name} {key}: {statistics.median(values):.4g}")


if __name__ == "__main__":
    main()
