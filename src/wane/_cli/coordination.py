"""The program `coordination`, and `wane coordination`: older names of commands about work claims."""

from __future__ import annotations

import typer

from wane._cli.claims import vacuum
from wane._cli.harness import Services, command

app = typer.Typer(
    name="coordination",
    help="Run commands about work claims by their older names.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
command(app, "work-vacuum", Services(actor=True))(vacuum)


@app.callback()
def _coordination() -> None:
    """Run commands about work claims by their older names."""
