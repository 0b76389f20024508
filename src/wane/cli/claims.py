"""`wane claims`: work claims, and vacuuming those that are finished. The program `coordination work-vacuum`, and `wane coordination work-vacuum`,
are older names of the latter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from wane.claims import Finished, Vacuumed, Work, WorkClaims, WorkState
from wane.claims.arguments import require_hours, require_state
from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, count_text, many, moment_text, print_fitting, print_json, say, table
from wane.cli.prune import ActorOption
from wane.contract.load import load_contract
from wane.errors import WrongArgument
from wane.keeper import open_keeper
from wane.prune.plan import Step
from wane.reference import contract_path

claims_app = typer.Typer(help="Work claims: who works on what.", no_args_is_help=True)
coordination_app = typer.Typer(
    name="coordination",
    help="Older names of commands about work claims.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CompletedOption = Annotated[
    float | None, typer.Option(help="Prune completed work whose completion is longer ago than that.")
]
AbandonedOption = Annotated[
    float | None, typer.Option(help="Prune abandoned work whose abandonment is longer ago than that.")
]
LimitOption = Annotated[int, typer.Option(min=1, help="The most rows to take, of all states together.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would leave; take nothing.")]


@claims_app.command("install")
def install(
    print_: Annotated[bool, typer.Option("--print", help="Print the SQL that is missing, and run nothing.")] = False,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the tables of work claims, or what is missing of them. Safe to repeat, and for several processes at once."""
    with _claims(contract, url, read_only=print_) as claims:
        if print_:
            missing = claims.missing_sql()
            if as_json:
                print_json({"missing": [{"what": what, "sql": sql} for what, sql in missing]})
            else:
                typer.echo("".join(f"{sql}\n" for _, sql in missing), nl=False)
            return
        created = claims.install()
        if as_json:
            print_json({"created": created})
        else:
            told = f"created {', '.join(created)}" if created else "nothing is missing"
            say(f"{escape(claims.store.shown)}: {escape(told)}")


@claims_app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="Only work in this state; all states if left out.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Only claims that have run out.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most to show, of each state.")] = 100,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List work, state by state, oldest first."""
    if state is not None and expired:
        raise typer.BadParameter("expired claims have a state already", param_hint="--expired")
    with _usage("--state"):
        states = list(WorkState) if state is None else [require_state(state)]
    with _claims(contract, url, read_only=True) as claims:
        if expired:
            found = claims.list_expired(limit=limit)
        else:
            found = [work for one in states for work in claims.list_by_state(one, limit=limit)]
    if as_json:
        print_json([_work(work) for work in found])
        return
    print_fitting(
        [partial(_cells, work) for work in found],
        (("task", "state", "by", "fence", "since", "until"), "seconds"),
        (("task", "state", "by", "fence", "since", "until"), "minutes"),
        (("task", "state", "by", "until"), "minutes"),
        (("task", "state"), "minutes"),
        right=("fence",),
    )
    say(many(len(found), "piece") + " of work")


@claims_app.command("show")
def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")],
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a piece of work, or what is remembered of it. Exits 1 if nothing is known of it."""
    with _claims(contract, url, read_only=True) as claims:
        work, memory = claims.get(task), claims.remembered(task)
    if as_json:
        print_json({"work": None if work is None else _work(work), "remembered": _plain(memory)})
    else:
        _show(task, work, memory)
    if work is None and memory is None:
        raise typer.Exit(1)


def _show(task: str, work: Work | None, memory: Finished | None) -> None:
    if work is not None:
        shown = table("what", "is", show_header=False)
        for name, value in _work(work).items():
            text = moment_text(value) if hasattr(value, "year") else "" if value is None else str(value)
            shown.add_row(name, escape(text))
        console().print(shown)
    elif memory is not None:
        who = f" by {memory.owner}" if memory.owner else ""
        until = f"until {moment_text(memory.remembered_until)}" if memory.remembered_until else "for ever"
        at = moment_text(memory.finished_at)
        text = f"{task} was {memory.outcome}{who} at {at} by the fence {memory.fence}; its row is gone, and it is remembered {until}"
        console().print(escape(text), soft_wrap=True)
    else:
        say(f"nothing is known of {escape(task)}")


