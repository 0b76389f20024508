"""Spark: the archive, and hot rows that are due, as data sources of other jobs.

register(spark)
spark.read.format("wane_cold").load("s3://company-archive/shop/event_outbox")
with hot_snapshot("wane.toml") as snapshot:
    spark.read.format("wane_hot").options(**snapshot).option("table", "event_outbox").load()
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from wane._archive.delta.frames import read_batches
from wane._archive.delta.job_output import JobOutput, WrittenFile
from wane._archive.delta.object_store import storage_options
from wane._archive.delta.paths import cold_path
from wane._archive.pipeline.hot import HotFilter, HotRange, HotRows
from wane._archive.query.plain_condition import parse
from wane._archive.query.skipping import all_files, kinds_of, untrusted, without_others
from wane._archive.rows.content import arrow_type
from wane._archive.spark.connect import exported_snapshot, opened, source_of
from wane._archive.spark.reader import Source
from wane._archive.spark.secret import task_source
from wane._contract.load import load_contract
from wane._contract.settings import SparkSettings, UpkeepSettings
from wane._db import open_store
from wane._db.statement import text_literal
from wane._findings import did_you_mean
from wane._keeper import database_url
from wane.errors import WrongArgument

ONE_TASK, EACH_TASK = "one task", "each task"
_SETTABLE = ("table", "rule", "range_rows", "snapshot")
_OPTIONS = (*_SETTABLE, "contract", "kind", "database", "at", "variable", "now")
_MOST_ROWS = _MOST_BYTES = 10**12
_ELSEWHERE = "spark://elsewhere"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_SIGNS = {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


def register(spark: SparkSession) -> None:
    """Register `wane_cold` and `wane_hot` in a session, and let Spark pass filters to Python data sources, which it
    does not by default."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(ColdSource)
    spark.dataSource.register(HotSource)


@contextmanager
def hot_snapshot(
    contract: str | Path, url: str | None = None, *, url_variable: str | None = None
) -> Iterator[dict[str, str]]:
    """Hold one state of a contract's database while jobs read it, and yield the options that name it.

    On PostgreSQL all tasks share an exported snapshot, which holds back vacuum until the block ends. On SQLite, which
    cannot share one, one task reads everything. The database's URL is in no option: tasks on this machine ask this
    process for it, and those on others have it in an environment variable, `url_variable`.
    """
    declared = load_contract(contract)
    settings = SparkSettings(url_variable=url_variable, master=_ELSEWHERE if url_variable else SparkSettings().master)
    with (
        open_store(database_url(url, declared), declared.store, read_only=True) as store,
        exported_snapshot(store) as snapshot,
        task_source(replace(source_of(store), snapshot=snapshot), settings) as source,
    ):
        found = {
            "contract": str(Path(contract).resolve()),
            "kind": source.kind,
            "database": source.path,
            "at": source.at,
            "variable": source.variable,
            "snapshot": snapshot or ONE_TASK,
            "now": store.now().isoformat(),
        }
        yield {name: value for name, value in found.items() if value is not None}


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

    def reader(self, schema: StructType) -> _ColdReader:
        """Return a reader of the files that make up the table now."""
        return _ColdReader(self._path, schema)

    def writer(self, schema: StructType, overwrite: bool) -> _ColdWriter:
        """Return a writer that adds rows to a table of the job's own, in one commit, once for its name and number.

        Options: `app`, the job's name, `sequence`, a number that grows from run to run, and `file_bytes`, the size of
        a file from which on a task begins another one. Raise WrongArgument if one of the first two is missing, for a
        table of an archive, and for rows that do not fit the table.
        """
        if overwrite:
            raise WrongArgument("wane_cold only adds rows", '`.mode("append")`')
        application, sequence = self.options.get("app", ""), self.options.get("sequence", "")
        if not application or not sequence.isdecimal() or not 0 < int(sequence) < _MOST_ROWS:
            raise WrongArgument(
                "wane_cold commits a job once, by its name and a number from 1 that grows from run to run",
                '`.option("app", "nightly").option("sequence", "20261117")`',
            )
        file_bytes = self.options.get("file_bytes", str(UpkeepSettings().file_bytes))
        if not file_bytes.isdecimal() or not 0 < int(file_bytes) < _MOST_BYTES:
            raise WrongArgument(f"file_bytes is {file_bytes!r}", "pass the size of a file in bytes, such as 128000000")
        output = JobOutput(self._path, _storable(schema), f"job:{application}", int(sequence), int(file_bytes))
        output.require_writable()
        return _ColdWriter(output)

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
class _ColdPartition(InputPartition):
    """One file of a table, which one task reads."""

    file: str


