"""`wane prune`, `wane sweep`, `wane apply`: taking rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from wane.cli.metrics_file import measured
from wane.cli.options import (
    CONTRACT,
    ContractOption,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    MetricsFileOption,
    UrlOption,
)
from wane.cli.output import console, count_text, counts_text, moment_text, print_json, say, table
from wane.cli.signals import Stop, stopping
from wane.cli.times import parse_time
from wane.contract.load import load_contract
from wane.contract.model import Contract, State
from wane.events import ArchiveMaintained, ArchiveProgress, ArchiveStep, BatchTaken, Event, Listener, SlowedDown
from wane.keeper import Keeper, open_keeper
from wane.observe.logs import LogFormat, LogLevel, configure_logging, log_event
from wane.prune.pace import FAST
from wane.prune.plan import read_plan
from wane.prune.primitive import Pruned
from wane.prune.sweep import Outcome, Sweep

ActorOption = Annotated[str | None, typer.Option(help="Who the trail says it was; you, if left out.")]


def prune(
    target: Annotated[str, typer.Argument(metavar="TABLE[.RULE]", help="By a rule of the contract, or a table.")],
    state: Annotated[list[str] | None, typer.Option(help="With a table: a state to prune. May be repeated.")] = None,
    older_than: Annotated[
        str | None, typer.Option(help="With a table: an ISO 8601 moment, unix seconds, or a duration such as 7d.")
    ] = None,
    orphans: Annotated[bool, typer.Option("--orphans", help="With a table: only rows without their parent.")] = False,
    limit: Annotated[int, typer.Option(help="The most rows to take, followers included.")] = 1_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would leave; take nothing.")] = False,
    metrics_file: MetricsFileOption = None,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take rows now, in one audited transaction, whatever the flags say.

    `wane prune channel_inbox.failed` goes by a rule; `wane prune channel_inbox --state failed --older-than 7d` by a cutoff of
    your own, with the contract's guards.
    """
    loaded = load_contract(contract)
    name, rule = _target(loaded, target)
    if rule is not None and (state or older_than or orphans):
        raise typer.BadParameter("a rule has its own states and cutoff", param_hint="TABLE.RULE")
    if rule is None and older_than is None:
        raise typer.BadParameter("say how old: no threshold, no deletion", param_hint="--older-than")
    with (
        measured(None if dry_run else metrics_file, loaded, url) as listener,
        open_keeper(url, contract=loaded, read_only=dry_run, actor=actor, listener=listener) as keeper,
    ):
        moment = None if older_than is None else parse_time(older_than, keeper.store.now(), "--older-than")
        states = _states(loaded, name, state)
        if dry_run:
            _dry_run(keeper, name, rule, states, moment, orphans=orphans, as_json=as_json)
            return
        if orphans:
            assert moment is not None
            pruned = keeper.prune_orphans(name, older_than=moment, limit=limit, states=states)
        else:
            pruned = keeper.prune(name, rule=rule, states=states, older_than=moment, limit=limit)
    if as_json:
        print_json({**asdict(pruned), "rows": pruned.rows})
    else:
        print_pruned(pruned)


def _target(contract: Contract, target: str) -> tuple[str, str | None]:
    """Split a target into a table and its rule, if it names one; a table's own name may have a dot in it."""
    if target in {str(one.name) for one in contract.tables}:
        return target, None
    name, _, rule = target.rpartition(".")
    return (name, rule) if name else (target, None)


def _states(contract: Contract, table: str, texts: list[str] | None) -> list[State] | None:
    """Return states as the contract writes them: on the command line a number looks like a text."""
    declared = [one for one in contract.tables if str(one.name) == table]
    known = {str(state): state for one in declared for rule in one.rules for state in rule.states}
    return [known.get(text, text) for text in texts] if texts else None


def _dry_run(
    keeper: Keeper,
    name: str,
    rule: str | None,
    states: list[State] | None,
    moment: datetime | None,
    *,
    orphans: bool,
    as_json: bool,
) -> None:
    preview = keeper.preview(name, rule=rule, states=states, older_than=moment, orphans=orphans)
    if as_json:
        print_json(asdict(preview))
        return
    out = console()
    out.print(f"[bold]{count_text(preview.due)}[/] rows of {escape(name)} would leave: nothing was changed")
    if preview.oldest is not None:
        out.print(f"oldest {moment_text(preview.oldest)}, newest {moment_text(preview.newest)}")
    for follower, count in preview.followers.items():
        live = ", live ones too" if follower in preview.live_followers else ""
        out.print(f"with them {count_text(count)} rows of {escape(follower)}{live}")
    out.print(escape(preview.statement), soft_wrap=True)
    out.print(escape(preview.query_plan), style="cyan", soft_wrap=True)


def print_pruned(pruned: Pruned) -> None:
    """Print what one call took."""
    verb = "marked" if pruned.kind == "mark" else "pruned"
    counts = ", ".join(f"{escape(name)} [bold]{count:,}[/]" for name, count in pruned.counts.items())
    console().print(f"{verb} {counts} (audit row {pruned.audit_id})")
    if pruned.skipped_locked:
        say("[yellow]others hold locks:[/] rows that they have locked were left for the next time")


