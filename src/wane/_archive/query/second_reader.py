"""Reading back with another implementation: what pyarrow wrote and read is read once more by Spark's own Parquet
reader.

A writer and a reader of one library may share a mistake. Spark decodes every value, writes the canonical text of every
row, digests it and adds the digests up, as one aggregate of Spark SQL; the database computed the same sums from the hot
rows in its own SQL. So nothing that wrote the files, and nothing of Python, takes part in the comparison.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wane._archive.delta.object_store import reason
from wane._archive.delta.paths import cold_path
from wane._archive.query.condition import ended, spark_errors
from wane._archive.query.evaluation import isolated
from wane._archive.rows.content import UNPROVEN_HINT, Checks, Shape
from wane._archive.rows.projection import quoted
from wane._archive.rows.types import FIELDS_AT_ONCE, KEY, SqlNumber, key_digest
from wane.errors import ArchiveError, Unproven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXTS = {
    "date": "cast(unix_date({x}) AS string)",
    "timestamp": "cast(unix_micros({x}) AS string)",
    "timestamp_ntz": "cast(unix_micros(cast({x} AS timestamp)) AS string)",
    "binary": "lower(hex({x}))",
    # Spark SQL has no function for the bits of a number; Java's have one NaN.
    "float": "lower(right(lpad(hex(cast(java_method('java.lang.Float', 'floatToIntBits', {x}) AS bigint)), 16, '0'), 8))",
    "double": "lower(lpad(hex(cast(java_method('java.lang.Double', 'doubleToLongBits', {x}) AS bigint)), 16, '0'))",
}
"""The canonical texts of `wane._archive.rows.content`; of other kinds they are what a cast to string writes."""
_NUMBER = "cast(java_method('java.lang.Long', 'parseUnsignedLong', substr({digest}, {first}, 16), 16) AS bigint)"
"""Half of a digest, as a number; Spark's own `conv` takes twice as long as all the rest."""
_COPIED_BYTES = 500_000_000
"""From how many bytes on objects that were copied to this machine are read, before others are copied."""


def read_by_spark(spark: SparkSession, paths: Sequence[str], shape: Shape, *, whole_keys: bool) -> Checks:
    """Return the checks of all rows of some files of one table, as Spark reads them: one aggregate over all of them.

    Raise Unproven if Spark cannot read them.
    """
    key = _whole_key(quoted(KEY)) if whole_keys else f"md5(cast({quoted(KEY)} AS binary))"
    texts = [f"{_text(quoted(name), kind)} AS t{number}" for number, (name, kind) in enumerate(shape)]
    digest = _digest([f"t{number}" for number in range(len(shape))])
    halves = [f"{_half('row', 1)} AS first", f"{_half('row', 17)} AS second"]
    try:
        rows = isolated(spark).read.parquet(*paths)
        digests = rows.selectExpr(*texts, f"{key} AS key").selectExpr("key", f"{digest} AS row")
        numbers = digests.selectExpr(f"{'key' if whole_keys else _half('key', 1)} AS key", *halves)
        # In two pieces, so that nothing overflows.
        sums = [f"sum({one} {piece})" for one in ("key", "first", "second") for piece in (">> 32", "& 4294967295")]
        [(count, *found)] = numbers.selectExpr("count(*)", *sums).collect()
    except spark_errors() as problem:
        if (gone := ended(problem)) is not None:
            raise gone from problem
        raise Unproven(
            f"Spark cannot read what was written: {str(problem).splitlines()[0]}",
            UNPROVEN_HINT,
        ) from problem
    keys, first, second = ((high << 32) + low for high, low in zip(found[::2], found[1::2], strict=True))
    return Checks(count, keys, count, first, second)


def copied(paths: Sequence[str]) -> Iterator[list[str]]:
    """Copy objects to a folder of this machine for as long as they are read there, in portions that fit its disk.

    Spark reads object stores only with Java libraries that no Python package brings.
    """
    left = [cold_path(path) for path in paths]
    while left:
        with tempfile.TemporaryDirectory(prefix="wane-") as folder:
            here: list[str] = []
            size = 0
            while left and size < _COPIED_BYTES:
                path, local = left.pop(0), Path(folder) / f"{len(here)}.parquet"
                try:
                    with path.open("rb") as remote, local.open("xb") as sink:
                        shutil.copyfileobj(remote, sink, 1 << 20)
                except OSError as problem:
                    raise ArchiveError(
                        f"{path} cannot be copied to {folder}, where Spark reads it once more: {reason(problem)}",
                        "check the object store, and the space for temporary files (TMPDIR); run again: nothing is lost",
                    ) from problem
                here.append(str(local))
                size += local.stat().st_size
            yield here


def _text(column: str, kind: str) -> str:
    value = f"cast({column} AS {kind})"
    text = _TEXTS.get(kind, "cast({x} AS string)").replace("{x}", value)
    return f"CASE WHEN {column} IS NOT NULL THEN {text} END"


def _digest(fields: Sequence[str]) -> str:
    """Write the digest of the texts of a row, as hex digits; of many fields, that of the digests of pieces of them."""
    if len(fields) > FIELDS_AT_ONCE:
        pieces = (fields[start : start + FIELDS_AT_ONCE] for start in range(0, len(fields), FIELDS_AT_ONCE))
        return _digest([_digest(piece) for piece in pieces])
    marked = (f"coalesce(concat(octet_length({one}), ':', {one}), '~')" for one in fields)
    return f"md5(cast(concat({', '.join(marked)}) AS binary))"


def _half(digest: str, first: int) -> str:
    return _NUMBER.format(digest=digest, first=first)


def _whole_key(key: str) -> str:
    return str(key_digest(SqlNumber(f"cast(trim(BOTH '[\"]' FROM {key}) AS bigint)")).text)
