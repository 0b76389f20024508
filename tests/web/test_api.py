"""The API: what it answers, how it pages, and how it reports problems."""

from __future__ import annotations

import json
from pathlib import Path

from servers import Database
from wane._contract.model import Contract
from wane.web import console
from wane.web._endpoints import ENDPOINTS, openapi
from wane.web._plain import plain
from web.client import open_client
from web.conftest import Shop

ROOT = Path(__file__).parents[2]


def test_every_endpoint_that_reads_answers_an_object(shop: Shop) -> None:
    shop.keeper.claims().install()
    without = shop.client.get("/api/v1/archive/query?table=job")
    assert (without.status_code, without.json()["detail"]) == (400, "the contract has no archive")
    for one in ENDPOINTS:
        if one.method == "GET" and not one.path.startswith("/api/v1/archive/"):
            given = {
                value.name: {"table": "job", "key": "1", "pool": "p"}[value.name]
                for value in one.values
                if value.required
            }
            response = shop.client.get(one.path, params=given)
            assert response.status_code == 200, (one.path, response.text)
            assert isinstance(response.json(), dict)


def test_the_answers_are_those_of_the_keeper(shop: Shop) -> None:
    shop.keeper.enable()
    assert shop.client.get("/api/v1/why?table=job&key=id%3D1").json()["verdict"] == "due"
    plan = shop.client.get("/api/v1/plan?table=job").json()
    assert [(one["rule"], one["due"]) for one in plan["steps"]] == [("old", 1)]
    assert shop.client.get("/api/v1/health").json()["verdict"] == shop.keeper.health().verdict


def test_lists_are_paged_by_cursor(shop: Shop) -> None:
    first = shop.client.get("/api/v1/tables?limit=1").json()
    second = shop.client.get("/api/v1/tables", params={"limit": 1, "cursor": first["next"]}).json()
    names = [first["items"][0]["table"], second["items"][0]["table"]]
    assert names == sorted(names)
    assert (len(set(names)), second["next"]) == (2, None)
    shop.keeper.enable()
    for _ in range(3):
        shop.keeper.sweep("job")
    page = shop.client.get("/api/v1/audit?table=job&limit=2").json()
    rest = shop.client.get(f"/api/v1/audit?table=job&limit=2&cursor={page['next']}").json()
    numbers = [one["id"] for one in page["items"] + rest["items"]]
    assert (len(numbers), numbers) == (3, sorted(numbers, reverse=True))
    assert rest["next"] is None


def test_problems_name_the_code_that_explain_knows(shop: Shop) -> None:
    response = shop.client.get("/api/v1/why?table=jop&key=1")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["code"], problem["status"]) == ("UnknownTable", 404)
    assert "did you mean 'job'?" in problem["hint"]
    since = shop.client.get("/api/v1/audit?since=yesterday")
    assert (since.status_code, since.json()["code"]) == (400, "WrongArgument")
    for accepted in ("2026-01-31", "2026-01-31T00:00:00"):
        assert shop.client.get(f"/api/v1/audit?since={accepted}").status_code == 200
    assert shop.client.get("/api/v1/nothing").json()["code"] == "NotFound"


def test_a_database_that_is_gone_is_reported(sqlite_database: Database, tmp_path: Path) -> None:
    with open_client(console(Contract(None, ()), url=f"sqlite:///{tmp_path}/missing.db")) as client:
        response = client.get("/api/v1/health")
        assert (response.status_code, response.json()["code"]) == (503, "Unreachable")
        assert response.headers["retry-after"] == "5"
        assert client.get("/readyz").status_code == 503


def test_metrics_are_those_of_the_exporter(shop: Shop) -> None:
    text = shop.client.get("/metrics").text
    assert "wane_up 1.0" in text


def test_nothing_is_acted_on_without_authentication(shop: Shop) -> None:
    for one in ENDPOINTS:
        if one.method != "GET":
            response = shop.client.request(one.method, one.path, json={})
            assert response.status_code == 403, one.path


def test_the_document_in_the_docs_is_current() -> None:
    stored = json.loads((ROOT / "docs/reference/openapi.json").read_text())
    assert stored == openapi(), "run `make docs`"


def test_the_document_names_every_endpoint_once() -> None:
    document = openapi()
    operations = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations)) == len(ENDPOINTS)


def test_values_become_plain_json() -> None:
    assert plain({"token_hash": "x", "n": float("nan"), "b": b"\x01"}) == {"n": None, "b": "01"}
