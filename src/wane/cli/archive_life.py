"""`wane archive expire | compact | tidy`: the archive's own life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from wane.archive.model import CompactedTable, ExpiredTable, TidiedTable
from wane.cli.archive import COLOURS, starting
from wane.cli.metrics_file import measured
from wane.cli.options import (
    CONTRACT,
    ContractOption,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    MetricsFileOption,
    UrlOption,
)
from wane.cli.output import console, moment_text, print_json, say, table
from wane.cli.prune import ActorOption, sweeping
from wane.contract.duration import parse_duration
from wane.contract.load import load_contract
from wane.keeper import open_keeper
from wane.observe.logs import LogFormat, LogLevel, configure_logging
from wane.prune.sweep import Outcome

TablesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE...", help="All tables of the archive if none is named.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]


def archive_expire(
    only: TablesArgument = None,
    dry_run: DryRunOption = False,
    metrics_file: MetricsFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete for good what the archive has kept as long as `keep` of [archive.<table>] says, with what left with it.

    Held rows stay. The files leave the disk with `wane archive tidy`. Exits 1 if a table failed.
    """
    configure_logging(log_level, log_format)
    loaded = load_contract(contract)
    with measured(metrics_file, loaded, url) as count:
        with (
            sweeping(count, as_json=as_json) as (stop, listener),
            open_keeper(url, contract=loaded, actor=actor, listener=listener) as keeper,
        ):
            done = keeper.archive.expire(*(only or ()), dry_run=dry_run, stop=stop.event, starting=starting)
        _show(done, as_json=as_json, rows=_expired_rows(done), heads=("table", "month", "rows", "before"))
        if not as_json:
            for one in done:
                if one.held:
                    say(f"[yellow]{escape(one.table)}: nothing went: {escape(one.held)}[/]")
    stop.end(failed=_failed(done))


def _expired_rows(done: Sequence[ExpiredTable]) -> list[tuple[str, ...]]:
    return [
        (name, month, f"{rows:,}", moment_text(one.cutoff))
        for one in done
        for name, months in one.rows.items()
        for month, rows in sorted(months.items())
    ]


def archive_compact(
    only: TablesArgument = None,
    files: Annotated[int, typer.Option(min=2, help="Only months with at least so many small files.")] = 2,
    dry_run: DryRunOption = False,
    metrics_file: MetricsFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the small files of a month anew as few large ones, sorted by time; proven to hold the same rows. Exits 1 if a table failed."""
    configure_logging(log_level, log_format)
    loaded = load_contract(contract)
    with measured(metrics_file, loaded, url) as count:
        with (
            sweeping(count, as_json=as_json) as (stop, listener),
            open_keeper(url, contract=loaded, actor=actor, listener=listener) as keeper,
        ):
            done = keeper.archive.compact(
                *(only or ()), least_files=files, dry_run=dry_run, stop=stop.event, starting=starting
            )
        rows = [(one.table, f"{one.files:,}", f"{one.into:,}", f"{one.rows:,}", f"{one.bytes:,}") for one in done]
        _show(done, as_json=as_json, rows=rows, heads=("table", "files", "into", "rows", "bytes"))
    stop.end(failed=_failed(done))


def archive_tidy(
    only: TablesArgument = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="DURATION", help="At least 1h; `tidy_after` of [upkeep] if left out.")
    ] = None,
    dry_run: DryRunOption = False,
    metrics_file: MetricsFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.WARNING,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove files from the disk that have not been part of the archive for a while: expired, compacted, or of a sweep that died.

    Never a file that is part of it, nor one of a sweep that is not finished. Exits 1 if a table failed.
    """
    configure_logging(log_level, log_format)
    loaded = load_contract(contract)
    try:
        age = None if older_than is None else parse_duration(older_than)
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--older-than") from None
    with measured(metrics_file, loaded, url) as count:
        with (
            sweeping(count, as_json=as_json) as (stop, listener),
            open_keeper(url, contract=loaded, actor=actor, listener=listener) as keeper,
        ):
            done = keeper.archive.tidy(*(only or ()), older_than=age, dry_run=dry_run, stop=stop.event)
        rows = [(one.table, f"{one.files:,}", f"{one.bytes:,}", f"{one.waiting:,}") for one in done]
        _show(done, as_json=as_json, rows=rows, heads=("table", "files", "bytes", "waiting"))
        if not as_json:
            for one in done:
                if one.erased:
                    numbers = ", ".join(str(number) for number in one.erased)
                    say(escape(f"{one.table}: rows deleted by audit entries {numbers} are now erased from disk"))
    stop.end(failed=_failed(done))


def _show(
    done: Sequence[ExpiredTable | CompactedTable | TidiedTable],
    *,
    as_json: bool,
    rows: Sequence[tuple[str, ...]],
    heads: Sequence[str],
) -> None:
    if as_json:
        print_json([asdict(one) for one in done])
        return
    numbers = [head for head in heads if head not in ("table", "month", "before")]
    shown = table(*heads, right=numbers)
    for row in rows:
        shown.add_row(*map(escape, row))
    console().print(shown)
    for one in done:
        if one.message:
            say(f"[{COLOURS.get(one.outcome, 'yellow')}]{escape(f'{one.table}: {one.message}')}[/]")
    if not done:
        say('no rule archives: such a rule says `then = "archive"`')


def _failed(done: Sequence[ExpiredTable | CompactedTable | TidiedTable]) -> bool:
    return any(one.outcome is Outcome.FAILED for one in done)


def add_to(app: typer.Typer) -> None:
    """Put these commands among the archive's others."""
    app.command("expire")(archive_expire)
    app.command("compact")(archive_compact)
    app.command("tidy")(archive_tidy)
