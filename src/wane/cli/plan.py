"""`wane plan`: what is due now."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, count_text, moment_text, print_findings, say, seconds_text, table
from wane.keeper import open_keeper
from wane.plan.build import READ_SECONDS
from wane.plan.model import Plan, Step
from wane.store.base import Exactness


def plan(
    only: Annotated[list[str] | None, typer.Argument(help="TABLE or TABLE.RULE; all if none is named.")] = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the statements and their query plans.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the plan to a file, for `wane apply`.")] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 3 if rows are due.")] = False,
    seconds: Annotated[float, typer.Option(min=0.01, help="The longest that one read may take.")] = READ_SECONDS,
    at: Annotated[str | None, typer.Option(help="Plan for this moment (ISO 8601) instead of now.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what would leave now, rule by rule. Reads only, in bounded time."""
    moment = _moment(at)
    with open_keeper(url, contract=contract, read_only=True) as keeper, _progress() as progress:
        task = progress.add_task("planning", total=None)
        made = keeper.plan(
            *(only or ()),
            now=moment,
            seconds=seconds,
            explain=verbose,
            progress=lambda done, total, name: progress.update(task, completed=done, total=total, description=name),
        )
    if out is not None:
        made.write(out)
    if as_json:
        typer.echo(made.as_json())
    else:
        print_plan(made, verbose=verbose)
        if out is not None:
            say(f"wrote [bold]{out}[/]")
    if made.problems:
        raise typer.Exit(1)
    if exit_code and made.due:
        raise typer.Exit(3)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an ISO 8601 moment", param_hint="--at") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _progress() -> Progress:
    out = console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.completed}/{task.total} {task.description}")
    return Progress(*columns, console=out, transient=True, disable=not out.is_terminal)


def print_plan(made: Plan, *, verbose: bool = False) -> None:
    """The plan as a table, then what could not be planned."""
    shown = table(
        "rule",
        "then",
        "due",
        "of",
        "share",
        "oldest",
        "newest",
        "cutoff",
        "with",
        "takes",
        right=("due", "of", "share", "takes"),
    )
    for step in made.steps:
        shown.add_row(*_row(step))
    out = console()
    out.print(f"[bold]{escape(made.url)}[/] at {moment_text(made.made_at)} UTC, contract {made.fingerprint}")
    out.print(shown)
    if verbose:
        for step in made.steps:
            _print_statement(step)
    print_findings(made.problems)
    counts = [step.due for step in made.steps]
    inexact = any(count is None or count.exactness is not Exactness.EXACT for count in counts)
    say(f"{'about ' if inexact else ''}[bold]{made.due:,}[/] rows due under {len(made.steps)} rules")


def _row(step: Step) -> list[str]:
    due = count_text(step.due)
    name = f"{step.table}.{step.rule}"
    return [
        escape(name),
        step.action if step.swept else f"{step.action} (explicit)",
        f"[bold]{due}[/]" if due != "0" else "[dim]0[/]",
        count_text(step.table_rows),
        "" if step.share is None else f"{step.share:.1%}",
        moment_text(step.oldest),
        moment_text(step.newest),
        moment_text(step.cutoff),
        ", ".join(f"{escape(name)} {count_text(count)}" for name, count in step.followers.items()),
        seconds_text(step.seconds),
    ]


def _print_statement(step: Step) -> None:
    out = console()
    out.print(f"\n[bold]{escape(step.table)}.{escape(step.rule)}[/]")
    out.print(escape(step.statement), soft_wrap=True)
    out.print(f"[dim]{escape(json.dumps(step.parameters, default=str, ensure_ascii=False))}[/]", soft_wrap=True)
    out.print(escape(step.query_plan), style="cyan", soft_wrap=True)
