"""`wane explain`: what a code means, and what to do about it."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.markup import escape

from wane._check.explain import Explanation, explain, explanations, suggest_code
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.output import console, print_widest, table

app = typer.Typer()
_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]+\)")
_REPORTED_BY = {
    "contract": "wane check",
    "database": "wane check --cover",
    "archive": "wane check --cover",
    "live": "wane check --live",
    "health": "wane health",
    "error": "any command",
}


def _codes(incomplete: str) -> list[str]:
    return [code for code in explanations() if code.startswith(incomplete)]


@command(app, "explain", Services(database=False))
def explain_code(
    _call: Call,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="The code of a finding, or the name of an error; all of them are listed if it is left out.",
            autocompletion=_codes,
        ),
    ] = None,
) -> CommandResult:
    """Explain a finding or an error by its code: what it means, why it matters, how to fix it."""
    if code is None:
        return CommandResult(list(explanations().values()), _list)
    found = explain(code)
    if found is None:
        hint = suggest_code(code) or "`wane explain` lists all codes"
        raise typer.BadParameter(f"there is no code {code!r}; {hint}", param_hint="CODE")
    return CommandResult(found, lambda: _print(found))


def _print(one: Explanation) -> None:
    reported = ", ".join(dict.fromkeys(_REPORTED_BY[report] for report in one.reports))
    out = console()
    out.print(f"[bold]{one.code}[/] [dim]{reported}[/]\n")
    for head, text in (("", one.means), ("Why: ", one.why), ("Fix: ", one.fix)):
        out.print(f"[green]{head}[/]{escape(_plain(text))}\n")
    out.print("[green]Example:[/]")
    for line in one.example.strip("\n").splitlines():
        out.print(f"  {escape(line)}", soft_wrap=True)


def _list() -> None:
    wide, narrow = table("code", "reported by", "means"), table("code", "reported by")
    for one in explanations().values():
        reported = ", ".join(dict.fromkeys(_REPORTED_BY[report] for report in one.reports))
        wide.add_row(one.code, reported, escape(_gist(one.means)))
        narrow.add_row(one.code, reported)
    print_widest(wide, narrow)


def _gist(means: str) -> str:
    """Return the first sentence, ended at its colon, if that is not the one of a mere `A warning:` or `PostgreSQL:`."""
    return re.sub(r"^([\w ]{1,12}: )?(.*?)[.:](?: .*|$)", r"\1\2.", _plain(means), flags=re.DOTALL)


def _plain(text: str) -> str:
    """Return a text without its links, which lead to pages of the documentation."""
    return _LINK.sub(r"\1", text)
