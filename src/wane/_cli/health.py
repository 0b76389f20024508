"""`wane pressure`, `wane health`: how full the tables are, and whether retention does its work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.markup import escape

from wane._check.live import about
from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import console, print_findings, print_line, print_widest, summary, table
from wane._formats import SIGNS, count_text, share_text, size_text, time_text
from wane.observe._health import Health, TableHealth
from wane.observe._pressure import Pressure

app = typer.Typer()


@command(app, "pressure")
def pressure(call: Call) -> CommandResult:
    """Show how many rows each table has, how old they are, and how many are due. Reads little, however large the tables
    are."""
    found = call.open(read_only=True).pressure()
    return CommandResult([one.as_dict() for one in found], lambda: _print_pressure(found))


def _print_pressure(found: Sequence[Pressure]) -> None:
    shown = table("table", "rows", "oldest", "newest", "due", "share", right=("rows", "due", "share"))
    for one in found:
        ruled = one.due is not None or one.oldest is not None
        shown.add_row(
            escape(one.table),
            count_text(one.rows),
            time_text(one.oldest),
            time_text(one.newest),
            count_text(one.due) if ruled else "",
            share_text(one.share),
        )
    console().print(shown)
    if slow := [one.table for one in found if one.lacks_index]:
        print_line(
            f"oldest and newest of {escape(', '.join(slow))} are unknown: no index is ordered by time;"
            " `wane check --cover` prints the CREATE INDEX"
        )


@command(app, "health")
def health(
    call: Call,
    record: Annotated[
        bool, typer.Option("--record", help="Store the report for SQL readers, as `wane run` does at intervals.")
    ] = False,
) -> CommandResult:
    """Report whether retention does its work, and if not, what to do. Exits 0 if it is healthy, 1 if not."""
    keeper = call.open(read_only=not record)
    found = keeper.record_health() if record else keeper.health()
    return CommandResult(found.as_dict(), lambda: _print_health(found), 0 if found.healthy else 1)


def _print_health(found: Health) -> None:
    wide = table(
        "table", "rows", "size", "oldest", "due", "late", "last sweep", "drains in", "read",
        right=("rows", "size", "due", "late", "drains in", "read"),
    )  # fmt: skip
    narrow = table("table", "rows", "due", "late", "last sweep", right=("rows", "due", "late"))
    for one in found.tables:
        name, rows = escape(one.pressure.table), count_text(one.pressure.rows)
        due = count_text(one.pressure.due) if one.rules else ""
        late, swept = _length(one.late_seconds), time_text(one.last_sweep) or ("never" if one.every_seconds else "")
        read = "" if one.hot_read_ms is None else f"{one.hot_read_ms:g} ms"
        oldest = _length(one.oldest_age_seconds)
        size = "" if one.bytes is None else size_text(one.bytes, exact=one.bytes_exact)
        wide.add_row(name, rows, size, oldest, due, late, swept, _drain(one), read)
        narrow.add_row(name, rows, due, late, swept)
    print_widest(wide, narrow)
    print_findings(found.findings)
    colour = "green" if found.healthy else "red"
    print_line(f"[{colour}]{escape(found.database)}: {escape(found.verdict)}[/] ({summary(list(found.findings))})")


def _length(seconds: float | None) -> str:
    """Format a duration roughly; return nothing for no time, or for the future."""
    return "" if seconds is None or seconds <= 0 else about(timedelta(seconds=seconds))


def _drain(one: TableHealth) -> str:
    """Format when nothing will be due: `~ 5 minutes`, `≥ 2 hours`, `never`, `?`, or `no sweeps` if nothing runs."""
    if one.pressure.due is None or not one.pressure.due.rows or one.every_seconds is None:
        return ""
    if not one.runs:
        return "no sweeps"
    drain = one.drain
    if drain is not None:
        return f"{SIGNS[drain.exactness].strip()} {about(timedelta(seconds=drain.value))}"
    return "?" if one.pruned_per_hour is None else "never"
