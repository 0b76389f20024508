"""The command line: one module per command or group, imported when the command is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from wane import __version__
from wane._cli.help import improve_help, name_values

_COMMANDS = {
    "Declare": {
        "init": ("check", "Propose a contract for a live database."),
        "check": ("check", "Check a contract: all mistakes at once, each with its fix."),
        "explain": ("explain", "Explain a finding or an error by its code."),
        "schema": ("check", "Print the JSON Schema of contract files, for editors."),
        "plan": ("plan", "Show what would leave now, rule by rule."),
    },
    "Prune": {
        "apply": ("prune", "Take what a saved plan lists, and no more."),
        "sweep": ("prune", "Sweep what is due, in bounded audited batches."),
        "approve": ("approve", "Review and approve what the fuse stops."),
        "prune": ("prune", "Take rows now, in one audited transaction."),
        "audit": ("audit", "List what left: the audit trail."),
        "hold": ("hold", "Retain rows regardless of the rules."),
    },
    "Run": {
        "run": ("run", "Run schedulers and workers until a signal."),
        "adopt": ("run", "Put this contract in force for all runners."),
        "enable": ("flags", "Turn sweeps on: all of them, or one table's."),
        "disable": ("flags", "Turn sweeps off: all of them, or one table's."),
        "queue": ("queue", "Send, reserve and inspect messages of the cleanup queue."),
        "claims": ("claims", "Inspect, install, return and vacuum work claims."),
        "coordination": ("coordination", "Older names of commands about work claims."),
    },
    "Observe": {
        "status": ("run", "Show flags, schedulers, executors, sweeps and the queue."),
        "health": ("health", "Report whether retention works; exit 1 if it does not."),
        "pressure": ("health", "Show rows, ages and backlog of every table."),
        "why": ("why", "Explain one row: what takes it and when, or what retains it."),
        "serve": ("serve", "Serve the console and the HTTP API."),
        "alerts": ("alerts", "Print alerting rules for Prometheus, or a Grafana dashboard."),
        "growth": ("growth", "Show how fast tables grow, and forecast their size."),
        "space": ("space", "Show what tables take on disk, and what pruning freed."),
    },
    "Archive": {"archive": ("archive", "Move rows to the cold archive, prove, query, restore.")},
    "Partition": {"partition": ("partition", "Partition tables by the month, and back (PostgreSQL).")},
    "Admin": {
        "migrate": ("migrate", "Create or update Wane's own tables."),
        "roles": ("roles", "Show or set up the contract's roles (PostgreSQL)."),
        "token": ("token", "Create, list and revoke tokens of the console and the API."),
        "sql": ("sql", "Install functions that prune inside PostgreSQL."),
        "demo": ("demo", "Build a sample database and walk through the main job."),
    },
}
"""The commands by panel of `wane --help`: their module, and a line that fits 80 columns."""
_MODULES = {name: module for listed in _COMMANDS.values() for name, (module, _) in listed.items()}
_MORE_MODULES = {
    "archive": ("archive_query", "archive_restore", "archive_survey", "archive_maintenance", "archive_repair")
}
"""Modules that add commands to a group of another module."""


@cache
def load(name: str) -> Any:
    """Import a command, or a group of commands, and everything that it needs."""
    from wane._cli.suggestions import suggest_options

    module = import_module(f"wane._cli.{_MODULES[name]}")
    for more in _MORE_MODULES.get(name, ()):
        import_module(f"wane._cli.{more}")
    group = typer.main.get_group(module.app)
    command = group.commands.get(name, group)
    improve_help(command, (name,))
    suggest_options(command)
    return command


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Import all commands and yield each with its path."""
    for name in _MODULES:
        yield from _below(load(name), (name,))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    for name, one in command.commands.items():
        yield from _below(one, (*path, name))


class _Lazy(TyperGroup):
    """Has a placeholder for each command, and imports only the one that is called: all of them take longer than most
    run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder if name is None else load(name), rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the commands by panel, as Typer does, which first imports Markdown, tracebacks and Pygments for it."""
        from rich.console import Console
        from rich.panel import Panel
        from rich.table import Table

        out = Console(highlight=False, emoji=False)
        out.print(f"\n [yellow]Usage:[/] [bold]{ctx.command_path} \\[OPTIONS] COMMAND \\[ARGS]...[/]\n\n {self.help}\n")
        options = {", ".join(one.opts): ("", getattr(one, "help", "")) for one in self.get_params(ctx)}
        for panel, listed in {"Options": options, **_COMMANDS}.items():
            lines = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
            lines.add_column(style="bold cyan", min_width=max(map(len, _MODULES)), no_wrap=True)
            for name, (_, summary) in listed.items():
                lines.add_row(name, summary)
            out.print(Panel(lines, title=panel, title_align="left", border_style="dim"))

    def get_params(self, ctx: Any) -> list[Any]:
        return name_values(super().get_params(ctx))


app = typer.Typer(
    cls=_Lazy,
    name="wane",
    help="Wane makes operational tables forget on purpose: declared, bounded, audited.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _placeholder() -> None:
    """Stand for a command in the list of commands."""


for _name in _MODULES:
    app.command(_name)(_placeholder)


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


def main(group: str | None = None, arguments: list[str] | None = None) -> None:
    """Run a command, or one of a group; errors that Wane knows become a sentence and exit code 1.

    `arguments` replace those of the process.
    """
    from wane.errors import BindError, ContractError, WaneError

    # Else pydantic reads the metadata of every installed package, to find plugins that no command uses.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        program = typer.main.get_command(app) if group is None else load(group)
        program(arguments)
    except WaneError as problem:
        from rich.markup import escape

        from wane._cli.output import print_findings, print_line

        if isinstance(problem, ContractError | BindError):
            print_findings(problem.findings, stderr=True)
            print_line(f"[red]{escape(problem.message)}[/]")
        else:
            print_line(f"[red]error:[/] {escape(problem.message)}")
            if problem.hint:
                print_line(f"[green]hint:[/] {escape(problem.hint)}")
        sys.exit(1)
    finally:
        _flush()


def _flush() -> None:
    """Write the rest of the output; a reader that left early, as `head` does, is no reason for a trace."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes it once more while it ends.
