"""Reading the archive: any of its tables as a Spark DataFrame, of the files that make it up now and can match."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.frames import read_files
from wane._archive.query.condition import matching
from wane._archive.query.plain_condition import PlainCondition
from wane._archive.query.skipping import all_files, without_others
from wane.errors import WrongArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, cold: ColdTable, condition: PlainCondition | None = None) -> DataFrame:
    """Return a table of the archive as a frame, without files that can hold no row that meets a condition."""
    from pyspark.sql.types import StructType

    table = cold.require()
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = [file.path for file in without_others(all_files(cold.folder, table, condition), condition)]
    if not files:
        return spark.createDataFrame([], schema)
    return read_files(spark, cold.folder, files, schema)[0]


def narrowed(frame: DataFrame, *, where: str | None, columns: Sequence[str] | None, limit: int | None) -> DataFrame:
    """Select some rows and columns of a frame; `where` is a condition in Spark's SQL."""
    unknown = [name for name in columns or () if name not in frame.columns]
    if unknown:
        raise WrongArgument(f"the archive has no column {unknown[0]!r}", f"columns: {', '.join(frame.columns)}")
    if where is not None:
        frame = matching(frame, where)
    if columns:
        # In quotes, because a dot in a name would denote a field of a column.
        frame = frame.select(*(f"`{name.replace('`', '``')}`" for name in columns))
    return frame if limit is None else frame.limit(limit)
