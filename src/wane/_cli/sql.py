"""`wane sql`: functions inside a PostgreSQL database."""

from __future__ import annotations

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import many, print_line
from wane._contract.fingerprint import fingerprint
from wane._sqlfunctions import SqlSurface, installed_fingerprint, sql_surface
from wane._sqlfunctions import install as install_functions
from wane._sqlfunctions import uninstall as uninstall_functions

app = typer.Typer(help="Functions inside a PostgreSQL database that prune by the contract.", no_args_is_help=True)


@command(app, "install")
def install(call: Call) -> CommandResult:
    """Install `wane.prune(…)` and its siblings for this contract. They replace those of any other. Exits 1 if a rule
    was left out."""
    keeper = call.open()
    before = installed_fingerprint(keeper.store)
    surface = install_functions(keeper)
    missing = len(keeper.roles().missing) if keeper.contract.roles.enabled else 0

    def show() -> None:
        replaced = f", in place of {before}" if before not in (None, surface.fingerprint) else ""
        print_line(f"installed for the contract [bold]{surface.fingerprint}[/]{replaced}")
        if missing:
            print_line(f"[yellow]roles lack {many(missing, 'statement')}:[/] `wane roles --apply` runs them")
        _print_refused(surface)

    data = {"replaced": before, "refused": surface.refused, "roles_missing": missing}
    return CommandResult({"fingerprint": surface.fingerprint, **data}, show, 1 if surface.refused else 0)


@command(app, "uninstall")
def uninstall(call: Call) -> CommandResult:
    """Remove what `wane sql install` created. The audit trail stays."""
    store = call.open().store
    before = installed_fingerprint(store)
    uninstall_functions(store)
    text = "nothing was installed" if before is None else f"removed what was installed for the contract {before}"
    return CommandResult({"removed": before}, lambda: print_line(text))


@command(app, "print")
def print_(call: Call) -> CommandResult:
    """Print the SQL that `install` would run; run nothing."""
    surface = sql_surface(call.open(read_only=True))

    def show() -> None:
        typer.echo(surface.text, nl=False)
        _print_refused(surface)

    data = {"fingerprint": surface.fingerprint, "sql": surface.text, "refused": surface.refused}
    return CommandResult(data, show, 1 if surface.refused else 0)


@command(app, "status")
def status(call: Call) -> CommandResult:
    """Report whether the functions are those of this contract. Exits 1 if they are not."""
    keeper = call.open(read_only=True)
    installed, wanted = installed_fingerprint(keeper.store), fingerprint(keeper.contract)
    current = installed == wanted
    if current:
        text = f"installed for this contract, {wanted}"
    elif installed is None:
        text = "nothing is installed: `wane sql install` does"
    else:
        text = f"installed for another contract, {installed}; this one is {wanted}: `wane sql install` replaces them"
    data = {"installed": installed, "contract": wanted, "current": current}
    return CommandResult(data, lambda: print_line(text), 0 if current else 1)


def _print_refused(surface: SqlSurface) -> None:
    if surface.refused:
        print_line(f"[yellow]left out {many(len(surface.refused), 'rule')}:[/]")
    for one in surface.refused:
        print_line(f"  [bold]{escape(one.rule)}[/] {escape(one.reason)}")
