"""Copying: the work of one Spark task.

It reads a range and everything that leaves with it in one snapshot of the database, writes Parquet files, and answers
with a manifest: which files, what is in them, and what the database computed for them. A file's name contains an
attempt that no other attempt shares, so a task that runs again overwrites nothing; what is in no manifest is in no
archive.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wane._archive.delta.failure import answering
from wane._archive.delta.paths import ColdPath, cold_path, source, sync_file, sync_folder
from wane._archive.rows import assembly, content
from wane._archive.rows.content import Checks, Shape
from wane._archive.rows.sql import RANGE
from wane._archive.rows.statistics import statistics
from wane._archive.rows.types import KEY, MONTH, PARENT, REFUSED, SWEEP, VERSION, Assembly
from wane._archive.spark.reader import Reader, Source, open_reader
from wane.errors import ArchiveError, StoreError

GROUP_ROWS = 65_536
GROUP_BYTES = 32 * 1024 * 1024
"""A row group is written when it reaches this number of rows or bytes, which a task holds in memory for each month it
writes."""
_SAMPLE_ROWS = 2_000
_UNIQUE = 0.95
"""A column is written without a dictionary if more of its values differ, of a sample."""
_FIX = (
    "an infinite or impossible timestamp, a NaN, or a value of another type than its column has: fix the row, hold it"
)
MOST_FOLLOWERS = 50_000
"""A row leaves with its followers in one transaction, which must not be unbounded."""


@dataclass(frozen=True, slots=True)
class PartJob:
    """What to copy of one table, and the folder to copy it to."""

    name: str
    folder: str
    shape: Shape
    follows: bool
    copy: str
    widest: str
    checks: str
    unstorable: str
    assembly: Assembly
    declares_types: bool = False
    """Whether the first row that `copy` reads only declares types."""
    whole_keys: bool = False
    """Whether the checks digest keys as whole numbers."""
    statistics: Sequence[str] = ()
    """Text columns whose minima and maxima are written to the archive's log."""
    hashed: Mapping[str, str] = field(default_factory=dict)
    """Columns of which the archive has digests, each with the kind of what is read."""
    projected: bool = False
    """Whether the archive has something else than what is read: then a version that is made of values is a digest of
    these."""


@dataclass(frozen=True, slots=True)
class CopyJob:
    """The job description that all tasks of a sweep share."""

    sweep: int
    source: Source
    parts: Sequence[PartJob]
    tasks: Sequence[Sequence[tuple[int, str]]]
    """For each task the ranges that it reads in one snapshot of the database: their numbers, and their bounds as
    conditions."""


def copy_ranges(job: CopyJob, number: int) -> str:
    """Copy the ranges of one task; return their manifests, or what went wrong, as JSON."""
    return answering(lambda: {"manifests": _copy(job, job.tasks[number])}, cold_path(job.parts[0].folder).parent)


