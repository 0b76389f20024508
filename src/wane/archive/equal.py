"""Whether files hold the same rows as others: sums of every row's digests, which know no order and no boundaries of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from wane.archive import content
from wane.archive.content import Checks, Shape
from wane.archive.failure import answering, answers
from wane.archive.session import run
from wane.errors import Unproven
from wane.store.archive_types import MONTH

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


def shape_of(table: DeltaTable) -> list[list[str]]:
    """Every column of a table of the archive but its month, which is no file's column."""
    return [[field.name, str(field.type.type)] for field in table.schema().fields if field.name != MONTH]


def groups(place: Path, shape: Shape) -> Iterator[pa.Table]:
    """Read some columns of a file, a group of rows at a time, each as the type that the table has; verify the checksum of every page.

    Files that Delta Lake rewrote come with types of its own, which Arrow can compare but not filter. A column that was added later than its
    file is NULL.
    """
    try:
        with pq.ParquetFile(place, page_checksum_verification=True) as opened:
            known = opened.schema_arrow.names
            wanted = [name for name, _ in shape if name in known]
            for group in range(opened.num_row_groups):
                yield _fitted(opened.read_row_group(group, columns=wanted), shape).combine_chunks()
    except (OSError, pa.ArrowException) as problem:
        raise Unproven(f"{place} cannot be trusted: {problem}", "`wane archive verify` looks at all files") from problem


def _fitted(table: pa.Table, shape: Shape) -> pa.Table:
    made = {}
    for name, kind in shape:
        wanted = content.arrow_type(kind)
        made[name] = table[name].cast(wanted) if name in table.column_names else pa.nulls(table.num_rows, wanted)
    return pa.table(made)


def checks(spark: SparkSession, folder: Path, paths: Sequence[str], shape: Shape) -> Checks:
    """What some files hold together."""
    told = answers(run(spark, partial(_read, str(folder), list(paths), shape), len(paths)))
    return sum((Checks(*one["checks"]) for one in told), Checks())


def _read(folder: str, paths: Sequence[str], shape: Shape, number: int) -> str:
    return answering(lambda: _checked(Path(folder) / paths[number], shape))


def _checked(place: Path, shape: Shape) -> dict[str, Any]:
    found = Checks()
    for table in groups(place, shape):
        found += content.check(table, shape, strict=True)
    return {"checks": found.numbers()}