def sweep(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE[.RULE]...", help="All rules if none is named.")
    ] = None,
    approve: Annotated[
        list[str] | None, typer.Option(metavar="TABLE.RULE", help="Let this rule take any share. May be repeated.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="The most rows per rule, instead of its budget.")] = None,
    seconds: Annotated[int | None, typer.Option(min=1, help="The most seconds per rule.")] = None,
    batches: Annotated[int | None, typer.Option(min=1, help="The most batches per rule.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses between batches: for maintenance windows.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is due, like `wane plan`; take nothing.")
    ] = False,
    metrics_file: MetricsFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sweep what is due, rule by rule, in bounded audited batches, if the flags allow it.

    Exits 1 if a rule failed; the others were swept all the same. Ctrl-C and SIGTERM stop between two batches.
    """
    if dry_run:
        from wane.cli.plan import plan

        plan(only, contract, url, as_json=as_json)
        return
    configure_logging(log_level, log_format)
    loaded = _with_budgets(load_contract(contract), {"rows": rows, "seconds": seconds, "batches": batches})
    with measured(metrics_file, loaded, url) as count:
        with (
            sweeping(count, as_json=as_json) as (stop, listener),
            open_keeper(url, contract=loaded, actor=actor, listener=listener) as keeper,
        ):
            done = keeper.sweep(*(only or ()), approve=approve or (), pace=FAST if fast else None, stop=stop.event)
        _finish(done, stop, as_json=as_json)


def apply(
    file: Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `wane plan --out` wrote.")],
    fast: Annotated[bool, typer.Option("--fast", help="No pauses between batches: for maintenance windows.")] = False,
    metrics_file: MetricsFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take what a plan says, and no more; stop if reality departs from it."""
    configure_logging(log_level, log_format)
    loaded = load_contract(contract)
    made = read_plan(file)
    with measured(metrics_file, loaded, url) as count:
        with (
            sweeping(count, as_json=as_json) as (stop, listener),
            open_keeper(url, contract=loaded, actor=actor, listener=listener) as keeper,
        ):
            done = keeper.apply(made, pace=FAST if fast else None, stop=stop.event)
        _finish(done, stop, as_json=as_json)
    if any(rule.outcome is Outcome.OFF for rule in done.rules):
        raise typer.Exit(1)  # Somebody asked for this plan, and it was not carried out.


@contextmanager
def sweeping(count: Listener, *, as_json: bool) -> Iterator[tuple[Stop, Listener]]:
    """Show progress on a terminal, and stop between two batches for Ctrl-C and SIGTERM."""
    out = console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}")
    gone = 0
    hidden = as_json or not out.is_terminal
    with stopping() as stop, Progress(*columns, console=out, transient=True, disable=hidden) as progress:
        task = progress.add_task("sweeping", total=None)

        def listener(event: Event) -> None:
            nonlocal gone
            log_event(event)
            count(event)
            if isinstance(event, BatchTaken):
                gone += sum(event.counts.values())
                text = f"{event.table}.{event.rule}: {gone:,} rows, next batch {event.next_batch:,}"
                progress.update(task, description=escape(text))
            elif isinstance(event, ArchiveStep):
                text = f"{event.table}.{event.rule}: sweep {event.sweep} is {event.state}"
                progress.update(task, description=escape(text))
                if not as_json:
                    progress.console.print(f"[dim]{escape(text)} ({event.seconds:.1f} s)[/]", soft_wrap=True)
            elif isinstance(event, ArchiveMaintained):
                text = f"{event.table}: {event.action}: {sum(event.rows.values()):,} rows, {event.files:,} files"
                progress.update(task, description=escape(text))
            elif isinstance(event, ArchiveProgress):
                step = "copied" if event.state == "planned" else "read back"
                text = f"{event.table}.{event.rule}: {event.done:,} of {event.of:,} pieces {step}"
                progress.update(task, description=escape(text))
            elif isinstance(event, SlowedDown):
                progress.console.print(f"[yellow]{escape(f'{event.table}.{event.rule}: {event.cause}')}[/]")

        yield stop, listener


def _with_budgets(contract: Contract, given: dict[str, int | None]) -> Contract:
    """Return the contract with the budgets that were given in place of its rules' own."""
    said = {name: value for name, value in given.items() if value is not None}
    tables = (
        replace(one, rules=tuple(replace(rule, budget=replace(rule.budget, **said)) for rule in one.rules))
        for one in contract.tables
    )
    return replace(contract, tables=tuple(tables)) if said else contract


def _finish(done: Sweep, stop: Stop, *, as_json: bool) -> None:
    if as_json:
        print_json({"run": done.run, "rules": [{**asdict(rule), "rows": rule.rows} for rule in done.rules]})
    else:
        print_sweep(done)
    stop.end(failed=done.failed)


def print_sweep(done: Sweep) -> None:
    """Print what a sweep took, rule by rule, and then why any of them ended early."""
    shown = table("rule", "did", "rows", "with", "batches", "seconds", "ended", right=("rows", "batches", "seconds"))
    for rule in done.rules:
        own = rule.counts.get(rule.table, 0)
        colour = {Outcome.DONE: "green", Outcome.FAILED: "red", Outcome.FUSED: "red"}.get(rule.outcome, "yellow")
        shown.add_row(
            escape(f"{rule.table}.{rule.rule}"),
            rule.action,
            f"{own:,}",
            counts_text(rule.counts, but=rule.table),
            str(rule.batches),
            f"{rule.seconds:.2f}",
            f"[{colour}]{rule.outcome.value}[/]",
        )
    console().print(shown)
    for message in dict.fromkeys(rule.message for rule in done.rules if rule.outcome is Outcome.OFF):
        say(f"[yellow]off:[/] {escape(message)}")
    for rule in done.rules:
        if rule.message and rule.outcome is not Outcome.OFF:
            say(f"{escape(f'{rule.table}.{rule.rule}: {rule.message}')}")
    say(f"[bold]{sum(rule.rows for rule in done.rules):,}[/] rows in run {done.run}")
