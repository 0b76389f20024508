"""How long pressure and health take on 100 tables with five million rows in one of them.

    .venv/bin/python -m bench.health [--rows 5000000] [--rounds 7] [--only sqlite|postgres]

The yardstick is one sequential scan of the large table, taken in turns with what is measured, so that a busy machine
slows both. `first` is a keeper that was just opened, which reads the schema; `again` one that is kept, as a scrape
every 15 seconds would. On PostgreSQL the view and the function inside the database are measured too. Raw samples go to
bench/results/health.json.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

import psycopg

from bench.check_plan import (
    SMALL_TABLES,
    measure_stores,
    scan_postgres,
    scan_sqlite,
    server_of,
)
from bench.measuring import ROOT, measured, print_line, version_of
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.counting import Exactness
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._sqlfunctions import install
from wane.observe._health import Health
from wane.observe._pressure import Pressure

RESULTS = ROOT / "bench" / "results" / "health.json"
GOAL = 0.03
WARM_ROUNDS = 8
"""Scrapes come every 15 seconds: caches are warm, and PostgreSQL has cached its plans after the fifth."""


def opened(url: str, promised: Contract, *, read_only: bool = True) -> Keeper:
    return Keeper(promised, open_store(resolve_url(url), promised.store, read_only=read_only))


def first(url: str, promised: Contract, read: Callable[[Keeper], Any]) -> Callable[[], Any]:
    def once() -> Any:
        with opened(url, promised) as keeper:
            return read(keeper)

    return once


def in_sql(url: str, text: str) -> tuple[Callable[[], Any], int]:
    connection = psycopg.connect(url, autocommit=True)
    return lambda: connection.execute(text.encode()).fetchall(), connection.info.backend_pid


def measure(kind: str, url: str, promised: Contract, rounds: int, cpu: bool) -> dict[str, Any]:
    with opened(url, promised, read_only=False) as keeper:
        keeper.migrate()
        keeper.enable()
        if kind == "postgres":
            install(keeper)
    scan, _, scanning = (scan_sqlite if kind == "sqlite" else scan_postgres)(url)
    retained = opened(url, promised)
    actions: dict[str, Callable[[], Any]] = {
        "scan": scan,
        "pressure, first": first(url, promised, Keeper.pressure),
        "pressure, again": retained.pressure,
        "health, first": first(url, promised, Keeper.health),
        "health, again": retained.health,
    }
    servers = {
        "scan": scanning,
        "pressure, again": server_of(retained.store),
        "health, again": server_of(retained.store),
    }
    if kind == "postgres":
        actions["view"], servers["view"] = in_sql(url, "SELECT * FROM wane.v_queue_retention_pressure")
        if cpu:  # The server's process of a keeper that was just opened is not known before.
            del actions["pressure, first"], actions["health, first"]
    samples: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(WARM_ROUNDS):
        for name, action in actions.items():
            if name != "scan":
                action()
    for number in range(rounds + 1):
        taken = {name: measured(servers.get(name), action, cpu) for name, action in actions.items()}
        require_honest(taken["pressure, again"][1], taken["health, again"][1])
        if number:  # The first round warms caches and is not counted.
            for name, (seconds, _) in taken.items():
                samples[name].append(round(seconds, 5))
        print_line(
            f"{kind} round {number}: " + ", ".join(f"{name} {seconds:.4f} s" for name, (seconds, _) in taken.items())
        )
    version = version_of(retained.store)
    retained.close()
    return {
        "version": version,
        "seconds": samples,
        "median_seconds": {name: round(statistics.median(values), 4) for name, values in samples.items()},
        "ratio_to_scan": {
            name: round(statistics.median(a / b for a, b in zip(values, samples["scan"], strict=True)), 4)
            for name, values in samples.items()
            if name != "scan"
        },
    }


def require_honest(pressure: list[Pressure], health: Health) -> None:
    """Require that something was found: what is fast because it found nothing is not fast."""
    assert len(pressure) == len(health.tables) == SMALL_TABLES + 1
    [big] = [one for one in pressure if one.table == "big"]
    assert big.rows is not None
    assert big.rows.exactness is Exactness.ESTIMATE
    assert big.due is not None
    assert big.oldest is not None
    assert all(one.rows is not None and one.due is not None for one in pressure)
    # The sweeps that should have taken all this never ran.
    overdue = {one.table for one in health.findings if one.code == "overdue"}
    assert len(overdue) == SMALL_TABLES + 1, len(overdue)
    assert not any(one.code == "unread-table" for one in health.findings)


def main() -> None:
    options, measurements = measure_stores(__doc__, measure)
    results = measurements | {"goal_ratio": GOAL}
    RESULTS.parent.mkdir(exist_ok=True)
    if options.only is not None and RESULTS.exists():
        results = {**json.loads(RESULTS.read_text()), **results}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    for kind in ("sqlite", "postgres"):
        for name, seconds in results.get(kind, {}).get("median_seconds", {}).items():
            ratio = results[kind]["ratio_to_scan"].get(name)
            print(
                f"| {results[kind]['version']} | {name} | {seconds * 1000:.0f} ms | {'' if ratio is None else ratio} |"
            )


if __name__ == "__main__":
    main()
