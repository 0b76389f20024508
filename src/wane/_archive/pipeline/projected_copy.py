"""Copying through a DataFrame: a task reads its range as the direct path does, Spark evaluates the contract's
projection over those rows, and the same task writes what comes out.

One pass, so that what is proven is of one snapshot of the database on every store. The rows that enter Spark are
compared with the database's digests of them; count and keys of what was written are too; and a digest that Spark
computes of every row that it made is compared with the one that it computes of what its own reader reads back
(`wane._archive.pipeline.verify`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.delta.failure import ANSWERED, answer_of, answering, error_of
from wane._archive.delta.frames import read_files
from wane._archive.delta.paths import ColdPath, cold_path
from wane._archive.pipeline.extract import CopyJob, RangeFiles, copy_part, database_checks, file_name, stored_rows
from wane._archive.query.evaluation import select, struct
from wane._archive.rows import content
from wane._archive.rows.content import UNPROVEN_HINT, Checks, Shape
from wane._archive.rows.projection import Projected, quoted
from wane._archive.rows.types import KEY, MONTH, SWEEP, VERSION
from wane._archive.spark.executor import ANSWERS, RETRY_SECONDS
from wane._archive.spark.reader import Reader, open_reader
from wane.errors import Unproven

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANGE, _REPORT, _DIGEST = "_range", "_report", "_digest"
"""The number of a row's range; what a task reports of it, in a row of its own at the end; Spark's digest of the row."""
_CARRIED = (KEY, VERSION, MONTH, _RANGE, _REPORT)
"""Under names of their own, beside the table's columns."""


@dataclass(frozen=True, slots=True)
class ProjectedJob:
    """The job description that all tasks of a projected copy share."""

    job: CopyJob
    strict: bool
    projection: Sequence[Projected]
    columns: Sequence[str]
    """The table's names of the columns that are read."""
    shape: Shape
    """The columns of the projection and their types."""

    def frame(self, numbers: DataFrame, early: Any) -> DataFrame:
        """Return the answers of all tasks as a frame, by their numbers."""
        read = [*self.job.parts[0].shape, *((one, "long" if one == _RANGE else "string") for one in _CARRIED)]
        # By their positions: mapInArrow would read a dot in a name as the field of a structure.
        plain = struct([(f"c{number}", kind) for number, (_, kind) in enumerate(read)])
        hot = numbers.mapInArrow(_reading(self, [name for name, _ in read]), plain)
        carried = [f"wane{one}" for one in _CARRIED]
        made = select(hot.toDF(*self.columns, *carried), self.projection, *carried)
        names = [name for name, _ in self.shape]
        digested = made.selectExpr("*", f"{digest([*names, *carried[:2]])} AS wane{_DIGEST}")
        bare = digested.toDF(*(f"c{number}" for number in range(len(digested.columns))))
        return bare.mapInArrow(_writing(self, [*names, *_CARRIED, _DIGEST], early), ANSWERS)


def digest(names: Sequence[str]) -> str:
    """Write Spark's digest of a row: it differs wherever a value, or whether there is one, does."""
    each = (f"isnull({quoted(name)}), {quoted(name)}" for name in names)
    return f"xxhash64({', '.join(each)})"


def read_digests(spark: SparkSession, folder: ColdPath, paths: Sequence[str], shape: Shape) -> tuple[int, int]:
    """Return the number of rows of some files, and the sum of their digests, as one aggregate over what Spark reads."""
    stored = struct([*shape, (KEY, "string"), (VERSION, "string")])
    frame, _ = read_files(spark, folder, [cold_path(path) for path in paths], stored)
    total = f"sum(cast({digest(stored.fieldNames())} AS decimal(38,0)))"
    [(rows, found)] = frame.selectExpr("count(*)", total).collect()
    return rows, int(found or 0)


