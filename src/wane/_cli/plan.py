"""`wane plan`: what is due now."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from wane._cli.confirm import NOTHING_DONE
from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import console, many, print_findings, print_line, print_widest, table
from wane._cli.statement_lines import break_lines
from wane._cli.values import parse_time
from wane._contract.duration import format_duration
from wane._contract.model import Contract, describe_transform
from wane._db.counting import READ_SECONDS, Count, Exactness, Figure, sum_counts
from wane._findings import command_line
from wane._formats import count_text, counted, seconds_text, share_text, time_text
from wane._prune.obstacles import PlannedObstacle, obstacles_of
from wane._prune.plan import Plan, Step

if TYPE_CHECKING:
    from wane._prune.build_plan import Progress

app = typer.Typer()


@command(app, "plan")
def plan(
    call: Call,
    only: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE[.RULE]...", help="Only these; all if none is named.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the statements, their values and their query plans.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the plan to a file, for `wane apply`.")] = None,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code", help="Exit 3 if rows are due; 1 if none were found, and those of some rule were not counted."
        ),
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="The longest that one read may take; what takes longer is estimated.")
    ] = READ_SECONDS,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Plan for this time (ISO 8601, unix seconds, or a duration ago).")
    ] = None,
) -> CommandResult:
    """Show what would leave now, rule by rule. Reads only, in bounded time."""
    contract = call.load()
    made, obstacles = build_plan(call, only, contract=contract, verbose=verbose, seconds=seconds, at=at)
    if out is not None:
        made.write(out)
    planned = {step.table for step in made.steps}
    retired = [str(one.table) for one in contract.partitions if str(one.table) in planned]
    result = plan_result(made, obstacles, verbose=verbose, out=out, retired=retired)
    if result.exit_code or not exit_code:
        return result
    unknown = any(step.due is None for step in made.steps)  # Unknown is not none.
    found = any(step.due is not None and step.due.rows for step in made.steps)
    return replace(result, exit_code=3 if found else 1 if unknown else 0)


def build_plan(
    call: Call,
    only: Sequence[str] | None,
    *,
    contract: Contract | None = None,
    verbose: bool = False,
    seconds: float = READ_SECONDS,
    at: str | None = None,
    approved: Collection[str] = (),
) -> tuple[Plan, list[PlannedObstacle]]:
    """Plan what is due, and find what stops sweeps of it; show how far the reads are on a terminal."""
    keeper = call.open(contract, read_only=True)
    with _progress() as progress:
        made = keeper.plan(
            *(only or ()),
            now=None if at is None else parse_time(at, keeper.store.now(), "--at"),
            seconds=seconds,
            explain=verbose,
            progress=progress,
        )
    return made, obstacles_of(keeper.store, keeper.contract, made, approved=approved)


def plan_result(
    made: Plan,
    obstacles: Sequence[PlannedObstacle],
    *,
    verbose: bool = False,
    out: Path | None = None,
    retired: Sequence[str] = (),
) -> CommandResult:
    """Return a plan as the result of a command, which fails if a rule could not be planned.

    `retired`: tables of which rows also leave with whole partitions.
    """

    partitions = [
        {"table": name, "command": command_line("partition", "retire", name, "--dry-run")} for name in retired
    ]

    def show() -> None:
        print_plan(made, verbose=verbose)
        _print_obstacles(made, obstacles)
        for one in partitions:
            print_line(
                f"[dim]{escape(one['table'])}: rows leave with whole partitions too: `{escape(one['command'])}`[/]"
            )
        if out is not None:
            print_line(f"wrote [bold]{escape(str(out))}[/]")

    code = 1 if made.problems else 0 if made.steps else NOTHING_DONE
    return CommandResult({**made.as_dict(), "partitions": partitions, "obstacles": obstacles}, show, code)


def _print_obstacles(made: Plan, obstacles: Sequence[PlannedObstacle]) -> None:
    """Print what stops sweeps of what is due, each once, and which command moves what no sweep does."""
    due = [step for step in made.steps if step.swept and step.due != Count(0)]
    stopped: dict[tuple[str, str], list[str]] = {}
    for one in obstacles:
        stopped.setdefault((one.message, one.fix), []).append(f"{one.table}.{one.rule}")
    for (message, fix), names in stopped.items():
        which = "" if len(names) == len(due) > 1 else f"{', '.join(names)}: "
        print_line(f"[yellow]not swept:[/] {escape(f'{which}{message}; {fix}')}")
    archiving = [f"{step.table}.{step.rule}" for step in due if step.action == "archive"]
    if archiving:
        print_line(escape(f"{', '.join(archiving)}: `wane archive run` moves these rows, `wane sweep` does not"))


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Yield what shows how far a plan is, on a terminal."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = SpinnerColumn(), TextColumn("{task.completed}/{task.total} {task.description}")
    with Progress(*columns, console=out, transient=True) as shown:
        task = shown.add_task("planning", total=None)
        yield lambda done, total, name: shown.update(task, completed=done, total=total, description=name)


def print_plan(made: Plan, *, verbose: bool = False) -> None:
    """Print the plan as a table, as wide as the terminal allows, then what could not be planned."""
    out = console()
    out.print(f"[bold]{escape(made.url)}[/] at {time_text(made.made_at)} UTC, contract {made.fingerprint}")
    print_widest(*(_table(made, columns, timespec) for columns, timespec in _LAYOUTS))
    if not all(step.swept for step in made.steps):
        out.print("[dim]* append-only: no sweep takes it, only an explicit prune[/]")
    explained = [explain(step) for explain in (_stops, _waits, _transforms) for step in made.steps]
    for note in [*_inexact(made), *filter(None, explained)]:
        out.print(f"[dim]{note}[/]", soft_wrap=True)
    if verbose:
        for step in made.steps:
            out.print(f"\n[bold]{escape(step.table)}.{escape(step.rule)}[/]")
            if step.saved_by_followers is not None:
                out.print(f"{counted(step.saved_by_followers, 'row')} more would be due without live followers")
            print_statements(step)
    print_findings(made.problems)
    print_line(_total(made))


_ALL = ("rule", "then", "due", "of", "share", "oldest", "newest", "cutoff", "takes")
_LAYOUTS = (
    (_ALL, "seconds"),
    (_ALL, "minutes"),
    (("rule", "then", "due", "of", "share", "oldest", "cutoff", "takes"), "minutes"),
    (("rule", "then", "due", "of", "share", "oldest", "cutoff"), "days"),
    (("rule", "then", "due", "of", "share", "oldest"), "days"),
    (("rule", "due", "of", "oldest"), "days"),
    (("rule", "due"), "days"),
)
"""What a plan shows, from the widest terminal to the narrowest: what a reader misses least goes first."""


def _table(made: Plan, columns: Sequence[str], timespec: str) -> Table:
    shown = table(*columns, right=("due", "of", "share", "takes"))
    for step in made.steps:
        cells = _cells(step, timespec)
        shown.add_row(*(cells[column] for column in columns))
        for name, count in step.followers.items():
            live = ", live too" if name in step.live_followers else ""
            leaving = {"rule": f"[dim]  with {escape(name)}{live}[/]", "due": f"[dim]{count_text(count)}[/]"}
            shown.add_row(*(leaving.get(column, "") for column in columns))
    return shown


def _inexact(made: Plan) -> list[str]:
    """Explain what `wane apply` does with steps that were not counted."""
    counts = [step.due for step in made.steps if step.swept and step.action != "archive"]
    notes = []
    if any(count is not None and count.exactness is not Exactness.EXACT for count in counts):
        notes.append("~ and ≥ were not counted: `wane apply` refuses the plan if more rows than that are due")
    if None in counts:
        notes.append("? could not be found out: `wane apply` refuses the plan")
    return [*notes, "a larger --seconds leaves time to count"] if notes else []


def _cells(step: Step, timespec: str) -> dict[str, str]:
    due = count_text(step.due)
    return {
        "rule": escape(f"{step.table}.{step.rule}"),
        "then": step.action if step.swept else f"{step.action}*",
        "due": f"[bold]{due}[/]" if due != "0" else "[dim]0[/]",
        "of": count_text(step.table_rows),
        "share": share_text(_share(step)),
        "oldest": time_text(step.oldest, timespec),
        "newest": time_text(step.newest, timespec),
        "cutoff": time_text(step.cutoff, timespec),
        "takes": _takes(step),
    }


def _share(step: Step) -> Figure | None:
    return None if step.share is None or step.share_exactness is None else Figure(step.share, step.share_exactness)


def _takes(step: Step) -> str:
    """Format how long the next sweep takes: `2–5 s`, `up to 5 s`, `less than 1 s`, `≥ 40 s`, or `unknown`; nothing if
    it takes nothing."""
    if step.takes is None:
        return "" if step.due == Count(0) or not step.swept else "unknown"
    low, high = seconds_text(step.takes.low_seconds), seconds_text(step.takes.high_seconds)
    if step.takes.exactness is Exactness.AT_LEAST:
        return f"≥ {low}" if step.takes.low_seconds >= 1 else "unknown"
    if step.takes.low_seconds < 1:
        return f"up to {high}" if step.takes.high_seconds >= 1 else "less than 1 s"
    number, _, unit = low.rpartition(" ")
    short = number if unit == high.rpartition(" ")[2] else low
    return high if low == high else f"{short}–{high}"


def _stops(step: Step) -> str | None:
    """Explain which budget ends the next sweep, and what raises it."""
    if (stop := step.stop) is None:
        return None
    about = "" if stop.budget == "rows" else "about "
    return (
        f"{escape(step.table)}.{escape(step.rule)}: a sweep stops after {about}{many(stop.rows, 'row')}, at its budget of"
        f" {stop.limit:,} {stop.budget}; all that is due takes {stop.sweeps:,} sweeps or more."
        f" To take more in one, raise {escape(stop.setting)}"
    )


def _waits(step: Step) -> str | None:
    """Explain what the next scheduled sweep to the archive waits for."""
    if step.waits is None:
        return None
    longest = format_duration(timedelta(seconds=step.waits.longest_seconds))
    return (
        f"{escape(step.table)}.{escape(step.rule)}: workers and fleets archive when {step.waits.least_rows:,} rows are due, or one has"
        f" been due for {longest}; `wane archive run` does not wait"
    )


def _transforms(step: Step) -> str | None:
    """Explain what happens to columns on the way to the archive."""
    if step.transform is None:
        return None
    what = escape(describe_transform(step.transform))
    return f"{escape(step.table)}.{escape(step.rule)}: rows are transformed on the way to the archive: {what}"


def _total(made: Plan) -> str:
    """Summarise the plan: `~1,234 rows due under 3 rules, and 56 that leave with them`, and what is broken."""
    broken = many(len(made.problems), "error")
    if not made.steps:
        return f"[red]nothing could be planned:[/] {broken}" if made.problems else "no rule to plan"
    with_them = _followers_of(made.steps)
    unknown = Count(0, Exactness.AT_LEAST)
    due = "an unknown number of rows" if made.total == unknown else f"[bold]{counted(made.total, 'row')}[/]"
    text = f"{due} due under {many(len(made.steps), 'rule')}"
    if with_them == unknown:
        text += "; what leaves with them was not counted"
    elif with_them != Count(0):
        leaves = "leaves" if with_them == Count(1) else "leave"
        text += f", and {count_text(with_them)} that {leaves} with {'it' if made.total == Count(1) else 'them'}"
    return f"{text}; [red]{broken}[/]" if made.problems else text


def _followers_of(steps: Sequence[Step]) -> Count:
    """Add up what leaves with due rows: at most that many, where a row may be counted twice."""
    total = sum_counts(count for step in steps for count in step.followers.values())
    named = [name for step in steps for name, count in step.followers.items() if count != Count(0)]
    own = {step.table for step in steps if step.due != Count(0)}
    if len(set(named)) == len(named) and own.isdisjoint(named):
        return total
    return Count(total.rows, Exactness.AT_MOST if total.exactness is Exactness.EXACT else Exactness.ESTIMATE)


def print_statements(step: Step, *, values: bool = True) -> None:
    """Print the statements of a rule in the order in which they run, each with its values and its query plan."""
    out = console()
    for one in step.statements:
        out.print(f"\n[bold]-- {escape(one.purpose)}[/]", soft_wrap=True)
        out.print(escape(break_lines(one.text)), soft_wrap=True, highlight=False)
        if values and one.parameters:
            shown = json.dumps(one.parameters, default=str, ensure_ascii=False)
            out.print(f"[dim]{escape(shown)}[/]", soft_wrap=True)
        if one.query_plan:
            out.print(escape(one.query_plan), style="cyan", soft_wrap=True)
