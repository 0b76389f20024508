"""Output for people and scripts: tables and JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from io import TextIOWrapper

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from wane import _findings as findings
from wane._findings import Finding, Severity

FORMAT = 2
"""The version of the JSON documents; it changes with the name, the position or the meaning of anything in them."""
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_LEVELS = {Severity.ERROR: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.NOTE: logging.INFO}
_UNFOLDED = 10_000
"""Columns where the output is not a terminal: a line that a script or a file reads is never folded."""


def console(*, stderr: bool = False) -> Console:
    """Return a console that reads the environment anew, so that tests and pipes get the console that they need."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(
            errors="backslashreplace"
        )  # A terminal that lacks a letter shows its number; nothing fails for it.
    width = None if stream.isatty() or "COLUMNS" in os.environ else _UNFOLDED
    # A name like `:tools:` is a name, and the list of emoji takes as long to import as a small command.
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, emoji=False)


def print_line(text: str) -> None:
    """Print a line for people, in rich's markup: escape what came from elsewhere. With JSON logs it is a record of
    them."""
    if _LineFormat.as_json:
        _log_message(text)
    else:
        console(stderr=True).print(text, soft_wrap=True)


class _LineFormat:
    """How lines for people are written, in this process."""

    as_json = False


def write_lines(*, as_json: bool) -> None:
    """Write lines for people as JSON log records, or as text."""
    _LineFormat.as_json = as_json


def _log(level: int, name: str, **facts: object) -> None:
    from wane.observe._logs import log  # It imports all events, which few commands need.

    log(level, name, **facts)


def _log_message(text: str) -> None:
    """Log a line for people, with the level that its colour stands for."""
    levels = {"[red]": logging.ERROR, "[green]hint:": logging.ERROR, "[yellow]": logging.WARNING}
    level = next((one for colour, one in levels.items() if text.startswith(colour)), logging.INFO)
    _log(level, "wane.message", message=Text.from_markup(text).plain)


def document(data: object) -> object:
    """Return what a command found or did as a JSON document: an object that begins with its format; a list is
    `items`."""
    if is_dataclass(data) and not isinstance(data, type):
        data = asdict(data)
    if not isinstance(data, Mapping):
        return {"format": FORMAT, "items": data}
    return data if "format" in data else {"format": FORMAT, **data}


def print_json(data: object, *, indent: int | None = 2) -> None:
    """Print data as one JSON document; dataclasses as objects. Without an indent it is one line."""
    sys.stdout.write(json.dumps(data, indent=indent, ensure_ascii=not prints_unicode(), default=_plain) + "\n")


def prints_unicode() -> bool:
    """Return whether stdout can print every character."""
    return (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")


def _plain(value: object) -> object:
    """Convert what JSON does not have. Times become ISO 8601 in UTC, so that every command writes them alike."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    return str(value)


def print_findings(findings: Iterable[Finding], *, stderr: bool = False) -> None:
    """Print findings for people, worst first, each with its fix."""
    if _LineFormat.as_json:
        for finding in findings:
            level = _LEVELS[finding.severity] if finding.accepted is None else logging.INFO
            _log(level, "wane.finding", **finding.as_dict())
        return
    out = console(stderr=stderr)
    order = list(Severity)
    created: dict[str, str] = {}
    """The statements that fixes create something by, and the finding that was printed with each."""
    for finding in sorted(findings, key=lambda one: (one.accepted is not None, order.index(one.severity))):
        colour, word = _COLOURS[finding.severity], finding.severity.value
        if finding.accepted is not None:
            colour, word = "dim", f"accepted {word}"
        head = f"[{colour}]{word}[/] [dim]{finding.code}[/] [bold]{escape(finding.subject)}[/]"
        out.print(head, soft_wrap=True)
        out.print(f"  {escape(finding.message)}", soft_wrap=True)
        if finding.accepted is not None:
            out.print(f"  [dim]accepted:[/] {escape(finding.accepted)}", soft_wrap=True)
        elif (
            finding.fix.startswith("CREATE ")
            and (first := created.setdefault(finding.fix, finding.subject)) != finding.subject
        ):
            out.print(f"  [green]fix:[/] the same statement as for {escape(first)}", soft_wrap=True)
        elif finding.fix:
            out.print(f"  [green]fix:[/] {escape(finding.fix)}", soft_wrap=True)


def summary(findings: list[Finding]) -> str:
    """Summarise findings: `2 errors, 1 warning, 1 accepted`."""
    counts = Counter(finding.severity for finding in findings if finding.accepted is None)
    parts = [many(counts[severity], severity.value) for severity in Severity if counts[severity]]
    accepted = sum(finding.accepted is not None for finding in findings)
    return ", ".join([*parts, *([f"{accepted:,} accepted"] if accepted else [])]) or "nothing to report"


def many(count: int, noun: str, *, bold: bool = False) -> str:
    """Format a count of things: `1 rule`, `1,234 rules`."""
    number, _, name = findings.many(count, noun).partition(" ")
    return f"[bold]{number}[/] {name}" if bold else f"{number} {name}"


def table(*columns: str, title: str | None = None, right: Iterable[str] = (), show_header: bool = True) -> Table:
    """Make an empty table in the house style."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        show_header=show_header,
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_widest(*choices: Table) -> None:
    """Print the first table that fits without folding a word; the last one folds if it must."""
    out = console()
    unbounded = out.options.update(width=_UNFOLDED)
    fitting = (choice for choice in choices if out.measure(choice, options=unbounded).maximum <= out.width)
    out.print(next(fitting, choices[-1]))


def print_fitting(
    rows: Iterable[Callable[[str], Mapping[str, str]]], *layouts: tuple[Sequence[str], str], right: Iterable[str] = ()
) -> None:
    """Print rows in the first layout that fits. A layout has columns and a precision of times, of which each row makes
    its cells."""
    rows, right = list(rows), tuple(right)
    choices = []
    for columns, timespec in layouts:
        shown = table(*columns, right=right)
        for row in rows:
            cells = row(timespec)
            shown.add_row(*(cells[column] for column in columns))
        choices.append(shown)
    print_widest(*choices)


def counts_text(counts: Mapping[str, int], *, but: str | None = None) -> str:
    """Format counts by table: `jobs 1,234, job_attempts 5`; one of them may be shown elsewhere."""
    return ", ".join(f"{escape(name)} {count:,}" for name, count in counts.items() if name != but)