def _reading(job: ProjectedJob, names: Sequence[str]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def read(batches: Any) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None:
            time.sleep(context.attemptNumber() * RETRY_SECONDS)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in _hot_rows(job, number):
                    plain = pa.table([table[name] for name in names], [f"c{one}" for one in range(len(names))])
                    yield from plain.to_batches()

    return read


def _hot_rows(job: ProjectedJob, number: int) -> Iterator[pa.Table]:
    """Yield the rows of a task's ranges, and at the end of each the last row once more, with a report.

    The report of a failure is in a row without values.
    """
    part, ranges = job.job.parts[0], job.job.tasks[number]
    try:
        with open_reader(job.job.source) as reader:
            for one, bounds in ranges:
                yield from _range_rows(job, reader, one, bounds)
    except ANSWERED as problem:
        failure = answer_of(problem, cold_path(part.folder).parent)
        kinds = [*part.shape, *((one, "string") for one in (KEY, VERSION, MONTH))]
        nothing = pa.table({name: pa.nulls(1, content.arrow_type(kind)) for name, kind in kinds})
        yield _carrying(nothing, ranges[0][0], failure)


def _range_rows(job: ProjectedJob, reader: Reader, number: int, bounds: str) -> Iterator[pa.Table]:
    part, sweep = job.job.parts[0], job.job.sweep
    name = file_name(sweep, number)
    following = [copy_part(reader, sweep, one, bounds, name) for one in job.job.parts[1:]]
    read, last = Checks(), None
    for table in stored_rows(reader, part, sweep, bounds):
        read += content.check(table, part.shape, strict=job.strict, whole_keys=part.whole_keys)
        last = table.slice(len(table) - 1)
        yield _carrying(table, number, None)
    database = database_checks(reader, part, bounds)
    if database != read:
        raise Unproven(
            f"other rows of {part.name} were read than the database has in a range",
            UNPROVEN_HINT,
        )
    if last is not None:
        checks = Checks(database.rows, database.keys).numbers()
        yield _carrying(last, number, json.dumps({"checks": checks, "following": following}))


def _carrying(table: pa.Table, number: int, report: str | None) -> pa.Table:
    made = table.append_column(_RANGE, pa.repeat(pa.scalar(number, pa.int64()), len(table)))
    return made.append_column(_REPORT, pa.repeat(pa.scalar(report, pa.string()), len(table)))


def _writing(job: ProjectedJob, names: Sequence[str], early: Any) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def write(batches: Any) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        tables = (pa.table(batch.columns, list(names)) for batch in batches)
        folder = cold_path(job.job.parts[0].folder).parent
        answer = answering(lambda: {"manifests": _written(job, number, tables)}, folder)
        if early is not None:
            early.add([(number, answer)])
        yield pa.RecordBatch.from_pydict({"number": [number], "answer": [answer]})

    return write


def _written(job: ProjectedJob, number: int, tables: Iterator[pa.Table]) -> list[dict[str, Any]]:
    """Write the rows of a task's ranges; return their manifests."""
    ranges = {one: _WrittenRange(job, one) for one, _ in job.job.tasks[number]}
    try:
        for table in tables:
            for written in pc.unique(table[_RANGE]).to_pylist():
                ranges[written].write(table.filter(pc.equal(table[_RANGE], written)))
        return [one.finish() for one in ranges.values()]
    finally:
        for one in ranges.values():
            one.files.close()


@dataclass(slots=True)
class _WrittenRange:
    """What a task writes of one range."""

    job: ProjectedJob
    number: int
    files: RangeFiles = field(init=False)
    digests: int = 0
    report: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        part = self.job.job.parts[0]
        name = file_name(self.job.job.sweep, self.number)
        self.files = RangeFiles(cold_path(part.folder), name, part.statistics)

    def write(self, table: pa.Table) -> None:
        reported = table.filter(pc.is_valid(table[_REPORT]))
        if len(reported):
            self.report = report = json.loads(reported[_REPORT][0].as_py())
            if "error" in report:
                raise error_of(report)
            table = table.filter(pc.is_null(table[_REPORT]))
        if not len(table):
            return
        made = {name: table[name].cast(content.arrow_type(kind)) for name, kind in self.job.shape}
        for column in made.values():
            column.validate(full=True)
        made |= {one: table[one].cast(pa.string()) for one in (KEY, VERSION)}
        made[SWEEP] = pa.repeat(pa.scalar(self.job.job.sweep, pa.int64()), len(table))
        self.files.write(pa.table({**made, MONTH: table[MONTH].cast(pa.string())}))
        numbers = content.whole(table[_DIGEST]).to_numpy(zero_copy_only=False).astype(np.int64)
        # In two pieces, so that nothing overflows.
        self.digests += (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())

    def finish(self) -> dict[str, Any]:
        files = self.files.finish()
        if files and self.report is None:
            raise Unproven(
                f"rows of {self.job.job.parts[0].name} are missing at the end of a range",
                UNPROVEN_HINT,
            )
        nothing = [{"checks": Checks().numbers(), "files": []} for _ in self.job.job.parts[1:]]
        report = self.report or {"checks": Checks().numbers(), "following": nothing}
        written = {
            "checks": report["checks"],
            "whole_keys": self.job.job.parts[0].whole_keys,
            "files": files,
            "digests": str(self.digests),
        }
        return {"range": self.number, "parts": [written, *report["following"]]}
