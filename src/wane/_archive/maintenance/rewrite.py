"""Removing rows from files of the archive: the work of one Spark task.

It reads a file, leaves out what is due, and writes the rest to a new one. A row is due if its own time, as the rule
that archived it reads it, lies before the cutoff; what left with it goes with it. A row whose time cannot be read stays
until its whole month is due. A held row never goes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wane._archive.delta.comparison import checks, groups
from wane._archive.delta.failure import answering, answers
from wane._archive.delta.files import NewFile
from wane._archive.delta.paths import cold_path, source, sync_file, sync_folder
from wane._archive.rows import content
from wane._archive.rows.content import Checks, Shape
from wane._archive.rows.statistics import statistics
from wane._archive.rows.types import KEY, MONTH, PARENT, SWEEP
from wane._archive.spark.executor import ArchiveExecutor
from wane._contract.model import Time
from wane._db.timestamps import month_of, read_time
from wane.errors import Unproven


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

    def own(self, table: pa.Table) -> list[bool]:
        """Decide which rows of the table itself go."""
        sweeps, keys = table[SWEEP].to_pylist(), table[KEY].to_pylist()
        mine = [sweep in self.times and key not in self.held for sweep, key in zip(sweeps, keys, strict=True)]
        return mine if self.whole else [one and self._before(table, row) for row, one in enumerate(mine)]

    def _before(self, table: pa.Table, row: int) -> bool:
        time = self.times[table[SWEEP][row].as_py()]
        if time is None or time.column not in table.column_names:
            return False
        timestamp = read_time(table[time.column][row].as_py(), time)
        if timestamp is None or timestamp >= self.cutoff:
            return False
        # A rule that used another column when it archived the row put it into another month.
        return month_of(timestamp, time) == self.month

    def columns(self, shape: Shape) -> list[Sequence[str]]:
        """Return the columns of a table that the decision needs."""
        wanted = {KEY, SWEEP, *(time.column for time in self.times.values() if time is not None)}
        return [one for one in shape if one[0] in wanted]


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """The job description that all tasks share which remove rows from one table."""

    name: str
    """The prefix of the new files' names."""
    folder: str
    shape: Shape
    files: Sequence[str]
    due: ExpiredRows
    parents: tuple[str, Sequence[str], Shape] | None
    """The rows that these left with: a folder, its files of that month, and its columns. None for the table itself."""
    statistics: Sequence[str] = ()
    """Text columns whose minima and maxima are written to the archive's log."""


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """What became of one file."""

    path: str
    gone: int
    rest: NewFile | None
    """What is left of it; None if nothing is, or all of it."""


def rewrite(executor: ArchiveExecutor, job: RewriteJob) -> list[RewrittenFile]:
    """Remove what is due from files, and prove that the new files hold the rest; raise Unproven if they do not."""
    answered = answers(executor.run(partial(_task, job), len(job.files)))
    made = [RewrittenFile(one["path"], one["gone"], one["rest"] and NewFile(**one["rest"])) for one in answered]
    left = sum((Checks(*one["checks"]) for one in answered if one["rest"]), Checks())
    written = [one.rest.path for one in made if one.rest is not None]
    if checks(executor, cold_path(job.folder), written, job.shape) != left:
        raise Unproven(
            f"the files that {job.name} wrote do not hold what was left", "nothing was changed; run it again"
        )
    return made


def count(executor: ArchiveExecutor, job: RewriteJob) -> list[RewrittenFile]:
    """Count what is due in files, without writing anything."""
    answered = answers(executor.run(partial(_counting, job), len(job.files)))
    return [RewrittenFile(one["path"], one["gone"], None) for one in answered]


def _task(job: RewriteJob, number: int) -> str:
    return answering(lambda: _rewrite(job, job.files[number]), job.folder)


def _counting(job: RewriteJob, number: int) -> str:
    return answering(lambda: {"path": job.files[number], "gone": sum(map(sum, _masks(job, job.files[number])))})


def _masks(job: RewriteJob, path: str) -> list[list[bool]]:
    """Decide which rows of a file go, group by group."""
    file = cold_path(job.folder) / path
    if job.parents is None:
        return [job.due.own(table) for table in groups(file, job.due.columns(job.shape))]
    links = [one for one in job.shape if one[0] in (SWEEP, PARENT)]
    read = [(table[SWEEP].to_pylist(), table[PARENT].to_pylist()) for table in groups(file, links)]
    if job.due.whole:
        leaving = None
    else:
        wanted = {pair for sweeps, parents in read for pair in zip(sweeps, parents, strict=True)}
        leaving = _leaving(job, wanted)
    return [
        [
            sweep in job.due.times and parent not in job.due.held and (leaving is None or (sweep, parent) in leaving)
            for sweep, parent in zip(sweeps, parents, strict=True)
        ]
        for sweeps, parents in read
    ]


def _leaving(job: RewriteJob, wanted: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return which of some rows go, whose followers a file has."""
    assert job.parents is not None
    folder, paths, shape = job.parents
    found: set[tuple[int, str]] = set()
    for path in paths:
        for table in groups(cold_path(folder) / path, job.due.columns(shape)):
            pairs = zip(table[SWEEP].to_pylist(), table[KEY].to_pylist(), job.due.own(table), strict=True)
            found.update((sweep, key) for sweep, key, goes in pairs if goes and (sweep, key) in wanted)
    return found


def _rewrite(job: RewriteJob, path: str) -> dict[str, Any]:
    masks = _masks(job, path)
    gone = sum(map(sum, masks))
    answer: dict[str, Any] = {"path": path, "gone": gone, "rest": None, "checks": Checks().numbers()}
    if gone in (0, sum(map(len, masks))):
        return answer
    new = f"{MONTH}={job.due.month}/{job.name}-{uuid.uuid4().hex[:12]}.parquet"
    written = cold_path(job.folder) / new
    schema = pa.schema([(name, content.arrow_type(kind)) for name, kind in job.shape])
    left = Checks()
    with written.open("xb") as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
            for table, mask in zip(groups(cold_path(job.folder) / path, job.shape), masks, strict=True):
                rest = table.filter(pc.invert(pa.array(mask, pa.bool_()))).combine_chunks()
                if len(rest):
                    left += content.check(rest, job.shape, strict=True)
                    writer.write_table(rest, row_group_size=len(rest))
        sync_file(written, sink)
    sync_folder(written.parent)
    footer = pq.read_metadata(source(written))
    rest_file = {
        "path": new,
        "month": job.due.month,
        "rows": footer.num_rows,
        "bytes": written.stat().st_size,
        "statistics": json.dumps(statistics(footer, job.statistics)),
    }
    return {**answer, "rest": rest_file, "checks": left.numbers()}
