"""`wane roles`: who may sweep, who may read the archive."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, command
from wane._cli.options import PrintOption
from wane._cli.output import many, print_line
from wane._roles.model import RolePlan

app = typer.Typer()


@command(app, "roles")
def roles(
    call: Call,
    print_: PrintOption = False,
    apply: Annotated[bool, typer.Option("--apply", help="Run what is missing, in one transaction.")] = False,
) -> CommandResult:
    """Show or set up the roles of a contract (PostgreSQL): who may sweep, who may read the archive. Safe to repeat."""
    if print_ == apply:
        raise typer.BadParameter("use exactly one of the two", param_hint="--print or --apply")
    keeper = call.open(read_only=print_)
    plan = keeper.apply_roles() if apply else keeper.roles()
    enabled = keeper.contract.roles.enabled
    data = {"applied": apply, "enabled": enabled, "statements": plan.statements, "notes": plan.notes}
    return CommandResult(data, lambda: _print(plan, apply=apply, enabled=enabled))


def _print(plan: RolePlan, *, apply: bool, enabled: bool) -> None:
    if plan.missing and not apply:
        typer.echo(plan.script(), nl=False)
    for note in plan.notes:
        print_line(f"[yellow]note:[/] {escape(note)}")
    if not plan.missing:
        print_line("every role has what it needs, and no more")
    else:
        print_line(f"{many(len(plan.missing), 'statement')} {'run' if apply else 'to run'}")
    if not enabled:
        print_line("sweeps do not ask for the role yet: `enabled = true` under \\[roles] in the contract turns that on")