class _ColdReader(DataSourceReader):
    """Reads a table file by file, without files that cannot hold a row that the filters let pass."""

    def __init__(self, path: str, schema: StructType) -> None:
        self._path = path
        self._shape = [(field.name, str(field.dataType.jsonValue())) for field in schema.fields]
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Use filters to skip files. All of them are left to Spark too, which evaluates them row by row."""
        self._filters = list(filters)
        return iter(filters)

    def partitions(self) -> Sequence[_ColdPartition]:
        """Return the files to read, by the log and the footers; raise Unproven if one is not as the log records."""
        table = _open(self._path)
        kinds = kinds_of(table)
        written = [text for one in self._filters if (text := _written(one, kinds)) is not None]
        condition = parse(" AND ".join(written), kinds) if written else None
        files = without_others(all_files(cold_path(self._path), table, condition), condition)
        for file in files:
            if not file.as_logged:
                raise untrusted(file.path)
        return [_ColdPartition(str(file.path)) for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, one row group at a time; verify every page's checksum."""
        if isinstance(partition, _ColdPartition):
            yield from read_batches(partition.file, self._shape)


@dataclass
class _ColdMessage(WriterCommitMessage):
    """What a task wrote."""

    files: list[WrittenFile]


class _ColdWriter(DataSourceArrowWriter):
    """Writes files in each task, and commits all of them at the driver."""

    def __init__(self, output: JobOutput) -> None:
        self._output = output

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _ColdMessage:
        """Write the rows of a task; nothing of it is part of the table yet."""
        return _ColdMessage(self._output.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make one commit of what all tasks wrote; a job that was committed under its number adds nothing."""
        self._output.commit(_files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote."""
        self._output.abort(_files(messages))


def _files(messages: list[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [file for one in messages if isinstance(one, _ColdMessage) for file in one.files]


def _storable(schema: StructType) -> list[tuple[str, str]]:
    shape = [(field.name, str(field.dataType.jsonValue())) for field in schema.fields]
    for name, kind in shape:
        try:
            arrow_type(kind)
        except KeyError:
            raise WrongArgument(
                f"{name} is {kind}, which wane_cold cannot write", "cast it: numbers, texts, binaries, times and days"
            ) from None
    return shape


class HotSource(DataSource):
    """What is due under a rule of a contract: `spark.read.format("wane_hot").options(**snapshot)` of `hot_snapshot`.

    Options: `table`, `rule` if the table has several, `range_rows`, how many rows one task reads, and
    `snapshot = "each task"` where it is enough that every task reads a state of its own.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format by which jobs name it."""
        return "wane_hot"

    def schema(self) -> StructType:
        """Return the columns of the table, and the key, version and month that the archive would add."""
        with self._requested().opened() as rows:
            fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in rows.shape]
        return StructType.fromJson({"type": "struct", "fields": fields})

    def reader(self, schema: StructType) -> _HotReader:
        """Return a reader of what is due in the snapshot."""
        return _HotReader(self._requested(), [field.name for field in schema.fields])

    def _requested(self) -> _HotRequest:
        return _HotRequest.read(dict(self.options))


@dataclass(frozen=True)
class _HotRequest:
    """What the options of `wane_hot` request."""

    contract: str
    table: str
    rule: str | None
    source: Source
    now: datetime
    range_rows: int
    in_one_task: bool

    @classmethod
    def read(cls, options: dict[str, str]) -> _HotRequest:
        """Read options; raise WrongArgument, with the fix, for what is missing, unknown or wrong."""
        unknown = [name for name in options if name.lower() not in _OPTIONS]
        if unknown:
            hint = did_you_mean(unknown[0], _OPTIONS) or f"options: {', '.join(_SETTABLE)}"
            raise WrongArgument(f"wane_hot has no option {unknown[0]!r}", hint)
        given = {name.lower(): value for name, value in options.items()}
        if "contract" not in given or "kind" not in given or "now" not in given:
            raise WrongArgument(
                "wane_hot reads one state of a database, which a process has to hold while the job runs",
                '`with hot_snapshot("wane.toml") as snapshot:`, then `.options(**snapshot)`',
            )
        if not given.get("table"):
            raise WrongArgument("wane_hot needs a table of the contract", '`.option("table", "event_outbox")`')
        range_rows = given.get("range_rows", str(SparkSettings().range_rows))
        if not range_rows.isdecimal() or not 0 < int(range_rows) < _MOST_ROWS:
            raise WrongArgument(f"range_rows is {range_rows!r}", "pass how many rows one task reads, such as 200000")
        snapshot = given.get("snapshot", "")
        if snapshot not in (ONE_TASK, EACH_TASK) and (given["kind"] == "sqlite" or not snapshot):
            hint = f"pass {EACH_TASK!r}, or leave it as `hot_snapshot` yields it"
            raise WrongArgument(f"snapshot is {snapshot!r}", hint)
        shared = None if snapshot in (ONE_TASK, EACH_TASK) else snapshot
        source = Source(
            given["kind"],
            path=given.get("database"),
            at=given.get("at"),
            variable=given.get("variable"),
            snapshot=shared,
        )
        now = datetime.fromisoformat(given["now"])
        one_task = snapshot == ONE_TASK
        return cls(given["contract"], given["table"], given.get("rule"), source, now, int(range_rows), one_task)

    @contextmanager
    def opened(self) -> Iterator[HotRows]:
        """Open the database, and bind the rule."""
        with opened(self.source, read_only=True) as store:
            yield HotRows(store, load_contract(self.contract), self.table, self.rule)


@dataclass(frozen=True)
class _HotPartition(InputPartition):
    """What one task reads."""

    range: HotRange


class _HotReader(DataSourceReader):
    """Reads what is due range by range; the database skips rows that comparisons of columns with values exclude."""

    def __init__(self, requested: _HotRequest, names: Sequence[str]) -> None:
        self._requested = requested
        self._names = list(names)
        self._filters: list[HotFilter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Pass filters to the database. All of them are left to Spark too, which evaluates them row by row."""
        self._filters = [made for one in filters if (made := _hot_filter(one)) is not None]
        return iter(filters)

    def partitions(self) -> Sequence[_HotPartition]:
        """Return the ranges to read, by walking the rule's index."""
        requested = self._requested
        with requested.opened() as rows:
            found = rows.cut(
                requested.source,
                requested.now,
                self._filters,
                range_rows=requested.range_rows,
                in_one_task=requested.in_one_task,
            )
        return [_HotPartition(one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range; raise ArchiveError for a value that the archive could not store either."""
        if isinstance(partition, _HotPartition):
            yield from partition.range.batches(self._names)


def _hot_filter(one: Filter) -> HotFilter | None:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1:
        return None
    if isinstance(one, IsNull | IsNotNull):
        return HotFilter(attribute[0], "null" if isinstance(one, IsNull) else "not null")
    if isinstance(one, In):
        values = tuple(value for value in one.value if value is not None)
        return HotFilter(attribute[0], "=", values) if values else None
    sign = _SIGNS.get(type(one))
    value = getattr(one, "value", None)
    return None if sign is None or value is None else HotFilter(attribute[0], sign, (value,))


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
        return None if "\\" in value else text_literal(value)
    if isinstance(value, datetime):
        if (kind == "timestamp") != (value.tzinfo is not None):
            return None
        plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"'{plain.isoformat(' ', 'microseconds')}'"
    return f"'{value.isoformat()}'" if isinstance(value, date) else None
