"""`wane enable`, `wane disable`: the flags that gate sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.fleet import Listed, across
from wane._cli.harness import Call, CommandResult, command
from wane._cli.options import FleetOption
from wane._cli.output import print_line
from wane._keeper import Keeper

app = typer.Typer()
TableArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table; the master flag if left out.")]


@command(app, "enable")
def enable(call: Call, name: TableArgument = None, fleet: FleetOption = None) -> CommandResult:
    """Turn sweeps on: all of them (the master flag), or one table's."""
    return _set(call, name, fleet, enabled=True)


@command(app, "disable")
def disable(call: Call, name: TableArgument = None, fleet: FleetOption = None) -> CommandResult:
    """Turn sweeps off: all of them, or one table's. A running sweep stops at its next batch."""
    return _set(call, name, fleet, enabled=False)


def _set(call: Call, name: str | None, fleet: Path | None, *, enabled: bool) -> CommandResult:
    def switch(keeper: Keeper) -> str:
        return keeper.enable(name) if enabled else keeper.disable(name)

    state = "on" if enabled else "off"
    if fleet is not None:
        doing = "enable" if enabled else "disable"
        listed = Listed(("flag", "sweeps"), (), lambda flag: [(flag, state)], lambda _: {f"{doing}d": 1})
        return across(call, fleet, switch, listed, doing=doing)
    flag = switch(call.open())
    whose = "sweeps" if name is None else f"sweeps of {escape(name)}"
    text = f"{whose} are [bold]{state}[/] (flag {escape(flag)})"
    return CommandResult({"flag": flag, "enabled": enabled}, lambda: print_line(text))
