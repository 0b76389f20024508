"""`wane archive`: moving rows to the archive, and looking into it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from wane.archive.model import ArchiveRun
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
from wane.cli.output import console, counts_text, many, moment_text, print_findings, print_json, say, table
from wane.cli.prune import ActorOption, sweeping
from wane.contract.load import load_contract
from wane.keeper import open_keeper
from wane.observe.logs import LogFormat, LogLevel, configure_logging
from wane.prune.pace import FAST
from wane.prune.sweep import Outcome

archive_app = typer.Typer(
    help="The cold place: rows past their hot window, moved there by Spark.", no_args_is_help=True
)
TableArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table; all of them if left out.")]
COLOURS = {Outcome.DONE: "green", Outcome.FAILED: "red"}
_SHOWN = 20
_MOST_RESTORES = 10_000


def starting(master: str) -> None:
    """Say that Spark is starting, which takes seconds."""
    say(f"[dim]starting Spark at {escape(master)}: this takes some seconds[/]")


@archive_app.command("run")
def archive_run(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE[.RULE]...", help="All rules that archive if none is named.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Let the database compute every row's checksum, not only samples.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses between batches: for maintenance windows.")] = False,
    metrics_file: MetricsFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move what is due to the archive: copied, read back and proven, committed, then let go from the hot table.

    Whatever stops it, running it again finishes the job. Exits 1 if a rule failed. Ctrl-C and SIGTERM stop between two steps.
    """
    configure_logging(log_level, log_format)
    loaded = load_contract(contract)
    with measured(metrics_file, loaded, url) as count:
        with (
            sweeping(count, as_json=as_json) as (stop, listener),
            open_keeper(url, contract=loaded, actor=actor, listener=listener) as keeper,
        ):
            pace = FAST if fast else None
            done = keeper.archive.run(*(only or ()), strict=strict, pace=pace, stop=stop.event, starting=starting)
        if as_json:
            print_json({"rules": [asdict(rule) for rule in done.rules]})
        else:
            print_run(done)
    stop.end(failed=done.failed)


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
            say(f"{escape(f'{rule.table}.{rule.rule}: {rule.message}')}")
    if not done.rules:
        say('no rule archives: such a rule says `then = "archive"`')


@archive_app.command("status")
def archive_status(
    name: TableArgument = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most to show.")] = _SHOWN,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the journal: every sweep and how far it came, newest first."""
    with open_keeper(url, contract=contract) as keeper:
        sweeps = keeper.archive.status(name, limit=limit)
        restores = [] if as_json else keeper.archive.restores(name, unfinished=True, limit=_MOST_RESTORES)
        findings = keeper.archive.findings()
    if as_json:
        print_json([asdict(sweep) for sweep in sweeps])
        return
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
            moment_text(sweep.planned_at),
            moment_text(sweep.changed_at),
        )
    console().print(shown)
    if not sweeps:
        say("nothing was archived yet: `wane archive run` archives what is due")
    for restore in restores:
        left = f"restore {restore.id} of {escape(restore.table)} is {restore.state}"
        say(f"[yellow]{left}[/]: `wane archive restores`")
    print_findings(findings)


@archive_app.command("ls")
def archive_ls(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the tables of the archive: rows, bytes, files, months, and where they are."""
    with open_keeper(url, contract=contract) as keeper:
        found = keeper.archive.tables()
    if as_json:
        print_json([asdict(one) for one in found])
        return
    shown = table("table", "rows", "bytes", "files", "from", "to", "place", right=("rows", "bytes", "files"))
    for one in found:
        months = one.oldest_month or "", one.newest_month or ""
        shown.add_row(
            escape(one.table), f"{one.rows:,}", f"{one.bytes:,}", f"{one.files:,}", *months, escape(one.place)
        )
    console().print(shown)
    if not found:
        say("nothing was archived yet: `wane archive run` archives what is due")


@archive_app.command("verify")
def archive_verify(
    name: TableArgument = None, contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Read back every file of the archive and compare it with the archive's log. Exits 1 if something is wrong."""
    with open_keeper(url, contract=contract) as keeper:
        proofs = keeper.archive.verify(name, starting=starting)
    if as_json:
        print_json([asdict(proof) for proof in proofs])
    else:
        for proof in proofs:
            console().print(f"{escape(proof.table)}: [bold]{proof.rows:,}[/] rows in {many(proof.files, 'file')}")
            for problem in proof.problems:
                say(f"[red]error:[/] {escape(problem)}")
        if not proofs:
            say("nothing was archived yet: `wane archive run` archives what is due")
    if any(proof.problems for proof in proofs):
        raise typer.Exit(1)
