"""Reading archived rows in a fixed order: with Arrow in this process if little has to be read, and else on Spark.

Both read the same files, in the same order, and yield the same values, so that the result does not depend on which of
them answered. Files that cannot hold a row that is requested are read by neither.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.comparison import groups
from wane._archive.delta.frames import read_files
from wane._archive.delta.paths import ColdPath
from wane._archive.query.condition import matching, refused, spark_errors
from wane._archive.query.plain_condition import PlainCondition, scalar
from wane._archive.query.skipping import FileToRead, all_files, kinds_of, plain_condition, untrusted, without_others
from wane._archive.rows.content import arrow_type
from wane._archive.rows.names import ColumnNames
from wane._archive.rows.types import KEY, MONTH
from wane._contract.settings import SparkSettings
from wane.errors import WrongArgument

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from wane._archive.delta.cold_table import ColdTable

WITHOUT_SPARK_BYTES = 64 * 1024 * 1024
"""Files of fewer bytes than these together are read faster than Spark starts."""
_CHUNK_ROWS = 10_000
_FIRST_WAVE_BYTES = 256 * 1024 * 1024
_WAVE_GROWTH = 4
_MOST_SORTED_ROWS = 10_000
"""Limits up to this many rows are applied by Spark while it sorts, in the driver's memory."""


@dataclass(frozen=True, slots=True)
class Request:
    """A query of one table: which rows, which columns, at most how many, and the files that may hold them."""

    folder: ColdPath
    kinds: Mapping[str, str]
    """The kind of each of the table's columns, by name."""
    schema: str
    """The same, as Delta Lake and Spark write it."""
    columns: Sequence[str]
    where: str | None
    condition: PlainCondition | None
    """What `where` means, if it needs no Spark."""
    limit: int | None
    files: Sequence[FileToRead]
    """The files that are read."""
    of_files: int
    """How many files the table has."""
    names: ColumnNames

    @property
    def plain(self) -> bool:
        """Check whether it can be answered without Spark."""
        return self.where is None or self.condition is not None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        """Return how many rows its files have."""
        return sum(file.logged.rows for file in self.files)


def request(
    cold: ColdTable,
    names: ColumnNames,
    *,
    where: str | None,
    columns: Sequence[str] | None,
    limit: int | None,
    settings: SparkSettings,
) -> Request:
    """Find the files that must be read; raise WrongArgument if a column does not exist."""
    table = cold.require()
    kinds = kinds_of(table)
    requested = [names.requested(name, kinds) for name in columns or ()]
    unknown = [name for name in requested if name not in kinds]
    if unknown:
        shown = ", ".join(map(names.shown, kinds))
        raise WrongArgument(f"the archive has no column {unknown[0]!r}", f"columns: {shown}")
    where = names.condition(where, list(kinds))
    condition = plain_condition(where, kinds, settings)
    every = all_files(cold.folder, table, condition)
    files = list(_enough(every, limit)) if where is None and limit is not None else every
    files = without_others(files, condition)
    for file in files:
        if not file.as_logged:
            raise untrusted(file.path)
    chosen = requested or list(kinds)
    schema = table.schema().to_json()
    return Request(cold.folder, kinds, schema, chosen, where, condition, limit, files, len(every), names)


def _enough(files: Sequence[FileToRead], limit: int) -> Iterator[FileToRead]:
    """Yield the first files, until they have as many rows as are requested."""
    for file in files:
        if limit <= 0:
            return
        yield file
        limit -= file.logged.rows


@dataclass(frozen=True, slots=True)
class FilesRead:
    """What a query reads: files that can hold a row that it asks for, below the folder of the archive's table."""

    names: tuple[str, ...]
    bytes: int
    of_files: int
    """How many files the table has; the others were skipped."""
    on_spark: bool


