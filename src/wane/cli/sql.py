"""`wane sql`: functions inside a PostgreSQL database."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape

from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import many, print_json, say
from wane.contract.fingerprint import fingerprint
from wane.keeper import open_keeper
from wane.sqlfunctions import SqlSurface, installed_fingerprint, sql_surface
from wane.sqlfunctions import install as install_functions
from wane.sqlfunctions import uninstall as uninstall_functions

sql_app = typer.Typer(help="Functions inside a PostgreSQL database that prune by the contract.", no_args_is_help=True)


@sql_app.command("install")
def install(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Install `wane.prune(…)` and its siblings for this contract, in place of any other's. Exits 1 if a rule was left out."""
    with open_keeper(url, contract=contract) as keeper:
        before = installed_fingerprint(keeper.store)
        surface = install_functions(keeper)
        missing = len(keeper.roles().missing) if keeper.contract.roles.enabled else 0
    if as_json:
        refused = _refused(surface)
        print_json(
            {"fingerprint": surface.fingerprint, "replaced": before, "refused": refused, "roles_missing": missing}
        )
    else:
        replaced = f", in place of {before}" if before not in (None, surface.fingerprint) else ""
        say(f"installed for the contract [bold]{surface.fingerprint}[/]{replaced}")
        if missing:
            say(f"[yellow]roles lack {many(missing, 'statement')}:[/] `wane roles --apply` runs them")
    _end(surface, as_json=as_json)


@sql_app.command("uninstall")
def uninstall(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Remove what `wane sql install` created. The trail stays."""
    with open_keeper(url, contract=contract) as keeper:
        before = installed_fingerprint(keeper.store)
        uninstall_functions(keeper.store)
    if as_json:
        print_json({"removed": before})
    else:
        say("nothing was installed" if before is None else f"removed what was installed for the contract {before}")


@sql_app.command("print")
def print_(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Print the SQL that `install` would run; run nothing."""
    with open_keeper(url, contract=contract, read_only=True) as keeper:
        surface = sql_surface(keeper)
    if as_json:
        print_json({"fingerprint": surface.fingerprint, "sql": surface.text, "refused": _refused(surface)})
    else:
        typer.echo(surface.text, nl=False)
    _end(surface, as_json=as_json)


@sql_app.command("status")
def status(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Tell whether the functions are those of this contract. Exits 1 if they are not."""
    with open_keeper(url, contract=contract, read_only=True) as keeper:
        installed, wanted = installed_fingerprint(keeper.store), fingerprint(keeper.contract)
    if as_json:
        print_json({"installed": installed, "contract": wanted, "current": installed == wanted})
    elif installed == wanted:
        say(f"installed for this contract, {wanted}")
    elif installed is None:
        say("nothing is installed: `wane sql install` does")
    else:
        say(f"installed for another contract, {installed}; this one is {wanted}: `wane sql install` replaces them")
    if installed != wanted:
        raise typer.Exit(1)


def _refused(surface: SqlSurface) -> list[dict[str, str]]:
    return [asdict(one) for one in surface.refused]


def _end(surface: SqlSurface, *, as_json: bool) -> None:
    if not surface.refused:
        return
    if not as_json:
        say(f"[yellow]left out {many(len(surface.refused), 'rule')}:[/]")
        for one in surface.refused:
            say(f"  [bold]{escape(one.rule)}[/] {escape(one.reason)}")
    raise typer.Exit(1)
