"""Spark: the archive as a data source of other jobs.

register(spark)
spark.read.format("wane_cold").load("s3://company-archive/shop/event_outbox")
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from wane._archive.frames import read_batches
from wane._archive.object_store import storage_options
from wane._archive.paths import cold_path
from wane._archive.plain_condition import parse
from wane._archive.skipping import all_files, kinds_of, untrusted, without_others
from wane.errors import WrongArgument

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_SIGNS = {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


def register(spark: SparkSession) -> None:
    """Register `wane_cold` in a session, and let Spark pass filters to Python data sources, which it does not by
    default."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(ColdSource)


class ColdSource(DataSource):
    """One table of an archive: `spark.read.format("wane_cold").load(PATH)`.

    The path is the table's folder, or its prefix in an object store, as `wane archive ls` shows it.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format by which jobs name it."""
        return "wane_cold"

    def schema(self) -> StructType:
        """Return the columns of the table, its own and those that the archive adds."""
        return StructType.fromJson(json.loads(_open(self._path).schema().to_json()))

    def reader(self, schema: StructType) -> ColdReader:
        """Return a reader of the files that make up the table now."""
        return ColdReader(self._path, schema)

    @property
    def _path(self) -> str:
        path = self.options.get("path")
        if not path:
            raise WrongArgument(
                "wane_cold needs the path of an archived table",
                '`.load("archive/event_outbox")`, as `wane archive ls` shows',
            )
        return path.rstrip("/")


@dataclass(frozen=True)
class ColdPartition(InputPartition):
    """One file of a table, which one task reads."""

    file: str


class ColdReader(DataSourceReader):
    """Reads a table file by file, without files that cannot hold a row that the filters let pass."""

    def __init__(self, path: str, schema: StructType) -> None:
        self._path = path
        self._shape = [(field.name, str(field.dataType.jsonValue())) for field in schema.fields]
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Use filters to skip files. All of them are left to Spark too, which evaluates them row by row."""
        self._filters = list(filters)
        return iter(filters)

    def partitions(self) -> Sequence[ColdPartition]:
        """Return the files to read, by the log and the footers; raise Unproven if one is not as the log says."""
        table = _open(self._path)
        kinds = kinds_of(table)
        written = [text for one in self._filters if (text := _written(one, kinds)) is not None]
        condition = parse(" AND ".join(written), kinds) if written else None
        files = without_others(all_files(cold_path(self._path), table), condition)
        for file in files:
            if not file.as_logged:
                raise untrusted(file.path)
        return [ColdPartition(str(file.path)) for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, one row group at a time; verify every page's checksum."""
        if isinstance(partition, ColdPartition):
            yield from read_batches(partition.file, self._shape)


def _open(path: str) -> DeltaTable:
    return DeltaTable(path, storage_options=storage_options(cold_path(path)))


def _written(one: Filter, kinds: dict[str, str]) -> str | None:
    """Write a filter as a condition; return None if it is not one that files are skipped by."""
    if isinstance(one, In):
        values = [_value(value, kinds.get(one.attribute[0], "")) for value in one.value]
        known = [value for value in values if value is not None]
        return _compared(one.attribute, f"IN ({', '.join(known)})") if known and len(known) == len(values) else None
    sign = _SIGNS.get(type(one))
    if sign is None:
        return None
    attribute, value = one.attribute, one.value  # type: ignore[attr-defined]
    text = _value(value, kinds.get(attribute[0], ""))
    return None if text is None else _compared(attribute, f"{sign} {text}")


def _compared(attribute: tuple[str, ...], comparison: str) -> str | None:
    if len(attribute) != 1 or "`" in attribute[0]:
        return None
    return f"`{attribute[0]}` {comparison}"


def _value(value: Any, kind: str) -> str | None:
    """Write a value as SQL does; return None if its meaning depends on more than itself."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return None if "\\" in value else "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        if (kind == "timestamp") != (value.tzinfo is not None):
            return None
        plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"'{plain.isoformat(' ', 'microseconds')}'"
    return f"'{value.isoformat()}'" if isinstance(value, date) else None
