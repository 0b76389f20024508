"""Wane inside a FastAPI application: it sweeps while the application serves, and stops with it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from contrib.shop import left_over, make_shop
from servers import Database
from wane import open as open_keeper
from wane.contrib.starlette import lifespan
from wane.errors import ContractError, NotMigrated


def application(contract: Path, database: Database, workers: int = 1) -> FastAPI:
    app = FastAPI(lifespan=lifespan(contract, database.url, workers=workers, schedulers=None if workers else ()))

    @app.get("/due")
    async def due(request: Request) -> int:
        plan = await request.state.wane.plan()
        return int(plan.due)

    @app.post("/wait")
    async def wait() -> list[int]:
        while len(left_over(database)) > 2:
            await asyncio.sleep(0.02)
        return left_over(database)

    return app


def test_an_application_sweeps_while_it_serves(database: Database, tmp_path: Path) -> None:
    contract = make_shop(database, tmp_path)
    with open_keeper(database.url, contract=contract) as keeper:
        keeper.migrate()
        keeper.enable()
    with TestClient(application(contract, database)) as client:
        assert client.post("/wait").json() == [100, 101]
        assert client.get("/due").json() == 0
    with open_keeper(database.url, contract=contract) as keeper:
        assert keeper.status().executors == ()


def test_without_workers_it_only_opens_a_keeper(sqlite_database: Database, tmp_path: Path) -> None:
    contract = make_shop(sqlite_database, tmp_path)
    with open_keeper(sqlite_database.url, contract=contract) as keeper:
        keeper.migrate()
    with TestClient(application(contract, sqlite_database, workers=0)) as client:
        assert client.get("/due").json() == 5


def test_an_application_does_not_start_without_wanes_own_tables(sqlite_database: Database, tmp_path: Path) -> None:
    contract = make_shop(sqlite_database, tmp_path)
    with pytest.raises(NotMigrated), TestClient(application(contract, sqlite_database)):
        pass


def test_an_application_does_not_start_with_a_wrong_contract(sqlite_database: Database, tmp_path: Path) -> None:
    contract = make_shop(sqlite_database, tmp_path)
    contract.write_text(contract.read_text(encoding="utf-8").replace("keep", "kept"), encoding="utf-8")
    with pytest.raises(ContractError), TestClient(application(contract, sqlite_database)):
        pass


def test_a_runner_that_ends_is_reported_and_requests_are_served(
    sqlite_database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contract = make_shop(sqlite_database, tmp_path)
    with open_keeper(sqlite_database.url, contract=contract) as keeper:
        keeper.migrate()
        keeper.adopt()
    contract.write_text(contract.read_text(encoding="utf-8").replace("7d", "8d"), encoding="utf-8")
    with caplog.at_level(logging.ERROR, "wane"), TestClient(application(contract, sqlite_database)) as client:
        while not caplog.records:
            assert client.get("/due").json() == 5
    assert "wane stopped" in caplog.text
