"""What people and scripts see: tables and JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wane.findings import Finding, Severity
from wane.store.base import Count, Exactness

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_WIDE = 160
"""Columns where the output is not a terminal: a table that is read by a file need not be folded."""


def console(*, stderr: bool = False) -> Console:
    """A console that reads the environment anew, so that tests and pipes get what they ask for."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDE
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def say(text: str) -> None:
    """A line for people."""
    console(stderr=True).print(text, soft_wrap=True)


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")


def print_findings(findings: Iterable[Finding]) -> None:
    """Findings for people, worst first, each with its fix."""
    out = console()
    order = list(Severity)
    for finding in sorted(findings, key=lambda one: order.index(one.severity)):
        colour = _COLOURS[finding.severity]
        place = " ".join(part for part in (finding.file, finding.path or finding.table) if part)
        head = f"[{colour}]{finding.severity.value}[/] [dim]{finding.code}[/] [bold]{escape(place)}[/]"
        out.print(head, soft_wrap=True)
        out.print(f"  {escape(finding.message)}", soft_wrap=True)
        if finding.fix:
            out.print(f"  [green]fix:[/] {escape(finding.fix)}", soft_wrap=True)


def summary(findings: list[Finding]) -> str:
    """`2 errors, 1 warning`."""
    parts = []
    for severity in Severity:
        count = sum(finding.severity is severity for finding in findings)
        if count:
            parts.append(f"{count} {severity.value}{'s' if count > 1 else ''}")
    return ", ".join(parts) or "nothing to report"


def table(*columns: str, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """An empty table in the house style."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def count_text(count: Count | None) -> str:
    """A count that says how much it can be trusted: `1,234`, `~1,234`, `≥ 1,234`, `?`."""
    if count is None:
        return "?"
    sign = {Exactness.EXACT: "", Exactness.ESTIMATE: "~", Exactness.AT_LEAST: "≥ "}[count.exactness]
    return f"{sign}{count.rows:,}"


def moment_text(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds_text(seconds: float | None) -> str:
    """About how long: `< 1 s`, `12 s`, `3 min`, `2.5 h`."""
    if seconds is None:
        return "?"
    if seconds < 1:
        return "< 1 s" if seconds > 0 else ""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
