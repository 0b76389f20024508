"""`wane prune`, `wane sweep`, `wane apply`: taking rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from wane._arguments import require_limit
from wane._cli.confirm import NOTHING_DONE, confirm
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.options import FastOption
from wane._cli.output import console, counts_text, many, print_line, table
from wane._cli.plan import build_plan, plan_result, print_statements
from wane._cli.values import parse_time
from wane._contract.model import Contract, State, ToArchive
from wane._db.counting import READ_SECONDS
from wane._formats import counted, time_text
from wane._prune.confirmation import concerns
from wane._prune.pace import FAST
from wane._prune.plan import Step, read_plan
from wane._prune.primitive import Pruned
from wane._prune.sweep import Outcome, Sweep

app = typer.Typer()


@command(app, "prune", Services(actor=True, metrics=True))
def prune(
    call: Call,
    target: Annotated[str, typer.Argument(metavar="TABLE[.RULE]", help="By a rule of the contract, or a table.")],
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="With a table: a state to prune. May be repeated.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With a table: an ISO 8601 time, unix seconds, or a duration such as 7d. Rows strictly before it leave.",
        ),
    ] = None,
    orphans: Annotated[bool, typer.Option("--orphans", help="With a table: only rows without their parent.")] = False,
    limit: Annotated[int, typer.Option(help="The most rows to take, followers included.")] = 1_000,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask for confirmation where it takes rows that the contract retains, or a large share.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would leave, the statements and their query plans; take nothing."),
    ] = False,
) -> CommandResult:
    """Take rows now, in one audited transaction, regardless of the flags.

    `wane prune channel_inbox.failed` goes by a rule; `wane prune channel_inbox --state failed --older-than 7d` by a
    cutoff of your own, with the contract's guards.
    """
    contract = call.load()
    name, rule = _target(contract, target)
    if rule is not None and (state or older_than or orphans):
        raise typer.BadParameter("a rule has its own states and cutoff", param_hint="TABLE.RULE")
    if rule is None and older_than is None:
        raise typer.BadParameter("set how old: no threshold, no deletion", param_hint="--older-than")
    keeper = call.open(contract, read_only=dry_run)
    cutoff = None if older_than is None else parse_time(older_than, keeper.store.now(), "--older-than")
    states = _states(contract, name, state)
    order = keeper.pruner.order(name, rule, states, cutoff, orphans=orphans)
    doubts = concerns(keeper.pruner, order, require_limit(limit))
    if dry_run:
        preview = keeper.pruner.preview(
            name, rule=rule, states=states, older_than=cutoff, orphans=orphans, seconds=READ_SECONDS, limit=limit
        )
        data = {**preview.as_dict(), "limit": limit, "concerns": doubts}
        return CommandResult(data, lambda: _print_preview(preview, limit, doubts))
    if doubts and not _confirmed(doubts, yes=yes):
        return CommandResult({"concerns": doubts, "rows": 0}, lambda: None, NOTHING_DONE)
    if orphans:
        assert cutoff is not None
        pruned = keeper.prune_orphans(name, older_than=cutoff, limit=limit, states=states)
    else:
        pruned = keeper.prune(name, rule=rule, states=states, older_than=cutoff, limit=limit)
    return CommandResult({**asdict(pruned), "rows": pruned.rows}, lambda: print_pruned(pruned))


def _confirmed(doubts: Sequence[str], *, yes: bool) -> bool:
    for why in () if yes else doubts:
        print_line(f"[yellow]caution:[/] {escape(why)}")
    return confirm("Prune all the same?", yes=yes)


def _target(contract: Contract, target: str) -> tuple[str, str | None]:
    """Split a target into a table and its rule, if it names one; a table's own name may have a dot in it."""
    if target in {str(one.name) for one in contract.tables}:
        return target, None
    name, _, rule = target.rpartition(".")
    return (name, rule) if name else (target, None)


def _states(contract: Contract, table: str, texts: list[str] | None) -> list[State] | None:
    """Return states as the contract writes them: on the command line a number is a text."""
    declared = [one for one in contract.tables if str(one.name) == table]
    states = [state for one in declared for rule in one.rules for state in rule.states]
    known = {str(state).lower() if isinstance(state, bool) else str(state): state for state in states}
    others = [state for one in declared for rule in one.rules for state in rule.all_but or ()]
    numbers = bool(others) and all(type(state) is int for state in others)
    return [known.get(text, int(text) if numbers and text.isdecimal() else text) for text in texts] if texts else None


def _print_preview(preview: Step, limit: int, doubts: Sequence[str]) -> None:
    out = console()
    counts = [preview.due, *preview.followers.values()]
    within = None not in counts and sum(count.rows for count in counts if count is not None) <= limit
    due = f"[bold]{counted(preview.due, 'row')}[/] of {escape(preview.table)}"
    if within:
        out.print(f"{due} would leave: nothing was changed")
    else:
        out.print(f"{due} due; at most {limit:,} (--limit, followers included) would leave: nothing was changed")
    if preview.oldest is not None:
        out.print(f"oldest {time_text(preview.oldest)}, newest {time_text(preview.newest)}")
    for follower, count in preview.followers.items():
        live = ", live ones too" if follower in preview.live_followers else ""
        out.print(f"with them {counted(count, 'row')} of {escape(follower)}{live}")
    for why in doubts:
        print_line(f"[yellow]it would ask for confirmation:[/] {escape(why)}")
    print_statements(preview)


