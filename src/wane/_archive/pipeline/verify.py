"""Reading back: every file that was written is read again by a task.

What it holds is compared with what was written and with what the database computed. Nothing is committed, and no row
leaves, that was not proven so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.failure import answering, answers
from wane._archive.delta.paths import ColdPath, cold_path, source
from wane._archive.pipeline.projected_copy import read_digests
from wane._archive.rows import content
from wane._archive.rows.content import UNPROVEN_HINT, Checks, Shape
from wane._archive.rows.types import KEY
from wane._archive.spark.executor import ArchiveExecutor, Begun, Progress, unseen
from wane.errors import Unproven

KeySpan = list[int] | None
"""The least and the greatest key of a file, between which each occurs once; None if one occurs twice, or if they are
not known to be numbers."""
KeySpans = Mapping[int, Sequence[KeySpan]]
"""Those of all files of each part."""


@dataclass(frozen=True, slots=True)
class FileJob:
    """A file to be read back."""

    range: int
    part: int
    path: str
    rows: int
    groups: Sequence[str]
    """The digest of each group of rows, as it was when it was written."""
    whole_keys: bool = False
    """Whether the database digested its keys as whole numbers."""
    projected: bool = False
    """Whether Spark made its rows, so that the database's digests are of their keys only."""


@dataclass(frozen=True, slots=True)
class ProofJob:
    """The job description that all tasks of a proof share."""

    shapes: Sequence[Shape]
    files: Sequence[FileJob]
    strict: bool


def files_of(folders: Sequence[ColdPath], manifests: Sequence[Any]) -> list[FileJob]:
    """Return every file of some manifests; a manifest lists what was written of one range, part by part."""
    return [
        FileJob(
            manifest["range"],
            number,
            str(folders[number] / file["path"]),
            file["rows"],
            file["groups"],
            part.get("whole_keys", False),
            "digests" in part,
        )
        for manifest in manifests
        for number, part in enumerate(manifest["parts"])
        for file in part["files"]
    ]


class EarlyReading:
    """Reads back the files of copied ranges while others are still copied."""

    def __init__(self, executor: ArchiveExecutor) -> None:
        self._executor = executor
        self._begun: list[Begun] = []
        self.paths: set[str] = set()
        """The files that it was given."""

    def begin(self, job: ProofJob) -> None:
        """Begin to read the files of a job."""
        if job.files:
            self._begun.append(self._executor.begin(partial(read_back, job), len(job.files)))
            self.paths.update(file.path for file in job.files)

    def answers(self) -> list[dict[str, Any]]:
        """Wait for its end; return what is in the files, or raise what went wrong."""
        return [answer for begun in self._begun for answer in answers(begun.answers())]

    def end(self) -> None:
        """End what is still read."""
        for begun in self._begun:
            begun.end()


def _read_files(
    executor: ArchiveExecutor, job: ProofJob, early: EarlyReading, progress: Progress
) -> list[dict[str, Any]]:
    """Read back every file of a job that is not read early; return what is in all of them."""

    def emit(done: int, _: int) -> None:
        progress(len(early.paths) + done, len(job.files))

    rest = replace(job, files=[file for file in job.files if file.path not in early.paths])
    # First the rest: what was begun early goes on meanwhile.
    read = answers(executor.run(partial(read_back, rest), len(rest.files), emit)) + early.answers()
    found = {answer["path"]: answer for answer in read}
    return [found[file.path] for file in job.files]


def prove(
    executor: ArchiveExecutor,
    job: ProofJob,
    manifests: Sequence[Any],
    names: Sequence[str],
    progress: Progress = unseen,
    early: EarlyReading | None = None,
) -> KeySpans:
    """Raise Unproven unless the files hold exactly what the database requires; return the keys that they hold.

    `early`: what was begun to be read back before.
    """
    found = _read_files(executor, job, early or EarlyReading(executor), progress)
    read: dict[tuple[int, int], Checks] = {}
    spans: dict[int, list[KeySpan]] = defaultdict(list)
    for answer in found:
        spans[answer["part"]].append(answer["keys"])
        copied = answer["range"], answer["part"]
        read[copied] = read.get(copied, Checks()) + Checks(*answer["checks"])
    for manifest in manifests:
        for number, part in enumerate(manifest["parts"]):
            _compare(names[number], Checks(*part["checks"]), read.get((manifest["range"], number), Checks()))
    _prove_projected(executor, job, manifests, names)
    if job.strict:
        _reverify(executor, job, manifests, names)
    return spans


