"""`wane archive survey`: how much there is, hot and archived, how fast it grows, and what will be due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from wane._archive.model import Surveyed
from wane._cli.archive import app, starting
from wane._cli.growth import days_number, short_count
from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import console, print_line, table
from wane._db.counting import Count, Exactness
from wane._formats import count_text

_BAR = 30
"""The widest bar of a histogram, in characters."""


@command(app, "survey")
def survey(
    call: Call,
    only: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="All tables of the contract if none is named.")
    ] = None,
    months: Annotated[bool, typer.Option("--months", help="Show the rows of each month too, as a histogram.")] = False,
) -> CommandResult:
    """Count every hot table and the archive on Spark: rows, bytes, ends, rows a day, days to the
    thresholds of the contract's section `growth`, and what will be due.

    Hot tables are read in slices of time. Days are `never` for tables that do not grow, or whose window or cap bounds
    them below, and `n/a` where the last weeks were not alike.
    """
    found = call.open().archive.survey(*(only or ()), starting=starting)

    def show() -> None:
        print_survey(found)
        for one in found if months else ():
            _print_months(one)

    return CommandResult(found, show)


def print_survey(found: Sequence[Surveyed]) -> None:
    """Print two tables, because one would be too wide: what there is, and what will be due."""
    shown = table("table", "tier", "rows", "bytes", "oldest", "newest", right=("rows", "bytes"))
    for one in found:
        ends = ("" if time is None else f"{time:%Y-%m-%d}" for time in (one.oldest, one.newest))
        shown.add_row(
            escape(one.table),
            one.tier,
            _number(one.rows, one.rows_exactness),
            _number(one.bytes, one.bytes_exactness),
            *ends,
        )
    console().print(shown)
    console().print()
    thresholds = list(dict.fromkeys(threshold for one in found for threshold in one.days_to))
    horizons = list(dict.fromkeys(days for one in found for days in one.due))
    to = [f"to {short_count(threshold)}" for threshold in thresholds]
    due = ["due" if not days else f"in {days} d" for days in horizons]
    shown = table("table", "tier", "a day", "tends to", *to, *due, right=("a day", "tends to", *to, *due))
    for one in found:
        shown.add_row(
            escape(one.table),
            one.tier,
            "n/a" if one.rows_per_day is None else f"{one.rows_per_day:,.0f}",
            _number(one.tends_to, "estimate"),
            *(_days(one.days_to[threshold]) for threshold in thresholds),
            *(_number(one.due.get(days), one.due_exactness.get(days)) for days in horizons),
        )
    console().print(shown)


def _print_months(one: Surveyed) -> None:
    if not one.months:
        return
    print_line("")
    most = max(one.months.values())
    shown = table("month", "rows", "", title=f"{one.table} ({one.tier})", right=("rows",))
    for month, rows in one.months.items():
        shown.add_row(month, f"{rows:,}", "█" * round(_BAR * rows / max(most, 1)))
    console().print(shown)


def _number(number: int | None, exactness: str | None) -> str:
    return "" if number is None or exactness is None else count_text(Count(number, Exactness(exactness)))


def _days(days: float | str) -> str:
    return days if isinstance(days, str) else f"{days_number(days)} d"
