"""Confirmation of what a user may not have meant: by a question on a terminal, and by an option elsewhere."""

from __future__ import annotations

import sys

import typer
from rich.markup import escape

from wane._cli.output import print_line

NOTHING_DONE = 4
"""The exit code of a command that changed nothing although it did not fail."""


def confirm(question: str, *, yes: bool) -> bool:
    """Return whether a user agrees; where there is no terminal to ask on, only the option --yes does."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        print_line(f"{escape(question)} There is no terminal to ask on: nothing was changed; [bold]--yes[/] agrees")
        return False
    agreed: bool = typer.confirm(question, err=True)
    if not agreed:
        print_line("nothing was changed")
    return agreed
