"""`wane hold`: orders that rows stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.harness import WITHOUT_TABLES, Call, CommandResult, command
from wane._cli.options import ShownOption
from wane._cli.output import console, print_line, table
from wane._cli.values import parse_end, parse_key
from wane._contract.names import TableName
from wane._formats import time_text
from wane._ledger import Hold

app = typer.Typer(help="Retain rows regardless of the rules.", no_args_is_help=True)


@command(app, "add")
def hold_add(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table, as the contract or the database names it.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it must stay.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="The row's primary key, repeated for each of its columns; the whole table if left out.",
        ),
    ] = None,
    ends: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When it ends: an ISO 8601 time, or a duration from now such as 30d; never if left out.",
        ),
    ] = None,
) -> CommandResult:
    """Hold a row, or a whole table. When this returns, no batch can take what is held."""
    values = {column: value for text in key or () for column, value in [parse_key(text)]}
    keeper = call.open(call.load(without_file=WITHOUT_TABLES))
    ends_at = None if ends is None else parse_end(ends, keeper.store.now(), "--ends")
    hold = keeper.hold(name, values or None, reason=reason, ends_at=ends_at)
    return CommandResult(hold, lambda: _print_hold(name, hold))


def _print_hold(name: str, hold: Hold) -> None:
    # Of a partition, the table that it is a part of is held.
    held = name if TableName.parse(name).name == TableName.parse(hold.table).name else hold.table
    what = escape(held) if hold.key is None else f"{escape(held)} {escape(hold.key)}"
    until = "" if hold.ends_at is None else f" until {time_text(hold.ends_at)}"
    print_line(f"hold [bold]{hold.id}[/]: {what} stays{until}")


@command(app, "list")
def hold_list(
    call: Call,
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this table's.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Past ones too.")] = False,
    limit: ShownOption = 100,
) -> CommandResult:
    """List holds in force, newest first."""
    keeper = call.open(call.load(without_file=WITHOUT_TABLES))
    holds = keeper.holds(name, everything=everything, limit=limit)
    return CommandResult(holds, lambda: _print_holds(holds))


def _print_holds(holds: Sequence[Hold]) -> None:
    shown = table("hold", "table", "key", "reason", "by", "since", "until", right=("hold",))
    for hold in holds:
        shown.add_row(
            str(hold.id),
            escape(hold.table),
            escape(hold.key or "the whole table"),
            escape(hold.reason),
            escape(hold.author),
            time_text(hold.created_at),
            time_text(hold.released_at or hold.ends_at),
        )
    console().print(shown)
    for hold in holds:
        if hold.lost and hold.released_at is None:
            print_line(
                f"[red]hold {hold.id} keeps no row: the database has no table {escape(hold.table)}[/]; hold it under its new"
                f" name, then `wane hold release {hold.id}`"
            )


@command(app, "release")
def hold_release(
    call: Call, number: Annotated[int, typer.Argument(metavar="HOLD", help="Its number, from `wane hold list`.")]
) -> CommandResult:
    """Release a hold: the rules decide again."""
    call.open(call.load(without_file=WITHOUT_TABLES)).release_hold(number)
    return CommandResult({"released": number}, lambda: print_line(f"hold [bold]{number}[/] is released"))
