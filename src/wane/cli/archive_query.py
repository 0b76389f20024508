"""`wane archive query`: archived rows as people, spreadsheets and programs want them, one after the other, however many there are."""

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

from wane.archive.condition import refused, spark_errors
from wane.cli.archive import starting
from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, many, say, table
from wane.errors import WrongArgument
from wane.keeper import open_keeper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = 20
_MOST_IN_TABLE = 10_000
"""A table's columns are as wide as its widest row, so all of them have to be read first."""


class Format(StrEnum):
    """How rows are shown."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def query(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose archived rows are asked for.")],
    where: Annotated[
        str | None,
        typer.Option(help="A condition over the row's columns in Spark's SQL, for example \"id < 10\"."),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Names, with commas between them; all if left out.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most rows to show.")] = _SHOWN,
    style: Annotated[Format, typer.Option("--format", help="How to show them; parquet needs --out.")] = Format.TABLE,
    out: Annotated[Path | None, typer.Option(help="With --format parquet: the new file to write.")] = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show archived rows. The archive is only read, and a condition can look at nothing else."""
    style = Format.JSON if as_json else style
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
    with _beside(out) as folder, open_keeper(url, contract=contract) as keeper:
        found = keeper.archive.query(name, where=where, columns=chosen, limit=limit, starting=starting)
        try:
            if out is None or folder is None:
                print_rows(found.columns, (tuple(row) for row in found.toLocalIterator()), style)
            else:
                rows = _write_parquet(found, folder, out)
                say(f"{many(rows, 'row')} written to {escape(str(out))}")
        except spark_errors() as problem:
            # A condition may fail on a row only: a text that is no number, a division by zero.
            raise refused(problem, found.columns) from None


@contextmanager
def _beside(out: Path | None) -> Iterator[Path | None]:
    """Make a folder beside the new file, to write it in, before anything is queried, so that one that cannot be made is told at once."""
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


def _write_parquet(found: DataFrame, folder: Path, out: Path) -> int:
    """Write one file, as a whole or not at all."""
    import pyarrow.parquet as pq

    found.repartition(1).write.parquet(str(folder / "written"))
    [written] = (folder / "written").glob("*.parquet")
    rows = int(pq.read_metadata(written).num_rows)
    try:
        written.rename(out)
    except OSError as problem:
        raise _unwritable(out, problem) from None
    return rows


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
    readable = (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    before = "["
    for row in rows:
        one = dict(zip(columns, map(_plain, row), strict=True))
        sys.stdout.write(f"{before}\n  {json.dumps(one, ensure_ascii=not readable, default=str)}")
        before = ","
    sys.stdout.write("[]\n" if before == "[" else "\n]\n")


def _plain(value: Any) -> Any:
    """Convert a value to what JSON and CSV can have; numbers with a fraction as they are, to the last digit."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
