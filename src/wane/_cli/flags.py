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
    return _result(call.open().enable(name), name, enabled=True)


@command(app, "disable")
def disable(call: Call, name: TableArgument = None) -> CommandResult:
    """Turn sweeps off: all of them, or one table's. A running sweep stops at its next batch."""
    return _result(call.open().disable(name), name, enabled=False)


def _result(flag: str, name: str | None, *, enabled: bool) -> CommandResult:
    whose = "sweeps" if name is None else f"sweeps of {escape(name)}"
    text = f"{whose} are [bold]{'on' if enabled else 'off'}[/] (flag {escape(flag)})"
    return CommandResult({"flag": flag, "enabled": enabled}, lambda: print_line(text))
