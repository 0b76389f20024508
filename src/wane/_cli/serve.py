"""`wane serve`: the console and the HTTP API."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import print_line
from wane._keeper import database_url
from wane.errors import WrongArgument

if TYPE_CHECKING:
    from wane.web._proxy import TrustedProxy

app = typer.Typer()
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LIBRARIES = ("starlette", "jinja2", "uvicorn")


@command(app, "serve")
def serve(
    call: Call,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port to listen on.")] = 8420,
    authentication: Annotated[
        bool, typer.Option("--auth", help="Require tokens (`wane token create`), and allow actions by role.")
    ] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name under which it is reached, beside the address; repeatable."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="An address or network of a proxy in front of it; repeatable."),
    ] = None,
    user_header: Annotated[
        str | None,
        typer.Option(metavar="HEADER", help="The header in which the proxy names the user it has signed in."),
    ] = None,
    groups_header: Annotated[
        str | None, typer.Option(metavar="HEADER", help="The header with the user's groups, separated by commas.")
    ] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHO=ROLE",
            help="The role of a user of the proxy, of a group (@GROUP), or of everyone (*); repeatable.",
        ),
    ] = None,
) -> CommandResult | None:
    """Serve the console and the HTTP API until a signal. Without --auth it only reads, and only this machine sees
    it."""
    if host not in _LOOPBACK and not authentication:
        raise typer.BadParameter(f"{host} is reached from other machines: add --auth", param_hint="--host")
    if proxy and not authentication:
        raise typer.BadParameter("a trusted proxy needs --auth", param_hint="--proxy")
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise WrongArgument(
            f"the libraries of the console are missing: {', '.join(missing)}", "pip install 'wane[web]'"
        )
    import uvicorn

    from wane.web import LOOPBACK, console

    contract = call.load()
    database_url(call.url, contract)  # A missing database is reported before anything listens.
    names = {*LOOPBACK, host, *(host_name or ())}
    trusted = _trusted(proxy or (), user_header, groups_header, grant or ())
    served = console(contract, url=call.url, authentication=authentication, host_names=names, proxy=trusted)
    shown = f"[{host}]" if ":" in host else host
    _require_free(host, port)
    print_line(f"console: {escape(f'http://{shown}:{port}/')}")
    uvicorn.run(
        served,
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=10,
        # A header of the proxy counts by the address of the connection, so uvicorn must not replace that.
        proxy_headers=trusted is None,
    )
    return None


def _require_free(host: str, port: int) -> None:
    """Raise WrongArgument if another process listens there, before the address of the console is printed."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as problem:
        # Other mistakes of an address are uvicorn's to report.
        if problem.errno == errno.EADDRINUSE:
            message = f"the console cannot be served on {host} port {port}: the port is in use"
            raise WrongArgument(message, "another process serves there; choose another --port") from None


def _trusted(
    addresses: Sequence[str], user_header: str | None, groups_header: str | None, grants: Sequence[str]
) -> TrustedProxy | None:
    from wane.web._proxy import TrustedProxy

    if not addresses:
        if user_header or groups_header or grants:
            raise typer.BadParameter("only a proxy may name users: name its address", param_hint="--proxy")
        return None
    pairs = [text.rpartition("=")[::2] for text in grants]
    if unclear := [text for text, (who, _) in zip(grants, pairs, strict=True) if not who]:
        raise typer.BadParameter(f"{unclear[0]!r} is not WHO=ROLE", param_hint="--grant")
    return TrustedProxy(addresses, user_header=user_header, groups_header=groups_header, grants=dict(pairs))
