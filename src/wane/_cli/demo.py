"""`wane demo`: the main job, step by step."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn

from wane._cli.archive import print_run, starting
from wane._cli.archive_query import Format, print_rows
from wane._cli.archive_restore import print_restored
from wane._cli.archive_survey import print_survey
from wane._cli.audit import print_trail
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.output import console, many, print_findings, print_line, summary, table
from wane._cli.plan import print_plan
from wane._cli.prune import print_pruned, print_sweep
from wane._demo import walk
from wane._demo.seed import ROWS, Trap
from wane._findings import Finding
from wane.errors import SparkError

app = typer.Typer()
_TRAIL = 8
_LARGEST = 8
"""Tables that are named one by one."""


@command(app, "demo", Services(database=False))
def demo(
    call: Call,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="FOLDER", help="Where to build it; made afresh each time.")
    ] = Path(".demo"),
    rows: Annotated[int, typer.Option(min=1_000, max=10_000_000, help="About how many rows.")] = ROWS,
    archive: Annotated[
        bool, typer.Option("--archive/--no-archive", help="Show the archive too, which starts Spark.")
    ] = True,
) -> CommandResult | None:
    """Build a sample database with every table family, and walk through the main job."""
    try:
        if call.as_json:
            return CommandResult(_walk_silently(folder, rows, archive=archive), lambda: None)
        walk_through(folder, rows, archive=archive)
        return None
    except OSError as problem:
        message = f"{folder} cannot be used: {problem.strerror}; name another folder"
        raise typer.BadParameter(message, param_hint="--dir") from None


def walk_through(folder: Path, rows: int, *, archive: bool) -> None:
    """Build the database, do the main job, and print each step when it is done."""
    out = console()
    _heading("A busy application's database", "Every table family of the reference contracts, with traps in it.")
    built = _build(folder, rows)
    _tables(built.counts)

    _heading("Does the contract fit, and is every table bounded?", f"$ wane check --cover -c {built.contract}")
    findings = walk.check(built)
    _findings(findings)
    out.print(f"[green]{many(len(built.counts), 'table')}, every one bounded[/] ({summary(findings)})")

    at = f"{built.now:%Y-%m-%dT%H:%M:%SZ}"
    _heading("What would leave now? Reads only.", f"$ wane plan --at {at} --out {built.plan} -c {built.contract}")
    made = walk.plan(built)
    print_plan(made)

    _heading(
        "Let exactly that leave, in bounded audited batches",
        f"$ wane migrate -c {built.contract}",
        f"$ wane enable -c {built.contract}",
        f"$ wane apply {built.plan} --fast -c {built.contract}",
    )
    swept = walk.apply(built, made)
    print_sweep(swept)

    states = " ".join(f"--state {state}" for state in walk.WEBHOOK_STATES)
    _heading(
        "Append-only tables give rows to an explicit call alone",
        f"$ wane prune knocker_events {states} --older-than {built.week_ago:%Y-%m-%dT%H:%M:%SZ} -c {built.contract}",
    )
    pruned = walk.prune_webhooks(built)
    print_pruned(pruned)

    moved = _archive(built) if archive else None

    _heading("The trail", f"$ wane audit list --limit {_TRAIL} -c {built.contract}")
    print_trail(walk.trail(built, _TRAIL))

    _heading("What stayed, and why", "Rows that seem due and are not. A nightly DELETE would take most of them.")
    stayed = walk.stayed(built)
    _traps(stayed)

    left = sum(rule.rows for rule in swept.rules if rule.action == "prune") + pruned.rows
    marked = sum(rule.rows for rule in swept.rules if rule.action == "mark")
    elsewhere = "" if moved is None else f" {_archived(moved):,} are in the archive,"
    out.print(
        f"\nOf {sum(built.counts.values()):,} rows [bold]{left:,}[/] left, {marked:,} were marked,{elsewhere}"
        f" and {_safe(stayed)}.\n\nLook around:"
    )
    for words in ("plan -v job_queue", "check --show", "audit list", "why channel_inbox 1", "serve", "sweep"):
        out.print(f"  {_wane()} {words} -c {escape(str(built.contract))}", soft_wrap=True)


def _safe(stayed: list[tuple[Trap, int]]) -> str:
    """Report how many planted rows exist now, and what became of the others."""
    planted, there = sum(trap.rows for trap, _ in stayed), sum(count for _, count in stayed)
    aged = sum(trap.rows - count for trap, count in stayed if not trap.lasting)
    lost = planted - there - aged
    text = f"of {planted} rows planted as traps [bold]{there}[/] stayed"
    text += f", {aged} became due while you watched, and left" if aged else ""
    return text + (f", [red]and {lost} are missing[/]" if lost else "")


def _archive(built: walk.Built) -> walk.Archived | None:
    """Archive what must be retained elsewhere, and print each step when it is done."""
    contract, table_ = f"-c {built.contract}", walk.ARCHIVED
    headings = {
        "run": (
            "Move what must be retained to the archive, on Spark: copied, proven, then evicted",
            f"$ wane archive run --fast {contract}",
        ),
        "query": (
            "Ask the archive",
            (
                f'$ wane archive query {table_} --where "{walk.FOUND}" --columns {",".join(walk.SHOWN)}'
                f" --limit {walk.SHOWN_ROWS} {contract}"
            ),
        ),
        "restore": ("Bring some of it back", ""),
        "survey": (
            "How much is where, and what will become of it",
            f"$ wane archive survey {table_} event_read {contract}",
        ),
    }

    def print_step(step: str, found: Any) -> None:
        title, command = headings[step]
        if step == "restore":
            keys = " ".join(f"--key id={row[0]}" for row in rows)
            command = f"$ wane archive restore {table_} {keys} --fast {contract}"
        _heading(title, command)
        if step == "run":
            print_run(found)
        elif step == "query":
            rows.extend(found)
            print_rows(list(walk.SHOWN), iter(found), Format.TABLE)
        elif step == "restore":
            print_restored(found)
        else:
            print_survey(found)

    rows: list[tuple[Any, ...]] = []
    try:
        return walk.archive(built, starting, print_step)
    except SparkError as problem:
        # Everything else works without it.
        print_line(f"[yellow]the archive is left out:[/] {escape(str(problem))}")
        return None


def _archived(moved: walk.Archived) -> int:
    """Count the rows that are in the archive now."""
    into = sum(sum(rule.evicted.values()) for rule in moved.run.rules)
    return into - sum(moved.restored.restored.values())


def _walk_silently(folder: Path, rows: int, *, archive: bool) -> dict[str, object]:
    built = _build(folder, rows)
    findings, made = walk.check(built), walk.plan(built)
    swept, pruned = walk.apply(built, made), walk.prune_webhooks(built)
    moved = walk.archive(built, starting, lambda *_: None) if archive else None
    stayed = walk.stayed(built)
    return {
        "contract": str(built.contract),
        "tables": built.counts,
        "findings": [finding.as_dict() for finding in findings],
        "due": {f"{step.table}.{step.rule}": step.due and step.due.rows for step in made.steps},
        "swept": {f"{rule.table}.{rule.rule}": rule.counts for rule in swept.rules},
        "pruned": pruned.counts,
        "archived": None if moved is None else {rule.table: rule.evicted for rule in moved.run.rules},
        "restored": None if moved is None else moved.restored.restored,
        "stayed": [
            {"table": trap.table, "trap": trap.name, "why": trap.why, "planted": trap.rows, "rows": count}
            for trap, count in stayed
        ],
    }


def _wane() -> str:
    """Return how this command was called, so that the next one can be copied."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "wane" and not called.is_absolute() else "wane"


