"""Choosing archived rows on Spark and staging them for the tasks that restore them.

What was chosen is written to files: pieces of bounded size, each sorted by key, the rows in one file and what left with
them in others. So a restore that is resumed restores the same rows, whatever has happened to the archive since.
Every row's digest is computed as it is read from the archive, and stored with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.failure import is_full, unwritable
from wane._archive.delta.frames import read_files, write_objects
from wane._archive.delta.paths import ColdPath, children, source
from wane._archive.query.condition import matching, refused, spark_errors
from wane._archive.query.plain_condition import PlainCondition, parse
from wane._archive.query.query import frame
from wane._archive.query.skipping import key_condition, kinds_of, plain_condition
from wane._archive.rows import content
from wane._archive.rows.content import Shape
from wane._archive.rows.types import KEY, PARENT, SWEEP
from wane._contract.settings import SparkSettings
from wane.errors import WrongArgument

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DIGEST, PIECE = "_digest", "_piece"
_MOST_PIECES = 10_000
_MOST_SWEEPS = 1_000
"""What left with rows of more sweeps is searched in all files."""
_RANK = "_rank"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows: by a condition, by the sweep that moved them, or by their keys. Exactly one of them."""

    where: str | None = None
    sweep: int | None = None
    keys: tuple[Mapping[str, str], ...] = ()

    def inputs(self) -> dict[str, Any]:
        """Return what the operator requested, for the audit trail."""
        if self.where is not None:
            return {"where": self.where}
        return {"sweep": self.sweep} if self.sweep is not None else {"keys": [dict(key) for key in self.keys]}

    def condition(self, kinds: Mapping[str, str], settings: SparkSettings) -> PlainCondition | None:
        """Return what chosen rows meet, to find the files that can hold them; None if only Spark knows."""
        if self.sweep is not None:
            return parse(f"{SWEEP} = {self.sweep:d}", kinds)
        return key_condition(self.keys, kinds) if self.keys else plain_condition(self.where, kinds, settings)

    @classmethod
    def read(cls, inputs: Mapping[str, Any]) -> Choice:
        """Build a choice from what `inputs` returned."""
        return cls(inputs.get("where"), inputs.get("sweep"), tuple(inputs.get("keys", ())))


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One table of what is chosen: its archive table, its columns, and the columns that rows of older sweeps did not
    have."""

    cold: ColdTable
    shape: Shape
    lacking: Mapping[int, frozenset[str]]
    archived: Shape
    """Every column of hot tables that the archive has, also of those that rows do not come back with."""


def stage(
    spark: SparkSession,
    parts: Sequence[StagedPart],
    choice: Choice,
    folder: ColdPath,
    piece_rows: int,
    settings: SparkSettings,
) -> list[int]:
    """Write what is chosen into a new folder; return how many rows of the table each piece has."""
    from pyspark.sql import functions as f

    try:
        condition = choice.condition(kinds_of(parts[0].cold.require()), settings)
        found = _found(frame(spark, parts[0].cold, condition), choice)
        # Older versions of the same rows are counted too: a piece is rather too small than too large.
        pieces = min(math.ceil(found.count() / piece_rows), _MOST_PIECES)
        if not pieces:
            return []
        rows = _digested(_newest(found), parts[0])
        numbered = rows.withColumn(PIECE, f.pmod(f.xxhash64(KEY), f.lit(pieces)).cast("int"))
        _write(numbered, pieces, KEY, folder / "0")
        keys = _staged(spark, folder / "0", pieces).select(SWEEP, f.col(KEY).alias(PARENT), PIECE)
        sweeps = [row[0] for row in keys.select(SWEEP).distinct().limit(_MOST_SWEEPS + 1).collect()]
        for number, part in enumerate(parts[1:], 1):
            if part.cold.open() is None:
                continue
            candidates = frame(spark, part.cold, _of_sweeps(sweeps, kinds_of(part.cold.require())))
            if PARENT in candidates.columns:  # Else nothing of it ever left with another row.
                following = _digested(candidates.join(keys, [SWEEP, PARENT]), part)
                _write(following, pieces, PARENT, folder / str(number))
    except spark_errors() as problem:
        if is_full(problem):
            raise unwritable(folder.parent, problem) from problem
        raise refused(problem, [name for name, _ in parts[0].shape]) from None
    return [count(folder, 0, piece) for piece in range(pieces)]


def _of_sweeps(sweeps: Sequence[int], kinds: Mapping[str, str]) -> PlainCondition | None:
    """Build a condition that rows of these sweeps meet, to find the files that can hold them; None if there are
    many."""
    if len(sweeps) > _MOST_SWEEPS:
        return None
    return parse(f"{SWEEP} IN ({', '.join(f'{one:d}' for one in sweeps)})", kinds)


def _found(rows: DataFrame, choice: Choice) -> DataFrame:
    from pyspark.sql import functions as f

    if choice.where is not None:
        rows = matching(rows, choice.where)
    elif choice.sweep is not None:
        rows = rows.where(f.col(SWEEP) == choice.sweep)
    else:
        rows = rows.where(_any([_key_is(rows, key) for key in choice.keys]))
    if PARENT in rows.columns:
        rows = rows.where(f.col(PARENT).isNull())  # The others come back with the rows that they left with.
    return rows


def _newest(rows: DataFrame) -> DataFrame:
    """Select the newest of the rows that have the same key: a key that was reused may have been archived twice."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    newest = f.row_number().over(Window.partitionBy(KEY).orderBy(f.col(SWEEP).desc()))
    return rows.withColumn(_RANK, newest).where(f.col(_RANK) == 1).drop(_RANK)


