"""Evaluating projections on Spark, in a session of their own, in which nothing is defined and every setting that
changes a result is set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wane._archive.query.condition import ended, spark_errors
from wane._archive.rows.content import Shape, is_kind
from wane._archive.rows.projection import Projected, UnfitProjection, quoted
from wane.errors import ArchiveError, SparkError, WaneError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
}


def isolated(spark: SparkSession) -> SparkSession:
    """Return a session in which an expression has one meaning: no functions of others, and known settings."""
    made = spark.newSession()
    for name, value in _SETTINGS.items():
        made.conf.set(name, value)
    return made


def struct(shape: Shape) -> StructType:
    """Return columns as Spark's schema, all of them nullable."""
    from pyspark.sql.types import StructType

    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in shape]
    return StructType.fromJson({"type": "struct", "fields": fields})


def select(frame: DataFrame, projection: Sequence[Projected], *others: str) -> DataFrame:
    """Evaluate a projection over a frame, with other columns of it behind."""
    written = [f"{one.expression} AS {quoted(one.name)}" for one in projection]
    return frame.selectExpr(*written, *(quoted(one) for one in others))


def projected_shape(spark: SparkSession, table: str, projection: Sequence[Projected], read: Shape) -> list[list[str]]:
    """Return the columns and their types, as Spark computes them.

    Raise UnfitProjection if an expression is wrong, or has a type that the archive has not.
    """
    empty = isolated(spark).createDataFrame([], struct(read))
    shape = []
    for one in projection:
        try:
            kind: Any = select(empty, [one]).schema.fields[0].dataType.jsonValue()
        except spark_errors() as problem:
            if (gone := ended(problem)) is not None:
                raise gone from problem
            raise UnfitProjection(
                "wrong-projection",
                f"Spark refuses an expression of `select` for {table}: {one.expression}: {str(problem).splitlines()[0]}",
                "correct the expression",
            ) from None
        if not is_kind(kind):
            raise UnfitProjection(
                "wrong-projection",
                f"{one.name}, selected for the archive of {table}, is {kind if isinstance(kind, str) else kind['type']},"
                " which the archive has no type for",
                f'cast it: "CAST({one.expression} AS string) AS {one.name}"',
            )
        shape.append([one.name, kind])
    return shape


def failed_projection(table: str, problem: SparkError) -> WaneError:
    """Build the error for an expression that has no result for some row; other failures of Spark are as they were."""
    found = re.search(r"\[[A-Z][A-Z_.]+\][^\n]*", str(problem.__cause__))
    if found is None:
        return problem
    return ArchiveError(
        f"the projection of {table} cannot be computed: {found[0]}",
        "nothing left; fix the expression in `select`, for example by try_cast, or the row",
    )
