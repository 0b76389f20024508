"""`wane partition`: tables by the month, converted while everybody works, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from wane.cli.options import (
    CONTRACT,
    ContractOption,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    UrlOption,
)
from wane.cli.output import console, count_text, counts_text, many, moment_text, print_json, say, seconds_text, table
from wane.cli.prune import ActorOption, sweeping
from wane.contract.load import load_contract
from wane.events import Event, Listener, PartitionStep, nobody
from wane.keeper import Keeper, open_keeper
from wane.observe.logs import LogFormat, LogLevel, configure_logging, log_event
from wane.partition.model import PartitionDone, PartitionPlan, Retiring
from wane.prune.pace import FAST

partition_app = typer.Typer(
    help="Tables by the month (PostgreSQL): converted while everybody works, retired by the month, and back.",
    no_args_is_help=True,
)
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="A table that [partition] of the contract names.")]


@partition_app.command("plan")
def partition_plan(
    name: TableArgument,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what converting a table would do: every statement, its lock, and what would stop working. Changes nothing."""
    with open_keeper(url, contract=contract, read_only=True) as keeper:
        plan = keeper.partition.plan(name)
    if as_json:
        print_json(plan.as_json())
        return
    _print_plan(plan)


def _print_plan(plan: PartitionPlan) -> None:
    out = console()
    advice = "recommended" if plan.recommended else "not recommended"
    out.print(f"[bold]{escape(plan.table)}[/] {escape(plan.state)}, {count_text(plan.rows)} rows", soft_wrap=True)
    say(f"{advice}: {escape(plan.why)}" if plan.state == "plain" else escape(plan.why))
    for what, fix in plan.refused:
        say(f"[red]refused:[/] {escape(what)}")
        say(f"  [green]fix:[/] {escape(fix)}")
    if plan.until is not None:
        say(f"everything before {plan.until} stays where it is; then {', '.join(map(escape, plan.partitions))}")
    elif plan.partitions:
        say(f"its partitions: {', '.join(map(escape, plan.partitions))}")
    for step in plan.steps:
        lock = ""
        for one in step.statements:
            if one.lock != lock:
                out.print(f"[dim]-- {step.state}: {escape(one.lock)}[/]", soft_wrap=True)
                lock = one.lock
            out.print(f"{escape(one.text)};", soft_wrap=True, highlight=False)
    for broken in plan.breaks:
        say(f"[yellow]{broken.code}:[/] {escape(broken.what)}")
        say(f"  [green]instead:[/] {escape(broken.instead)}")
    for note in plan.notes:
        say(f"[dim]note: {escape(note)}[/]")
    for following in plan.along:
        _print_plan(following)


