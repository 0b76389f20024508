"""Files of the archive as DataFrames, and DataFrames as files.

Spark reads and writes folders itself. For an object store it would need Java libraries that no Python package brings,
so tasks do both with Arrow: each file is read by one task, and written under its final name by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wane._archive.delta.comparison import groups
from wane._archive.delta.object_store import ObjectPath
from wane._archive.delta.paths import ColdPath, cold_path
from wane._archive.rows.content import Shape, arrow_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

GROUP_ROWS = 65_536
GROUP_BYTES = 32 * 1024 * 1024
"""Row groups are as large as those of sweeps, so that reading one takes as much memory."""
_FILE, _ROW = "_wane_file", "_wane_row"


def read_files(
    spark: SparkSession, folder: ColdPath, files: Sequence[ColdPath], schema: StructType, *, ordered: bool = False
) -> tuple[DataFrame, list[Column]]:
    """Return files below a folder as a frame, and, if it is to be `ordered`, the columns of the order of files and
    rows.

    The value of the column by which a table is partitioned is the name of a file's folder.
    """
    from pyspark.sql import functions as f

    if isinstance(folder, Path):
        paths = [str(file) for file in files]
        frame = spark.read.schema(schema).option("basePath", str(folder)).parquet(*paths)
        file = frame.metadataColumn("_metadata")
        return frame, [file["file_path"], file["row_index"]] if ordered else []
    frame = _read_objects(spark, [str(file) for file in files], schema, ordered=ordered)
    return frame, [f.col(_FILE), f.col(_ROW)] if ordered else []


def _read_objects(spark: SparkSession, files: Sequence[str], schema: StructType, *, ordered: bool) -> DataFrame:
    from pyspark.sql.types import LongType, StructType

    shape = [(field.name, str(field.dataType.jsonValue())) for field in schema.fields]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_batches(files[number], shape, number if ordered else None)

    made = StructType([*schema.fields])
    if ordered:
        made = made.add(_FILE, LongType()).add(_ROW, LongType())
    return spark.range(0, len(files), 1, len(files)).mapInArrow(each, made)


def read_batches(file: str, shape: Shape, number: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with the value of its partition; with a number, also that and the position of each
    row."""
    path = cold_path(file)
    # A shared table has two: the month, and above it the origin.
    values = dict(folder.name.split("=", 1) for folder in (path.parent, path.parent.parent) if "=" in folder.name)
    stored = [one for one in shape if one[0] not in values]
    first = 0
    for table in groups(path, stored):
        rows = len(table)
        made = {one: table[one] for one, _ in stored}
        for one, kind in shape:
            if one in values:
                made[one] = pa.repeat(pa.scalar(values[one]).cast(arrow_type(kind)), rows)
        columns = [made[one] for one, _ in shape]
        names = [one for one, _ in shape]
        if number is not None:
            columns += [pa.repeat(pa.scalar(number), rows), pa.array(range(first, first + rows), pa.int64())]
            names += [_FILE, _ROW]
        first += rows
        yield from pa.table(columns, names).to_batches()


def write_objects(
    rows: DataFrame, folder: ObjectPath, shape: Shape, name: Callable[[int], str], by: str | None = None
) -> list[str]:
    """Write each partition of a frame to one object, or one for each value of the column `by`, which it is sorted by.

    `name` returns the path of an object below the folder, by the partition's number or the value. Return those of
    the partitions that were written: an attempt that Spark repeats is none of them.
    """
    names, target = rows.columns, str(folder)

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        written = []
        sink = _Sink(target, shape, name)
        for batch in batches:
            table = pa.table(batch.columns, names)
            written += sink.write(table, pa.repeat(number, len(table)) if by is None else table[by])
        written += sink.close()
        yield pa.RecordBatch.from_pydict({"path": pa.array(written, pa.string())})

    # By their positions: mapInArrow would read a dot in a name as the field of a structure.
    plain = rows.toDF(*(f"c{number}" for number in range(len(names))))
    return [row.path for row in plain.mapInArrow(each, "path string").collect()]


class _Sink:
    """The object that a task writes."""

    def __init__(self, folder: str, shape: Shape, name: Callable[[int], str]) -> None:
        self._folder = cold_path(folder)
        self._schema = pa.schema([(one, arrow_type(kind)) for one, kind in shape])
        self._name = name
        self._value: int | None = None
        self._path: str | None = None
        self._file: Any = None
        self._writer: Any = None
        self._pending: list[pa.Table] = []

    def write(self, table: pa.Table, values: Any) -> list[str]:
        """Write rows; return the paths of objects that are complete because rows with another value came."""
        done = []
        for value in values.unique().to_pylist():
            if self._path is not None and value != self._value:
                done += self.close()
            self._add(table.filter(pc.equal(values, value)), value)
        return done

    def _add(self, table: pa.Table, value: int) -> None:
        if self._path is None:
            self._path, self._value = self._name(value), value
            self._file = (self._folder / self._path).open("xb")
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd", write_page_checksum=True)
        fitted = {field.name: table[field.name].cast(field.type) for field in self._schema}
        self._pending.append(pa.table(fitted, self._schema))
        if sum(map(len, self._pending)) >= GROUP_ROWS or sum(one.nbytes for one in self._pending) >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            group = pa.concat_tables(self._pending)
            self._writer.write_table(group, row_group_size=max(1, len(group)))
            self._pending = []

    def close(self) -> list[str]:
        """Complete the object, which appears only now; return its path."""
        if self._path is None:
            return []
        self._flush()
        self._writer.close()
        self._file.close()
        done, self._path = [self._path], None
        return done
