"""`wane run`, `wane status`, `wane adopt`: schedulers and workers, and how they are."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from wane.cli.options import CONTRACT, ContractOption, JsonOption, LogFormatOption, LogLevelOption, UrlOption
from wane.cli.output import console, many, moment_text, print_fitting, print_json, say, seconds_text, table
from wane.cli.signals import stopping
from wane.contract.load import load_contract
from wane.contract.model import Contract
from wane.events import Event, Listener
from wane.keeper import Keeper, open_keeper
from wane.observe.logs import LogFormat, LogLevel, configure_logging, log_event
from wane.schedule import Status
from wane.schedule.sql import Timetable
from wane.schedule.status import ExecutorStatus, SchedulerStatus

if TYPE_CHECKING:
    from wane.observe.metrics import Metrics

LOOPBACK = "127.0.0.1"


def run(
    scheduler: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this scheduler; may be repeated. All if left out.")
    ] = None,
    no_schedulers: Annotated[bool, typer.Option("--no-schedulers", help="Workers only.")] = False,
    workers: Annotated[int, typer.Option(min=0, max=64, help="How many sweeps at a time; 0 for schedulers only.")] = 1,
    max_runs: Annotated[
        int | None,
        typer.Option(min=1, help="End after so many windows of each scheduler, when their sweeps are done."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Serve /metrics for Prometheus on this port; 0 picks one.")
    ] = None,
    metrics_address: Annotated[
        str | None, typer.Option(help="The address that /metrics is served on.", show_default=LOOPBACK)
    ] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run schedulers and workers until SIGINT or SIGTERM; a second signal ends it at once. Any number of processes may run."""
    if no_schedulers and scheduler:
        raise typer.BadParameter("a scheduler cannot be both named and left out", param_hint="--no-schedulers")
    if no_schedulers and not workers:
        raise typer.BadParameter(
            "without schedulers and without workers there is nothing to run", param_hint="--workers"
        )
    if metrics_address is not None and metrics_port is None:
        raise typer.BadParameter("nothing is served without --metrics-port", param_hint="--metrics-address")
    configure_logging(log_level, log_format)
    loaded = load_contract(contract)
    with stopping(between="batch") as stop, ExitStack() as stack:
        metrics = None if metrics_port is None else stack.enter_context(closing(_metrics(loaded)))
        listener = log_event if metrics is None else _both(log_event, metrics)
        keeper = stack.enter_context(open_keeper(url, contract=loaded, listener=listener))
        if metrics is not None and metrics_port is not None:
            metrics.watch(keeper.store.clone)
            exporter = stack.enter_context(metrics.serve(metrics_port, metrics_address or LOOPBACK))
            say(f"metrics: {escape(exporter.url)}")
        chosen = [] if no_schedulers else scheduler
        _say_start(keeper, chosen, workers)
        ran = keeper.run(schedulers=chosen, workers=workers, stop=stop.event, max_runs=max_runs)
    if as_json:
        print_json(asdict(ran))
    else:
        say(f"{many(ran.ticks, 'window')}, {many(ran.sweeps, 'sweep')}, {many(ran.failures, 'failure')}")
    if max_runs is not None and ran.failures:
        raise typer.Exit(1)  # A daemon outlives its failures; what runs once must tell of them.


def _metrics(contract: Contract) -> Metrics:
    from wane.observe.metrics import Metrics  # An extra: only who wants metrics needs it.

    return Metrics(contract)


def _both(one: Listener, other: Listener) -> Listener:
    def listen(event: Event) -> None:
        one(event)
        other(event)

    return listen


def _say_start(keeper: Keeper, chosen: list[str] | None, workers: int) -> None:
    status = keeper.status()
    if not status.enabled:
        say(f"[yellow]sweeps are off:[/] {escape(status.master_flag)} is off until `wane enable`")
    known = [one.name for one in keeper.contract.schedulers]
    names = ", ".join(known if chosen is None else chosen) or "none"
    say(f"schedulers: {escape(names)}; {many(workers, 'worker')}; contract {status.fingerprint}")