@claims_app.command("return-expired")
def return_expired(
    limit: Annotated[int, typer.Option(min=1, help="The most to return.")] = 100,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make work available whose claim has run out. Its holders can no longer complete it."""
    with _claims(contract, url) as claims:
        returned = claims.return_expired(limit=limit)
    if as_json:
        print_json([_work(work) for work in returned])
        return
    for work in returned:
        console().print(escape(f"{work.task_id} of {work.owner}, ran out at {moment_text(work.expires_at)}"))
    say(f"[bold]{len(returned):,}[/] returned")


@claims_app.command("vacuum")
def vacuum(
    completed_age_hours: CompletedOption = None,
    abandoned_age_hours: AbandonedOption = None,
    limit: LimitOption = 10_000,
    dry_run: DryRunOption = False,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prune finished work by the age of its end, in audited batches, whatever the flags say.

    A state without a threshold is not touched. Available and claimed work always stays, expired claims too.
    """
    ages = {"--completed-age-hours": completed_age_hours, "--abandoned-age-hours": abandoned_age_hours}
    for option, age in ages.items():
        with _usage(option):
            if age is not None:
                require_hours(age, "the age")
    if completed_age_hours is None and abandoned_age_hours is None:
        raise typer.BadParameter(
            "say how old finished work must be: no threshold, no deletion. For example"
            " --completed-age-hours 168 --abandoned-age-hours 24; one of them alone leaves the other state untouched",
            param_hint="--completed-age-hours / --abandoned-age-hours",
        )
    with _claims(contract, url, read_only=dry_run, actor=actor) as claims:
        given = {"completed_age_hours": completed_age_hours, "abandoned_age_hours": abandoned_age_hours}
        if dry_run:
            _print_preview(claims.preview_vacuum(**given), as_json=as_json)
        else:
            _print_vacuumed(claims.vacuum(**given, limit=limit), as_json=as_json)


coordination_app.command("work-vacuum")(vacuum)


@coordination_app.callback()
def _coordination() -> None:
    """Older names of commands about work claims."""


def _print_preview(steps: dict[WorkState, Step], *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": True, "states": {state.value: asdict(step) for state, step in steps.items()}})
        return
    for state, step in steps.items():
        span = "" if step.oldest is None else f", from {moment_text(step.oldest)} to {moment_text(step.newest)}"
        console().print(f"{state.value} [bold]{count_text(step.due)}[/] would leave{span}")
    say("nothing was changed")


def _print_vacuumed(done: Vacuumed, *, as_json: bool) -> None:
    if as_json:
        states = {state.value: asdict(one) for state, one in done.states.items()}
        print_json({"dry_run": False, "states": states, "rows": done.rows, "more": done.more})
        return
    for state, one in done.states.items():
        audits = many(len(one.audit_ids), "audit row")
        console().print(f"{state.value} [bold]{one.rows:,}[/] pruned, older than {moment_text(one.cutoff)} ({audits})")
    if done.more:
        say("[yellow]the limit was reached:[/] there may be more")


@contextmanager
def _claims(
    contract: Path, url: str | None, *, read_only: bool = False, actor: str | None = None
) -> Iterator[WorkClaims]:
    """Open the claims: with a URL and no contract file, by the reference contract."""
    alone = url is not None and contract == CONTRACT and not contract.exists()
    loaded = load_contract(contract_path("claims") if alone else contract)
    with open_keeper(url, contract=loaded, read_only=read_only, actor=actor) as keeper:
        yield keeper.claims()


@contextmanager
def _usage(option: str) -> Iterator[None]:
    """Report arguments that cannot be meant as wrong usage."""
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
        "since": moment_text(since, timespec),
        "until": moment_text(until, timespec),
    }


def _work(work: Work) -> dict[str, Any]:
    return asdict(work)


def _plain(memory: Finished | None) -> dict[str, Any] | None:
    return None if memory is None else asdict(memory)
