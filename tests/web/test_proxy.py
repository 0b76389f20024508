"""A trusted proxy: whom it names is believed from its addresses alone, has the role that was granted, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from prune.keeping import Keeping, ago, jobs, keeping
from servers import Database, SqliteDatabase
from wane._cli import app as command_line
from wane.errors import WrongArgument
from wane.web import LOOPBACK, TrustedProxy, console, create_token
from wane.web._app import Web
from wane.web._shield import Rates
from web.client import Client, open_client
from web.serving import served

PROXY, STRANGER = "10.0.0.2", "192.0.2.66"
GRANTS = {"alice": "operator", "@sre": "admin", "*": "viewer"}
USER, GROUPS = "X-Wane-User", "X-Wane-Groups"


class Behind:
    """Clients of one console, each with the address that its connection comes from."""

    def __init__(self, client: Client, opened: Keeping) -> None:
        self.client, self.opened, self._app = client, opened, client._client._transport

    def get(self, path: str, *, peer: str = PROXY, **headers: str) -> httpx.Response:
        return self.send("GET", path, peer=peer, headers={name.replace("_", "-"): one for name, one in headers.items()})

    def send(self, method: str, path: str, *, peer: str, **options: Any) -> httpx.Response:
        assert isinstance(self._app, httpx.ASGITransport)
        self._app.client = (peer, 1)
        return self.client.request(method, path, **options)


@contextmanager
def behind(database: Database, **options: Any) -> Iterator[Behind]:
    jobs(database, (1, "done", ago(8)))
    proxy = TrustedProxy(["10.0.0.0/30"], user_header=USER, groups_header=GROUPS, grants=options.pop("grants", GRANTS))
    with keeping(database) as opened:
        web = Web(opened.keeper.contract, database.url, authentication=True, proxy=proxy)
        with open_client(web.app(LOOPBACK, options.pop("rates", Rates(rate=1e6, burst=1e6)))) as client:
            yield Behind(client, opened)


@pytest.fixture
def console_behind(sqlite_database: SqliteDatabase) -> Iterator[Behind]:
    with behind(sqlite_database) as found:
        yield found


def test_a_user_that_the_proxy_names_has_the_highest_role_that_was_granted(console_behind: Behind) -> None:
    for name, groups, role in (
        ("alice", "", "operator"),
        ("bob", "", "viewer"),
        ("bob", "dev, sre", "admin"),
        ("alice", "@sre", "operator"),  # A group is not named by what grants name it.
    ):
        page = console_behind.get("/", X_Wane_User=name, X_Wane_Groups=groups)
        assert page.status_code == 200, page.text
        assert f"{name} ({role})" in page.text
        assert "Sign out" not in page.text


def test_a_header_of_another_peer_is_refused(console_behind: Behind) -> None:
    for headers in ({"X_Wane_User": "alice"}, {"X_Wane_Groups": "sre"}, {"x_wane_user": "alice"}, {"X_Wane_User": ""}):
        for path in ("/", "/api/v1/status", "/metrics", "/tables"):
            answer = console_behind.get(path, peer=STRANGER, **headers)
            assert answer.status_code == 403, (path, headers)
            assert "only the proxy may name the user" in answer.text
    token = create_token(console_behind.opened.keeper, "x", "viewer")[1]
    spoofed = console_behind.get("/", peer=STRANGER, X_Wane_User="alice", Authorization=f"Bearer {token}")
    assert spoofed.status_code == 403
    claimed = console_behind.get("/", peer=STRANGER, X_Wane_User="alice", X_Forwarded_For=PROXY)
    assert claimed.status_code == 403
    assert console_behind.get("/api/v1/status", peer=STRANGER, Authorization=f"Bearer {token}").status_code == 200


def test_the_proxy_must_name_one_user(console_behind: Behind) -> None:
    assert console_behind.get("/api/v1/status").status_code == 401
    assert console_behind.get("/api/v1/status", X_Wane_User="").status_code == 401
    twice = console_behind.send("GET", "/api/v1/status", peer=PROXY, headers=[(USER, "bob"), (USER, "alice")])
    assert (twice.status_code, twice.json()["code"]) == (403, "WrongUser")
    for wrong in ("x" * 201, "*", "@sre", "a\tb"):
        assert console_behind.get("/api/v1/status", X_Wane_User=wrong).json()["code"] == "WrongUser"


def test_a_user_without_a_grant_is_refused(sqlite_database: SqliteDatabase) -> None:
    with behind(sqlite_database, grants={"alice": "viewer"}) as found:
        assert found.get("/api/v1/status", X_Wane_User="alice").status_code == 200
        refused = found.get("/api/v1/status", X_Wane_User="bob")
        assert (refused.status_code, refused.json()["detail"]) == (403, "bob has no role here")


def test_forms_need_what_only_the_page_has(console_behind: Behind) -> None:
    page = console_behind.get("/tables/job", X_Wane_User="alice").text
    key = re.search(r'name="form_key" value="([^"]+)"', page)
    assert key
    body = {"table": "job", "reason": "dispute", "key": "id=1"}
    mine: dict[str, Any] = {"headers": {USER: "alice"}, "peer": PROXY}
    assert console_behind.send("POST", "/do/hold", data=body, **mine).status_code == 403
    assert console_behind.send("POST", "/api/v1/hold", json=body, **mine).status_code == 403
    other: dict[str, Any] = {"headers": {USER: "carol", GROUPS: "sre"}, "peer": PROXY}
    assert console_behind.send("POST", "/do/hold", data={**body, "form_key": key[1]}, **other).status_code == 403
    assert console_behind.opened.keeper.holds() == []
    done = console_behind.send("POST", "/do/hold", data={**body, "form_key": key[1]}, **mine)
    assert done.status_code == 200
    assert console_behind.opened.keeper.holds()[0].author == "alice (web)"


def test_clients_behind_the_proxy_are_counted_one_by_one(sqlite_database: SqliteDatabase) -> None:
    with behind(sqlite_database, rates=Rates(rate=0.0, burst=1.0)) as found:
        for address in ("203.0.113.1", "203.0.113.2"):
            # What the client claims is before the address that the proxy adds.
            requested = [found.get("/healthz", X_Forwarded_For=f"1.1.1.{n}, {address}").status_code for n in range(2)]
            assert requested == [200, 429]
        assert found.get("/healthz", peer=STRANGER, X_Forwarded_For="203.0.113.9").status_code == 200
        assert found.get("/healthz", peer=STRANGER, X_Forwarded_For="203.0.113.10").status_code == 429


def test_the_cookie_is_for_tls_only_where_the_proxy_has_it(console_behind: Behind) -> None:
    token = create_token(console_behind.opened.keeper, "x", "viewer")[1]
    for peer, secure in ((PROXY, True), (STRANGER, False)):
        headers = {"x-forwarded-proto": "https"}
        signed = console_behind.send("POST", "/login", peer=peer, data={"token": token}, headers=headers)
        assert ("secure" in signed.headers["set-cookie"].lower()) == secure


def test_it_works_over_a_real_connection(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, (1, "done", ago(8)))
    for address, status in (("127.0.0.1", 200), ("192.0.2.1", 403)):
        with keeping(sqlite_database) as opened:
            proxy = TrustedProxy([address], user_header=USER, grants={"*": "viewer"})
            app = console(opened.keeper.contract, url=sqlite_database.url, authentication=True, proxy=proxy)
            with served(app) as base:
                assert httpx.get(f"{base}/api/v1/status", headers={USER: "alice"}, timeout=30).status_code == status


def test_what_makes_no_sense_is_refused_at_the_start(sqlite_database: SqliteDatabase) -> None:
    with pytest.raises(WrongArgument, match="is no address"):
        TrustedProxy(["proxy.example"], user_header=USER, grants=GRANTS)
    with pytest.raises(WrongArgument, match="needs an address"):
        TrustedProxy([], user_header=USER, grants=GRANTS)
    with pytest.raises(WrongArgument, match="no user of the proxy has a role"):
        TrustedProxy([PROXY], user_header=USER)
    with pytest.raises(WrongArgument, match="'root', granted to alice, is no role"):
        TrustedProxy([PROXY], user_header=USER, grants={"alice": "root"})
    with pytest.raises(WrongArgument, match="roles are granted to users"):
        TrustedProxy([PROXY], grants=GRANTS)
    with keeping(sqlite_database) as opened, pytest.raises(WrongArgument, match="needs authentication"):
        console(opened.keeper.contract, url=sqlite_database.url, proxy=TrustedProxy([PROXY]))


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        (["--proxy", PROXY], "a trusted proxy needs --auth"),
        (["--auth", "--user-header", USER], "name its address"),
        (["--auth", "--grant", "*=viewer"], "name its address"),
        (["--auth", "--proxy", PROXY, "--user-header", USER, "--grant", "viewer"], "is not WHO=ROLE"),
        (["--auth", "--proxy", PROXY, "--user-header", USER], "no user of the proxy has a role"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(
    sqlite_database: SqliteDatabase, tmp_path: Any, options: list[str], stated: str
) -> None:
    (tmp_path / "wane.toml").write_text("")
    run = CliRunner().invoke(
        command_line, ["serve", "-c", str(tmp_path / "wane.toml"), "--url", sqlite_database.url, *options]
    )
    assert run.exit_code != 0
    assert stated in re.sub(r"[\s│]+", " ", f"{run.output} {run.exception}")