def print_pruned(pruned: Pruned) -> None:
    """Print what one call took."""
    verb = "marked" if pruned.kind == "mark" else "pruned"
    counts = ", ".join(f"{escape(name)} [bold]{count:,}[/]" for name, count in pruned.counts.items())
    console().print(f"{verb} {counts} (audit row {pruned.audit_id})")
    if pruned.skipped_locked:
        print_line("[yellow]others hold locks:[/] rows that they have locked were left for the next time")


_SWEEPS = Services(actor=True, metrics=True, logs=True, progress=True, stops_after="batch")


@command(app, "sweep", _SWEEPS)
def sweep(
    call: Call,
    only: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE[.RULE]...", help="All rules if none is named.")
    ] = None,
    approve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE[.RULE]",
            help="Let this rule, or all of a table, take any share of the table, which the fuse stops otherwise."
            " May be repeated.",
        ),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="The most rows per rule, instead of its budget.")] = None,
    seconds: Annotated[int | None, typer.Option(min=1, help="The most seconds per rule.")] = None,
    batches: Annotated[int | None, typer.Option(min=1, help="The most batches per rule.")] = None,
    fast: FastOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is due, like `wane plan`; take nothing.")
    ] = False,
) -> CommandResult:
    """Sweep what is due, rule by rule, in bounded audited batches, if the flags allow it.

    Exits 1 if a rule failed; the others were swept all the same. Exits 4 if nothing was swept, because the flags are
    off or no rule that is swept was chosen. Ctrl-C and SIGTERM stop between two batches.
    """
    if dry_run:
        return plan_result(*build_plan(call, only, approved=approve or ()))
    contract = call.load()
    given = {"rows": rows, "seconds": seconds, "batches": batches}
    budget = {name: limit for name, limit in given.items() if limit is not None}
    pace = FAST if fast else None
    keeper = call.open(contract)
    done = keeper.sweep(*(only or ()), budget=budget, approve=approve or (), pace=pace, stop=call.stop.event)
    return _sweep_result(done, failed=done.failed, skipped=_archiving(contract, only))


@command(app, "apply", _SWEEPS)
def apply(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `wane plan --out` wrote.")],
    fast: FastOption = False,
) -> CommandResult:
    """Take what a plan lists, and no more; stop if reality departs from it."""
    contract, made = call.load(), read_plan(file)
    done = call.open(contract).apply(made, pace=FAST if fast else None, stop=call.stop.event)
    # A plan that the flags stopped in part was not carried out, although that was requested.
    return _sweep_result(done, failed=done.failed or any(rule.outcome is Outcome.OFF for rule in done.rules))


def _archiving(contract: Contract, only: Collection[str] | None) -> list[str]:
    """Name the rules that `wane archive run` carries out, not a sweep."""
    rules = [(table, rule) for table, rule in contract.rules() if isinstance(rule.action, ToArchive)]
    named = {f"{table.name}.{rule.name}": str(table.name) for table, rule in rules}
    return [name for name, table in named.items() if not only or {name, table} & set(only)]


def _sweep_result(done: Sweep, *, failed: bool, skipped: Sequence[str] = ()) -> CommandResult:
    def show() -> None:
        print_sweep(done)
        if skipped:
            print_line(
                f"not swept: {escape(', '.join(skipped))}; `wane archive run` moves {'its' if len(skipped) == 1 else 'their'} rows"
            )
        if not done.rules and not skipped:
            print_line("[yellow]nothing was swept:[/] the contract has no rule to sweep")

    nothing = all(rule.outcome is Outcome.OFF for rule in done.rules)
    data = {"run": done.run, "rules": [{**asdict(rule), "rows": rule.rows} for rule in done.rules]}
    return CommandResult(data, show, NOTHING_DONE if nothing else 1 if failed else 0)


def print_sweep(done: Sweep) -> None:
    """Print what a sweep took, rule by rule, and then why any of them ended early."""
    shown = table("rule", "did", "rows", "with", "batches", "seconds", "ended", right=("rows", "batches", "seconds"))
    for rule in done.rules:
        own = rule.counts.get(rule.table, 0)
        followers = {name: count for name, count in rule.counts.items() if count and name != rule.table}
        colour = {Outcome.DONE: "green", Outcome.FAILED: "red", Outcome.FUSED: "red"}.get(rule.outcome, "yellow")
        shown.add_row(
            escape(f"{rule.table}.{rule.rule}"),
            rule.action,
            f"{own:,}",
            counts_text(followers),
            str(rule.batches),
            f"{rule.seconds:.2f}",
            f"[{colour}]{rule.outcome.value}[/]",
        )
    console().print(shown)
    for message in dict.fromkeys(rule.message for rule in done.rules if rule.outcome is Outcome.OFF):
        print_line(f"[yellow]off:[/] {escape(message)}")
    for rule in done.rules:
        if rule.message and rule.outcome is not Outcome.OFF:
            print_line(f"{escape(f'{rule.table}.{rule.rule}: {rule.message}')}")
    print_line(f"{many(sum(rule.rows for rule in done.rules), 'row', bold=True)} in run {done.run}")
