"""`wane serve` and `wane token`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Wane
from cli.running import fill, write_contract
from servers import SqliteDatabase


@pytest.fixture
def shop(sqlite_database: SqliteDatabase, folder: Path, wane: Wane) -> Wane:
    fill(sqlite_database)
    write_contract(folder, sqlite_database.url)
    wane("migrate")
    return wane


def test_tokens_are_created_listed_and_revoked(shop: Wane) -> None:
    made = shop("token", "create", "alice", "--role", "operator", "--expires", "90d", "--actor", "bob", "--json").json
    assert (made["name"], made["role"], made["created_by"]) == ("alice", "operator", "bob")
    assert made["token"].startswith(f"wane_{made['id']}_")
    printed = shop("token", "create", "eve")
    assert (printed.out.startswith("wane_"), "it is not shown again" in printed.err) == (True, True)
    [eve, alice] = shop("token", "list", "--json").json
    assert (eve["name"], alice["name"], "token" in alice) == ("eve", "alice", False)
    assert shop("token", "revoke", made["id"]).code == 0
    assert "operator" in shop("token", "list").out
    repeated = shop("token", "revoke", made["id"])
    assert (repeated.code, "was revoked already" in repeated.err) == (1, True)
    assert shop("token", "create", "x", "--role", "root").code == 1


def test_an_address_that_others_reach_needs_authentication(shop: Wane) -> None:
    refused = shop("serve", "--host", "0.0.0.0")
    assert (refused.code, "add --auth" in refused.err) == (2, True)


def test_a_port_in_use_is_refused_before_an_address_is_printed(shop: Wane) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = shop("serve", "--port", str(port))
    assert refused.code == 1
    assert f"the console cannot be served on 127.0.0.1 port {port}: the port is in use" in refused.err
    assert "console: " not in refused.err


def test_it_serves_the_application(shop: Wane, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    served: dict[str, Any] = {}

    def run(app: Any, **options: Any) -> None:
        served.update(options, app=app)

    monkeypatch.setattr(uvicorn, "run", run)
    result = shop("serve", "--port", "8500")
    assert (result.code, "http://127.0.0.1:8500/" in result.err) == (0, True)
    assert (served["host"], served["port"]) == ("127.0.0.1", 8500)
