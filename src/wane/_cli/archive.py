"""`wane archive run | status | ls | verify`: moving rows to the archive, and reading its journal and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from wane._archive.model import (
    VERIFIED,
    ArchivedColumnChange,
    ArchiveRun,
    ColdStatus,
    DueRule,
    Proof,
    RestoreStatus,
    SweepStatus,
)
from wane._cli.confirm import NOTHING_DONE
from wane._cli.fleet import Listed, across, of_original
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.options import FastOption, FleetOption, ShownOption
from wane._cli.output import console, counts_text, many, print_findings, print_line, table
from wane._contract.model import describe_transform
from wane._findings import Finding
from wane._formats import time_text
from wane._keeper import Keeper
from wane._prune.pace import FAST
from wane._prune.sweep import Outcome

app = typer.Typer(help="The cold archive: rows past their hot window, moved there by Spark.", no_args_is_help=True)
TableArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table; all of them if left out.")]
SparkOption = Annotated[
    bool, typer.Option("--spark", help="Read on Spark, also where the files are so small that it is not needed.")
]
COLOURS = {Outcome.DONE: "green", Outcome.FAILED: "red"}
_MOST_RESTORES = 10_000
LONG_WORK = Services(actor=True, metrics=True, logs=True, progress=True, stops_after="step")
EMPTY = "nothing was archived yet: `wane archive run` archives what is due"
NO_RULES = 'no rule archives: such a rule has `then = "archive"`'


def starting(master: str) -> None:
    """Print that Spark is starting, which takes seconds."""
    print_line(f"[dim]starting Spark at {escape(master)}: this takes some seconds[/]")


@command(app, "run", LONG_WORK)
def archive_run(
    call: Call,
    only: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE[.RULE]...", help="All rules that archive if none is named.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Let the database compute the checksum of every row. Without it, the first sweep of a new schema is proven so,"
            " and later ones by keys, files and samples.",
        ),
    ] = False,
    wait: Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait",
            help="Leave a rule's rows until its least_rows are due, or one has been due for longest_wait, as workers do."
            " The default with --fleet, unless rules are named.",
        ),
    ] = None,
    fast: FastOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what is due; move nothing.")] = False,
    fleet: FleetOption = None,
) -> CommandResult:
    """Move what is due to the archive: copied, read back and proven, committed, then evicted from the hot table.

    After any interruption, running it again finishes the job. Exits 1 if a rule failed, 4 if nothing ran. Ctrl-C and
    SIGTERM stop between two steps.
    """
    pace = FAST if fast else None
    names = tuple(only or ())
    if wait is None:
        wait = fleet is not None and not names
    if dry_run:
        return _dry_run(call, names, fleet, wait=wait)
    if fleet is not None:

        def run(keeper: Keeper) -> ArchiveRun:
            archive = keeper.archive
            if not archive.has_work(*names, wait=wait):
                return ArchiveRun(())
            return archive.run(*names, strict=strict, wait=wait, pace=pace, stop=call.stop.event, starting=starting)

        return across(call, fleet, of_original(run), _RUNS, doing="archive")
    archive = call.open().archive
    done = archive.run(*names, strict=strict, wait=wait, pace=pace, stop=call.stop.event, starting=starting)
    idle = all(rule.outcome is Outcome.OFF for rule in done.rules)
    return CommandResult(
        {"rules": done.rules}, lambda: print_run(done), 1 if done.failed else NOTHING_DONE if idle else 0
    )


def _own(run: ArchiveRun, counts: str) -> int:
    """Count rows of the tables that rules select from, as a dry run does; followers are counted apart."""
    return sum(getattr(rule, counts).get(rule.table, 0) for rule in run.rules)


_RUNS = Listed(
    ("rule", "archived", "left", "stayed", "ended"),
    ("archived", "left", "stayed"),
    lambda run: [
        (
            f"{rule.table}.{rule.rule}",
            f"{rule.archived.get(rule.table, 0):,}",
            f"{rule.evicted.get(rule.table, 0):,}",
            f"{rule.stale:,}",
            rule.outcome.value,
        )
        for rule in run.rules
    ],
    lambda run: {
        "with_work": int(bool(run.rules)),
        "rows_archived": _own(run, "archived"),
        "rows_left": _own(run, "evicted"),
        "followers_archived": sum(sum(rule.archived.values()) for rule in run.rules) - _own(run, "archived"),
        "followers_left": sum(sum(rule.evicted.values()) for rule in run.rules) - _own(run, "evicted"),
    },
    lambda run: [f"{rule.table}.{rule.rule}: {rule.message}" for rule in run.rules if rule.outcome is Outcome.FAILED],
    lambda run: bool(run.rules) and all(rule.outcome is Outcome.OFF for rule in run.rules),
)


def _on_the_way(name: str, transform: Mapping[str, Any]) -> str:
    return f"{escape(name)} is transformed on the way: {escape(describe_transform(transform))}"


def _dry_run(call: Call, names: Sequence[str], fleet: Path | None, *, wait: bool) -> CommandResult:
    def count(keeper: Keeper) -> list[DueRule]:
        return keeper.archive.due(*names, wait=wait)

    if fleet is not None:
        return across(call, fleet, of_original(count), _DUE, doing="count", read_only=True, dry_run=True)
    due = count(call.open(read_only=True))

    def show() -> None:
        shown = table(*_DUE.heads, right=_DUE.right)
        for row in _DUE.rows(due):
            shown.add_row(*map(escape, row))
        console().print(shown)
        for one in due:
            if one.transform:
                print_line(_on_the_way(one.table, one.transform))
        total = _DUE.total(due)
        unknown = f", and those of {many(total['uncounted'], 'rule')} uncounted" if total["uncounted"] else ""
        for why in dict.fromkeys(one.closed for one in due if one.closed):
            print_line(f"[yellow]not moved now:[/] {escape(why)}")
        for one in due:
            if one.waits:
                print_line(escape(f"{one.table}.{one.rule}: {one.waits}"))
        names = ", ".join(dict.fromkeys(name for one in due if one.due and not one.waits for name in one.followers))
        followers = f", with their followers in {escape(names)}" if names else ""
        rows = many(total["rows_due"], "row")
        print_line(f"a dry run: {rows} would be archived{unknown}{followers}, nothing was changed")

    return CommandResult({"rules": due}, show)


_DUE = Listed(
    ("rule", "due", "unfinished"),
    ("due",),
    lambda rules: [
        (
            f"{one.table}.{one.rule}",
            ("?" if one.due is None else f"{one.due:,}") + (", waits" if one.waits else ""),
            one.unfinished,
        )
        for one in rules
    ],
    lambda rules: {
        "rows_due": sum(one.due or 0 for one in rules if not one.waits),
        "uncounted": sum(one.due is None and not one.waits for one in rules),
    },
    note="followers not counted",
)


def print_run(done: ArchiveRun) -> None:
    """Print what a run moved, rule by rule, and then why any of them ended early."""
    shown = table("rule", "archived", "left", "with", "stayed", "sweeps", "ended", right=("archived", "left", "stayed"))
    for rule in done.rules:
        shown.add_row(
            escape(f"{rule.table}.{rule.rule}"),
            f"{rule.archived.get(rule.table, 0):,}",
            f"{rule.evicted.get(rule.table, 0):,}",
            counts_text(rule.evicted, but=rule.table),
            f"{rule.stale:,}",
            ", ".join(str(sweep) for sweep in rule.sweeps),
            f"[{COLOURS.get(rule.outcome, 'yellow')}]{rule.outcome.value}[/]",
        )
    console().print(shown)
    for rule in done.rules:
        if rule.message:
            print_line(f"{escape(f'{rule.table}.{rule.rule}: {rule.message}')}")
    if not done.rules:
        print_line(NO_RULES)


@command(app, "status")
def archive_status(
    call: Call, name: TableArgument = None, limit: ShownOption = 20, fleet: FleetOption = None
) -> CommandResult:
    """Show the journal: every sweep and how far it came, newest first."""
    if fleet is not None:
        status = of_original(lambda keeper: keeper.archive.status(name, limit=limit))
        return across(call, fleet, status, _SWEEPS, doing="read", read_only=True)
    archive = call.open().archive
    sweeps = archive.status(name, limit=limit)
    unfinished = archive.restores(name, unfinished=True, limit=_MOST_RESTORES)
    findings = archive.findings()
    return CommandResult(sweeps, lambda: _print_status(sweeps, unfinished, findings))


_SWEEPS = Listed(
    ("sweep", "rule", "state", "archived", "left", "stayed", "changed"),
    ("sweep", "stayed"),
    lambda sweeps: [
        (
            str(one.id),
            f"{one.table}.{one.rule}",
            one.state,
            _copies(one),
            counts_text(one.evicted),
            f"{one.stale:,}",
            time_text(one.changed_at),
        )
        for one in sweeps
    ],
    lambda sweeps: {"sweeps": len(sweeps), "unfinished": sum(one.state != "done" for one in sweeps)},
)


def _copies(sweep: SweepStatus) -> str:
    """Format what a sweep archived; before that is committed, what it has copied, and that it is not."""
    if sweep.archived or not sweep.copied:
        return counts_text(sweep.archived)
    return f"not yet: copied {counts_text(sweep.copied)}"


def _print_status(
    sweeps: Sequence[SweepStatus], unfinished: Sequence[RestoreStatus], findings: Sequence[Finding]
) -> None:
    shown = table("sweep", "rule", "state", "proof", "archived", "left", "stayed", "since", "changed", right=("sweep",))
    for sweep in sweeps:
        shown.add_row(
            str(sweep.id),
            escape(f"{sweep.table}.{sweep.rule}"),
            f"[{'green' if sweep.state == 'done' else 'yellow'}]{sweep.state}[/]",
            "strict" if sweep.strict else "fast",
            _copies(sweep),
            counts_text(sweep.evicted),
            f"{sweep.stale:,}",
            time_text(sweep.planned_at),
            time_text(sweep.changed_at),
        )
    console().print(shown)
    if not sweeps:
        print_line(EMPTY)
    for one in unfinished:
        print_line(f"[yellow]restore {one.id} of {escape(one.table)} is {one.state}[/]: `wane archive restores`")
    print_findings(findings)


@command(app, "ls")
def archive_ls(call: Call, fleet: FleetOption = None) -> CommandResult:
    """List the tables of the archive, and how they changed.

    With rows, bytes, files and months of each, and where it is.
    """
    if fleet is not None:
        return across(call, fleet, of_original(lambda keeper: keeper.archive.tables()), _TABLES, doing="read")
    found = call.open().archive.tables()
    return CommandResult(found, lambda: _print_tables(found))


_TABLES = Listed(
    ("table", "rows", "bytes", "files", "from", "to", "path"),
    ("rows", "bytes", "files"),
    lambda found: [
        (
            one.table,
            f"{one.rows:,}",
            f"{one.bytes:,}",
            f"{one.files:,}",
            one.oldest_month or "",
            one.newest_month or "",
            one.location,
        )
        for one in found
    ],
    lambda found: {
        "rows": sum(one.rows for one in found),
        "bytes": sum(one.bytes for one in found),
        "files": sum(one.files for one in found),
    },
)


def _print_tables(found: Sequence[ColdStatus]) -> None:
    shown = table(*_TABLES.heads, right=_TABLES.right)
    for row in _TABLES.rows(found):
        shown.add_row(*map(escape, row))
    console().print(shown)
    for one in found:
        if one.transform:
            print_line(_on_the_way(one.table, one.transform))
        for change in one.changes:
            since = change.month or f"sweep {change.sweep} at {time_text(change.at)}"
            text = f"{one.table}: {_change_text(change)}, since {since}"
            print_line(escape(text))
    if not found:
        print_line(EMPTY)


def _change_text(change: ArchivedColumnChange) -> str:
    if change.renamed_from is not None:
        return f"{change.column} was {change.renamed_from}, and is still so named in the archive's files"
    if change.was is None:
        return f"{change.column} was added as {change.now}, earlier rows have NULL"
    if change.now is None:
        return f"{change.column} was dropped, later rows have NULL"
    return f"{change.column} changed from {change.was} to {change.now}"


@command(app, "verify")
def archive_verify(
    call: Call, name: TableArgument = None, spark: SparkOption = False, fleet: FleetOption = None
) -> CommandResult:
    """Read back every file and compare it with the archive's log. Exits 1 if something is wrong.

    The audit trail records what was verified, and when.
    """

    def verify(keeper: Keeper) -> list[Proof]:
        proofs = keeper.archive.verify(name, spark=spark, starting=starting)
        for one in proofs:
            facts = {"files": one.files, "rows": one.rows, "problems": len(one.problems)}
            keeper.record_action(VERIFIED, one.table, facts)
        return proofs

    if fleet is not None:
        return across(call, fleet, of_original(verify), _PROOFS, doing="verify")
    proofs = verify(call.open())
    return CommandResult(proofs, lambda: _print_proofs(proofs), 1 if any(proof.problems for proof in proofs) else 0)


_PROOFS = Listed(
    ("table", "files", "rows", "problems"),
    ("files", "rows", "problems"),
    lambda proofs: [
        (one.table, f"{one.files:,}", f"{one.rows:,}", f"{len(one.problems):,}") for one in proofs if one.has_log
    ],
    lambda proofs: {"files": sum(one.files for one in proofs), "rows": sum(one.rows for one in proofs)},
    lambda proofs: [problem for one in proofs for problem in one.problems],
)


def _print_proofs(proofs: Sequence[Proof]) -> None:
    for proof in proofs:
        if proof.has_log:
            rows, files = many(proof.rows, "row", bold=True), many(proof.files, "file")
            console().print(f"{escape(proof.table)}: {rows} in {files}")
        for problem in proof.problems:
            print_line(f"[red]error:[/] {escape(problem)}")
    problems = sum(len(proof.problems) for proof in proofs)
    if not proofs:
        print_line(EMPTY)
    elif problems:
        remedy = "; restore the files from a backup" if any(one.problems and one.has_log for one in proofs) else ""
        print_line(f"[red]not verified: {many(problems, 'problem')}[/]{remedy}")
    else:
        print_line(f"[green]verified: {many(len(proofs), 'table')}, every file as the log has it[/]")
