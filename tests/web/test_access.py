"""Who may do what, on every route: the cases are made of the route table, so that a new route is tested by being
there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from servers import Database
from wane._contract.model import Contract
from wane.errors import WrongArgument
from wane.web import _shield, console, create_token, list_tokens, revoke_token
from wane.web._access import COOKIE, AccessRole, form_key
from wane.web._endpoints import ENDPOINTS
from wane.web._shield import MOST_BODY, Rates
from web.conftest import Shop, open_shop

OPEN = {"/healthz", "/readyz", "/login", "/logout", "/api/v1/openapi.json"}
"""Routes that need no token."""


def routes(app: Starlette) -> Iterator[tuple[str, str]]:
    for route in app.routes:
        if isinstance(route, Route):
            path = route.path.replace("{table:path}", "job")
            for method in sorted(route.methods or ()):
                if method != "HEAD":
                    yield method, path


APP = console(Contract(None, ()), url="sqlite:///nowhere.db")
ROUTES = list(routes(APP))
CLOSED = [one for one in ROUTES if one[1] not in OPEN]


def test_every_route_but_a_few_needs_a_token(guarded: Shop) -> None:
    for method, path in CLOSED:
        for headers in (
            {},
            {"authorization": "Bearer wane_000000000000_" + "x" * 43},
            {"cookie": f"{COOKIE}=nonsense"},
        ):
            response = guarded.client.request(method, path, headers=headers)
            login = response.status_code == 303 and response.headers["location"] == "/login"
            assert response.status_code == 401 or login, (method, path)
            if path.startswith("/api/"):
                assert response.headers["content-type"] == "application/problem+json"
                assert response.json()["code"] == "Unauthenticated"


@pytest.mark.parametrize("role", list(AccessRole))
def test_a_role_may_do_what_it_includes_and_no_more(guarded: Shop, role: AccessRole) -> None:
    for one in ENDPOINTS:
        response = guarded.client.request(one.method, one.path, headers=guarded.bearer(role))
        allowed = role.includes(one.role)
        assert (response.status_code != 403) == allowed, (role, one.path, response.text)
        if not allowed:
            assert f"needs the role {one.role.value}" in response.json()["detail"]


def test_every_route_refuses_what_is_too_large_or_for_another_host(guarded: Shop) -> None:
    for method, path in ROUTES:
        big = guarded.client.request(method, path, content=b"x" * (MOST_BODY + 1), headers=guarded.bearer("admin"))
        assert big.status_code == 413, (method, path)
        other = guarded.client.request(method, path, headers={**guarded.bearer("admin"), "host": "evil.example"})
        assert other.status_code == 421, (method, path)
        long = guarded.client.request(method, f"{path}?{'x' * 5_000}", headers=guarded.bearer("admin"))
        assert long.status_code == 414, (method, path)
        if path.startswith("/api/"):
            assert [one.json()["code"] for one in (big, other, long)] == ["TooLarge", "UnknownHost", "TooLong"]


def test_no_route_waits_for_a_body_that_does_not_arrive(guarded: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shield, "BODY_SECONDS", 0.02)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await anyio.sleep(30)

    for method, path in ROUTES:
        if method == "POST":
            headers = {**guarded.bearer("admin"), "content-type": "application/json"}
            response = guarded.client.request(method, path, content=slow(), headers=headers)
            assert response.status_code == (303 if path == "/logout" else 408), (path, response.text)  # It reads none.


def test_every_answer_has_security_headers(guarded: Shop) -> None:
    for method, path in ROUTES:
        response = guarded.client.request(method, path, headers=guarded.bearer("viewer"))
        assert "default-src 'none'" in response.headers["content-security-policy"], path
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["cache-control"] == "no-store", path
        assert "server" not in response.headers


def test_every_endpoint_refuses_malformed_values(guarded: Shop) -> None:
    for one in ENDPOINTS:
        headers = {**guarded.bearer("admin"), "content-type": "application/json"}
        if one.method != "GET":
            for content in (b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 5_000):
                response = guarded.client.request(one.method, one.path, content=content, headers=headers)
                assert response.status_code == 400, (one.path, content[:10], response.text)
        for value in one.values:
            if value.kind == "integer" and value.inside == "query":
                given = {each.name: "job" for each in one.values if each.required} | {value.name: "1; DROP TABLE job"}
                response = guarded.client.request(one.method, one.path, params=given, headers=headers)
                assert response.status_code == 400, (one.path, value.name)
                assert response.json()["code"] == "WrongArgument"
            if value.required and value.inside == "query":
                response = guarded.client.request(one.method, one.path, headers=headers)
                assert (response.status_code, "is missing" in response.text) == (400, True), one.path


@pytest.mark.parametrize("nasty", ["\x00", "x\ud800", "9" * 30])
def test_no_value_makes_an_endpoint_fail(postgres_database: Database, nasty: str) -> None:
    with open_shop(postgres_database, authentication=True) as shop:
        for one in ENDPOINTS:
            for value in one.values:
                given = {each.name: "job" for each in one.values if each.required} | {value.name: nasty}
                query = {name: text for name, text in given.items() if one.method == "GET" and "\ud800" not in text}
                body = None if one.method == "GET" else json.dumps(given).encode()
                response = shop.client.request(
                    one.method, one.path, params=query, content=body, headers=shop.bearer("admin")
                )
                assert response.status_code in (200, 400, 404, 409), (one.path, value.name, response.text)


def test_methods_that_a_route_does_not_have_are_refused(guarded: Shop) -> None:
    for method, path in ROUTES:
        wrong = "PUT" if method != "PUT" else "PATCH"
        assert guarded.client.request(wrong, path, headers=guarded.bearer("admin")).status_code == 405, path


def test_a_browser_signs_in_and_out(guarded: Shop) -> None:
    client = guarded.client
    assert client.get("/").headers["location"] == "/login"
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    assert (
        client.post(
            "/login", data={"token": guarded.tokens["viewer"]}, headers={"origin": "http://evil.example"}
        ).status_code
        == 403
    )
    signed = client.post("/login", data={"token": guarded.tokens["viewer"]})
    cookie = signed.headers["set-cookie"]
    assert (signed.status_code, "HttpOnly" in cookie, "samesite=strict" in cookie.lower()) == (303, True, True)
    page = client.get("/")
    assert (page.status_code, "viewer (viewer)" in page.text) == (200, True)
    assert guarded.tokens["viewer"] not in page.text
    client.post("/logout")
    assert client.get("/").status_code == 303


def test_a_revoked_or_expired_token_is_refused_at_once(guarded: Shop) -> None:
    keeper = guarded.keeper
    headers = guarded.bearer("viewer")
    assert guarded.client.get("/api/v1/status", headers=headers).status_code == 200
    mine = next(one for one in list_tokens(keeper) if one.name == "viewer")
    revoke_token(keeper, mine.id)
    assert guarded.client.get("/api/v1/status", headers=headers).status_code == 401
    made, text = create_token(keeper, "short", "viewer", expires_after=timedelta(microseconds=1))
    assert made.expires_at is not None
    assert guarded.client.get("/api/v1/status", headers={"authorization": f"Bearer {text}"}).status_code == 401
    with pytest.raises(WrongArgument, match="was revoked already"):
        revoke_token(keeper, mine.id)


def test_the_secret_of_a_token_is_compared(guarded: Shop) -> None:
    text = guarded.tokens["admin"]
    wrong = text[:-43] + ("A" if text[-43] != "A" else "B") + text[-42:]
    assert guarded.client.get("/api/v1/status", headers={"authorization": f"Bearer {wrong}"}).status_code == 401


def test_only_the_hash_of_a_token_is_stored(guarded: Shop, sqlite_database: Database) -> None:
    secret = guarded.tokens["viewer"].rsplit("_", 1)[-1][-20:]
    stored = str(sqlite_database.query("SELECT * FROM wane_token"))
    assert secret not in stored
    assert "secret" not in str(list_tokens(guarded.keeper))


def test_tokens_are_checked_when_they_are_created(guarded: Shop) -> None:
    with pytest.raises(WrongArgument, match="'root' is no role"):
        create_token(guarded.keeper, "x", "root")
    with pytest.raises(WrongArgument, match="may not last"):
        create_token(guarded.keeper, "x", "viewer", expires_after=timedelta(0))


def test_what_a_form_must_contain_depends_on_the_token() -> None:
    assert form_key("a") != form_key("b")
    assert "a" * 43 not in form_key("wane_000000000000_" + "a" * 43)


def test_an_address_that_requests_too_often_waits() -> None:
    now = [0.0]
    rates = Rates(rate=1.0, burst=2.0, clock=lambda: now[0])
    assert [rates.allow("a") for _ in range(3)] == [True, True, False]
    assert rates.allow("b")
    now[0] = 1.0
    assert [rates.allow("a") for _ in range(2)] == [True, False]