def _copy(job: CopyJob, ranges: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    with open_reader(job.source) as reader:
        return [{"range": number, "parts": _copy_range(reader, job, number, bounds)} for number, bounds in ranges]


def _copy_range(reader: Reader, job: CopyJob, number: int, bounds: str) -> list[dict[str, Any]]:
    name = file_name(job.sweep, number)
    return [copy_part(reader, job.sweep, part, bounds, name) for part in job.parts]


def file_name(sweep: int, number: int) -> str:
    """Make a name for the files of a range that no other attempt to copy it shares."""
    return f"sweep-{sweep:010d}-{number:06d}-{uuid.uuid4().hex[:12]}.parquet"


def copy_part(reader: Reader, sweep: int, part: PartJob, bounds: str, name: str) -> dict[str, Any]:
    """Copy what one table has in a range to files of a name; return their part of the manifest."""
    files = RangeFiles(cold_path(part.folder), name, part.statistics)
    try:
        for table in stored_rows(reader, part, sweep, bounds):
            files.write(table)
        written = files.finish()
    finally:
        files.close()
    checks = database_checks(reader, part, bounds).numbers()
    return {"checks": checks, "whole_keys": part.whole_keys, "files": written}


def database_checks(reader: Reader, part: PartJob, bounds: str) -> Checks:
    """Return what the database computed for a range of a part."""
    return Checks.read(reader.row(part.checks.replace(RANGE, bounds)))


def stored_rows(reader: Reader, part: PartJob, sweep: int, bounds: str) -> Iterator[pa.Table]:
    """Yield what is in a range, as the archive stores it, with its month.

    Raise ArchiveError for a value that cannot be stored, or a row with more than MOST_FOLLOWERS followers.
    """
    last, rows = None, 0
    for batch in _batches(reader, part, bounds):
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        if not _storable(table, part):
            _explain(reader, part, bounds)
            raise ArchiveError(f"{part.name}: a row has a value that the archive cannot store", _FIX)
        stored = _assembled(table, part, sweep)
        yield stored
        if part.follows:
            # Rows are read in the order of those that they follow.
            runs = pc.run_end_encode(content.whole(stored[PARENT]))
            parents, lengths = runs.values, np.diff(runs.run_ends.to_numpy(), prepend=0)
            if parents[0].as_py() == last:
                lengths[0] += rows
            if lengths.max() > MOST_FOLLOWERS:
                raise ArchiveError(
                    f"more than {MOST_FOLLOWERS:,} rows of {part.name} would leave with the row {parents[lengths.argmax()]}",
                    "a row and what follows it leave in one transaction; prune its followers by a rule of their own",
                )
            last, rows = parents[-1].as_py(), lengths[-1]


def _batches(reader: Reader, part: PartJob, bounds: str) -> Iterator[pa.RecordBatch]:
    first = part.declares_types
    try:
        for batch in reader.batches(part.copy.replace(RANGE, bounds), part.widest.replace(RANGE, bounds)):
            yield batch.slice(1) if first else batch
            first = False
    except StoreError:
        _explain(reader, part, bounds)  # A value of another type than its column declares stops the driver.
        raise


def _assembled(table: pa.Table, part: PartJob, sweep: int) -> pa.Table:
    """Return rows as the archive stores them, with their months."""
    made, how = {}, part.assembly
    for name, kind in part.shape:
        # Decimals are read as texts; every other column is read as what it was cast to.
        read = table[name] if name not in part.hashed else content.hashes(table[name], part.hashed[name])
        made[name] = read.cast(content.arrow_type(kind))
        made[name].validate(full=True)
    stored = pa.table(made)
    made[KEY] = table[KEY] if how.keys is None else assembly.key_texts(table, how.keys)
    if part.follows:
        made[PARENT] = table[PARENT] if how.parents is None else assembly.key_texts(table, how.parents)
    if VERSION in table.column_names:
        made[VERSION] = assembly.versions(table[VERSION])
    elif part.projected:
        made[VERSION] = content.row_digests(stored, part.shape)
    else:
        made[VERSION] = content.checksums(stored, part.shape)
    made[SWEEP] = pa.repeat(pa.scalar(sweep, pa.int64()), len(table))
    timed = MONTH if part.follows else how.month
    made[MONTH] = table[MONTH] if how.month is None else assembly.months(table[timed], how.per_second)
    return pa.table(made)


def _storable(table: pa.Table, part: PartJob) -> bool:
    if REFUSED in table.column_names:
        return not pc.any(pc.not_equal(table[REFUSED], 0)).as_py()
    made = part.assembly.keys
    return assembly.can_be_stored(table, part.shape, [KEY] if made is None else made.names)


def _explain(reader: Reader, part: PartJob, bounds: str) -> None:
    """Raise ArchiveError if the database names a row that cannot be stored."""
    key, columns = reader.row(part.unstorable.replace(RANGE, bounds))
    if key is not None:
        raise ArchiveError(
            f"{part.name}: the row {key} has a value in {', '.join(columns.split())} that the archive cannot store",
            f'{_FIX}, or set `cast = {{ column = "text" }}` in [archive.{part.name}]',
        )


class RangeFiles:
    """The files of one part of one range: one for each month."""

    def __init__(self, folder: ColdPath, name: str, statistics: Sequence[str]) -> None:
        self._folder = folder
        self._name = name
        self._statistics = statistics
        self._open: dict[str, _File] = {}

    def write(self, table: pa.Table) -> None:
        """Write rows to the files of their months."""
        months = table[MONTH]
        rows = table.drop_columns([MONTH])
        found = pc.unique(months).to_pylist()
        for month in found:
            if month not in self._open:
                self._open[month] = _File(self._folder, f"{MONTH}={month}/{self._name}", month, rows.schema)
            self._open[month].write(rows if len(found) == 1 else rows.filter(pc.equal(months, month)))

    def finish(self) -> list[dict[str, Any]]:
        """Complete the files; return what a manifest has of them."""
        return [file.finish(self._statistics) for file in self._open.values()]

    def close(self) -> None:
        """Close files that were not finished."""
        for file in self._open.values():
            file.close()


class _File:
    def __init__(self, folder: ColdPath, path: str, month: str, schema: pa.Schema) -> None:
        self._path = folder / path
        self._answer: dict[str, Any] = {"path": path, "month": month, "rows": 0, "groups": []}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._sink = self._path.open("xb")
        self._schema = schema
        self._writer: Any = None
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0

    def write(self, table: pa.Table) -> None:
        self._pending.append(table)
        self._rows += len(table)
        self._bytes += table.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables(self._pending)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                use_dictionary=_repeating(table),
                write_page_checksum=True,
            )
        self._answer["groups"].append(content.content_digest(table))
        self._answer["rows"] += len(table)
        self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._pending, self._rows, self._bytes = [], 0, 0

    def finish(self, texts: Sequence[str]) -> dict[str, Any]:
        """Close the file and sync it to disk, so that it survives a power cut; return its manifest."""
        if self._pending:
            self._flush()
        self._writer.close()
        sync_file(self._path, self._sink)
        self._sink.close()
        for folder in (self._path.parent, self._path.parent.parent):
            sync_folder(folder)
        footer = pq.read_metadata(source(self._path))
        written = json.dumps(statistics(footer, texts))
        return {**self._answer, "bytes": self._path.stat().st_size, "statistics": written}

    def close(self) -> None:
        """Close a file that was not finished. The reason is the error to report."""
        if not self._sink.closed:
            if self._writer is not None:
                with suppress(OSError, pa.ArrowException):
                    self._writer.close()
            with suppress(OSError):
                self._sink.close()


def _repeating(table: pa.Table) -> list[str]:
    """Return the columns whose values occur more than once, of which a dictionary is made: by a sample of the rows."""
    sample = table.take(pa.array(range(0, len(table), max(1, len(table) // _SAMPLE_ROWS))))
    return [name for name in table.column_names if pc.count_distinct(sample[name]).as_py() <= _UNIQUE * len(sample)]
