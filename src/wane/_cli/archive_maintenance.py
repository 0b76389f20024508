"""`wane archive expire | compact | tidy`: maintenance of the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer
from rich.markup import escape

from wane._archive.model import CompactedTable, ExpiredTable, TidiedTable
from wane._cli.archive import COLOURS, LONG_WORK, NO_RULES, app, starting
from wane._cli.harness import Call, CommandResult, command
from wane._cli.output import console, print_line, table, time_text
from wane._cli.values import parse_length
from wane._prune.sweep import Outcome

TablesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE...", help="All tables of the archive if none is named.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Maintained = Sequence[ExpiredTable] | Sequence[CompactedTable] | Sequence[TidiedTable]


@command(app, "expire", LONG_WORK)
def archive_expire(call: Call, only: TablesArgument = None, dry_run: DryRunOption = False) -> CommandResult:
    """Delete archived rows for good that are older than `keep` of [archive.<table>], with what left with them.

    Held rows stay. The files leave the disk with `wane archive tidy`. Exits 1 if a table failed.
    """
    archive = call.open().archive
    done = archive.expire(*(only or ()), dry_run=dry_run, stop=call.stop.event, starting=starting)

    def show() -> None:
        rows = [
            (name, month, f"{count:,}", time_text(one.cutoff))
            for one in done
            for name, months in one.rows.items()
            for month, count in sorted(months.items())
        ]
        _print_tables(done, ("table", "month", "rows", "before"), rows)
        for one in done:
            if one.held:
                print_line(f"[yellow]{escape(one.table)}: nothing went: {escape(one.held)}[/]")

    return _result(done, show)


@command(app, "compact", LONG_WORK)
def archive_compact(
    call: Call,
    only: TablesArgument = None,
    files: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=2,
            help="Only months with at least this number of small files: smaller than half of `upkeep.file_bytes`.",
        ),
    ] = 2,
    dry_run: DryRunOption = False,
) -> CommandResult:
    """Rewrite the small files of a month as few large ones, sorted by time; proven to hold the same rows. Exits 1 if a table failed."""
    archive = call.open().archive
    done = archive.compact(*(only or ()), least_files=files, dry_run=dry_run, stop=call.stop.event, starting=starting)
    rows = [(one.table, f"{one.files:,}", f"{one.into:,}", f"{one.rows:,}", f"{one.bytes:,}") for one in done]
    return _result(done, lambda: _print_tables(done, ("table", "files", "into", "rows", "bytes"), rows))


@command(app, "tidy", LONG_WORK)
def archive_tidy(
    call: Call,
    only: TablesArgument = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long a file must have been part of nothing: at least 1h; `upkeep.tidy_after` if left out.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> CommandResult:
    """Remove files from the disk that have not been part of the archive for a while: expired, compacted, or of a sweep that died.

    Never a file that is part of it, nor one of a sweep that is not finished. Exits 1 if a table failed.
    """
    age = None if older_than is None else parse_length(older_than, "--older-than")
    done = call.open().archive.tidy(*(only or ()), older_than=age, dry_run=dry_run, stop=call.stop.event)

    def show() -> None:
        rows = [(one.table, f"{one.files:,}", f"{one.bytes:,}", f"{one.waiting:,}") for one in done]
        _print_tables(done, ("table", "files", "bytes", "waiting"), rows)
        for one in done:
            if one.erased:
                numbers = ", ".join(str(number) for number in one.erased)
                print_line(escape(f"{one.table}: rows deleted by audit entries {numbers} are now erased from disk"))

    return _result(done, show)


def _result(done: Maintained, show: Callable[[], None]) -> CommandResult:
    return CommandResult(done, show, 1 if any(one.outcome is Outcome.FAILED for one in done) else 0)


def _print_tables(done: Maintained, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    shown = table(*heads, right=[head for head in heads if head not in ("table", "month", "before")])
    for row in rows:
        shown.add_row(*map(escape, row))
    console().print(shown)
    for one in done:
        if one.message:
            print_line(f"[{COLOURS.get(one.outcome, 'yellow')}]{escape(f'{one.table}: {one.message}')}[/]")
    if not done:
        print_line(NO_RULES)
