"""The console and the HTTP API as one ASGI application: serve it with `wane serve`, or mount it into another.

from wane.web import console

app.mount("/retention", console("wane.toml", authentication=True))
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from wane._contract.model import Contract
from wane.errors import WrongArgument
from wane.web._access import AccessRole, create_token, list_tokens, revoke_token
from wane.web._proxy import TrustedProxy

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["LOOPBACK", "AccessRole", "TrustedProxy", "console", "create_token", "list_tokens", "revoke_token"]
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def console(
    contract: Contract | Path | str,
    *,
    url: str | None = None,
    authentication: bool = False,
    host_names: Collection[str] = LOOPBACK,
    proxy: TrustedProxy | None = None,
) -> Starlette:
    """Return the console and the API as an ASGI application, to be served alone or mounted into another.

    Without `authentication` it only reads. `host_names` are those that requests may be for; "*" allows all, where a
    proxy in front checks them. A `proxy` (`wane.web.TrustedProxy`) may name the user; the server must not rewrite the
    addresses of clients itself. It needs the libraries of `wane[web]`.
    """
    from wane._contract.load import load_contract
    from wane.web._app import Web
    from wane.web._shield import Rates

    if proxy is not None and not authentication:
        raise WrongArgument("a trusted proxy needs authentication", "pass authentication=True")
    if not isinstance(contract, Contract):
        contract = load_contract(contract)
    return Web(contract, url, authentication=authentication, proxy=proxy).app(host_names, Rates())
