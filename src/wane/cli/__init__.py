"""The command line: verbs for the daily flow. Each command parses, calls one room, and prints."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Annotated

import typer
import typer.main
from rich.markup import escape

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
    steer,
)
from wane.cli.output import print_findings, say
from wane.errors import BindError, ContractError, WaneError

app = typer.Typer(
    name="wane",
    help="Wane makes operational tables forget on purpose: declared, bounded, audited.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    check.init,
    check.check,
    plan.plan,
    prune.apply,
    prune.sweep,
    prune.prune,
    run.run,
    run.status,
    health.pressure,
    health.health,
    run.adopt,
    steer.enable,
    steer.disable,
    migrate.migrate,
    roles.roles,
    space.space,
    check.schema,
    demo.demo,
):
    app.command()(command)
app.add_typer(steer.audit_app, name="audit")
app.add_typer(steer.hold_app, name="hold")
archive.archive_app.command()(archive_query.query)
archive.archive_app.command()(archive_restore.restore)
archive.archive_app.command()(archive_restore.restores)
archive.archive_app.command()(archive_restore.cancel_restore)
archive.archive_app.command()(archive_survey.survey)
app.add_typer(archive.archive_app, name="archive")
archive_life.add_to(archive.archive_app)
archive_repair.add_to(archive.archive_app)
app.add_typer(partition.partition_app, name="partition")
app.add_typer(growth.growth_app, name="growth")
app.add_typer(sql.sql_app, name="sql")
app.add_typer(queue.queue_app, name="queue")
app.add_typer(claims.claims_app, name="claims")
app.add_typer(claims.coordination_app, name="coordination")


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
    """Options before any command."""


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
