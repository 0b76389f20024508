"""`wane claims`: work claims, and vacuuming those that are finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.options import PrintOption
from wane._cli.output import console, many, print_fitting, print_line, table
from wane._formats import count_text, time_text
from wane._prune.plan import Step
from wane.claims import Finished, Vacuumed, Work, WorkClaims, WorkState
from wane.claims._arguments import require_hours, require_state
from wane.errors import WrongArgument
from wane.reference import contract_path

app = typer.Typer(
    help="Work claims: who works on what. With --url and no contract file, by the reference contract.",
    no_args_is_help=True,
)


@command(app, "install")
def install(call: Call, print_: PrintOption = False) -> CommandResult:
    """Create the tables of work claims, or those that are missing. Safe to repeat, and for several processes at
    once."""
    claims = _open(call, read_only=print_)
    if print_:
        missing = claims.missing_sql()
        script = "".join(f"{sql}\n" for _, sql in missing)
        data = {"missing": [{"what": what, "sql": sql} for what, sql in missing]}
        return CommandResult(data, lambda: typer.echo(script, nl=False))
    created, database = claims.install(), claims.store.shown
    text = f"created {', '.join(created)}" if created else "nothing is missing"
    return CommandResult({"created": created}, lambda: print_line(f"{escape(database)}: {escape(text)}"))


@command(app, "list")
def list_(
    call: Call,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only available, claimed, completed or abandoned work; all if left out."),
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Only claims that have run out.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most to show, of each state.")] = 100,
) -> CommandResult:
    """List work, state by state, oldest first."""
    if state is not None and expired:
        raise typer.BadParameter("expired claims have a state already", param_hint="--expired")
    with _usage("--state"):
        states = list(WorkState) if state is None else [require_state(state)]
    claims = _open(call, read_only=True)
    if expired:
        found = claims.list_expired(limit=limit)
    else:
        found = [work for one in states for work in claims.list_by_state(one, limit=limit)]
    return CommandResult(found, lambda: _print_list(found))


def _print_list(found: Sequence[Work]) -> None:
    print_fitting(
        [partial(_cells, work) for work in found],
        (("task", "state", "by", "fence", "since", "until"), "seconds"),
        (("task", "state", "by", "fence", "since", "until"), "minutes"),
        (("task", "state", "by", "until"), "minutes"),
        (("task", "state"), "minutes"),
        right=("fence",),
    )
    print_line(many(len(found), "piece") + " of work")


@command(app, "show")
def show(call: Call, task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]) -> CommandResult:
    """Show a piece of work, or what is remembered of it. Exits 1 if nothing is known of it."""
    claims = _open(call, read_only=True)
    work, memory = claims.get(task), claims.remembered(task)
    unknown = work is None and memory is None
    return CommandResult({"work": work, "remembered": memory}, lambda: _show(task, work, memory), 1 if unknown else 0)


def _show(task: str, work: Work | None, memory: Finished | None) -> None:
    if work is not None:
        shown = table("what", "is", show_header=False)
        for name, value in asdict(work).items():
            text = time_text(value) if hasattr(value, "year") else "" if value is None else str(value)
            shown.add_row(name, escape(text))
        console().print(shown)
    elif memory is not None:
        who = f" by {memory.owner}" if memory.owner else ""
        until = f"until {time_text(memory.remembered_until)}" if memory.remembered_until else "for ever"
        at = time_text(memory.finished_at)
        text = f"{task} was {memory.outcome}{who} at {at} by the fence {memory.fence}; its row is gone, and it is remembered {until}"
        console().print(escape(text), soft_wrap=True)
    else:
        print_line(f"nothing is known of {escape(task)}")


@command(app, "return-expired")
def return_expired(
    call: Call, limit: Annotated[int, typer.Option(min=1, help="The most to return.")] = 100
) -> CommandResult:
    """Make work available whose claim has run out. Its holders can no longer complete it."""
    returned = _open(call).return_expired(limit=limit)

    def show() -> None:
        for work in returned:
            console().print(escape(f"{work.task_id} of {work.owner}, ran out at {time_text(work.expires_at)}"))
        print_line(f"[bold]{len(returned):,}[/] returned")

    return CommandResult(returned, show)


@command(app, "vacuum", Services(actor=True))
def vacuum(
    call: Call,
    completed_age_hours: Annotated[
        float | None, typer.Option(help="Prune completed work whose completion is longer ago than that.")
    ] = None,
    abandoned_age_hours: Annotated[
        float | None, typer.Option(help="Prune abandoned work whose abandonment is longer ago than that.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most rows to take, of all states together.")] = 10_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would leave, by state; take nothing.")] = False,
) -> CommandResult:
    """Prune finished work by the age of its end.

    In audited batches, regardless of the flags. A state without a threshold is not touched. Available and claimed work
    always stays, expired claims too.
    """
    given = {"completed_age_hours": completed_age_hours, "abandoned_age_hours": abandoned_age_hours}
    for name, age in given.items():
        with _usage(f"--{name.replace('_', '-')}"):
            if age is not None:
                require_hours("the age", age)
    if completed_age_hours is None and abandoned_age_hours is None:
        raise typer.BadParameter(
            "set how old finished work must be: no threshold, no deletion. For example"
            " --completed-age-hours 168 --abandoned-age-hours 24; one of them alone leaves the other state untouched",
            param_hint="--completed-age-hours / --abandoned-age-hours",
        )
    claims = _open(call, read_only=dry_run)
    if dry_run:
        steps = claims.preview_vacuum(**given)
        data = {"dry_run": True, "states": {state.value: step.as_dict() for state, step in steps.items()}}
        return CommandResult(data, lambda: _print_preview(steps))
    done = claims.vacuum(**given, limit=limit)
    states = {state.value: one for state, one in done.states.items()}
    data = {"dry_run": False, "states": states, "rows": done.rows, "more": done.more}
    return CommandResult(data, lambda: _print_vacuumed(done))


def _print_preview(steps: dict[WorkState, Step]) -> None:
    for state, step in steps.items():
        span = "" if step.oldest is None else f", from {time_text(step.oldest)} to {time_text(step.newest)}"
        console().print(f"{state.value} [bold]{count_text(step.due)}[/] would leave{span}")
    print_line("nothing was changed")


def _print_vacuumed(done: Vacuumed) -> None:
    for state, one in done.states.items():
        audits = many(len(one.audit_ids), "audit row")
        console().print(f"{state.value} [bold]{one.rows:,}[/] pruned, older than {time_text(one.cutoff)} ({audits})")
    if done.more:
        print_line("[yellow]the limit was reached:[/] there may be more")


def _open(call: Call, *, read_only: bool = False) -> WorkClaims:
    return call.open(call.load(without_file=contract_path("claims")), read_only=read_only).claims()


@contextmanager
def _usage(option: str) -> Iterator[None]:
    """Report a wrong argument as wrong usage of an option."""
    try:
        yield
    except WrongArgument as problem:
        text = f"{problem.message}; {problem.hint}" if problem.hint else problem.message
        raise typer.BadParameter(text, param_hint=option) from None


def _cells(work: Work, timespec: str) -> dict[str, str]:
    state = "expired" if work.expired else work.state.value
    since = work.finished_at or work.claimed_at or work.created_at
    until = work.remembered_until if work.state.finished else work.expires_at
    return {
        "task": escape(work.task_id),
        "state": state,
        "by": escape(work.owner or ""),
        "fence": str(work.fence),
        "since": time_text(since, timespec),
        "until": time_text(until, timespec),
    }
