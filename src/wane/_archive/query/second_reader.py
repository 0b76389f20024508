"""Reading back with another implementation: what pyarrow wrote and read is read once more by Spark's own Parquet
reader.

A writer and a reader of one library may share a mistake. The rows that Spark decodes are digested and compared with
what the database says, like those that pyarrow decodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from wane._archive.delta.paths import reader
from wane._archive.query.condition import spark_errors
from wane._archive.rows import content
from wane._archive.rows.content import Checks, Shape
from wane._archive.rows.types import KEY
from wane.errors import Unproven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = ("rows", "keys", "proven", "row_first", "row_second")


def read_by_spark(spark: SparkSession, paths: Sequence[str], shape: Shape, *, whole_keys: bool) -> Checks:
    """Return the checks of all rows of some files of one table, as Spark reads them: one aggregate over all of them.

    Raise Unproven if Spark cannot read them.
    """
    from pyspark.sql import functions as f

    kinds = {**dict(shape), KEY: "string"}  # type: ignore[arg-type]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read = {name: batch.column(number) for number, name in enumerate(names)}
            table = pa.table({name: read[name].cast(content.arrow_type(kind)) for name, kind in kinds.items()})
            found = content.check(table, shape, strict=True, whole_keys=whole_keys).numbers()
            yield pa.RecordBatch.from_arrays([pa.array([str(number)]) for number in found], names=list(_NUMBERS))

    try:
        rows = reader(spark).parquet(*paths)
        names = rows.columns
        # By their positions: mapInArrow would read a dot in a name as the field of a structure.
        numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
        checks = numbered.mapInArrow(each, ", ".join(f"{name} string" for name in _NUMBERS))
        [sums] = checks.agg(*(f.sum(f.col(name).cast("decimal(38,0)")) for name in _NUMBERS)).collect()
    except spark_errors() as problem:
        raise Unproven(
            f"Spark cannot read what was written: {str(problem).splitlines()[0]}",
            "nothing was committed and nothing left; the next run copies these rows again",
        ) from problem
    return Checks(*(int(one or 0) for one in sums))