@partition_app.command("convert")
def partition_convert(
    name: TableArgument,
    accept: Annotated[
        bool, typer.Option("--accept", help="Proceed although the plan lists what will stop working.")
    ] = False,
    split: Annotated[
        bool, typer.Option("--split", help="Then split what was there into months, too: copied beside the application.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="With --split: no pauses between batches.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Partition a table by the month while everybody works. Whatever stops it, running it again goes on; undo takes it back."""
    if dry_run:
        partition_plan(name, contract, url, as_json=as_json)
        return
    configure_logging(log_level, log_format)
    with (
        sweeping(nobody, as_json=as_json) as (stop, listener),
        _changing(contract, url, actor, listener, as_json=as_json) as keeper,
    ):
        done = [keeper.partition.convert(name, accept=accept)]
        if split and not stop.event.is_set():
            done.append(keeper.partition.split(name, pace=FAST if fast else None, stop=stop.event))
    _tell(done, as_json=as_json)
    stop.end()


@partition_app.command("maintain")
def partition_maintain(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="All that are partitioned if none is named.")
    ] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make partitions ahead. `wane run` does the same by itself."""
    configure_logging(log_level, log_format)
    with _changing(contract, url, actor, log_event, as_json=as_json) as keeper:
        done = keeper.partition.maintain(*(names or ()))
    if not done and not as_json:
        say("no table is partitioned yet: `wane partition convert TABLE` does that")
    _tell(done, as_json=as_json)


@partition_app.command("retire")
def partition_retire(
    name: TableArgument,
    reattach: Annotated[
        str | None, typer.Option(metavar="PARTITION", help="Put this partition back instead, while it is aside.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would leave and what stays; change nothing.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses between batches: for maintenance windows.")] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let months go that are past their time, if the flags allow it, and drop those that were aside for long enough.

    A month with one row that must stay is not retired, and says why. Ctrl-C and SIGTERM stop between two batches; running it again goes on. Exits 1 if a month failed. `wane run` does the same by itself.
    """
    if reattach is not None and dry_run:
        raise typer.BadParameter("putting back has no dry run", param_hint="--dry-run")
    configure_logging(log_level, log_format)
    with (
        sweeping(nobody, as_json=as_json) as (stop, listener),
        _changing(contract, url, actor, listener, as_json=as_json) as keeper,
    ):
        if reattach is not None:
            done = [keeper.partition.reattach(name, reattach)]
            say(
                "still past its retention window: `wane run` will retire it again unless you add a hold or raise `keep`"
            )
        else:
            done = keeper.partition.retire(name, dry_run=dry_run, pace=FAST if fast else None, stop=stop.event)
    if as_json:
        print_json([asdict(one) for one in done])
    else:
        _print_retired(name, done)
    stop.end(failed=any(one.outcome == "failed" for one in done))


def _print_retired(name: str, done: list[Retiring]) -> None:
    if not done:
        say(f"no month of {escape(name)} is past its time, and none has been aside for long enough")
        return
    shown = table("partition", "ended", "rows", "where", "until", right=("rows",))
    for one in done:
        colour = {"stays": "yellow", "stopped": "yellow", "off": "yellow", "failed": "red"}.get(one.outcome, "green")
        shown.add_row(
            escape(one.partition),
            f"[{colour}]{one.outcome}[/]",
            counts_text(one.counts),
            escape(one.place or ""),
            moment_text(one.drop_at),
        )
    console().print(shown)
    for one in done:
        if one.why:
            say(f"{escape(one.partition or name)}: {escape(one.why)}")


@partition_app.command("undo")
def partition_undo(
    name: TableArgument,
    reattach: Annotated[
        bool, typer.Option("--reattach", help="Put months back first that are aside. Without it they refuse.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses between batches: for maintenance windows.")] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a plain table of it again: at once; rows that came since follow in batches. Ctrl-C and SIGTERM stop between two.

    A conversion that was not finished is taken back.
    """
    configure_logging(log_level, log_format)
    with (
        sweeping(nobody, as_json=as_json) as (stop, listener),
        _changing(contract, url, actor, listener, as_json=as_json) as keeper,
    ):
        done = keeper.partition.undo(name, reattach=reattach, pace=FAST if fast else None, stop=stop.event)
    _tell([done], as_json=as_json)
    stop.end()


@contextmanager
def _changing(
    contract: Path, url: str | None, actor: str | None, listener: Listener, *, as_json: bool
) -> Iterator[Keeper]:
    loaded = load_contract(contract)
    with open_keeper(url, contract=loaded, actor=actor, listener=_told(listener, as_json=as_json)) as keeper:
        yield keeper


def _told(listener: Listener, *, as_json: bool) -> Listener:
    """Print every step when it is done: some of them take long."""

    def listen(event: Event) -> None:
        listener(event)
        if isinstance(event, PartitionStep) and not as_json:
            what = f"{event.partition} is {event.step}" if event.partition else event.step
            say(f"[dim]{escape(event.table)}: {escape(what)} ({seconds_text(event.seconds) or '< 1 s'})[/]")

    return listen


def _tell(done: list[PartitionDone], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in done])
        return
    for one in done:
        parts = [f"[bold]{escape(one.table)}[/] {'nothing to do' if one.did == 'nothing' else one.did}"]
        if one.partitions:
            parts.append(many(len(one.partitions), "partition"))
        if one.rows:
            parts.append(f"{many(one.rows, 'row')} moved")
        if one.longest_lock_seconds:
            parts.append(f"the longest lock {one.longest_lock_seconds * 1000:.0f} ms")
        if one.lock_waits:
            parts.append(f"{many(one.lock_waits, 'lock')} asked for again")
        say(", ".join(parts))
        for problem in one.problems:
            say(f"[yellow]left:[/] {escape(problem)}")
        if one.stopped:
            say("stopped: run it again to go on")
