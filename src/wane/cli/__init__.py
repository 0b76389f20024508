"""The command line: verbs for the daily flow. Each command parses, calls one room, and prints."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Annotated, Any

import typer
import typer.main
from rich.markup import escape
from typer.core import TyperGroup

from wane import __version__
from wane.cli import (
    archive,
    archive_life,
    archive_query,
    archive_repair,
    archive_restore,
    archive_survey,
    check,
    claims,
    demo,
    flags,
    growth,
    health,
    migrate,
    partition,
    plan,
    prune,
    queue,
    roles,
    run,
    space,
    sql,
)
from wane.cli.output import print_findings, say
from wane.errors import BindError, ContractError, WaneError


class _InOrder(TyperGroup):
    """Lists commands in the order of `_COMMANDS`; Typer would list groups of commands last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for commands in _COMMANDS.values() for name, _, _ in commands]


app = typer.Typer(
    cls=_InOrder,
    name="wane",
    help="Wane makes operational tables forget on purpose: declared, bounded, audited.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = {
    "Declare": (
        ("init", check.init, "Propose a contract for a live database."),
        ("check", check.check, "Check a contract: all mistakes at once, each with its fix."),
        ("schema", check.schema, "Print the JSON Schema of contract files, for editors."),
        ("plan", plan.plan, "Show what would leave now, rule by rule."),
    ),
    "Prune": (
        ("apply", prune.apply, "Take what a saved plan says, and no more."),
        ("sweep", prune.sweep, "Sweep what is due, in bounded audited batches."),
        ("prune", prune.prune, "Take rows now, in one audited transaction."),
        ("audit", flags.audit_app, "List what left: the audit trail."),
        ("hold", flags.hold_app, "Hold rows, whatever the rules say; list and release holds."),
    ),
    "Run": (
        ("run", run.run, "Run schedulers and workers until a signal."),
        ("adopt", run.adopt, "Put this contract in force for all runners."),
        ("enable", flags.enable, "Turn sweeps on: all of them, or one table's."),
        ("disable", flags.disable, "Turn sweeps off: all of them, or one table's."),
        ("queue", queue.queue_app, "Send, reserve and inspect messages of the cleanup queue."),
        ("claims", claims.claims_app, "Inspect, install, return and vacuum work claims."),
        ("coordination", claims.coordination_app, "Older names of commands about work claims."),
    ),
    "Observe": (
        ("status", run.status, "Show flags, schedulers, executors, sweeps and the queue."),
        ("health", health.health, "Report whether retention works; exit 1 if it does not."),
        ("pressure", health.pressure, "Show rows, ages and backlog of every table."),
        ("growth", growth.growth_app, "Show how fast tables grow, and forecast their size."),
        ("space", space.space, "Show what tables take on disk, and what pruning freed."),
    ),
    "Archive": (("archive", archive.archive_app, "Move rows to the cold archive, prove, query, restore."),),
    "Partition": (("partition", partition.partition_app, "Partition tables by the month, and back (PostgreSQL)."),),
    "Admin": (
        ("migrate", migrate.migrate, "Create or update Wane's own tables."),
        ("roles", roles.roles, "Show or set up the contract's roles (PostgreSQL)."),
        ("sql", sql.sql_app, "Install functions that prune inside PostgreSQL."),
        ("demo", demo.demo, "Build a sample database and walk through the main job."),
    ),
}
"""What `wane --help` lists: a line of at most 80 columns for each command."""
archive.archive_app.command()(archive_query.query)
archive.archive_app.command()(archive_restore.restore)
archive.archive_app.command()(archive_restore.restores)
archive.archive_app.command()(archive_restore.cancel_restore)
archive.archive_app.command()(archive_survey.survey)
archive_life.add_to(archive.archive_app)
archive_repair.add_to(archive.archive_app)
for panel, commands in _COMMANDS.items():
    for name, command, summary in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=summary, rich_help_panel=panel)
        else:
            app.command(name, short_help=summary, rich_help_panel=panel)(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wane {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Accept options before any command."""


def main() -> None:
    """Run a command; errors that Wane knows become a sentence and exit code 1."""
    _run(app)


def coordination() -> None:
    """Run the program `coordination`: `coordination work-vacuum` is `wane claims vacuum`."""
    _run(claims.coordination_app)


# Reading the signatures of all commands takes longer than most of them run: once per process is enough.
_command = cache(typer.main.get_command)


def _run(program: typer.Typer) -> None:
    try:
        _command(program)()
    except (ContractError, BindError) as problem:
        print_findings(problem.findings, stderr=True)
        say(f"[red]{escape(problem.message)}[/]")
        sys.exit(1)
    except WaneError as problem:
        say(f"[red]error:[/] {escape(problem.message)}")
        if problem.hint:
            say(f"[green]hint:[/] {escape(problem.hint)}")
        sys.exit(1)
    finally:
        _flush()


def _flush() -> None:
    """Write what is left to write; a reader that left early, as `head` does, is no reason for a trace."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes it once more while it ends.
