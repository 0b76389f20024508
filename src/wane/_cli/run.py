"""`wane run`, `wane status`, `wane adopt`: schedulers and workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from wane._cli.confirm import NOTHING_DONE
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.output import console, many, print_fitting, print_line, table
from wane._formats import seconds_text, time_text
from wane._keeper import Keeper
from wane._schedule import Status
from wane._schedule.sql import Timetable
from wane._schedule.status import ExecutorStatus, SchedulerStatus

if TYPE_CHECKING:
    from wane.observe import Metrics, Telemetry

app = typer.Typer()
LOOPBACK = "127.0.0.1"


@command(app, "run", Services(logs=True, stops_after="batch", daemon=True))
def run(
    call: Call,
    scheduler: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this scheduler; may be repeated. All if left out.")
    ] = None,
    no_schedulers: Annotated[bool, typer.Option("--no-schedulers", help="Workers only.")] = False,
    workers: Annotated[int, typer.Option(min=0, max=64, help="How many sweeps at a time; 0 for schedulers only.")] = 1,
    max_runs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="End after this number of windows of each scheduler, when their sweeps are done (with --no-schedulers: of"
            " sweeps of each worker); exit 1 if anything failed or waits for approval, 4 if sweeps are off.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65_535, help="Serve /metrics for Prometheus on this port; 0 picks one."
        ),
    ] = None,
    metrics_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help=f"The address that /metrics is served on; {LOOPBACK} if left out."),
    ] = None,
    otel: Annotated[
        bool,
        typer.Option("--otel", help="Send traces and metrics with OpenTelemetry, to where OTEL_* variables point."),
    ] = False,
) -> CommandResult:
    """Run schedulers and workers until SIGINT or SIGTERM; a second signal ends it at once. Any number of processes may
    run."""
    if no_schedulers and scheduler:
        raise typer.BadParameter("a scheduler cannot be both named and left out", param_hint="--no-schedulers")
    if no_schedulers and not workers:
        raise typer.BadParameter(
            "without schedulers and without workers there is nothing to run", param_hint="--workers"
        )
    if metrics_address is not None and metrics_port is None:
        raise typer.BadParameter("nothing is served without --metrics-port", param_hint="--metrics-address")
    contract = call.load()
    with ExitStack() as stack:
        watching: list[Metrics | Telemetry] = []
        if metrics_port is not None:
            from wane.observe._metrics import Metrics  # Needs an extra.

            metrics = stack.enter_context(closing(Metrics(contract)))
            exporter = stack.enter_context(metrics.serve(metrics_port, metrics_address or LOOPBACK))
            print_line(f"metrics: {escape(exporter.url)}")
            watching.append(metrics)
        if otel:
            from wane.observe._telemetry_export import exported_telemetry  # Needs an extra.

            watching.append(stack.enter_context(exported_telemetry(contract)))
        keeper = call.open(contract, listeners=watching)
        for one in watching:
            one.watch(keeper.store.clone)
        chosen = [] if no_schedulers else scheduler
        enabled = _print_start(keeper, chosen, workers, max_runs)
        ran = keeper.run(schedulers=chosen, workers=workers, stop=call.stop.event, max_runs=max_runs)
    text = f"{many(ran.ticks, 'window')}, {many(ran.sweeps, 'sweep')}, {many(ran.failures, 'failure')}"
    # A daemon outlives its failures; a run that ends by itself must report them, and that sweeps were off.
    code = 0 if max_runs is None else 1 if ran.failures else 0 if enabled else NOTHING_DONE
    return CommandResult(ran, lambda: print_line(text), code)


def _print_start(keeper: Keeper, chosen: list[str] | None, workers: int, max_runs: int | None) -> bool:
    """Print what runs, and return whether sweeps are on."""
    status = keeper.status()
    if not status.enabled:
        print_line(f"[yellow]sweeps are off:[/] {escape(status.master_flag)} is off until `wane enable`")
    known = [one.name for one in keeper.contract.schedulers]
    names = ", ".join(known if chosen is None else chosen) or "none"
    print_line(f"schedulers: {escape(names)}; {many(workers, 'worker')}; contract {status.fingerprint}")
    if max_runs is not None:
        _print_awaited([one for one in status.schedulers if chosen is None or one.name in chosen], max_runs)
    return status.enabled


def _print_awaited(schedulers: Sequence[SchedulerStatus], max_runs: int) -> None:
    """Print how the run ends, and which windows it waits for until then."""
    if not schedulers:
        print_line(f"ends after {many(max_runs, 'sweep')} of each worker; waiting for messages")
        return
    print_line(f"ends after {many(max_runs, 'window')} of each scheduler, when their sweeps are done")
    for one in schedulers:
        if one.next_at is not None and one.overdue_seconds <= 0:
            begins = f"its next window begins at {time_text(one.next_at)} UTC ({one.when})"
            print_line(escape(f"waiting for {one.name}: {begins}"))


@command(app, "adopt")
def adopt(call: Call) -> CommandResult:
    """Put this contract in force: runners with another one are refused, and stop at their next batch."""
    keeper = call.open()
    before = Timetable(keeper.store.dialect).in_force(keeper.store.run) if keeper.store.migrated else None
    now = keeper.adopt()
    if before is not None and before.fingerprint == now.fingerprint:
        text = f"{now.fingerprint} was in force already"
    else:
        instead = "" if before is None else f" instead of {before.fingerprint}"
        text = f"[bold]{now.fingerprint}[/] is in force{instead}"
    return CommandResult({"before": before, "in_force": now}, lambda: print_line(text))


@command(app, "status")
def status(call: Call) -> CommandResult:
    """Show the current status: flags, the contract in force, schedulers, executors, running sweeps, the queue."""
    found = call.open().status()
    data = {**asdict(found), "alive": found.alive, "dead_letters": found.dead_letters}
    return CommandResult(data, lambda: _print_status(found))


def _print_status(found: Status) -> None:
    _print_flags(found)
    print_fitting(
        [partial(_scheduler_cells, one) for one in found.schedulers],
        (("scheduler", "sweeps", "last window", "next", "by"), "seconds"),
        (("scheduler", "sweeps", "last window", "next"), "seconds"),
    )
    if found.executors:
        print_fitting(
            [partial(_executor_cells, one) for one in found.executors],
            (("executor", "doing", "last heartbeat", "since"), "seconds"),
            (("executor", "doing", "last heartbeat"), "seconds"),
        )
    if all(one.silent for one in found.executors):
        console().print("no scheduler or worker is alive; start one with `wane run`")
    if found.queue:
        shown = table("pool", "state", "messages", "oldest", right=("messages",))
        for line in found.queue:
            shown.add_row(escape(line.pool), line.state, f"{line.messages:,}", time_text(line.oldest))
        console().print(shown)
    if found.dead_letters:
        print_line(f"[red]{many(found.dead_letters, 'dead letter')}[/]: list them with `wane queue dead list`")


def _scheduler_cells(one: SchedulerStatus, timespec: str) -> dict[str, str]:
    known = one.window
    late = f" [red]{seconds_text(one.overdue_seconds)} late[/]" if one.overdue_seconds > one.every_seconds else ""
    return {
        "scheduler": escape(one.name),
        "sweeps": escape(one.when),
        "last window": "never" if known is None or known.ticked_at is None else time_text(known.window_at, timespec),
        "next": time_text(one.next_at, timespec) + late,
        "by": "" if known is None else escape(known.ticked_by or ""),
    }


def _executor_cells(one: ExecutorStatus, timespec: str) -> dict[str, str]:
    note = " [red]silent[/]" if one.silent else ""
    note += " [yellow]another contract[/]" if one.other_contract else ""
    return {
        "executor": escape(one.heartbeat.executor),
        "doing": escape(one.heartbeat.doing),
        "last heartbeat": time_text(one.heartbeat.beat_at, timespec) + note,
        "since": time_text(one.heartbeat.started_at, timespec),
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
        out.print(f"contract {found.fingerprint}, in force since {time_text(found.in_force.adopted_at)}")
    else:
        out.print(
            f"[red]this contract is {found.fingerprint}, and {found.in_force.fingerprint} is in force[/]"
            f" since {time_text(found.in_force.adopted_at)} by {escape(found.in_force.adopted_by)}"
        )
