"""`wane serve`: the console and the HTTP API."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import print_line
from wane._keeper import database_url
from wane.errors import WrongArgument

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
) -> CommandResult | None:
    """Serve the console and the HTTP API until a signal. Without --auth it only reads, and only this machine sees it."""
    if host not in _LOOPBACK and not authentication:
        raise typer.BadParameter(f"{host} is reached from other machines: add --auth", param_hint="--host")
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
    served = console(contract, url=call.url, authentication=authentication, host_names=names)
    shown = f"[{host}]" if ":" in host else host
    print_line(f"console: {escape(f'http://{shown}:{port}/')}")
    uvicorn.run(served, host=host, port=port, log_level="warning", server_header=False, timeout_keep_alive=10)
    return None
