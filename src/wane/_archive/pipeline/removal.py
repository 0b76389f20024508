"""Removing copies of rows from the archive: stale ones, those of rows that are back in the hot table, and sweeps that
were abandoned.

Every file that holds one of them is replaced, in one commit, by a file with its other rows, in their order. A task
for each file reads it, one row group at a time, and another one reads back what it wrote before that counts. Files that
cannot hold a copy are not read: the log has the sweeps of each file, and its footer the least and greatest key.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.comparison import groups, shape_of
from wane._archive.delta.failure import answering
from wane._archive.delta.files import ColdFile, NewFile, listing
from wane._archive.delta.paths import ColdPath, cold_path
from wane._archive.pipeline.rewritten_file import rewritten_files, write_rest
from wane._archive.query.skipping import footer_edges
from wane._archive.rows.content import Shape
from wane._archive.rows.types import KEY, MONTH, PARENT, SWEEP, VERSION
from wane._archive.spark.executor import ArchiveExecutor
from wane._leases import Lease

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_ATTEMPTS = 5
_AT_ONCE = 1_000_000
_BETWEEN = "\x1f"
"""Stands in no key: a key is JSON, which escapes it."""


@dataclass(frozen=True, slots=True, eq=False)
class GoneCopies:
    """Which copies leave a table: of all rows of some sweeps, or of those that these columns name."""

    sweeps: frozenset[int]
    columns: tuple[str, ...] = (SWEEP,)
    names: Any = None
    """What the columns of each copy have, as an Arrow array of one text each; None for all copies of the sweeps."""
    keys: Any = None
    """The keys in these texts."""

    @classmethod
    def of_sweep(cls, sweep: int) -> GoneCopies:
        """Return all copies of a sweep."""
        return cls(frozenset([sweep]))

    @classmethod
    def stale(cls, sweep: int, copies: Sequence[tuple[str, str]], *, follows: bool) -> GoneCopies:
        """Return copies of a sweep by their keys and versions, or what followed them."""
        return cls.exactly([(sweep, key, version) for key, version in copies], follows=follows)

    @classmethod
    def exactly(cls, copies: Sequence[tuple[int, str, str]], *, follows: bool) -> GoneCopies:
        """Return copies by their sweeps, keys and versions, or what followed them.

        What followed a row is named by the row's key, which no other copy of a proven sweep has.
        """
        if follows:
            return cls.restored([(sweep, key) for sweep, key, _ in copies], follows=True)
        return cls._named(copies, (SWEEP, KEY, VERSION))

    @classmethod
    def restored(cls, copies: Sequence[tuple[int, str]], *, follows: bool) -> GoneCopies:
        """Return copies by their sweeps and keys, or what followed them, so that no later copy of the same row goes."""
        return cls._named(copies, (SWEEP, PARENT if follows else KEY))

    @classmethod
    def _named(cls, copies: Sequence[tuple[Any, ...]], columns: tuple[str, ...]) -> GoneCopies:
        names = pa.array([_BETWEEN.join(map(str, copy)) for copy in copies], pa.string())
        keys = pa.array([copy[1] for copy in copies], pa.string())
        return cls(frozenset(copy[0] for copy in copies), columns, names, keys)

    @classmethod
    def merged(cls, parts: Sequence[GoneCopies]) -> GoneCopies:
        """Return the copies of all parts, which name them by the same columns."""
        names, keys = (pa.concat_arrays([getattr(one, field) for one in parts]) for field in ("names", "keys"))
        return cls(frozenset().union(*(one.sweeps for one in parts)), parts[0].columns, names, keys)

    def in_parts(self, most: int) -> Iterator[GoneCopies]:
        """Divide what names copies into parts of at most so many: every task gets all of a part."""
        if self.names is None:
            yield self
            return
        for first in range(0, len(self.names), most):
            yield replace(self, names=self.names.slice(first, most), keys=self.keys.slice(first, most))

    def mask(self, table: pa.Table) -> Any:
        """Decide which rows go."""
        if self.names is None:
            return pc.is_in(table[SWEEP].cast(pa.string()), pa.array(sorted(map(str, self.sweeps)), pa.string()))
        return pc.is_in(self.written(table), self.names)

    def written(self, table: pa.Table) -> Any:
        """Write what the columns of each row have as one text, as `names` has it."""
        return pc.binary_join_element_wise(*(table[name].cast(pa.string()) for name in self.columns), _BETWEEN)


def copy_name(sweep: int, key: str, version: str) -> str:
    """Write the name of a copy, by its sweep, key and version."""
    return _BETWEEN.join((str(sweep), key, version))


@dataclass(frozen=True, slots=True)
class RemovalJob:
    """The job description that all tasks share which remove copies from one table."""

    folder: str
    shape: Shape
    files: Sequence[ColdFile]
    """The file of each task."""
    gone: GoneCopies
    statistics: Sequence[str]
    """Text columns whose minima and maxima are written to the archive's log."""