def _prove_projected(executor: ArchiveExecutor, job: ProofJob, manifests: Sequence[Any], names: Sequence[str]) -> None:
    """Raise Unproven unless Spark's own reader reads exactly the rows that Spark made, and nothing else."""
    for number, shape in enumerate(job.shapes):
        paths = [file.path for file in job.files if file.part == number and file.projected]
        if not paths:
            continue
        parts = [manifest["parts"][number] for manifest in manifests]
        made = sum(part["checks"][0] for part in parts), sum(int(part["digests"]) for part in parts)
        folder = cold_path(paths[0]).parent.parent
        if read_digests(executor.spark(), folder, paths, shape) != made:
            raise Unproven(
                f"Spark's read-back of {names[number]} differs from what it wrote",
                UNPROVEN_HINT,
            )


def _reverify(executor: ArchiveExecutor, job: ProofJob, manifests: Sequence[Any], names: Sequence[str]) -> None:
    """Prove the same of what another implementation reads."""
    for number, shape in enumerate(job.shapes):
        files = [file for file in job.files if file.part == number and not file.projected]
        if not files:
            continue
        database = sum((Checks(*manifest["parts"][number]["checks"]) for manifest in manifests), Checks())
        read = executor.reread([file.path for file in files], shape, whole_keys=files[0].whole_keys)
        if read is not None:
            _compare(names[number], database, read)


def _compare(name: str, database: Checks, archive: Checks) -> None:
    if database == archive:
        return
    if database.rows != archive.rows:
        what = f"the database has {database.rows:,} rows of {name} in a range, and {archive.rows:,} were read back"
    elif database.keys != archive.keys:
        what = f"rows of {name} with other keys than the database's were read back"
    else:
        what = f"rows of {name} with another content than the database's were read back"
    raise Unproven(what, UNPROVEN_HINT)


def read_back(job: ProofJob, number: int) -> str:
    """Read one file; return what is in it, as JSON."""
    return answering(lambda: _read_back(job, job.files[number]))


def _read_back(job: ProofJob, file: FileJob) -> dict[str, Any]:
    shape = job.shapes[file.part]
    checks = Checks()
    keys: list[Any] = []
    try:
        with pq.ParquetFile(source(cold_path(file.path)), page_checksum_verification=True) as opened:
            if opened.num_row_groups != len(file.groups):
                raise _damaged(file, "it has other groups of rows than were written")
            for group, written in enumerate(file.groups):
                table = opened.read_row_group(group, use_threads=False)  # Tasks use all processors already.
                if content.content_digest(table) != written:
                    raise _damaged(file, "it does not hold what was written")
                if file.projected:
                    checks += content.check_keys(table, whole_keys=file.whole_keys)
                else:
                    checks += content.check(table, shape, strict=job.strict, whole_keys=file.whole_keys)
                if file.whole_keys:
                    keys.append(content.key_numbers(content.whole(table[KEY])))
    except (OSError, pa.ArrowException) as problem:
        raise _damaged(file, str(problem)) from problem
    return {"path": file.path, "range": file.range, "part": file.part, "checks": checks.numbers(), "keys": _span(keys)}


def _span(keys: Sequence[Any]) -> KeySpan:
    if not keys:
        return None
    found = np.sort(np.concatenate(keys), kind="stable")  # In linear time if they are in order, as most are.
    return None if (found[1:] == found[:-1]).any() else [int(found[0]), int(found[-1])]


def _damaged(file: FileJob, why: str) -> Unproven:
    return Unproven(f"{file.path} cannot be trusted: {why}", "nothing left; the next run copies these rows again")
