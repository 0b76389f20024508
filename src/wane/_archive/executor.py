"""Where the pipeline's work runs: on Spark.

Tasks are functions of a number, and rows are chosen by one query. Everything else of the pipeline reaches Spark through
`ArchiveExecutor` only.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from wane._archive import staging
from wane._archive.content import Checks, Shape
from wane._archive.failure import raised
from wane._archive.paths import ColdPath
from wane._archive.second_reader import read_by_spark
from wane._archive.session import session
from wane._archive.staging import Choice, StagedPart
from wane._contract.settings import SparkSettings
from wane.errors import SparkError

if TYPE_CHECKING:
    from pyspark.accumulators import AccumulatorParam
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
"""Called with the number of tasks that are done, and the number of all."""
_POLL_SECONDS = 0.5
_RETRY_SECONDS = 1.0
"""How much longer each attempt of a task waits than the one before: the obstacle may need a while to pass."""


def unseen(done: int, of: int) -> None:
    """Ignore progress."""


class ArchiveExecutor(Protocol):
    """Runs the pipeline's work."""

    def spark(self) -> SparkSession:
        """Return the session that frames are read with; start it if it does not run, which takes seconds."""

    def run(self, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
        """Run a task for every number below `count`; yield their answers as they arrive, in any order.

        What was answered is yielded before a failure is raised.
        """

    def reread(self, paths: Sequence[str], shape: Shape, *, whole_keys: bool) -> Checks:
        """Return the checks of all rows of some files, read by another implementation than the one that wrote them."""

    def stage(self, parts: Sequence[StagedPart], choice: Choice, folder: ColdPath, piece_rows: int) -> list[int]:
        """Write the archived rows that are chosen to a new folder; return how many rows each piece of them has."""


class SparkExecutor:
    """Runs the pipeline's work on Spark, which retries a task that raises, after a pause."""

    def __init__(self, settings: SparkSettings, starting: Callable[[str], None] = lambda _: None) -> None:
        self._settings = settings
        self._starting = starting

    def spark(self) -> SparkSession:
        return session(self._settings, self._starting)

    def run(self, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
        if count:
            yield from _Job(self.spark(), task, count).answers(progress)

    def reread(self, paths: Sequence[str], shape: Shape, *, whole_keys: bool) -> Checks:
        return read_by_spark(self.spark(), paths, shape, whole_keys=whole_keys)

    def stage(self, parts: Sequence[StagedPart], choice: Choice, folder: ColdPath, piece_rows: int) -> list[int]:
        return staging.stage(self.spark(), parts, choice, folder, piece_rows, self._settings)


default: Callable[[SparkSettings, Callable[[str], None]], ArchiveExecutor] = SparkExecutor
"""Builds the executor of the process. Tests replace it by one that needs no Java."""


class _Job:
    """One job on Spark. A thread waits for its end; an accumulator reports tasks that are done before."""

    def __init__(self, spark: SparkSession, task: Callable[[int], str], count: int) -> None:
        self._spark = spark
        self._task = task
        self._count = count
        self._group = uuid.uuid4().hex
        self._early = spark.sparkContext.accumulator([], _listing())
        self._all: list[tuple[int, str]] = []
        self._problem: Exception | None = None

    def answers(self, progress: Progress) -> Iterator[str]:
        given: set[int] = set()
        job = threading.Thread(target=self._collect, name="wane-spark", daemon=True)
        job.start()
        try:
            done = 0
            while job.is_alive():
                job.join(_POLL_SECONDS)
                done = max(done, self._done())
                progress(done, self._count)
                yield from _new(self._early.value, given)
        finally:
            if job.is_alive():  # The caller no longer waits for the answers.
                with suppress(Exception):
                    self._spark.sparkContext.cancelJobGroup(self._group)
                job.join()
            early, self._early.value = self._early.value, []  # Spark retains every accumulator for good.
        yield from _new([*early, *self._all], given)
        if self._problem is None:
            return
        answer = raised(str(self._problem))
        if answer is None:
            raise SparkError(f"a task failed on Spark: {_cause(self._problem)}") from self._problem
        yield answer

    def _collect(self) -> None:
        task, early = self._task, self._early

        def each(batches: Any) -> Any:
            import time

            import pyarrow as pa
            from pyspark import TaskContext

            context = TaskContext.get()
            if context is not None:
                time.sleep(context.attemptNumber() * _RETRY_SECONDS)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    answer = task(number)
                    early.add([(number, answer)])
                    yield pa.RecordBatch.from_pydict({"number": [number], "answer": [answer]})

        try:
            self._spark.sparkContext.setJobGroup(self._group, "wane")
            numbers = self._spark.range(0, self._count, 1, self._count)
            found = numbers.mapInArrow(each, "number long, answer string").collect()
            self._all = [(row.number, row.answer) for row in found]
        except Exception as problem:
            self._problem = problem

    def _done(self) -> int:
        """Count the tasks that are done; 0 if Spark does not answer, which the job's own end reports better."""
        with suppress(Exception):
            tracker = self._spark.sparkContext.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            return sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return 0


def _listing() -> AccumulatorParam[list[tuple[int, str]]]:
    from pyspark.accumulators import AccumulatorParam

    class Listing(AccumulatorParam[list[tuple[int, str]]]):
        def zero(self, value: list[tuple[int, str]]) -> list[tuple[int, str]]:
            return []

        def addInPlace(self, value1: list[tuple[int, str]], value2: list[tuple[int, str]]) -> list[tuple[int, str]]:  # noqa: N802
            return value1 + value2

    return Listing()


def _new(answers: Sequence[tuple[int, str]], given: set[int]) -> Iterator[str]:
    for number, answer in answers:
        if number not in given:
            given.add(number)
            yield answer


def _cause(problem: Exception) -> str:
    """Return the last line of a task's own traceback, which stands in the middle of Spark's."""
    lines = [line.strip() for line in str(problem).splitlines()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    return named[-1] if named else lines[0] if lines else type(problem).__name__
