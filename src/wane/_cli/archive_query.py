"""`wane archive query`: archived rows as a table, CSV, JSON or Parquet, streamed one after the other."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from wane._cli.archive import SparkOption, app, starting
from wane._cli.fleet import of_original
from wane._cli.harness import Call, command
from wane._cli.options import FleetOption, WhereOption
from wane._cli.output import console, many, print_line, prints_unicode, table
from wane._keeper import Keeper
from wane.errors import ArchiveError, WaneError, WrongArgument

if TYPE_CHECKING:
    from wane._archive.query.cold_rows import ColdRows
    from wane._fleet.fleet import Fleet

_SHOWN = 20
_MOST_IN_TABLE = 10_000
"""A table's columns are as wide as its widest row, so all of them have to be read first."""
_MEMBER = "_member"
"""The column that names the member of a fleet."""
_MORE = "[yellow]the first {}:[/] there are more, --limit shows them"


class Format(StrEnum):
    """How rows are shown."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@command(app, "query")
def query(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose archived rows are requested.")],
    where: WhereOption = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Columns, with commas between them; all if left out.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000_000, help="The most rows: 20 if left out, and with --out all of them."),
    ] = None,
    style: Annotated[Format, typer.Option("--format", help="How to show them; parquet needs --out.")] = Format.TABLE,
    out: Annotated[Path | None, typer.Option(help="With --format parquet: the new file to write.")] = None,
    spark: SparkOption = False,
    fleet: FleetOption = None,
) -> None:
    """Show archived rows. The archive is only read, and a condition can read nothing else.

    With --fleet one result over all members, whose names are in the column `_member`. Exits 1 if a member could not be
    read.
    """
    style = Format.JSON if call.as_json else style
    if (style is Format.PARQUET) != (out is not None):
        raise typer.BadParameter("parquet is written to a new file, and nothing else is", param_hint="--out")
    if out is not None and (out.exists() or not out.absolute().parent.is_dir()):
        what = "exists" if out.exists() else "would be in a folder that does not exist"
        raise typer.BadParameter(f"{out} {what}", param_hint="--out")
    if limit is None and out is None:
        limit = _SHOWN
    if style is Format.TABLE and limit is not None and limit > _MOST_IN_TABLE:
        raise typer.BadParameter(
            f"a table shows at most {_MOST_IN_TABLE:,} rows; ask for csv, json or parquet", param_hint="--limit"
        )
    chosen = [one.strip() for one in columns.split(",")] if columns else None
    if fleet is not None:
        if style is Format.PARQUET:
            raise typer.BadParameter("a file has rows of one archive", param_hint="--format")
        _query_fleet(call, fleet, name, partial(_read, name, where, chosen, limit, spark), limit, style)
        return
    with _beside(out) as folder:
        found = _read(name, where, chosen, limit, spark, call.open())
        rows = iter(found)
        if out is None or folder is None:
            print_rows(found.columns, islice(rows, limit), style)
        else:
            written = _write_parquet(found, islice(rows, limit), folder, out)
            print_line(f"{many(written, 'row')} written to {escape(str(out))}")
        more = next(rows, None) is not None
    if more and limit is not None:
        print_line(_MORE.format(many(limit, "row")))


def _read(
    name: str, where: str | None, columns: list[str] | None, limit: int | None, spark: bool, keeper: Keeper
) -> ColdRows:
    # One row more than is shown: whether there are more is cheap to know, how many is not.
    most = None if limit is None else limit + 1
    return keeper.archive.read(name, where=where, columns=columns, limit=most, spark=spark, starting=starting)


def _query_fleet(
    call: Call, path: Path, name: str, read: Callable[[Keeper], ColdRows], limit: int | None, style: Format
) -> None:
    """Print rows of all members, one member after the other, so that one of them is open at a time."""
    fleet = call.fleet(path)
    problems: dict[str, str] = {}
    columns: dict[str, None] = {}
    members = []
    for one in fleet.each(of_original(lambda keeper: _columns(keeper, name, read)), doing="read"):
        if one.failed:
            problems[one.member] = one.problem
        elif one.result:
            members.append(one.member)
            columns |= dict.fromkeys(one.result)
    names = list(columns)
    rows = _rows_of_members(fleet, members, read, names, problems)
    print_rows([_MEMBER, *names], islice(rows, limit), style)
    if limit is not None and next(rows, None) is not None:
        print_line(_MORE.format(many(limit, "row")))
    for member, problem in problems.items():
        print_line(f"[red]{escape(member)}:[/] {escape(problem)}")
    if problems:
        raise typer.Exit(1)


def _columns(keeper: Keeper, name: str, read: Callable[[Keeper], ColdRows]) -> list[str]:
    """Return the columns of what one member has; none if nothing of the table is archived there yet."""
    try:
        return read(keeper).columns
    except ArchiveError:
        if any(one.table == name for one in keeper.archive.tables()):
            raise
        return []


def _rows_of_members(
    fleet: Fleet,
    members: Sequence[str],
    read: Callable[[Keeper], ColdRows],
    names: Sequence[str],
    problems: dict[str, str],
) -> Iterator[tuple[Any, ...]]:
    for member in members:
        try:
            with fleet.keeper(member) as keeper:
                found = read(keeper)
                positions = {name: number for number, name in enumerate(found.columns)}
                for row in found:
                    yield (member, *(row[positions[name]] if name in positions else None for name in names))
        except WaneError as problem:
            problems[member] = str(problem)


@contextmanager
def _beside(out: Path | None) -> Iterator[Path | None]:
    """Make a folder beside the new file, to write it in, before anything is queried, so that one that cannot be made
    fails at once."""
    if out is None:
        yield None
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    except OSError as problem:
        raise _unwritable(out, problem) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_parquet(found: ColdRows, rows: Iterator[tuple[Any, ...]], folder: Path, out: Path) -> int:
    """Write one file, as a whole or not at all."""
    written = folder / "rows.parquet"
    try:
        count = found.write(rows, written)
        written.rename(out)
    except OSError as problem:
        raise _unwritable(out, problem) from None
    return count


def _unwritable(out: Path, problem: OSError) -> WrongArgument:
    return WrongArgument(f"{out} cannot be written: {problem.strerror}", "name a file in a folder that can be written")


def print_rows(columns: list[str], rows: Iterator[tuple[Any, ...]], style: Format) -> None:
    """Print rows, one after the other."""
    if style is Format.JSON:
        _print_json(columns, rows)
    elif style is Format.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_plain(value) for value in row])
    else:
        shown = table(*columns)
        for row in islice(rows, _MOST_IN_TABLE):
            shown.add_row(*("" if value is None else escape(str(_plain(value))) for value in row))
        console().print(shown)


def _print_json(columns: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """Print a list of objects, each as it arrives."""
    before = "["
    for row in rows:
        one = dict(zip(columns, map(_plain, row), strict=True))
        sys.stdout.write(f"{before}\n  {json.dumps(one, ensure_ascii=not prints_unicode(), default=str)}")
        before = ","
    sys.stdout.write("[]\n" if before == "[" else "\n]\n")


def _plain(value: Any) -> Any:
    """Convert a value to what JSON and CSV can have; numbers with a fraction as they are, to the last digit."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
