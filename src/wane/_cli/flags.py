"""`wane enable`, `wane disable`: the flags that gate sweeps."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import print_line

app = typer.Typer()
TableArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table; the master flag if left out.")]


@command(app, "enable")
def enable(call: Call, name: TableArgument = None) -> CommandResult:
    """Turn sweeps on: all of them (the master flag), or one table's."""
    flag = call.open().enable(name)
    return CommandResult({"flag": flag, "enabled": True}, lambda: print_line(f"{escape(flag)} is [bold]on[/]"))


@command(app, "disable")
def disable(call: Call, name: TableArgument = None) -> CommandResult:
    """Turn sweeps off: all of them, or one table's. A running sweep stops at its next batch."""
    flag = call.open().disable(name)
    return CommandResult({"flag": flag, "enabled": False}, lambda: print_line(f"{escape(flag)} is [bold]off[/]"))
