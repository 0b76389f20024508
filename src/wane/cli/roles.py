"""`wane roles`: who may sweep, who may read the archive."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import many, print_json, say
from wane.keeper import open_keeper
from wane.roles.model import RolePlan


def roles(
    print_: Annotated[bool, typer.Option("--print", help="Print the SQL that is missing, and run nothing.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Run what is missing, in one transaction.")] = False,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or set up the roles of a contract (PostgreSQL): who may sweep, who may read the archive. Safe to repeat."""
    if print_ == apply:
        raise typer.BadParameter("say one of the two", param_hint="--print or --apply")
    with open_keeper(url, contract=contract, read_only=print_) as keeper:
        plan = keeper.apply_roles() if apply else keeper.roles()
        enabled = keeper.contract.roles.enabled
    if as_json:
        statements = [asdict(one) for one in plan.statements]
        print_json({"applied": apply, "enabled": enabled, "statements": statements, "notes": plan.notes})
        return
    if print_:
        typer.echo(plan.script() if plan.missing else "", nl=False)
    _say(plan, apply=apply, enabled=enabled)


def _say(plan: RolePlan, *, apply: bool, enabled: bool) -> None:
    for note in plan.notes:
        say(f"[yellow]note:[/] {escape(note)}")
    if not plan.missing:
        say("every role has what it needs, and no more")
    else:
        say(f"{many(len(plan.missing), 'statement')} {'run' if apply else 'to run'}")
    if not enabled:
        say("sweeps do not ask for the role yet: `enabled = true` under \\[roles] in the contract turns that on")
