"""Comparing the rows of files: by a digest of each row group, or, where rows were sorted or divided anew, by sums of
every row's digests, which are independent of order and of file boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.failure import answering, answers
from wane._archive.delta.paths import ColdPath, cold_path, source
from wane._archive.rows import content
from wane._archive.rows.content import Checks, Shape
from wane._archive.rows.types import MONTH
from wane.errors import Unproven

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from wane._archive.spark.executor import ArchiveExecutor


def shape_of(table: DeltaTable) -> list[list[str]]:
    """Return every column of a table of the archive except its month, which no file contains."""
    return [[field.name, str(field.type.type)] for field in table.schema().fields if field.name != MONTH]


def groups(path: ColdPath, shape: Shape) -> Iterator[pa.Table]:
    """Read some columns of a file, one row group at a time, each as the type that the table has; verify every page's
    checksum.

    Files that another writer rewrote may have other types: Spark stores times as INT96. A column that was added later
    than its file is NULL. Raise Unproven if the file cannot be read.
    """
    try:
        with pq.ParquetFile(source(path), page_checksum_verification=True) as opened:
            known = opened.schema_arrow.names
            wanted = [name for name, _ in shape if name in known]
            for group in range(opened.num_row_groups):
                yield _fitted(opened.read_row_group(group, columns=wanted), shape).combine_chunks()
    except (OSError, pa.ArrowException) as problem:
        raise Unproven(f"{path} cannot be trusted: {problem}", "`wane archive verify` checks all files") from problem


def _fitted(table: pa.Table, shape: Shape) -> pa.Table:
    made = {}
    for name, kind in shape:
        wanted = content.arrow_type(kind)
        made[name] = table[name].cast(wanted) if name in table.column_names else pa.nulls(table.num_rows, wanted)
    return pa.table(made)


def digests(executor: ArchiveExecutor, folder: ColdPath, paths: Sequence[str], shape: Shape) -> dict[str, list[str]]:
    """Compute the digest of each row group of some files, by their paths."""
    answered = answers(executor.run(partial(_digest, str(folder), list(paths), shape), len(paths)))
    return {one["path"]: one["groups"] for one in answered}


def _digest(folder: str, paths: Sequence[str], shape: Shape, number: int) -> str:
    path = paths[number]
    read = groups(cold_path(folder) / path, shape)
    return answering(lambda: {"path": path, "groups": [content.content_digest(table) for table in read]})


def checks(executor: ArchiveExecutor, folder: ColdPath, paths: Sequence[str], shape: Shape) -> Checks:
    """Compute the checks of all rows that some files hold together."""
    answered = answers(executor.run(partial(_read, str(folder), list(paths), shape), len(paths)))
    return sum((Checks(*one["checks"]) for one in answered), Checks())


def _read(folder: str, paths: Sequence[str], shape: Shape, number: int) -> str:
    return answering(lambda: _checked(cold_path(folder) / paths[number], shape))


def _checked(path: ColdPath, shape: Shape) -> dict[str, Any]:
    found = Checks()
    for table in groups(path, shape):
        found += content.check(table, shape, strict=True)
    return {"checks": found.numbers()}
