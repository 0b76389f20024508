"""`wane alerts`: rules for Prometheus, from the contract."""

from __future__ import annotations

import typer

from wane._cli.harness import Call, CommandResult, command
from wane.observe._alerts import alerts as alerts_of
from wane.observe._alerts import as_groups, as_yaml

app = typer.Typer()


@command(app, "alerts")
def alerts(call: Call) -> CommandResult:
    """Print alerting rules for Prometheus: how late each rule's rows may be follows from its window and scheduler.

    No database is touched.
    """
    listed = alerts_of(call.load())
    return CommandResult(as_groups(listed), lambda: typer.echo(as_yaml(listed), nl=False), versioned=False)
