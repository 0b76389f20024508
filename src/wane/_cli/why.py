"""`wane why`: what happens to one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.audit import print_trail
from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import console, print_line, table
from wane._cli.values import parse_key
from wane._findings import pasted
from wane._formats import time_text
from wane._rules.row_parts import MOST_COUNTED, RowCondition
from wane._why.model import GoneRow, RowVerdict, WhyRow, WhyRule
from wane._why.row import shown

app = typer.Typer()
_MARKS = {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]?[/]"}
_COLOURS = {RowVerdict.DUE: "green", RowVerdict.BLOCKED: "red", RowVerdict.GONE: "yellow"}


@command(app, "why")
def why(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table, as the contract names it.")],
    key: Annotated[
        list[str],
        typer.Argument(metavar="KEY...", help="The row's key: its value, or COLUMN=VALUE for each of its columns."),
    ],
) -> CommandResult:
    """Explain one row: which rule takes it and when, what retains it, or what is known of it if it is gone."""
    found = call.open().why(name, _parse(key))
    return CommandResult(found, lambda: _print(found))


def _parse(key: Sequence[str]) -> object:
    """Return the value of a key of one column, or the columns of a key."""
    if len(key) == 1 and "=" not in key[0]:
        return key[0]
    return dict(map(parse_key, key))


def _print(found: WhyRow) -> None:
    key = ", ".join(f"{name} = {value}" for name, value in found.key.items())
    colour = _COLOURS.get(found.verdict, "cyan")
    console().print(f"{escape(found.table)} {escape(key)}: [bold {colour}]{found.verdict.value}[/]", soft_wrap=True)
    console().print(escape(found.summary), soft_wrap=True)
    if found.gone is not None:
        _print_gone(found.gone)
        return
    for rule in found.rules:
        _print_rule(rule)
    for hold in found.holds:
        what = "the whole table" if hold.key is None else "this row"
        print_line(f"hold [bold]{hold.id}[/] is on {what}: {escape(hold.reason)} ({escape(hold.author)})")
    if found.partition is not None:
        console().print(escape(found.partition.summary), soft_wrap=True)
    if found.scheduler is None:
        if found.rules:  # Only append-only tables have rules and no scheduler.
            prunes = ", ".join(pasted("prune", f"{found.table}.{rule.rule}") for rule in found.rules)
            print_line(escape(f"no sweep takes rows of this table, which is append-only: {prunes} does"))
    elif found.next_sweep_at is not None:
        print_line(f"next window of {escape(found.scheduler)}: {time_text(found.next_sweep_at)}")


def _print_rule(rule: WhyRule) -> None:
    title = f"rule {rule.rule} ({rule.action}): {rule.verdict.value}"
    listed = table("fulfilled", "the rule requires", "the row has", title=escape(title))
    for one in rule.conditions:
        listed.add_row(_MARKS[one.met], escape(one.requires), escape(_has(one, rule)))
    for obstacle in rule.obstacles:
        listed.add_row("[red]no[/]", escape(f"not stopped by: {obstacle.kind}"), escape(obstacle.message))
    console().print(listed)
    for obstacle in rule.obstacles:
        if obstacle.fix:
            print_line(f"[green]fix:[/] {escape(obstacle.fix)}")


def _has(condition: RowCondition, rule: WhyRule) -> str:
    if condition.retaining is not None:
        return f"{'≥ ' if condition.retaining >= MOST_COUNTED else ''}{condition.retaining}"
    has = ", ".join(shown(value) for value in condition.values.values())
    if condition.kind != "bound" or rule.cutoff is None:
        return has
    time = "" if rule.time is None else f"{time_text(rule.time)}; "
    return f"{time}the cutoff is {time_text(rule.cutoff)}"


def _print_gone(gone: GoneRow) -> None:
    if gone.archived is not None:
        copy = gone.archived
        moved = "" if copy.moved_at is None else f" at {time_text(copy.moved_at)}"
        by = "" if copy.rule is None else f" by {copy.rule}"
        console().print(escape(f"archived{by}{moved}, sweep {copy.sweep}: {copy.file}"), soft_wrap=True)
        if copy.restore:
            console().print(f"[green]restore:[/] {escape(copy.restore)}", soft_wrap=True)
        else:
            print_line(f"[yellow]not restorable:[/] transformed on the way to the archive: {escape(copy.transformed)}")
    if gone.quarantined is not None:
        console().print(f"[green]put it back:[/] {escape(gone.quarantined.reattach)}", soft_wrap=True)
    if gone.departures:
        print_trail(gone.departures)
    for one in gone.unknown:
        print_line(f"[yellow]unknown:[/] {escape(one)}")
