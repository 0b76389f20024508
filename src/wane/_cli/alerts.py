"""`wane alerts`: what Prometheus and Grafana need to observe a contract."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import print_json
from wane._cli.values import parse_length
from wane.observe._alerts import alert_rules, as_yaml, dashboard

app = typer.Typer()


@command(app, "alerts")
def alerts(
    call: Call,
    lag: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long a due row may wait beyond two intervals of its scheduler."),
    ] = "1h",
    grafana: Annotated[bool, typer.Option("--grafana", help="Print a dashboard for Grafana instead.")] = False,
) -> CommandResult:
    """Print alerting rules for Prometheus, from the contract alone; or a dashboard for Grafana."""
    rules = alert_rules(call.load(), parse_length(lag, "--lag"))
    if grafana:
        return CommandResult(dashboard(), lambda: print_json(dashboard()), versioned=False)
    return CommandResult([asdict(one) for one in rules], lambda: sys.stdout.write(as_yaml(rules)))
