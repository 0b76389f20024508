"""Compaction: many small files of a month become few large ones, sorted by time, on Spark. No row is changed, added or
removed.

Every sweep adds files, and each costs readers time. What is written is proven to hold the same rows before it replaces
the old files. Files of a sweep that is not done are left alone, because its eviction reads them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.comparison import checks, shape_of
from wane._archive.delta.failure import is_full, unwritable, writing
from wane._archive.delta.files import ColdFile, NewFile, Replacement, listing
from wane._archive.delta.frames import read_files, write_objects
from wane._archive.delta.object_store import ObjectPath
from wane._archive.delta.paths import ColdPath, remove_tree, source, sync_file, sync_folder
from wane._archive.journal import ArchivedSweep
from wane._archive.maintenance.journal import COMPACT
from wane._archive.maintenance.upkeep import Upkeep
from wane._archive.model import CompactedTable
from wane._archive.rows.content import Shape
from wane._archive.rows.names import ColumnNames
from wane._archive.rows.statistics import statistics
from wane._archive.rows.types import KEY, MONTH, PARENT
from wane._archive.spark.session import long_work
from wane._contract.duration import Forever
from wane._contract.names import TableName
from wane._db.schema import Schema
from wane._leases import Lease
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError, SparkError, Unproven
from wane.events import WorkProgressed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP_BYTES = 32 * 1024 * 1024
"""Row groups as large as those of sweeps, so that reading one takes as much memory."""
STAGING = "_wane-compact-"
"""Prefix of the folder that Spark writes to. Readers ignore a folder that begins with an underscore."""


class Compaction:
    """Compacts tables of the archive."""

    def __init__(self, upkeep: Upkeep) -> None:
        self.upkeep = upkeep

    def compact(
        self, name: str, *, least_files: int = 2, dry_run: bool = False, most_months: int | None = None
    ) -> CompactedTable:
        """Compact every month of one of the archive's tables that has at least `least_files` small files.

        A failure is the outcome of this table and does not affect others.
        """
        done = CompactedTable(name, Outcome.DONE, dry_run=dry_run)
        with self.upkeep.context.reporting(done):
            sweeps = self.upkeep.sweeps()
            if dry_run:
                self.upkeep.require_whole([name])
                for files in self.small(name, least_files, sweeps):
                    done.add(files, ())
                return done
            with self.upkeep.leases([name], sweeps) as leases:
                sweeps = self.upkeep.sweeps()  # As they are now that no other process writes.
                months = self.small(name, least_files, sweeps)[:most_months]
                with long_work(_rows(months)):
                    for number, files in enumerate(months):
                        self._progress(name, months, number)
                        self._month(name, files, leases, done)
                        self._progress(name, months, number + 1)
        return done

    def _progress(self, name: str, months: Sequence[Sequence[ColdFile]], done: int) -> None:
        """Report the rows of the months that are done, of those of all."""
        rows = _rows(months[:done])
        self.upkeep.context.listener(WorkProgressed("compact", name, None, "row", rows, _rows(months)))

    def small(self, name: str, least_files: int, sweeps: dict[int, ArchivedSweep]) -> list[list[ColdFile]]:
        """Return the small files of every month that has at least `least_files` of them, the oldest month first."""
        handle = self.upkeep.cold(name).open()
        if handle is None:
            return []
        unfinished = [number for number, sweep in sweeps.items() if not sweep.done]
        target = self.upkeep.contract.upkeep.file_bytes
        found = [file for file in listing(handle) if file.bytes < target // 2 and not file.has_any(unfinished)]
        found.sort(key=lambda file: (file.month, file.path))
        months = (list(files) for _, files in groupby(found, lambda file: file.month))
        return [files for files in months if len(files) >= max(least_files, 2)]

    def _month(self, name: str, files: Sequence[ColdFile], leases: Sequence[Lease], done: CompactedTable) -> None:
        job = self.upkeep.begin(name, COMPACT, leases)
        cold = self.upkeep.cold(name)
        added = self._write(cold, files, job)
        change = Replacement(name, tuple(files), tuple(added))
        if change.gone:
            raise Unproven(f"{change.gone} rows of {name} would be lost by compacting it", "nothing was changed")
        inputs = {
            "month": files[0].month,
            "files": len(files),
            "into": len(added),
            "bytes": sum(file.bytes for file in files),
            "into_bytes": sum(file.bytes for file in added),
        }
        plan = {"changes": [change.written()], "inputs": inputs}
        self.upkeep.carry_out(job, name, COMPACT, plan, leases)
        done.add(files, added)

    def _write(self, cold: ColdTable, files: Sequence[ColdFile], job: int) -> list[NewFile]:
        """Write the rows of some files of one month to few, sorted ones; raise Unproven unless the rows are the
        same."""
        handle = cold.open()
        if handle is None:
            raise ArchiveError(f"the archive of {cold.name} is gone", "restore its folder from a backup")
        executor = self.upkeep.context.executor
        executor.spark()
        shape = shape_of(handle)
        order = self._order(cold.name, [name for name, _ in shape])
        with _compacting(cold):
            rows = self._sorted(cold, handle, files, order)
            paths = _write(rows, cold.folder, files[0].month, job, shape)
        with writing(cold.folder):
            texts = self.upkeep.contract.archive_statistics(cold.name)
            added = [_new_file(cold, path, files[0].month, texts) for path in paths]
        added = [file for file in added if file.rows]
        before = checks(executor, cold.folder, [file.path for file in files], shape)
        if checks(executor, cold.folder, [file.path for file in added], shape) != before:
            raise Unproven(f"compacting {cold.name} changed rows", "nothing was committed; run it again")
        return added

    def _sorted(self, cold: ColdTable, handle: Any, files: Sequence[ColdFile], order: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(handle.schema().to_json()))
        paths = [cold.folder / file.path for file in files]
        read, _ = read_files(self.upkeep.context.executor.spark(), cold.folder, paths, schema)
        pieces = max(1, -(-sum(file.bytes for file in files) // self.upkeep.contract.upkeep.file_bytes))
        # Quoted: Spark would read a dot in a name as the field of a structure.
        columns = [f.col(f"`{name.replace('`', '``')}`") for name in order]
        spread = read.drop(MONTH)
        spread = spread.coalesce(1) if pieces == 1 else spread.repartitionByRange(pieces, *columns)
        return spread.sortWithinPartitions(*columns)

    def _order(self, name: str, known: Sequence[str]) -> list[str]:
        """Return the columns that the rows of one of the archive's tables are sorted by, as the archive names them.

        Time comes first, for most queries; then rows that left with the same row lie together; then the columns of the
        key, in the order of their own types. The texts of keys, in which 10 is before 9, decide last.
        """
        times: list[str] = []
        links: list[str] = []
        for table in self.upkeep.tables():
            for rule in table.rules:
                if str(table.name) == name and not isinstance(rule.bound, Forever) and rule.bound.time is not None:
                    times.append(rule.bound.time.column)
                for follower in rule.followers:
                    if str(follower.reference.table) == name:
                        links += follower.reference.columns
        names = ColumnNames.of(self.upkeep.contract, name)
        own = [names.archived(column) for column in (*times, *links)]
        key = [names.archived(column) for column in self._key(name)]
        return [one for one in dict.fromkeys([*own, PARENT, *key, KEY]) if one in known]

    def _key(self, name: str) -> Sequence[str]:
        """Return the columns of the key of a table; none if the database no longer has the table."""
        declared = next((table.key for table in self.upkeep.contract.tables if str(table.name) == name), None)
        if declared:
            return declared
        wanted = TableName.parse(name)
        found = self._schema.find(wanted.schema, wanted.name)
        return () if found is None else found.primary_key

    @cached_property
    def _schema(self) -> Schema:
        return self.upkeep.store.reflect()


def _rows(months: Sequence[Sequence[ColdFile]]) -> int:
    return sum(file.rows for files in months for file in files)


@contextmanager
def _compacting(cold: ColdTable) -> Iterator[None]:
    try:
        yield
    except ArchiveError:
        raise
    except Exception as problem:
        if is_full(problem):
            raise unwritable(cold.folder, problem) from problem
        first = str(problem).strip().partition("\n")[0]
        raise SparkError(f"compacting {cold.name} failed on Spark: {first}", "nothing was changed") from problem


def _write(rows: DataFrame, folder: ColdPath, month: str, job: int, shape: Shape) -> list[str]:
    """Write rows to files beside the table's other ones; return their paths below the folder."""
    if isinstance(folder, ObjectPath):
        return write_objects(rows, folder, shape, lambda number: _path(month, job, number))
    staging = folder / f"{STAGING}{job:010d}-{uuid.uuid4().hex[:8]}"
    try:
        rows.write.option("compression", "zstd").option("parquet.block.size", str(GROUP_BYTES)).parquet(str(staging))
        with writing(folder):
            parts = sorted(staging.glob("part-*.parquet"))
            return [_moved(folder, part, _path(month, job, number)) for number, part in enumerate(parts)]
    finally:
        remove_tree(staging)


def _path(month: str, job: int, number: int) -> str:
    return f"{MONTH}={month}/compact-{job:010d}-{number:06d}-{uuid.uuid4().hex[:12]}.parquet"


def _moved(folder: Path, part: Path, path: str) -> str:
    """Sync a file that Spark wrote to disk and move it beside the table's other files.

    What is compared with the old files afterwards is read from the disk.
    """
    with part.open("rb") as written:
        sync_file(part, written)
    target = folder / path
    target.parent.mkdir(exist_ok=True)
    part.rename(target)
    sync_folder(target.parent)
    return path


def _new_file(cold: ColdTable, path: str, month: str, texts: Sequence[str]) -> NewFile:
    written = cold.folder / path
    footer = pq.read_metadata(source(written))
    return NewFile(path, month, footer.num_rows, written.stat().st_size, json.dumps(statistics(footer, texts)))
