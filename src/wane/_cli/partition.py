"""`wane partition`: tables by the month, converted online, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.options import FastOption
from wane._cli.output import console, counts_text, many, print_line, table
from wane._formats import counted, seconds_text, time_text
from wane._keeper import Keeper
from wane._partition.model import PartitionDone, PartitionPlan, Retiring
from wane._prune.pace import FAST
from wane.events import Event, PartitionStep

app = typer.Typer(
    help="Tables by the month (PostgreSQL): converted online, retired by the month, and back.", no_args_is_help=True
)
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="A table of the contract's section `partition`.")]
_LONG_WORK = Services(actor=True, logs=True, progress=True, stops_after="batch")


@command(app, "plan")
def partition_plan(call: Call, name: TableArgument) -> CommandResult:
    """Show what converting a table would do: every statement, its lock, and what would stop working. Changes
    nothing."""
    plan = call.open(read_only=True).partition.plan(name)
    return CommandResult(plan.as_json(), lambda: _print_plan(plan))


def _print_plan(plan: PartitionPlan) -> None:
    out = console()
    advice = "recommended" if plan.recommended else "not recommended"
    out.print(f"[bold]{escape(plan.table)}[/] {escape(plan.state)}, {counted(plan.rows, 'row')}", soft_wrap=True)
    print_line(f"{advice}: {escape(plan.why)}" if plan.state == "plain" else escape(plan.why))
    for what, fix in plan.refused:
        print_line(f"[red]refused:[/] {escape(what)}")
        print_line(f"  [green]fix:[/] {escape(fix)}")
    if plan.until is not None:
        print_line(f"everything before {plan.until} stays where it is; then {', '.join(map(escape, plan.partitions))}")
    elif plan.partitions:
        print_line(f"its partitions: {', '.join(map(escape, plan.partitions))}")
    for step in plan.steps:
        lock = ""
        for one in step.statements:
            if one.lock != lock:
                out.print(f"[dim]-- {step.state}: {escape(one.lock)}[/]", soft_wrap=True)
                lock = one.lock
            out.print(f"{escape(one.text)};", soft_wrap=True, highlight=False)
    for broken in plan.breaks:
        print_line(f"[yellow]{broken.code}:[/] {escape(broken.what)}")
        print_line(f"  [green]instead:[/] {escape(broken.instead)}")
    for note in plan.notes:
        print_line(f"[dim]note: {escape(note)}[/]")
    for following in plan.along:
        _print_plan(following)


@command(app, "convert", _LONG_WORK)
def partition_convert(
    call: Call,
    name: TableArgument,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="Proceed although the plan lists what will stop working; without it such a table is refused.",
        ),
    ] = False,
    split: Annotated[
        bool,
        typer.Option(
            "--split",
            help="Then split what was there into months, too: copied a few rows at a time beside the application, proven, then"
            " swapped.",
        ),
    ] = False,
    fast: FastOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
) -> CommandResult:
    """Partition a table by the month without blocking the application. After any interruption, running it again
    continues; undo reverts it."""
    if dry_run:
        return partition_plan(call, name)
    partition = _open(call).partition
    done = [partition.convert(name, accept=accept)]
    if split and not call.stop.event.is_set():
        done.append(partition.split(name, pace=FAST if fast else None, stop=call.stop.event))
    return CommandResult(done, lambda: _print_done(done))


@command(app, "maintain", Services(actor=True, logs=True))
def partition_maintain(
    call: Call,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="All that are partitioned if none is named.")
    ] = None,
) -> CommandResult:
    """Make partitions ahead. `wane run` does the same by itself."""
    done = _open(call).partition.maintain(*(names or ()))

    def show() -> None:
        if not done:
            print_line("no table is partitioned yet: `wane partition convert TABLE` does that")
        _print_done(done)

    return CommandResult(done, show)


@command(app, "retire", _LONG_WORK)
def partition_retire(
    call: Call,
    name: TableArgument,
    reattach: Annotated[
        str | None,
        typer.Option(
            metavar="PARTITION",
            help="Attach this partition again instead, with what left with it, while it is in quarantine.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would leave, and what stays and why, regardless of the flags; change nothing."
        ),
    ] = False,
    fast: FastOption = False,
) -> CommandResult:
    """Retire partitions that are past their retention window.

    They are detached if the flags allow it, and dropped when their quarantine is over. A partition with one row that
    must stay is not retired, and the output states why. Ctrl-C and SIGTERM stop between two batches; running it again
    continues. Exits 1 if one failed. `wane run` does the same by itself.
    """
    if reattach is not None and dry_run:
        raise typer.BadParameter("--reattach has no --dry-run", param_hint="--dry-run")
    keeper = _open(call)
    partition = keeper.partition
    noun = (
        "partition" if any(str(o.table) == name and o.by_application for o in keeper.contract.partitions) else "month"
    )
    if reattach is not None:
        done = [partition.reattach(name, reattach)]
        print_line(
            "still past its retention window: `wane run` will retire it again unless you add a hold or raise `keep`"
        )
    else:
        done = partition.retire(name, dry_run=dry_run, pace=FAST if fast else None, stop=call.stop.event)
    failed = any(one.outcome == "failed" for one in done)
    return CommandResult(done, lambda: _print_retired(name, done, noun), 1 if failed else 0)


def _print_retired(name: str, done: list[Retiring], noun: str) -> None:
    if not done:
        print_line(f"no {noun} of {escape(name)} is past its time, and none has been in quarantine for long enough")
        return
    shown = table("partition", "ended", "rows", "where", "until", right=("rows",))
    for one in done:
        colour = {"stays": "yellow", "stopped": "yellow", "off": "yellow", "failed": "red"}.get(one.outcome, "green")
        shown.add_row(
            escape(one.partition),
            f"[{colour}]{one.outcome}[/]",
            counts_text(one.counts),
            escape(one.location or ""),
            time_text(one.drop_at),
        )
    console().print(shown)
    for one in done:
        if one.why:
            print_line(f"{escape(one.partition or name)}: {escape(one.why)}")


@command(app, "undo", _LONG_WORK)
def partition_undo(
    call: Call,
    name: TableArgument,
    reattach: Annotated[
        bool,
        typer.Option("--reattach", help="Attach months in quarantine first; without it they are a reason to refuse."),
    ] = False,
    fast: FastOption = False,
) -> CommandResult:
    """Make a partitioned table a plain one again, at once.

    Rows that were inserted since its conversion follow in batches; Ctrl-C and SIGTERM stop between two of them. A
    conversion that was not finished is reverted.
    """
    done = _open(call).partition.undo(name, reattach=reattach, pace=FAST if fast else None, stop=call.stop.event)
    return CommandResult([done], lambda: _print_done([done]))


def _open(call: Call) -> Keeper:
    """Open a keeper that prints every step when it is done: some of them take long."""

    def print_step(event: Event) -> None:
        if isinstance(event, PartitionStep) and not call.as_json:
            what = f"{event.partition} is {event.step}" if event.partition else event.step
            print_line(
                f"[dim]{escape(event.table)}: {escape(what)} ({seconds_text(event.seconds) or 'less than 1 s'})[/]"
            )

    return call.open(listeners=[print_step])


def _print_done(done: Sequence[PartitionDone]) -> None:
    for one in done:
        parts = [f"[bold]{escape(one.table)}[/] {'nothing to do' if one.did == 'nothing' else one.did}"]
        if one.partitions:
            parts.append(many(len(one.partitions), "partition"))
        if one.rows:
            parts.append(f"{many(one.rows, 'row')} moved")
        if one.longest_lock_seconds:
            parts.append(f"the longest lock {one.longest_lock_seconds * 1000:.0f} ms")
        if one.lock_waits:
            parts.append(f"{many(one.lock_waits, 'lock')} retried")
        print_line(", ".join(parts))
        for problem in one.problems:
            print_line(f"[yellow]left:[/] {escape(problem)}")
        if one.stopped:
            print_line("stopped: run it again to resume")
