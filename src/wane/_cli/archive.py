"""`wane archive run | status | ls | verify`: moving rows to the archive, and reading its journal and its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from wane._archive.model import VERIFIED, ArchiveRun, ColdStatus, Proof, RestoreStatus, SweepStatus
from wane._cli.confirm import NOTHING_DONE
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.options import FastOption, ShownOption
from wane._cli.output import console, counts_text, many, print_findings, print_line, table, time_text
from wane._findings import Finding
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
NO_RULES = 'no rule archives: such a rule says `then = "archive"`'


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
    fast: FastOption = False,
) -> CommandResult:
    """Move what is due to the archive: copied, read back and proven, committed, then evicted from the hot table.

    After any interruption, running it again finishes the job. Exits 1 if a rule failed, 4 if nothing ran. Ctrl-C and SIGTERM stop between two steps.
    """
    pace = FAST if fast else None
    archive = call.open().archive
    done = archive.run(*(only or ()), strict=strict, pace=pace, stop=call.stop.event, starting=starting)
    idle = all(rule.outcome is Outcome.OFF for rule in done.rules)
    return CommandResult(
        {"rules": done.rules}, lambda: print_run(done), 1 if done.failed else NOTHING_DONE if idle else 0
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
def archive_status(call: Call, name: TableArgument = None, limit: ShownOption = 20) -> CommandResult:
    """Show the journal: every sweep and how far it came, newest first."""
    archive = call.open().archive
    sweeps = archive.status(name, limit=limit)
    unfinished = archive.restores(name, unfinished=True, limit=_MOST_RESTORES)
    findings = archive.findings()
    return CommandResult(sweeps, lambda: _print_status(sweeps, unfinished, findings))


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
            counts_text(sweep.archived),
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
def archive_ls(call: Call) -> CommandResult:
    """List the tables of the archive: rows, bytes, files, months, and where they are."""
    found = call.open().archive.tables()
    return CommandResult(found, lambda: _print_tables(found))


def _print_tables(found: Sequence[ColdStatus]) -> None:
    shown = table("table", "rows", "bytes", "files", "from", "to", "path", right=("rows", "bytes", "files"))
    for one in found:
        months = one.oldest_month or "", one.newest_month or ""
        counts = f"{one.rows:,}", f"{one.bytes:,}", f"{one.files:,}"
        shown.add_row(escape(one.table), *counts, *months, escape(one.place))
    console().print(shown)
    if not found:
        print_line(EMPTY)


@command(app, "verify")
def archive_verify(call: Call, name: TableArgument = None, spark: SparkOption = False) -> CommandResult:
    """Read back every file of the archive and compare it with the archive's log. Exits 1 if something is wrong.

    The audit trail records what was verified, and when.
    """
    keeper = call.open()
    proofs = keeper.archive.verify(name, spark=spark, starting=starting)
    for one in proofs:
        facts = {"files": one.files, "rows": one.rows, "problems": len(one.problems)}
        keeper.record_action(VERIFIED, one.table, facts)
    return CommandResult(proofs, lambda: _print_proofs(proofs), 1 if any(proof.problems for proof in proofs) else 0)


def _print_proofs(proofs: Sequence[Proof]) -> None:
    for proof in proofs:
        rows, files = many(proof.rows, "row", bold=True), many(proof.files, "file")
        console().print(f"{escape(proof.table)}: {rows} in {files}")
        for problem in proof.problems:
            print_line(f"[red]error:[/] {escape(problem)}")
    problems = sum(len(proof.problems) for proof in proofs)
    if not proofs:
        print_line(EMPTY)
    elif problems:
        print_line(
            f"[red]damaged: {many(problems, 'problem')}[/]; try `wane archive repair`, or restore the files from a backup"
        )
    else:
        print_line(f"[green]verified: {many(len(proofs), 'table')}, every file as the log has it[/]")
