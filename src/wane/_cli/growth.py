"""`wane growth`: how fast tables grow, and when they will be too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import console, many, print_line, print_widest, prints_unicode, table
from wane._forecast import DaysTo, Verdict
from wane._formats import size_text, time_text
from wane.observe._growth import TableGrowth

_BARS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"
_WIDEST = 160
"""The longest line of bars, in characters, on a terminal of that width."""


class _ShowsByDefault(TyperGroup):
    """`wane growth jobs` is `wane growth show jobs`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        if first not in self.commands and first not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowsByDefault,
    help="How fast tables grow. Without a command: show.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@command(app, "snapshot")
def growth_snapshot(call: Call) -> CommandResult:
    """Measure every table now and store it. `wane run` does so by itself, once in an interval."""
    taken = call.open().take_snapshots()
    counted = sum(one.exact for one in taken)
    missing = sum(one.rows is None for one in taken)
    text = f"{many(len(taken), 'table')}: {counted} counted, {len(taken) - counted - missing} estimated"
    return CommandResult(
        [one.as_dict() for one in taken],
        lambda: print_line(text + (f", {missing} neither: counting took too long" if missing else "")),
    )


@command(app, "show")
def growth_show(
    call: Call,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="One table, with its course; all if left out.")
    ] = None,
) -> CommandResult:
    """Show how fast tables grow, from their snapshots: the rate, days to every threshold, a forecast. Warns before a
    threshold."""
    found = call.open().growth(name)

    def show() -> None:
        if name is None:
            _print_all(found, [one.threshold for one in found[0].days] if found else [])
        else:
            _print_one(found[0])
        measured = [one.taken_at for one in found if one.taken_at is not None]
        if not measured:
            print_line("nothing was measured yet: `wane run` does it by itself, `wane growth snapshot` now")
        elif name is None:
            print_line(f"measured {time_text(max(measured))}; `wane growth snapshot` measures now")
        for one in found:
            if one.alert is not None:
                print_line(f"[yellow]warning:[/] {_alert_text(one)}")

    return CommandResult([one.as_json() for one in found], show)


def _alert_text(one: TableGrowth) -> str:
    assert one.alert is not None
    rows, threshold = rows_text(one), f"{one.alert.threshold:,}"
    name = escape(one.table)
    when = "" if one.alert.days is None else f", in about {days_number(one.alert.days)} days by its rate"
    if one.alert.reason == "reached":
        return f"{name} has {rows} rows, {threshold} or more"
    if one.alert.reason == "near":
        return f"{name} has {rows} rows and comes near {threshold}{when}"
    return f"{name} reaches {threshold} rows{when}"


def _print_all(found: list[TableGrowth], thresholds: list[int]) -> None:
    days = [f"days to {short_count(threshold)}" for threshold in thresholds]
    columns = ["table", "rows", "size", "a day", *days, "course"]
    full, narrow = (table(*some, right=some[1:-1]) for some in (columns, columns))
    for one in found:
        cells = [
            escape(one.table),
            rows_text(one),
            size_text(one.bytes, exact=one.bytes_exact),
            rate_text(one),
            *(days_text(each) for each in one.days),
        ]
        values = [float(rows) for _, rows in one.history]
        full.add_row(*cells, sparkline(values, 24, unicode=prints_unicode()))
        narrow.add_row(*cells, sparkline(values, 8, unicode=prints_unicode()))
    print_widest(full, narrow)


def _print_one(one: TableGrowth) -> None:
    out = console()
    size = "" if one.bytes is None else f", {size_text(one.bytes, exact=one.bytes_exact)} with indexes"
    out.print(
        f"[bold]{escape(one.table)}[/] {rows_text(one)} rows{size}, measured {time_text(one.taken_at) or 'never'}",
        soft_wrap=True,
    )
    words = {
        Verdict.UNKNOWN: "too few snapshots to estimate a rate",
        Verdict.IRREGULAR: "irregular: it may as well grow as shrink",
        Verdict.STEADY: "steady",
        Verdict.SHRINKING: "shrinking",
        Verdict.GROWING: "growing",
    }
    between = "" if one.rate is None else f", {_signed(one.rate.low)} to {_signed(one.rate.high)}"
    out.print(f"{words[one.verdict]}" + ("" if one.rate is None else f": {rate_text(one)} rows a day{between}"))
    if one.limit is not None:
        most = "" if one.limit.high == one.limit.rows else f", at most {one.limit.high:,}"
        out.print(f"its window or cap bounds it: it tends to about {one.limit.rows:,} rows{most}")
    for each in one.days:
        span = ""
        if each.days and each.earliest is not None:
            latest = "" if each.latest is None else f" to {days_number(each.latest)}"
            span = f" ({days_number(each.earliest)}{latest})"
        out.print(f"days to {each.threshold:,} rows: {days_text(each)}{span}")
    for ahead in one.forecast:
        out.print(f"in {ahead.days:.0f} days: {ahead.rows:,} rows ({ahead.low:,} to {ahead.high:,})")
    if one.history:
        _print_course(one)


def _print_course(one: TableGrowth) -> None:
    out = console()
    values = [float(rows) for _, rows in one.history]
    out.print(sparkline(values, min(out.width, _WIDEST), unicode=prints_unicode()), soft_wrap=True, markup=False)
    first, last = (time_text(at, "days") for at in (one.history[0][0], one.history[-1][0]))
    out.print(f"{first} to {last}: from {min(values):,.0f} to {max(values):,.0f} rows", soft_wrap=True)


def short_count(threshold: int) -> str:
    """Format a count: `1M`, `250k`, `1234`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if threshold % size == 0:
            return f"{threshold // size}{unit}"
    return str(threshold)


def rows_text(one: TableGrowth) -> str:
    return "?" if one.rows is None else f"{'' if one.exact else '~'}{one.rows:,}"


def rate_text(one: TableGrowth) -> str:
    """Format a rate: `+1,234`, or `n/a` where none is known."""
    if one.rate is None:
        return "n/a"
    half = (one.rate.high - one.rate.low) / 2
    return _signed(one.rate.rate) + (f" ± {_number(half)}" if half >= 0.05 else "")


def days_text(one: DaysTo) -> str:
    return one.word if one.days is None else "reached" if one.days == 0 else days_number(one.days)


def days_number(days: float) -> str:
    """Format a number of days: `4.2`, `412`, `> 36,500`."""
    return f"{days:.1f}" if days < 10 else f"{days:,.0f}" if days < 36_500 else "> 36,500"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "−") + _number(abs(value)) if _number(abs(value)) != "0" else "0"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}".removesuffix(".0")


def sparkline(values: Sequence[float], width: int = 12, *, unicode: bool = True) -> str:
    """Draw some values in one line: the last of each part, between the smallest and the largest."""
    parts = min(width, len(values))
    chosen = [values[(number + 1) * len(values) // parts - 1] for number in range(parts)]
    low, high = min(chosen, default=0.0), max(chosen, default=0.0)
    bars = _BARS if unicode else _ASCII
    return "".join(bars[round((one - low) / (high - low) * 7) if high > low else 0] for one in chosen)