def _heading(title: str, *lines: str) -> None:
    out = console()
    out.print(f"\n[bold reverse] {escape(title)} [/]")
    for line in lines:
        out.print(f"[{'bold' if line.startswith('$') else 'dim'}]{escape(line)}[/]", soft_wrap=True)
    out.print()


def _tables(counts: dict[str, int]) -> None:
    shown = table("table", "rows", right=("rows",))
    largest = sorted(counts.items(), key=lambda one: -one[1])
    for name, count in largest[:_LARGEST]:
        shown.add_row(escape(name), f"{count:,}")
    others = largest[_LARGEST:]
    shown.add_row(f"[dim]and {len(others)} more[/]", f"[dim]{sum(count for _, count in others):,}[/]")
    console().print(shown)


def _findings(findings: list[Finding]) -> None:
    """Summarise in one sentence the planted rows that never leave: every rule of the demonstration has some."""
    never = [finding.path.removeprefix("table.").replace(".rule.", ".") for finding in findings if _is_never(finding)]
    print_findings(finding for finding in findings if not _is_never(finding))
    if never:
        out = console()
        out.print(f"[cyan]note[/] [dim]never-due[/] [bold]{many(len(never), 'rule')}[/]")
        out.print("  Some of their rows have no time, or a placeholder for one. Those never leave.")
        out.print(Padding(f"[dim]{escape(', '.join(never))}[/]\n", (0, 2), expand=False))


def _is_never(finding: Finding) -> bool:
    return finding.code == "never-due"


def _traps(stayed: list[tuple[Trap, int]]) -> None:
    shown = table("table", "rows", "why they stay", right=("rows",))
    for name, traps in groupby(stayed, key=lambda one: one[0].table):
        for number, (trap, count) in enumerate(traps):
            rows, why = f"{count}", trap.why
            if count < trap.rows:
                rows = f"{count} of {trap.rows}" if not trap.lasting else f"[red]{count} of {trap.rows}[/]"
                why += f": {trap.rows - count} became due while you watched" if not trap.lasting else ""
            shown.add_row("" if number else escape(name), rows, escape(why))
    console().print(shown)


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
