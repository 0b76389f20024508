"""`wane archive expire | compact | tidy`: maintenance of the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer
from rich.markup import escape

from wane._archive.model import CompactedTable, ExpiredTable, TidiedTable
from wane._cli.archive import COLOURS, LONG_WORK, NO_RULES, TableArgument, app, starting
from wane._cli.confirm import NOTHING_DONE, confirm
from wane._cli.fleet import Listed, across, of_original
from wane._cli.harness import Call, CommandResult, command
from wane._cli.options import FleetOption, ShownOption
from wane._cli.output import console, many, print_line, table
from wane._cli.values import parse_length
from wane._formats import time_text
from wane._keeper import Keeper
from wane._prune.sweep import Outcome

TablesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE...", help="All tables of the archive if none is named.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
_MORE_ABSENT = "more rows that the application deleted are left than one call erases; run it again to erase them"
Maintained = Sequence[ExpiredTable] | Sequence[CompactedTable] | Sequence[TidiedTable]


@command(app, "absent")
def archive_absent(
    call: Call, name: TableArgument = None, limit: ShownOption = 1_000, fleet: FleetOption = None
) -> CommandResult:
    """List archived rows that the application deleted.

    They were deleted after they were copied and before the sweep came to them. Their copies stay in the archive until
    `wane archive expire --erase-absent`.
    """
    if fleet is not None:
        absent = of_original(lambda keeper: keeper.archive.absent(name, limit=limit))
        return across(call, fleet, absent, _ABSENT, doing="read")
    found = call.open().archive.absent(name, limit=limit)

    def show() -> None:
        shown = table(*_ABSENT.heads, right=_ABSENT.right)
        for row in _ABSENT.rows(found):
            shown.add_row(*map(escape, row))
        console().print(shown)
        if not found:
            print_line("no archived row was deleted by the application before its sweep came to it")

    return CommandResult(found, show)


_ABSENT = Listed(
    ("table", "key", "sweep", "rule", "month", "found gone"),
    ("sweep",),
    lambda found: [(one.table, one.key, str(one.sweep), one.rule, one.month, time_text(one.at)) for one in found],
    lambda found: {"rows_absent": len(found)},
)


@command(app, "expire", LONG_WORK)
def archive_expire(
    call: Call,
    only: TablesArgument = None,
    erase_absent: Annotated[
        bool,
        typer.Option(
            "--erase-absent",
            help="Delete instead what `wane archive absent` lists: rows that the application deleted after they were copied.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation, which only --erase-absent asks for.")
    ] = False,
    fleet: FleetOption = None,
) -> CommandResult:
    """Delete archived rows that are past their `keep` for good.

    `keep` is that of the table in the contract's section `archive`. What left with the rows is deleted, too. Held rows
    stay. The files leave the disk with `wane archive tidy`. Exits 1 if a table failed, 4 if it was not confirmed.
    """

    def expire(keeper: Keeper, *, dry_run: bool = dry_run) -> list[ExpiredTable]:
        return keeper.archive.expire(
            *(only or ()), erase_absent=erase_absent, dry_run=dry_run, stop=call.stop.event, starting=starting
        )

    if fleet is not None:
        if erase_absent and not (dry_run or yes):
            raise typer.BadParameter("with --fleet, agree with --yes", param_hint="--erase-absent")
        return across(call, fleet, of_original(expire), _EXPIRED, doing="expire", dry_run=dry_run)
    keeper = call.open()
    if erase_absent and not dry_run:
        would = expire(keeper, dry_run=True)
        rows = sum(count for one in would for count in one.rows.get(one.table, {}).values())
        if rows and not confirm(f"Delete {many(rows, 'row')} from the archive for good?", yes=yes):
            return CommandResult(would, lambda: None, NOTHING_DONE)
    done = expire(keeper)

    def show() -> None:
        _print_tables(done, _EXPIRED.heads, _EXPIRED.rows(done))
        for one in done:
            if one.held:
                print_line(f"[yellow]{escape(one.table)}: nothing went: {escape(one.held)}[/]")
            if one.more_absent:
                print_line(f"[yellow]{escape(one.table)}:[/] {_MORE_ABSENT}")
        rows = _EXPIRED.total(done)["rows"]
        _print_total("deleted for good", many(rows, "row"), rows, dry_run=dry_run)

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
    fleet: FleetOption = None,
) -> CommandResult:
    """Rewrite the small files of a month as few large ones. They are sorted by time, and proven to hold the same rows.
    Exits 1 if a table failed."""

    def compact(keeper: Keeper) -> list[CompactedTable]:
        return keeper.archive.compact(
            *(only or ()), least_files=files, dry_run=dry_run, stop=call.stop.event, starting=starting
        )

    if fleet is not None:
        return across(call, fleet, of_original(compact), _COMPACTED, doing="compact", dry_run=dry_run)
    done = compact(call.open())

    def show() -> None:
        _print_tables(done, _COMPACTED.heads, _COMPACTED.rows(done))
        total = _COMPACTED.total(done)
        verb = f"rewritten as {total['into']:,}" if total["into"] else "rewritten"
        _print_total(verb, many(total["files"], "file"), total["files"], dry_run=dry_run)

    return _result(done, show)


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
    fleet: FleetOption = None,
) -> CommandResult:
    """Remove files that the archive no longer uses from the disk.

    Their rows expired, were compacted into other files, or are of a sweep that died, at least as long ago as
    --older-than. A file that is part of the archive, or of a sweep that is not finished, stays. Exits 1 if a table
    failed.
    """
    age = None if older_than is None else parse_length(older_than, "--older-than")

    def tidy(keeper: Keeper) -> list[TidiedTable]:
        return keeper.archive.tidy(*(only or ()), older_than=age, dry_run=dry_run, stop=call.stop.event)

    if fleet is not None:
        return across(call, fleet, of_original(tidy), _TIDIED, doing="tidy", dry_run=dry_run)
    done = tidy(call.open())

    def show() -> None:
        _print_tables(done, _TIDIED.heads, _TIDIED.rows(done))
        for one in done:
            if one.erased:
                numbers = ", ".join(str(number) for number in one.erased)
                print_line(escape(f"{one.table}: rows deleted by audit entries {numbers} are now erased from disk"))
        files, size = (_TIDIED.total(done)[name] for name in ("files", "bytes"))
        _print_total("removed from disk", f"{many(files, 'file')} of {many(size, 'byte')}", files, dry_run=dry_run)

    return _result(done, show)


def _failures(done: Maintained) -> list[str]:
    return [f"{one.table}: {one.message}" for one in done if one.outcome is Outcome.FAILED]


def _off(done: Maintained) -> bool:
    return bool(done) and all(one.outcome is Outcome.OFF for one in done)


_EXPIRED = Listed(
    ("table", "month", "rows", "before"),
    ("rows",),
    lambda done: [
        (name, month, f"{count:,}", time_text(one.cutoff))
        for one in done
        for name, months in one.rows.items()
        for month, count in sorted(months.items())
    ],
    lambda done: {
        "rows": sum(sum(months.values()) for one in done for months in one.rows.values()),
        **({"tables_with_more_absent_rows": more} if (more := sum(one.more_absent for one in done)) else {}),
    },
    _failures,
    _off,
)
_COMPACTED = Listed(
    ("table", "files", "into", "rows", "bytes"),
    ("files", "into", "rows", "bytes"),
    lambda done: [
        (one.table, f"{one.files:,}", "" if one.dry_run else f"{one.into:,}", f"{one.rows:,}", f"{one.bytes:,}")
        for one in done
    ],
    lambda done: {"files": sum(one.files for one in done), "into": sum(one.into for one in done)},
    _failures,
    _off,
)
_TIDIED = Listed(
    ("table", "files", "bytes", "waiting"),
    ("files", "bytes", "waiting"),
    lambda done: [(one.table, f"{one.files:,}", f"{one.bytes:,}", f"{one.waiting:,}") for one in done],
    lambda done: {"files": sum(one.files for one in done), "bytes": sum(one.bytes for one in done)},
    _failures,
    _off,
)


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


def _print_total(verb: str, what: str, count: int, *, dry_run: bool) -> None:
    """Print the last line: what was done in all, or what a dry run found that would be."""
    if dry_run:
        print_line(f"a dry run: {what} would be {verb}, nothing was changed")
    else:
        print_line(f"{what} {'was' if count == 1 else 'were'} {verb}")
