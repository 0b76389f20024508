"""A read ends with its request: at its deadline, and when the client goes away, its statement is cancelled in the
database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from starlette.routing import Route

from prune.keeping import ago, jobs, keeping
from servers import Database
from wane._contract.model import Contract
from wane._db.statement import Statement
from wane._keeper import Keeper, open_keeper
from wane.errors import TimedOut
from wane.web import LOOPBACK, _pool
from wane.web._access import AccessRole
from wane.web._app import Web
from wane.web._call import WebCall
from wane.web._endpoints import Endpoint
from wane.web._pool import KeeperPool
from wane.web._shield import Rates
from web.serving import served

SLOW = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(100)",
}
PATIENCE_SECONDS = 30.0


class Slow:
    """An endpoint that reads for minutes, and reads on where callers would fall back to an estimate."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()
        self.cancelled = 0

    def answer(self, keeper: Keeper, call: WebCall) -> Any:
        del call
        try:
            for _ in range(100):
                self.began.set()
                try:
                    keeper.store.read(Statement(SLOW[keeper.store.kind], {}), 100.0)
                except TimedOut:
                    self.cancelled += 1
            return {}
        finally:
            self.ended.set()


@contextmanager
def slow_server(database: Database) -> Iterator[tuple[str, Slow]]:
    jobs(database, (1, "done", ago(8)))
    slow = Slow()
    with keeping(database) as opened:
        web = Web(opened.keeper.contract, database.url, authentication=False)
        app = web.app(LOOPBACK, Rates(rate=1e6, burst=1e6))
        one = Endpoint("GET", "/api/v1/slow", AccessRole.VIEWER, "Read for minutes.", slow.answer)
        app.router.routes.append(Route(one.path, partial(web._checked, one.role, partial(web._answer, one))))
        with served(app) as base:
            yield base, slow


def running(database: Database) -> list[Any]:
    """Return what still runs: a server may report later that a statement has ended."""
    if database.store == "sqlite":
        return []
    text = "SELECT query FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := database.query(text)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_a_read_is_cancelled_when_its_client_goes_away(database: Database) -> None:
    with slow_server(database) as (base, slow):
        for _ in range(_pool.SIZE + 1):  # No connection of the pool is lost to it.
            slow.began.clear()
            slow.ended.clear()
            with httpx.Client() as client, pytest.raises(httpx.ReadTimeout):
                client.get(f"{base}/api/v1/slow", timeout=httpx.Timeout(PATIENCE_SECONDS, read=0.3))
            assert slow.began.is_set()
            assert slow.ended.wait(PATIENCE_SECONDS)
            assert running(database) == []
        assert slow.cancelled == 100 * (_pool.SIZE + 1)
        answer = httpx.get(f"{base}/api/v1/health", timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200


def test_a_read_is_cancelled_at_its_deadline(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "READ_SECONDS", 0.3)
    with slow_server(database) as (base, slow):
        answer = httpx.get(f"{base}/api/v1/slow", timeout=PATIENCE_SECONDS)
        assert (answer.status_code, answer.json()["code"]) == (503, "TimedOut")
        assert answer.json()["detail"] == "the answer takes longer than 0.3 seconds"
        assert answer.headers["retry-after"] == "5"
        assert slow.ended.is_set()
        assert running(database) == []
        monkeypatch.setattr(_pool, "READ_SECONDS", PATIENCE_SECONDS)
        assert httpx.get(f"{base}/api/v1/contract", timeout=PATIENCE_SECONDS).status_code == 200


def test_a_request_that_finds_no_connection_free_is_refused(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pool.KeeperPool.__init__, "__defaults__", (1,))
    with slow_server(sqlite_database) as (base, slow), httpx.Client(base_url=base) as client:
        monkeypatch.setattr(_pool, "READ_SECONDS", 2.0)  # When the slow one ends, so that the test does.
        waiting = threading.Thread(target=lambda: httpx.get(f"{base}/api/v1/slow", timeout=PATIENCE_SECONDS))
        waiting.start()
        assert slow.began.wait(PATIENCE_SECONDS)
        monkeypatch.setattr(_pool, "READ_SECONDS", 0.1)
        answer = client.get("/api/v1/contract", timeout=PATIENCE_SECONDS)
        assert (answer.status_code, answer.json()["code"]) == (503, "TimedOut")
        assert client.get("/healthz", timeout=PATIENCE_SECONDS).status_code == 200
        waiting.join()


def test_a_keeper_that_works_when_the_pool_closes_is_closed_afterwards(sqlite_database: Database) -> None:
    begun, closed = threading.Event(), threading.Event()
    used: list[Keeper] = []

    def work(keeper: Keeper) -> None:
        used.append(keeper)
        begun.set()
        assert closed.wait(10)

    pool = KeeperPool(partial(open_keeper, sqlite_database.url, contract=Contract(None, ())))
    worker = threading.Thread(target=lambda: anyio.run(pool.run, work))
    worker.start()
    assert begun.wait(10)
    pool.close()
    closed.set()
    worker.join()
    with pytest.raises(Exception, match="closed"):
        used[0].store.reflect()
