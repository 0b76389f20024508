"""`wane pressure`, `wane health`: how full the tables are, and whether retention does its work."""

from __future__ import annotations

from datetime import timedelta

import typer
from rich.markup import escape

from wane.check.live import about
from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import (
    console,
    count_text,
    moment_text,
    print_findings,
    print_json,
    print_widest,
    say,
    summary,
    table,
)
from wane.keeper import open_keeper
from wane.observe.health import Health, TableHealth

_UNITS = ("B", "kB", "MB", "GB", "TB")


def pressure(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show how many rows each table has, how old they are, and how many are due. Reads little, however large the tables are."""
    with open_keeper(url, contract=contract, read_only=True) as keeper:
        found = keeper.pressure()
    if as_json:
        print_json([one.as_dict() for one in found])
        return
    shown = table("table", "rows", "oldest", "newest", "due", "share", right=("rows", "due", "share"))
    for one in found:
        share = one.share
        ruled = one.due is not None or one.oldest is not None
        shown.add_row(
            escape(one.table),
            count_text(one.rows),
            moment_text(one.oldest),
            moment_text(one.newest),
            count_text(one.due) if ruled else "",
            "" if share is None else f"{share:.1%}",
        )
    console().print(shown)


def health(contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Report whether retention does its work, and if not, what to do. Exits 0 if it is healthy, 1 if not."""
    with open_keeper(url, contract=contract, read_only=True) as keeper:
        found = keeper.health()
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
    if not found.healthy:
        raise typer.Exit(1)


def _print(found: Health) -> None:
    wide = table(
        "table", "rows", "size", "oldest", "due", "late", "last sweep", "drains in", "read",
        right=("rows", "size", "due", "late", "drains in", "read"),
    )  # fmt: skip
    narrow = table("table", "rows", "due", "late", "last sweep", right=("rows", "due", "late"))
    for one in found.tables:
        name, rows = escape(one.pressure.table), count_text(one.pressure.rows)
        due = count_text(one.pressure.due) if one.rules else ""
        late, swept = _length(one.late_seconds), moment_text(one.last_sweep) or ("never" if one.every_seconds else "")
        read = "" if one.hot_read_ms is None else f"{one.hot_read_ms:g} ms"
        oldest = _length(one.oldest_age_seconds)
        wide.add_row(name, rows, _bytes(one.bytes), oldest, due, late, swept, _drain(one), read)
        narrow.add_row(name, rows, due, late, swept)
    print_widest(wide, narrow)
    print_findings(found.findings)
    colour = "green" if found.healthy else "red"
    say(f"[{colour}]{escape(found.database)}: {escape(found.verdict)}[/] ({summary(list(found.findings))})")


def _length(seconds: float | None) -> str:
    """Format a duration roughly; return nothing for no time, or for the future."""
    return "" if seconds is None or seconds <= 0 else about(timedelta(seconds=seconds))


def _drain(one: TableHealth) -> str:
    if one.pressure.due is None or not one.pressure.due.rows or one.every_seconds is None:
        return ""
    return "never" if one.drain_seconds is None else about(timedelta(seconds=one.drain_seconds))


def _bytes(number: int | None) -> str:
    if number is None:
        return ""
    size, unit = float(number), 0
    while size >= 1000 and unit + 1 < len(_UNITS):
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"
