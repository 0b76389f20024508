"""Removing rows from files of the archive: the work of one Spark task.

It reads a file, leaves out what is due, and writes the rest to a new one. A row is due if its own time, as the rule
that archived it reads it, lies before the cutoff; what left with it goes with it. A row whose time cannot be read stays
until its whole month is due. A held row never goes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.delta.comparison import groups
from wane._archive.delta.failure import answering
from wane._archive.delta.files import ColdFile
from wane._archive.delta.paths import cold_path
from wane._archive.pipeline.rewritten_file import (
    RewrittenFile,
    answered_files,
    count_rows,
    rewritten_files,
    write_rest,
)
from wane._archive.rows import content
from wane._archive.rows.content import Shape
from wane._archive.rows.times import before
from wane._archive.rows.types import KEY, MONTH, PARENT, SWEEP
from wane._archive.spark.executor import ArchiveExecutor
from wane._contract.model import Time

_ROWS_AT_ONCE = 2_000_000
"""A task holds the keys of so many rows in memory that left with others: the others are read once for all of them."""


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Which rows of one month go."""

    cutoff: datetime
    month: str
    whole: bool
    """Whether the whole month lies before the cutoff."""
    times: dict[int, Time | None]
    """The sweeps of the table, each with the time column of its rule; None if that is no longer known."""
    held: frozenset[str]
    """Keys of rows that stay."""

    def own(self, table: pa.Table) -> Any:
        """Decide which rows of the table itself go."""
        mine = self.of_sweeps(table, KEY)
        return mine if self.whole else pc.and_(mine, self._before(table))

    def of_sweeps(self, table: pa.Table, named: str) -> Any:
        """Decide which rows are of the table's sweeps and not held; `named` is the column with the keys of its rows."""
        known = pc.is_in(table[SWEEP], pa.array(self.times, pa.int64()))
        return pc.and_not(known, pc.is_in(table[named], pa.array(self.held, pa.string())))

    def _before(self, table: pa.Table) -> Any:
        """Decide which rows lie before the cutoff.

        A rule that used another column when it archived a row put it into another month: such a row stays.
        """
        due = pa.repeat(pa.scalar(value=False), len(table))
        for time, sweeps in self._by_time().items():
            if time.column in table.column_names:
                of_time = pc.is_in(table[SWEEP], pa.array(sweeps, pa.int64()))
                due = pc.or_(due, pc.and_(of_time, before(table[time.column], time, self.cutoff, self.month)))
        return due

    def _by_time(self) -> dict[Time, list[int]]:
        found: dict[Time, list[int]] = {}
        for sweep, time in self.times.items():
            if time is not None:
                found.setdefault(time, []).append(sweep)
        return found

    def columns(self, shape: Shape) -> list[Sequence[str]]:
        """Return the columns of a table that the decision needs."""
        wanted = {KEY, SWEEP, *(time.column for time in self.times.values() if time is not None)}
        return [one for one in shape if one[0] in wanted]


@dataclass(frozen=True, slots=True)
class ParentRows:
    """The rows that others left with: a folder, its files of the month, and its columns."""

    folder: str
    files: Sequence[str]
    shape: Shape


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """The job description that all tasks share which remove rows from one table."""

    name: str
    """The prefix of the new files' names."""
    folder: str
    shape: Shape
    tasks: Sequence[Sequence[str]]
    """The files of each task."""
    due: ExpiredRows
    parents: ParentRows | None
    """The rows that these left with; None for the table itself."""
    statistics: Sequence[str] = ()
    """Text columns whose minima and maxima are written to the archive's log."""


def rewrite(executor: ArchiveExecutor, job: RewriteJob) -> list[RewrittenFile]:
    """Remove what is due from files, and prove that the new files hold the rest; raise Unproven if they do not."""
    return rewritten_files(executor, partial(_task, job), len(job.tasks), job.folder, job.shape)


def count(executor: ArchiveExecutor, job: RewriteJob) -> list[RewrittenFile]:
    """Count what is due in files, without writing anything."""
    answered = answered_files(executor, partial(_counting, job), len(job.tasks))
    return [RewrittenFile(one["path"], one["gone"], None) for one in answered]


def share_out(files: Sequence[ColdFile], *, one_each: bool) -> list[list[str]]:
    """Return the files of each task: one of them, or, if not `one_each`, as many as one reading of others may serve."""
    tasks: list[list[str]] = []
    rows = 0
    for file in files:
        if one_each or not tasks or rows + file.rows > _ROWS_AT_ONCE:
            tasks.append([])
            rows = 0
        tasks[-1].append(file.path)
        rows += file.rows
    return tasks


def _task(job: RewriteJob, number: int) -> str:
    return answering(lambda: {"files": [_rewrite(job, *one) for one in _masks(job, number)]}, job.folder)


def _counting(job: RewriteJob, number: int) -> str:
    return answering(
        lambda: {"files": [{"path": path, "gone": count_rows(each)} for path, each in _masks(job, number)]}
    )


def _masks(job: RewriteJob, number: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield each file of a task, and which rows of it go, group by group."""
    folder, paths = cold_path(job.folder), job.tasks[number]
    if job.parents is None:
        for path in paths:
            yield path, [job.due.own(table) for table in groups(folder / path, job.due.columns(job.shape))]
        return
    links = [one for one in job.shape if one[0] in (SWEEP, PARENT)]
    read = [(path, list(groups(folder / path, links))) for path in paths]
    leaving = None if job.due.whole else _leaving(job.due, job.parents, [one for _, each in read for one in each])
    for path, tables in read:
        yield path, [_following(job.due, table, leaving) for table in tables]


def _following(due: ExpiredRows, table: pa.Table, leaving: Any) -> Any:
    mine = due.of_sweeps(table, PARENT)
    return mine if leaving is None else pc.and_(mine, pc.is_in(_named(table, PARENT), leaving))


def _leaving(due: ExpiredRows, parents: ParentRows, tables: Sequence[pa.Table]) -> Any:
    """Return which of the rows go that others left with, reading them once."""
    wanted = pc.unique(pa.chunked_array([_named(table, PARENT) for table in tables], pa.string()))
    found = []
    for path in parents.files:
        for table in groups(cold_path(parents.folder) / path, due.columns(parents.shape)):
            names = _named(table.filter(due.own(table)), KEY)
            found.append(names.filter(pc.is_in(names, wanted)))
    return pa.chunked_array(found, pa.string())


def _named(table: pa.Table, key: str) -> Any:
    """Write the sweep and a key of each row as one text: a key is JSON, so no two of them share one."""
    return content.whole(pc.binary_join_element_wise(table[SWEEP].cast(pa.string()), table[key], " "))


def _rewrite(job: RewriteJob, path: str, masks: Sequence[Any]) -> dict[str, Any]:
    new = f"{MONTH}={job.due.month}/{job.name}-{uuid.uuid4().hex[:12]}.parquet"
    return write_rest(cold_path(job.folder), path, new, masks, job.shape, job.statistics)