def adopt(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Put this contract in force: runners with another one are refused, and stop at their next batch."""
    with open_keeper(url, contract=contract) as keeper:
        before = Timetable(keeper.store.dialect).in_force(keeper.store.run) if keeper.store.is_migrated() else None
        now = keeper.adopt()
    if as_json:
        print_json({"before": None if before is None else asdict(before), "in_force": asdict(now)})
    elif before is not None and before.fingerprint == now.fingerprint:
        say(f"{now.fingerprint} was in force already")
    else:
        instead = "" if before is None else f" instead of {before.fingerprint}"
        say(f"[bold]{now.fingerprint}[/] is in force{instead}")


def status(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show how things stand: flags, the contract in force, schedulers, executors, sweeps at work, the queue."""
    with open_keeper(url, contract=contract) as keeper:
        found = keeper.status()
    if as_json:
        print_json({**asdict(found), "alive": found.alive, "dead_letters": found.dead_letters})
        return
    _print_flags(found)
    print_fitting(
        [partial(_scheduler_cells, one) for one in found.schedulers],
        (("scheduler", "every", "last window", "next", "by"), "seconds"),
        (("scheduler", "every", "last window", "next"), "seconds"),
        right=("every",),
    )
    if found.executors:
        print_fitting(
            [partial(_executor_cells, one) for one in found.executors],
            (("executor", "doing", "last beat", "since"), "seconds"),
            (("executor", "doing", "last beat"), "seconds"),
        )
    if all(one.silent for one in found.executors):
        console().print("no scheduler or worker is alive; start one with `wane run`")
    if found.queue:
        shown = table("pool", "state", "messages", "oldest", right=("messages",))
        for line in found.queue:
            shown.add_row(escape(line.pool), line.state, f"{line.messages:,}", moment_text(line.oldest))
        console().print(shown)
    if found.dead_letters:
        say(f"[red]{many(found.dead_letters, 'dead letter')}[/]: look at them with `wane queue dead list`")


def _scheduler_cells(one: SchedulerStatus, timespec: str) -> dict[str, str]:
    known = one.window
    late = f" [red]{seconds_text(one.overdue_seconds)} late[/]" if one.overdue_seconds > one.every_seconds else ""
    return {
        "scheduler": escape(one.name),
        "every": seconds_text(one.every_seconds),
        "last window": "never" if known is None else moment_text(known.window_at, timespec),
        "next": "" if known is None else moment_text(known.due_at, timespec) + late,
        "by": "" if known is None else escape(known.ticked_by or ""),
    }


def _executor_cells(one: ExecutorStatus, timespec: str) -> dict[str, str]:
    note = " [red]silent[/]" if one.silent else ""
    note += " [yellow]another contract[/]" if one.other_contract else ""
    return {
        "executor": escape(one.beat.executor),
        "doing": escape(one.beat.doing),
        "last beat": moment_text(one.beat.beat_at, timespec) + note,
        "since": moment_text(one.beat.started_at, timespec),
    }


def _print_flags(found: Status) -> None:
    out = console()
    state = "[green]on[/]" if found.enabled else "[yellow]off[/]: `wane enable` turns them on"
    out.print(f"sweeps are {state}")
    if found.disabled_tables:
        out.print(f"off for {escape(', '.join(found.disabled_tables))}")
    if found.in_force is None:
        out.print(f"no contract is in force yet; this one is {found.fingerprint}")
    elif found.in_force.fingerprint == found.fingerprint:
        out.print(f"contract {found.fingerprint}, in force since {moment_text(found.in_force.adopted_at)}")
    else:
        out.print(
            f"[red]this contract is {found.fingerprint}, and {found.in_force.fingerprint} is in force[/]"
            f" since {moment_text(found.in_force.adopted_at)} by {escape(found.in_force.adopted_by)}"
        )
