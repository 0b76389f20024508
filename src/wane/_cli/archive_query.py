"""`wane archive query`: archived rows as a table, CSV, JSON or Parquet, streamed one after the other."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from wane._cli.archive import SparkOption, app, starting
from wane._cli.harness import Call, command
from wane._cli.output import console, many, print_line, prints_unicode, table
from wane.errors import WrongArgument

if TYPE_CHECKING:
    from wane._archive.cold_rows import ColdRows

_MOST_IN_TABLE = 10_000
"""A table's columns are as wide as its widest row, so all of them have to be read first."""


class Format(StrEnum):
    """How rows are shown."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@command(app, "query")
def query(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose archived rows are asked for.")],
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION", help="A condition over the row's columns in Spark's SQL, for example \"id < 10\"."
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Columns, with commas between them; all if left out.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="The most rows to show.")] = 20,
    style: Annotated[Format, typer.Option("--format", help="How to show them; parquet needs --out.")] = Format.TABLE,
    out: Annotated[Path | None, typer.Option(help="With --format parquet: the new file to write.")] = None,
    spark: SparkOption = False,
) -> None:
    """Show archived rows. The archive is only read, and a condition can read nothing else."""
    style = Format.JSON if call.as_json else style
    if (style is Format.PARQUET) != (out is not None):
        raise typer.BadParameter("parquet is written to a new file, and nothing else is", param_hint="--out")
    if out is not None and (out.exists() or not out.absolute().parent.is_dir()):
        what = "exists" if out.exists() else "would be in a folder that does not exist"
        raise typer.BadParameter(f"{out} {what}", param_hint="--out")
    if style is Format.TABLE and limit > _MOST_IN_TABLE:
        raise typer.BadParameter(
            f"a table shows at most {_MOST_IN_TABLE:,} rows; ask for csv, json or parquet", param_hint="--limit"
        )
    chosen = [one.strip() for one in columns.split(",")] if columns else None
    with _beside(out) as folder:
        # One row more than is shown: whether there are more is cheap to know, how many is not.
        found = call.open().archive.read(
            name, where=where, columns=chosen, limit=limit + 1, spark=spark, starting=starting
        )
        rows = iter(found)
        if out is None or folder is None:
            print_rows(found.columns, islice(rows, limit), style)
        else:
            written = _write_parquet(found, islice(rows, limit), folder, out)
            print_line(f"{many(written, 'row')} written to {escape(str(out))}")
        more = next(rows, None) is not None
    if more:
        print_line(f"[yellow]the first {many(limit, 'row')}:[/] there are more, --limit shows them")


@contextmanager
def _beside(out: Path | None) -> Iterator[Path | None]:
    """Make a folder beside the new file, to write it in, before anything is queried, so that one that cannot be made fails at once."""
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
