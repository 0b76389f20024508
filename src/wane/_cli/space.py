"""`wane space`: what pruning freed, and how to give unused space back."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.output import many, print_line, print_widest, table
from wane._cli.values import parse_time
from wane._contract.duration import parse_duration
from wane._formats import seconds_text, size_text, time_text
from wane.observe._space import Advice, FileVacuumed, Space, SpaceOfTable, advised

app = typer.Typer()
_PAGES = re.compile(r"([0-9][0-9_,]*) *pages?")


@command(app, "space", Services(stops_after="transaction"))
def space(
    call: Call,
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="One table; all if left out.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Count what was freed since then: an ISO 8601 time, unix seconds, or a duration; 7d if left out.",
        ),
    ] = None,
    vacuum: Annotated[
        bool,
        typer.Option(
            "--vacuum",
            help="SQLite with `auto_vacuum = INCREMENTAL`: give free pages back to the disk, in small transactions with pauses,"
            " until none is left or the budget is spent.",
        ),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET",
            help="With --vacuum: `10s`, `5000 pages`, or both with a comma between, instead of `space` of the contract.",
        ),
    ] = None,
) -> CommandResult:
    """Show what tables take, what pruning freed, and what would give space back. Never runs that itself, but for
    --vacuum."""
    if budget is not None and not vacuum:
        raise typer.BadParameter("only --vacuum has a budget", param_hint="--budget")
    if vacuum and (name is not None or since is not None):
        raise typer.BadParameter("the whole file is vacuumed: leave TABLE and --since out", param_hint="--vacuum")
    seconds, pages = _parse_budget(budget)
    keeper = call.open(read_only=not vacuum)
    if vacuum:
        done = keeper.vacuum(seconds=seconds, pages=pages, stop=call.stop.event)
        return CommandResult(done, lambda: _print_vacuumed(done))
    after = None if since is None else parse_time(since, keeper.store.now(), "--since")
    found = keeper.space(name, since=after)
    return CommandResult(found.as_json(), lambda: _print(found))


def _parse_budget(text: str | None) -> tuple[float | None, int | None]:
    seconds, pages = None, None
    for part in [] if text is None else text.split(","):
        counted = _PAGES.fullmatch(part.strip())
        try:
            if counted is not None:
                pages = int(counted[1].replace("_", "").replace(",", ""))
            else:
                seconds = parse_duration(part.strip()).total_seconds()
        except ValueError as problem:
            raise typer.BadParameter(
                f"{part!r} is neither a duration such as 10s nor a number of pages: {problem}", param_hint="--budget"
            ) from None
    if pages == 0:
        raise typer.BadParameter("the number of pages must be at least 1", param_hint="--budget")
    return seconds, pages


def _print_vacuumed(done: FileVacuumed) -> None:
    words = {
        "pages": "; its budget of pages is spent",
        "seconds": "; its budget of time is spent",
        "stopped": "; stop requested",
        "locked": "; others keep the database busy",
    }
    left = f", {many(done.left_pages, 'page')} left" if done.left_pages else ""
    took = seconds_text(done.seconds) or "no time"
    print_line(
        f"gave back {many(done.pages, 'page')}, {size_text(done.bytes)}, in {took}{left}{words.get(done.ended, '')}"
    )


def _print(found: Space) -> None:
    columns = ["table", "size", "indexes", "rows", "pruned", "freed", "on disk", "unused", "dead"]
    full = table(*columns, right=columns[1:])
    few = ["table", "size", "pruned", "freed", "on disk", "unused"]
    narrow = table(*few, right=few[1:])
    for one in found.tables:
        cells = _cells(one)
        full.add_row(*(cells[column] for column in columns))
        narrow.add_row(*(cells[column] for column in few))
    print_widest(full, narrow)
    database = found.database
    free = "" if database.free_pages is None else f", {size_text(database.free_bytes)} of it free"
    log = f", {size_text(database.log_bytes)} in its log" if database.log_bytes else ""
    print_line(
        f"the database takes {size_text(database.bytes)}{free}{log}; freed since {time_text(found.since, 'minutes')}"
    )
    for about, advice in [("", one) for one in found.advice] + advised(found.tables):
        _print_advice(about, advice)


def _cells(one: SpaceOfTable) -> dict[str, str]:
    size = one.space
    change = one.changed_bytes
    return {
        "table": escape(one.table),
        "size": size_text(size.bytes, exact=size.exact),
        "indexes": size_text(size.index_bytes, exact=size.exact),
        "rows": "?" if size.rows is None else f"~{size.rows:,}",
        "pruned": "?" if one.pruned_rows is None else f"{one.pruned_rows:,}",
        "freed": size_text(one.freed_bytes, exact=False),
        "on disk": "?" if change is None else f"{'+' if change >= 0 else '−'}{size_text(abs(change))}",
        "unused": size_text(size.unused_bytes, exact=False),
        "dead": "" if size.dead_rows is None else f"{size.dead_rows:,}",
    }


def _print_advice(about: str, advice: Advice) -> None:
    head = f"{escape(about)}: " if about else ""
    print_line(f"[yellow]{advice.what}[/] {head}{escape(advice.why)}")
    blocking = " [red](blocks others)[/]" if advice.blocks else ""
    print_line(f"  [green]run:[/] {escape(advice.statement)}{blocking}")
