"""`wane demo`: the main job, told step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from wane.cli.output import console, print_findings, summary, table
from wane.cli.plan import print_plan
from wane.demo import walk
from wane.demo.seed import ROWS


def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where to build it; made afresh each time.")] = Path(".demo"),
    rows: Annotated[int, typer.Option(min=1_000, max=10_000_000, help="About how many rows.")] = ROWS,
) -> None:
    """Build a sample database with every table family, and walk through the main job."""
    out = console()
    _heading("1. A busy application's database", "every table family of the reference contracts, with traps in it")
    try:
        built = _build(folder, rows)
    except FileExistsError as problem:
        raise typer.BadParameter(str(problem), param_hint="--dir") from None
    shown = table("table", "rows", right=("rows",))
    for name, count in sorted(built.counts.items(), key=lambda one: -one[1])[:8]:
        shown.add_row(name, f"{count:,}")
    shown.add_row(f"and {len(built.counts) - 8} more", f"{sum(sorted(built.counts.values())[:-8]):,}")
    out.print(shown)
    _command(
        f"wane check --cover -c {built.contract}", "does the contract fit the database, and is every table bounded?"
    )
    findings = walk.check(built)
    print_findings(findings)
    out.print(f"[green]{len(built.counts)} tables, every one bounded[/] ({summary(findings)})")
    _command(f"wane plan -c {built.contract}", "what would leave now? (reads only)")
    made = walk.plan(built)
    print_plan(made)
    _heading(
        "What stays, and why",
        "rows that look as if they should leave; a cron job with a DELETE would take most of them",
    )
    shown = table("table", "rows", "why they stay", right=("rows",))
    for trap, count in walk.stayed(built):
        shown.add_row(escape(trap.table), f"{count}", trap.why)
    out.print(shown)


def _heading(title: str, subtitle: str) -> None:
    console().print(f"\n[bold reverse] {title} [/] [dim]{escape(subtitle)}[/]\n")


def _command(command: str, why: str) -> None:
    console().print(f"\n[bold]$ {escape(command)}[/]  [dim]# {escape(why)}[/]\n", soft_wrap=True)


def _build(folder: Path, rows: int) -> walk.Built:
    out = console(stderr=True)
    columns = TextColumn("filling {task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} tables")
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("", total=None)
        return walk.build(
            folder,
            rows=rows,
            progress=lambda name, done, total: progress.update(task, description=name, completed=done, total=total),
        )