def remove_copies(
    executor: ArchiveExecutor,
    cold: ColdTable,
    gone: GoneCopies,
    leases: Sequence[Lease],
    *,
    why: str,
    texts: Sequence[str] = (),
) -> None:
    """Remove copies, at most a million of them in one commit. Idempotent.

    `texts`: text columns whose minima and maxima are written to the archive's log.
    """
    for some in gone.in_parts(_AT_ONCE):
        _remove(executor, cold, some, leases, why, texts)


def _remove(
    executor: ArchiveExecutor,
    cold: ColdTable,
    gone: GoneCopies,
    leases: Sequence[Lease],
    why: str,
    texts: Sequence[str],
) -> None:
    from deltalake.exceptions import CommitFailedError

    for attempt in range(_ATTEMPTS):
        table = cold.fresh()
        if table is None or not set(gone.columns) <= {field.name for field in table.schema().fields}:
            return  # Nothing of it ever left, or ever left with another row.
        cold.require_fences(table, leases)
        actions = _actions(changed_files(executor, cold, table, gone, texts))
        if not actions:
            return
        try:
            cold.write(table, actions, leases, {}, removed=why)
            return
        except CommitFailedError:
            # Another process committed to the same files; the next attempt reads the table anew.
            if attempt + 1 == _ATTEMPTS:
                raise


def _actions(changed: Sequence[tuple[ColdFile, NewFile | None]]) -> list[AddAction | RemoveAction]:
    from deltalake.transaction import AddAction, RemoveAction

    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = []
    for file, rest in changed:
        actions.append(
            RemoveAction(
                file.path,
                data_change=True,
                deletion_timestamp=now,
                size=file.bytes,
                partition_values={MONTH: file.month},
            )
        )
        if rest is not None:
            actions.append(
                AddAction(rest.path, rest.bytes, {MONTH: rest.month}, now, data_change=True, stats=rest.statistics)
            )
    return actions


def changed_files(
    executor: ArchiveExecutor,
    cold: ColdTable,
    table: DeltaTable,
    gone: GoneCopies,
    texts: Sequence[str],
    month: str | None = None,
) -> list[tuple[ColdFile, NewFile | None]]:
    """Write every file anew that holds some of these copies, without them; return both, and None if nothing is left.

    Raise Unproven if what was written does not hold the rest.
    """
    files = [file for file in _candidates(cold, table, gone) if month in (None, file.month)]
    job = RemovalJob(str(cold.folder), shape_of(table), files, replace(gone, keys=None), texts)
    made = rewritten_files(executor, partial(_task, job), len(files), job.folder, job.shape)
    known = {file.path: file for file in files}
    return [(known[one.path], one.rest) for one in made if one.gone]


def find_copies(cold: ColdTable, table: DeltaTable, gone: GoneCopies) -> dict[str, str]:
    """Return those of some copies that are part of the table, as `GoneCopies.names` has them, each with its month."""
    shape = [one for one in shape_of(table) if one[0] in gone.columns]
    return {
        name: file.month
        for file in _candidates(cold, table, gone)
        for group in groups(cold.folder / file.path, shape)
        for name in gone.written(group.filter(gone.mask(group))).to_pylist()
    }


def _candidates(cold: ColdTable, table: DeltaTable, gone: GoneCopies) -> Iterator[ColdFile]:
    """Yield the files that can hold one of these copies."""
    sweeps = sorted(gone.sweeps)
    for file in listing(table):
        if file.has_any(sweeps) and _may_have(cold.folder / file.path, gone):
            yield file


def _may_have(path: ColdPath, gone: GoneCopies) -> bool:
    """Check whether a file can hold a copy with one of some keys, by the least and greatest in its footer."""
    if gone.names is None:
        return True
    edges = footer_edges(path, gone.columns[1:2]).get(gone.columns[1])
    if edges is None:
        return True
    within = pc.and_(pc.greater_equal(gone.keys, edges[0]), pc.less_equal(gone.keys, edges[1]))
    return bool(pc.any(within).as_py())


def _task(job: RemovalJob, number: int) -> str:
    return answering(lambda: {"files": [_without(job, job.files[number])]}, job.folder)


def _without(job: RemovalJob, file: ColdFile) -> dict[str, Any]:
    folder = cold_path(job.folder)
    named = [one for one in job.shape if one[0] in job.gone.columns]
    masks = [job.gone.mask(table) for table in groups(folder / file.path, named)]
    new = f"{MONTH}={file.month}/part-{uuid.uuid4().hex}.parquet"
    return write_rest(folder, file.path, new, masks, job.shape, job.statistics)