class ColdRows(ABC):
    """Archived rows: month by month, in each the order of its files, and in each file the order of its rows.

    Times with a zone are in UTC, and have none.
    """

    on_spark: bool

    def __init__(self, requested: Request) -> None:
        self._requested = requested

    @property
    def files(self) -> FilesRead:
        """Return which files are read, at most: a limit that is reached early ends it early."""
        requested = self._requested
        names = tuple(str(file.path).removeprefix(f"{requested.folder}/") for file in requested.files)
        return FilesRead(names, requested.bytes, requested.of_files, self.on_spark)

    @property
    def columns(self) -> list[str]:
        return [self._requested.names.shown(name) for name in self._requested.columns]

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row as the values of its columns."""

    def write(self, rows: Iterator[tuple[Any, ...]], path: Path) -> int:
        """Write some of these rows to a new Parquet file; return how many there were."""
        kinds = [arrow_type(self._requested.kinds[name]) for name in self._requested.columns]
        schema = pa.schema(list(zip(self.columns, kinds, strict=True)))
        count = 0
        with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
            while chunk := list(islice(rows, _CHUNK_ROWS)):
                values = zip(*chunk, strict=True)
                arrays = [pa.array(one, field.type) for one, field in zip(values, schema, strict=True)]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                count += len(chunk)
        return count


class PlainRows(ColdRows):
    """Rows that are read in this process."""

    on_spark = False

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return islice(self._rows(), self._requested.limit)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        requested = self._requested
        wanted = {*requested.columns, KEY, *(() if requested.condition is None else requested.condition.names())}
        shape = [(name, kind) for name, kind in requested.kinds.items() if name in wanted and name != MONTH]
        for file in requested.files:
            for table in groups(file.path, shape):
                yield from self._matching(_with_month(table, file.logged.month))

    def _matching(self, table: pa.Table) -> Iterator[tuple[Any, ...]]:
        condition = self._requested.condition
        rows = table if condition is None else table.filter(condition.mask(table))
        for start in range(0, len(rows), _CHUNK_ROWS):
            chunk = rows.slice(start, _CHUNK_ROWS)
            yield from zip(*(_plain(chunk[name]).to_pylist() for name in self._requested.columns), strict=True)


def _with_month(table: pa.Table, month: str) -> pa.Table:
    return table.append_column(MONTH, pa.repeat(scalar(month, pa.string()), len(table)))


def _plain(column: Any) -> Any:
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


class SparkRows(ColdRows):
    """Rows that Spark reads, some files at a time, so that a limit that is reached early ends it early."""

    on_spark = True

    def __init__(self, spark: SparkSession, requested: Request) -> None:
        super().__init__(requested)
        self._spark = spark
        self._waves = list(_waves(requested.files))
        with _request_errors(requested):
            self._first = self._frame(self._waves[0], requested.limit)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        with _request_errors(self._requested):
            yield from islice(self._rows(), self._requested.limit)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        found = 0
        for number, files in enumerate(self._waves):
            left = None if self._requested.limit is None else self._requested.limit - found
            frame = self._first if number == 0 else self._frame(files, left)
            for row in frame.toLocalIterator():
                found += 1
                yield tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)

    def _frame(self, files: Sequence[FileToRead], limit: int | None) -> DataFrame:
        from pyspark.sql.types import StructType

        requested = self._requested
        schema = StructType.fromJson(json.loads(requested.schema))
        if not files:
            empty = self._spark.createDataFrame([], schema)
            return self._selected(empty if requested.where is None else matching(empty, requested.where))
        paths = [file.path for file in files]
        frame, order = read_files(self._spark, requested.folder, paths, schema, ordered=True)
        found = frame if requested.where is None else matching(frame, requested.where)
        found = self._selected(found.orderBy(*order))
        return found if limit is None or limit > _MOST_SORTED_ROWS else found.limit(limit)

    def _selected(self, frame: DataFrame) -> DataFrame:
        return frame.select(*(_column(name, self._requested.kinds[name]) for name in self._requested.columns))


@contextmanager
def _request_errors(requested: Request) -> Iterator[None]:
    """Raise what Spark refuses as an error of ours. A condition may fail on a row only: a text that is no number."""
    try:
        yield
    except spark_errors() as problem:
        raise refused(problem, list(requested.kinds)) from None


def _column(name: str, kind: str) -> Column:
    from pyspark.sql import functions

    # In quotes, because a dot in a name would denote a field of a column.
    column = functions.col(f"`{name.replace('`', '``')}`")
    # Python would read a time with a zone in the zone of the machine.
    return column.cast("timestamp_ntz").alias(name) if kind == "timestamp" else column


def _waves(files: Sequence[FileToRead]) -> Iterator[list[FileToRead]]:
    """Divide files into groups, each larger than the one before; there is always one."""
    wave: list[FileToRead] = []
    most = _FIRST_WAVE_BYTES
    for file in files:
        if wave and sum(one.bytes for one in wave) + file.bytes > most:
            yield wave
            wave, most = [], most * _WAVE_GROWTH
        wave.append(file)
    yield wave
