"""Delta Lake tables that Spark jobs of others write, each job once.

Tasks write files, and the driver makes one commit of them, with the job's name and number as an application
transaction: a job that is repeated under its number adds nothing, and one with a lower number than the last is refused.
What is in no commit is in no table. The number is the job's fence: once a run with a higher one has committed, an
earlier run that was only slow commits nothing. Tables of the archive are not written this way: only sweeps write to
them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType, Schema
from deltalake.transaction import AddAction, RemoveAction

from wane._archive.delta.cold_table import require_conditional_puts
from wane._archive.delta.failure import writing
from wane._archive.delta.frames import GROUP_BYTES, GROUP_ROWS
from wane._archive.delta.log_entry import is_written, write_entry
from wane._archive.delta.object_store import storage_options
from wane._archive.delta.paths import ColdPath, cold_path, source, sync_file, sync_folder
from wane._archive.rows.content import Shape, arrow_type
from wane._archive.rows.statistics import statistics
from wane._archive.rows.types import SWEEP
from wane.errors import ArchiveChanged, ArchiveError, WrongArgument

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a task wrote, and that is part of no table yet."""

    name: str
    bytes: int
    statistics: str


@dataclass(frozen=True, slots=True)
class JobOutput:
    """What a job adds to a table: its columns, and the name and number under which it does so once."""

    path: str
    shape: Shape
    application: str
    sequence: int
    file_bytes: int
    """The size from which on a task begins another file."""

    @property
    def _folder(self) -> ColdPath:
        return cold_path(self.path)

    def require_writable(self) -> None:
        """Create the folder; raise WrongArgument if it is a table of an archive, one with other columns, or one to
        which this job has added under a higher number."""
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            table = self._open()
        if table is None:
            return
        known = {field.name: str(getattr(field.type, "type", field.type)) for field in table.schema().fields}
        if SWEEP in known:
            raise WrongArgument(
                f"{self.path} is a table of an archive, which only sweeps write to", "write to another path"
            )
        if known != dict(self.shape):  # type: ignore[arg-type]
            raise WrongArgument(
                f"{self.path} has other columns than the rows that are written: {', '.join(known)}",
                "select the table's columns, with its types, or write to another path",
            )
        self._is_done(table)

    def _is_done(self, table: DeltaTable) -> bool:
        """Check whether this job was committed; raise WrongArgument if one of its name with a higher number was.

        The table records only the highest number, so whether this one was committed before it is unknown.
        """
        last = table.transaction_version(self.application) or 0
        if last > self.sequence:
            name = self.application.partition(":")[2]
            raise WrongArgument(
                f"{self.path} has rows of {name} with sequence {last} already: nothing is added with {self.sequence}",
                f"give the job a sequence above {last}, or, to fill in rows of an earlier day, another `app`",
            )
        return last == self.sequence

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[WrittenFile]:
        """Write the rows of one task to files of names that no other attempt shares; none if there are no rows."""
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in self.shape])
        folder, paths = self._folder, list[ColdPath]()
        groups = _groups(batches, schema)
        with writing(folder):
            try:
                group = next(groups, None)
                while group is not None:
                    paths.append(folder / f"part-{uuid.uuid4().hex}.parquet")
                    group = _write(paths[-1], schema, group, groups, self.file_bytes)
                if paths:
                    sync_folder(folder)
                return [_written(path) for path in paths]
            except BaseException:
                # The driver does not know the files of a task that failed, so it cannot remove them.
                for path in paths:
                    _remove(path)
                raise

    def commit(self, files: Sequence[WrittenFile]) -> bool:
        """Add the files in one commit; return False, and remove them, if this job was committed.

        Remove them and raise WrongArgument if it was committed under a higher number meanwhile, and ArchiveError if
        one is missing.
        """
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.name, file.bytes, {}, now, data_change=True, stats=file.statistics) for file in files
        ]
        with writing(self._folder):
            for _ in range(_ATTEMPTS):
                table = self._open() or self._create()
                try:
                    if self._is_done(table):
                        self.abort(files)
                        return False
                    self._require_written(files)
                except (WrongArgument, ArchiveError):
                    self.abort(files)
                    raise
                try:
                    write_entry(table, self._folder, actions, [], {self.application: self.sequence}, {})
                except CommitFailedError:
                    continue  # Another job committed meanwhile, perhaps under this name: what it did is read again.
                return True
        raise ArchiveChanged(f"{self.path} changes faster than it can be written", "run the job again")

    def _require_written(self, files: Sequence[WrittenFile]) -> None:
        for file in files:
            path = self._folder / file.name
            if not is_written(path, file.bytes):
                raise ArchiveError(
                    f"{path} is not what a task wrote",
                    "write to a folder that the driver and all tasks can reach, or to an object store",
                )

    def abort(self, files: Sequence[WrittenFile]) -> None:
        """Remove files that are not part of the table, as far as they can be removed.

        A commit whose answer was lost has failed for its caller, and its files are part of the table.
        """
        if not files:
            return
        try:
            with writing(self._folder):
                table = self._open()
        except ArchiveError:
            return  # Unknown whether they are part of it.
        named = set() if table is None else {uri.rpartition("/")[2] for uri in table.file_uris()}
        for file in files:
            if file.name not in named:
                _remove(self._folder / file.name)

    def _open(self) -> DeltaTable | None:
        options = storage_options(self._folder)
        if not DeltaTable.is_deltatable(self.path, options):
            return None
        return DeltaTable(self.path, storage_options=options)

    def _create(self) -> DeltaTable:
        require_conditional_puts(self._folder)
        fields = [Field(name, PrimitiveType(kind), nullable=True) for name, kind in self.shape]
        options = storage_options(self._folder)
        try:
            # With retries, the second of two that create it would replace its schema.
            once = CommitProperties(max_commit_retries=0)
            return DeltaTable.create(self.path, Schema(fields), storage_options=options, commit_properties=once)
        except DeltaError:
            table = self._open()
            if table is None:
                raise
            self.require_writable()  # Another job has created it at the same time.
            return table


def _write(
    path: ColdPath, schema: pa.Schema, first: pa.Table, others: Iterator[pa.Table], file_bytes: int
) -> pa.Table | None:
    """Write groups of rows to a new file until it is large enough; return the first group of the next file."""
    group: pa.Table | None = first
    with path.open("xb") as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
            size = 0
            while group is not None and size < file_bytes:
                writer.write_table(group, row_group_size=len(group))
                size = sink.tell()
                group = next(others, None)
        sync_file(path, sink)
    return group


def _written(path: ColdPath) -> WrittenFile:
    footer = pq.read_metadata(source(path))
    return WrittenFile(path.name, path.stat().st_size, json.dumps(statistics(footer, ())))


def _remove(path: ColdPath) -> None:
    """Remove a file, if it is there and can be removed."""
    with suppress(OSError, ArchiveError):
        path.unlink(missing_ok=True)


def _groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield rows in groups of bounded size."""
    waiting: list[Any] = []
    for batch in batches:
        table = pa.Table.from_batches([batch])
        waiting.append(pa.table({field.name: table[field.name].cast(field.type) for field in schema}, schema))
        if sum(map(len, waiting)) >= GROUP_ROWS or sum(one.nbytes for one in waiting) >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if sum(map(len, waiting)):
        yield pa.concat_tables(waiting)