def _key_is(rows: DataFrame, key: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType for field in rows.schema.fields}
    unknown = [name for name in key if name not in kinds]
    if unknown or not key:
        raise WrongArgument(f"the archive has no column {', '.join(unknown)}", f"columns: {', '.join(rows.columns)}")
    conditions = []
    for name, text in key.items():
        if kinds[name].typeName() == "binary":
            value = f.unhex(f.lit(text))
        else:
            value = f.lit(text).cast(kinds[name])
        conditions.append(f.col(f"`{name.replace('`', '``')}`") == value)
    both = conditions[0]
    for one in conditions[1:]:
        both = both & one
    return both


def _any(conditions: Sequence[Column]) -> Column:
    one = conditions[0]
    for other in conditions[1:]:
        one = one | other
    return one


def _digested(rows: DataFrame, part: StagedPart) -> DataFrame:
    from pyspark.sql.types import StringType, StructType

    shape, lacking, names = part.shape, part.lacking, rows.columns

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            digests = _digests(pa.table(batch.columns, names), shape, lacking)
            yield pa.RecordBatch.from_arrays([*batch.columns, digests], [*names, DIGEST])

    wider = StructType([*rows.schema.fields]).add(DIGEST, StringType())
    # By their positions: mapInArrow would read a dot in a name as the field of a structure.
    return rows.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(each, wider)


def _digests(table: pa.Table, shape: Shape, lacking: Mapping[int, frozenset[str]]) -> pa.Array:
    cast = pa.table({name: table[name].cast(content.arrow_type(kind)) for name, kind in shape})
    made = content.row_digests(cast, shape)
    for sweep in pc.unique(table[SWEEP]).to_pylist():
        if sweep in lacking:
            had = [one for one in shape if one[0] not in lacking[sweep]]
            mine = content.whole(pc.equal(table[SWEEP], sweep))
            made = pc.replace_with_mask(made, mine, content.row_digests(cast.filter(mine), had))
    return made


def _write(rows: DataFrame, pieces: int, by: str, folder: ColdPath) -> None:
    """Write one file for each piece, sorted as its rows are, so that both can be read in step."""
    ordered = rows.repartition(pieces, PIECE).sortWithinPartitions(PIECE, by, KEY)
    if isinstance(folder, Path):
        ordered.write.partitionBy(PIECE).parquet(str(folder))
        return
    shape = [(field.name, str(field.dataType.jsonValue())) for field in ordered.schema.fields if field.name != PIECE]
    # By the same name whenever a task is repeated: it writes the same rows.
    write_objects(ordered, folder, shape, lambda piece: f"{PIECE}={piece}/rows.parquet", PIECE)


def _staged(spark: SparkSession, folder: ColdPath, pieces: int) -> DataFrame:
    """Return the rows that were staged."""
    if isinstance(folder, Path):
        return spark.read.parquet(str(folder))
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    schema = StructType().add(SWEEP, LongType()).add(KEY, StringType()).add(PIECE, IntegerType())
    return read_files(
        spark, folder, list(chain.from_iterable(_files(folder, piece) for piece in range(pieces))), schema
    )[0]


def files(folder: ColdPath, part: int, piece: int) -> list[ColdPath]:
    """Return the file of a piece; none if it has no rows."""
    return _files(folder / str(part), piece)


def _files(folder: ColdPath, piece: int) -> list[ColdPath]:
    return children(folder / f"{PIECE}={piece}", "*.parquet")


def count(folder: ColdPath, part: int, piece: int) -> int:
    """Count the rows of a piece."""
    return sum(int(pq.read_metadata(source(file)).num_rows) for file in files(folder, part, piece))


def left_out(folder: ColdPath, part: int, piece: int, names: Sequence[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield rows of a piece that have values in some of these columns: sweep, key of the row (or of the one that it
    left with), and those columns."""
    if not names:
        return
    known = [SWEEP, PARENT if part else KEY]
    for file in files(folder, part, piece):
        with pq.ParquetFile(source(file)) as opened:
            here = [name for name in names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(columns=[*known, *here]):
                valid = [batch.column(name).is_valid().to_pylist() for name in here]
                for sweep, key, *has in zip(*(batch.column(name).to_pylist() for name in known), *valid, strict=True):
                    if any(has):
                        yield sweep, key, [name for name, one in zip(here, has, strict=True) if one]


def keys(folder: ColdPath, part: int, piece: int) -> Iterator[list[tuple[int, str]]]:
    """Yield (sweep, key) of the rows of a piece, or (sweep, key of the row that they left with), in batches."""
    names = [SWEEP, PARENT if part else KEY]
    for file in files(folder, part, piece):
        with pq.ParquetFile(source(file)) as opened:
            for batch in opened.iter_batches(columns=names):
                yield list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
