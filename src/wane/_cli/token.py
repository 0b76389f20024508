"""`wane token`: who may use the console and the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from wane._cli.harness import WITHOUT_TABLES, Call, CommandResult, Services, command
from wane._cli.output import console, print_line, table
from wane._cli.values import parse_length
from wane._formats import time_text

if TYPE_CHECKING:
    from wane.web._sql_tokens import AccessToken

app = typer.Typer(help="Tokens of the console and the HTTP API.", no_args_is_help=True)


@command(app, "create", Services(actor=True))
def token_create(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: the audit trail names it.")],
    role: Annotated[str, typer.Option(metavar="ROLE", help="viewer, operator or admin.")] = "viewer",
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long it is valid, such as 90d; until revoked if left out."),
    ] = None,
) -> CommandResult:
    """Create a token and print it, once: only its hash is stored."""
    from wane.web._access import create_token

    after = None if expires is None else parse_length(expires, "--expires")
    made, text = create_token(call.open(call.load(without_file=WITHOUT_TABLES)), name, role, expires_after=after)

    def show() -> None:
        console().print(text, soft_wrap=True)
        print_line(f"token [bold]{made.id}[/] of {escape(made.name)}, role {made.role}: it is not shown again")

    return CommandResult({**asdict(made), "token": text}, show)


@command(app, "list")
def token_list(call: Call) -> CommandResult:
    """List tokens, newest first, without their secrets."""
    from wane.web._access import list_tokens

    found = list_tokens(call.open(call.load(without_file=WITHOUT_TABLES)))
    return CommandResult(found, lambda: _print(found))


def _print(found: Sequence[AccessToken]) -> None:
    shown = table("token", "name", "role", "created", "by", "expires", "revoked")
    for one in found:
        times = time_text(one.expires_at), time_text(one.revoked_at)
        shown.add_row(one.id, escape(one.name), one.role, time_text(one.created_at), escape(one.created_by), *times)
    console().print(shown)


@command(app, "revoke")
def token_revoke(
    call: Call, number: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, from `wane token list`.")]
) -> CommandResult:
    """Revoke a token: from the next request on it is refused."""
    from wane.web._access import revoke_token

    revoke_token(call.open(call.load(without_file=WITHOUT_TABLES)), number)
    return CommandResult({"revoked": number}, lambda: print_line(f"token [bold]{escape(number)}[/] is revoked"))
