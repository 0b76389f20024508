"""How long pages of the console take on 100 tables with five million rows in one of them, while a sweep runs.

    .venv/bin/python -m bench.web [--rows 5000000] [--rounds 40] [--requests 10000] [--only sqlite|postgres]

The yardstick is one sequential scan of the large table, taken in turns with the requests. The console is a process of
its own, as `wane serve` is, without its limit of requests; the sweep runs at the default pace in a third one. Memory is
the server's, after a first tenth of the requests and after all of them. Raw samples go to bench/results/web.json.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.check_plan import build_postgres, build_sqlite, contract, scan_postgres, scan_sqlite
from bench.measuring import ROOT, machine, postgres_url, print_line, timed
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper

RESULTS = ROOT / "bench" / "results" / "web.json"
PAGES = {"overview": "/", "tables": "/tables", "table": "/tables/big", "metrics": "/metrics"}


def serve(file: Path, url: str, port: int) -> None:
    import uvicorn

    from wane.web import LOOPBACK
    from wane.web._app import Web
    from wane.web._shield import Rates

    app = Web(load_contract(file), url, authentication=False).app(LOOPBACK, Rates(rate=1e6, burst=1e6))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def sweep(file: Path, url: str) -> None:
    promised = load_contract(file)
    with Keeper(promised, open_store(resolve_url(url), promised.store)) as keeper:
        while True:
            keeper.sweep(approve=[str(table.name) for table in promised.tables])
            time.sleep(0.1)


@contextmanager
def running(target: Any, *arguments: Any) -> Iterator[multiprocessing.Process]:
    process = multiprocessing.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join()


class Browser:
    """Asks for pages over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:500])
        return body


def opened(port: int) -> Browser:
    for _ in range(300):
        try:
            browser = Browser(port)
            browser.get("/healthz")
        except OSError:
            time.sleep(0.1)
        else:
            return browser
    raise TimeoutError("the console does not answer")


def memory_of(process: int) -> int:
    """Return bytes in memory, as the kernel counts them."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def measure(kind: str, url: str, file: Path, rounds: int, requests: int) -> dict[str, Any]:
    promised = load_contract(file)
    with Keeper(promised, open_store(resolve_url(url), promised.store)) as keeper:
        keeper.migrate()
        keeper.enable()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scan, *_ = (scan_sqlite if kind == "sqlite" else scan_postgres)(url)
    with running(serve, file, url, port) as server, running(sweep, file, url):
        browser = opened(port)
        samples: dict[str, list[float]] = {name: [] for name in ("scan", *PAGES)}
        for number in range(rounds + 1):
            taken = {
                "scan": timed(scan)[0],
                **{name: timed(lambda p=p: browser.get(p))[0] for name, p in PAGES.items()},
            }
            if number:  # The first round warms caches and is not counted.
                for name, seconds in taken.items():
                    samples[name].append(round(seconds, 5))
            print_line(f"{kind} round {number}: " + ", ".join(f"{name} {s:.3f} s" for name, s in taken.items()))
        memory = []
        for number in range(requests):
            browser.get(list(PAGES.values())[number % len(PAGES)])
            if number + 1 in (max(requests // 10, 1), requests):
                memory.append(memory_of(server.pid or 0))
    yardstick = statistics.median(samples["scan"])
    return {
        "seconds": samples,
        "p95_seconds": {name: round(p95(values), 4) for name, values in samples.items()},
        "p95_to_scan": {name: round(p95(samples[name]) / yardstick, 4) for name in PAGES},
        "memory_bytes": memory,
        "memory_ratio": round(memory[-1] / memory[0], 3),
        "requests": requests,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    results: dict[str, Any] = {"rows": options.rows, **machine()}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as folder:
        contract(Path(folder))
        file = Path(folder) / "wane.toml"
        if options.only != "postgres":
            path = Path(folder) / "bench.db"
            build_sqlite(path, options.rows)
            results["sqlite"] = measure("sqlite", f"sqlite:///{path}", file, options.rounds, options.requests)
            path.unlink()
        if options.only != "sqlite":
            with postgres_url() as url:
                build_postgres(url, options.rows)
                results["postgres"] = measure("postgres", url, file, options.rounds, options.requests)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
