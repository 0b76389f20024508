"""Where the pipeline's work runs: on Spark.

Tasks are functions of a number, and rows are chosen by one query. Everything else of the pipeline reaches Spark through
`ArchiveExecutor` only.
"""

from __future__ import annotations

import re
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wane._archive.delta.failure import raised
from wane._archive.delta.paths import ColdPath, cold_path
from wane._archive.query import staging
from wane._archive.query.evaluation import isolated
from wane._archive.query.second_reader import copied, read_by_spark
from wane._archive.query.staging import Choice, StagedPart
from wane._archive.rows.content import Checks, Shape
from wane._archive.spark.session import is_local, session
from wane._contract.settings import SparkSettings
from wane.errors import SparkError

if TYPE_CHECKING:
    from pyspark.accumulators import AccumulatorParam
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[int, int], None]
"""Called with the number of tasks that are done, and the number of all."""
Work = Callable[["DataFrame", Any], "DataFrame"]
"""Makes a frame of answers, by number, of a frame of numbers, and of what collects answers early, if anything does."""
_POLL_SECONDS = 0.5
ANSWERS = "number long, answer string"
"""The columns of a frame of answers."""
RETRY_SECONDS = 1.0
"""How much longer each attempt of a task waits than the one before: the obstacle may need a while to pass."""


def unseen(done: int, of: int) -> None:
    """Ignore progress."""


class Begun(Protocol):
    """Work that was begun beside other work."""

    def answers(self, progress: Progress = unseen) -> Iterator[str]:
        """Wait for its end; yield the answers of its tasks as they arrive, in any order."""

    def end(self) -> None:
        """End it, unless it has ended: its answers are no longer needed."""


class ArchiveExecutor(Protocol):
    """Runs the pipeline's work."""

    def spark(self) -> SparkSession:
        """Return the session that frames are read with; start it if it does not run, which takes seconds."""

    def run(self, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
        """Run a task for every number below `count`; yield their answers as they arrive, in any order.

        What was answered is yielded before a failure is raised.
        """

    def most_at_a_time(self) -> int:
        """Return how many tasks run at a time; 1 if no work can be begun beside other work."""

    def begin(self, task: Callable[[int], str], count: int) -> Begun:
        """Begin to run a task for every number below `count`, on processors that earlier work leaves idle."""

    def stream(self, work: Work, count: int, progress: Progress = unseen) -> Iterator[str]:
        """Run the same of a frame of answers, which `work` makes of the numbers below `count`, each in its own task."""

    def reread(self, paths: Sequence[str], shape: Shape, *, whole_keys: bool) -> Checks | None:
        """Return the checks of all rows of some files, read by another implementation than the one that wrote them;
        None if it cannot reach them."""

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
        if not count:
            return
        if self._settings.remote is None:
            yield from _OwnTasks(self.spark(), task, count).answers(progress)
        else:
            yield from _RemoteJob(self.spark(), partial(_in_tasks, task), count).answers(progress)

    def most_at_a_time(self) -> int:
        # Over Connect, each job is sent the progress of all.
        return 1 if self._settings.remote is not None else self.spark().sparkContext.defaultParallelism

    def begin(self, task: Callable[[int], str], count: int) -> Begun:
        job = _OwnTasks(self.spark(), task, count)
        job.begin()
        return job

    def stream(self, work: Work, count: int, progress: Progress = unseen) -> Iterator[str]:
        if count:
            kind = _OwnJob if self._settings.remote is None else _RemoteJob
            yield from kind(isolated(self.spark()), work, count).answers(progress)

    def reread(self, paths: Sequence[str], shape: Shape, *, whole_keys: bool) -> Checks | None:
        if all(isinstance(cold_path(path), Path) for path in paths):
            return read_by_spark(self.spark(), paths, shape, whole_keys=whole_keys)
        if self._settings.remote is not None or not is_local(self._settings):
            return None  # What is copied here, the machines where Spark reads do not have.
        spark = self.spark()
        return sum(
            (read_by_spark(spark, here, shape, whole_keys=whole_keys) for here in copied(paths)),
            Checks(),
        )

    def stage(self, parts: Sequence[StagedPart], choice: Choice, folder: ColdPath, piece_rows: int) -> list[int]:
        return staging.stage(self.spark(), parts, choice, folder, piece_rows, self._settings)


default: Callable[[SparkSettings, Callable[[str], None]], ArchiveExecutor] = SparkExecutor
"""Builds the executor of the process. Tests replace it by one that needs no Java."""


class _Job(ABC):
    """One job on Spark. A thread waits for its end, and others ask how far it is."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        self._spark = spark
        self._count = count
        self._name = f"wane-{uuid.uuid4().hex}"
        self._all: list[tuple[int, str]] = []
        self._problem: Exception | None = None
        self._job = threading.Thread(target=self._work, name="wane-spark", daemon=True)

    def begin(self) -> None:
        """Begin it; `answers` begins what was not."""
        self._job.start()

    def answers(self, progress: Progress = unseen) -> Iterator[str]:
        given: set[int] = set()
        done = 0
        if self._job.ident is None:
            self.begin()
        try:
            while self._job.is_alive():
                self._job.join(_POLL_SECONDS)
                done = max(done, self._done())
                progress(done, self._count)
                yield from _new(self._early(), given)
        finally:
            self.end()
        yield from _new(self._all, given)
        if self._problem is None:
            if done < self._count:  # Spark's last report came before the last task's end.
                progress(self._count, self._count)
            return
        answer = raised(str(self._problem))
        if answer is None:
            raise SparkError(
                f"a task failed on Spark: {_cause(self._problem)}",
                "see Spark's log for the task; run it again to resume",
            ) from self._problem
        yield answer

    def end(self) -> None:
        """End it, unless it has ended."""
        if self._job.is_alive():  # The caller no longer waits for the answers.
            with suppress(Exception):
                self._cancel()
            self._job.join()
        self._all = [*self._early(), *self._all]
        self._close()

    def _work(self) -> None:
        try:
            self._collect()
        except Exception as problem:
            self._problem = problem

    def _numbers(self) -> DataFrame:
        """Return the frame of all numbers, with a task for each."""
        return self._spark.range(0, self._count, 1, self._count)

    @abstractmethod
    def _collect(self) -> None:
        """Run the work for every number, and set `_all`."""

    @abstractmethod
    def _early(self) -> list[tuple[int, str]]:
        """Return the answers of tasks that are done while others work."""

    @abstractmethod
    def _done(self) -> int:
        """Count the tasks that are done; 0 if Spark does not answer, which the job's own end reports better."""

    @abstractmethod
    def _cancel(self) -> None:
        """End the job."""

    @abstractmethod
    def _close(self) -> None:
        """Let Spark forget what was made for this job."""


class _OwnSpark(_Job):
    """A job on a Spark that this process runs: an accumulator has the answers of tasks that are done."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        super().__init__(spark, count)
        self._accumulator = spark.sparkContext.accumulator([], _listing())

    def _collect(self) -> None:
        self._spark.sparkContext.setJobGroup(self._name, "wane")
        self._all = self._found()

    @abstractmethod
    def _found(self) -> list[tuple[int, str]]:
        """Run the work for every number; return all answers."""

    def _early(self) -> list[tuple[int, str]]:
        return list(self._accumulator.value)

    def _done(self) -> int:
        with suppress(Exception):
            tracker = self._spark.sparkContext.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            return sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return 0

    def _cancel(self) -> None:
        self._spark.sparkContext.cancelJobGroup(self._name)

    def _close(self) -> None:
        self._accumulator.value = []  # Spark retains every accumulator for good.


class _OwnJob(_OwnSpark):
    """A query on a Spark that this process runs."""

    def __init__(self, spark: SparkSession, work: Work, count: int) -> None:
        super().__init__(spark, count)
        self._work_on = work

    def _found(self) -> list[tuple[int, str]]:
        return [(row.number, row.answer) for row in self._work_on(self._numbers(), self._accumulator).collect()]


class _OwnTasks(_OwnSpark):
    """Tasks on a Spark that this process runs, which has no query to plan, compile and convert rows for."""

    def __init__(self, spark: SparkSession, task: Callable[[int], str], count: int) -> None:
        super().__init__(spark, count)
        self._task = task

    def _found(self) -> list[tuple[int, str]]:
        numbers = self._spark.sparkContext.parallelize(range(self._count), self._count)
        return numbers.mapPartitions(_answering(self._task, self._accumulator)).collect()


class _RemoteJob(_Job):
    """A job over Spark Connect, which has tags instead of job groups, and streams answers in the order of tasks."""

    def __init__(self, spark: SparkSession, work: Work, count: int) -> None:
        super().__init__(spark, count)
        self._work_on = work
        self._completed = 0
        spark.registerProgressHandler(self._report)  # type: ignore[arg-type]

    def _report(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        del inflight_tasks, operation_id, done
        self._completed = max(self._completed, sum(stage.num_completed_tasks for stage in stages or ()))

    def _collect(self) -> None:
        self._spark.addTag(self._name)  # Of this thread, which ends with the job.
        for row in self._work_on(self._numbers(), None).toLocalIterator():
            self._all.append((row.number, row.answer))

    def _early(self) -> list[tuple[int, str]]:
        return list(self._all)

    def _done(self) -> int:
        return min(self._completed, self._count)

    def _cancel(self) -> None:
        self._spark.interruptTag(self._name)

    def _close(self) -> None:
        self._spark.removeProgressHandler(self._report)  # type: ignore[arg-type]


def _in_tasks(task: Callable[[int], str], numbers: DataFrame, early: Any) -> DataFrame:
    answered = _answering(task, early)

    def each(batches: Any) -> Any:
        import pyarrow as pa

        for number, answer in answered(number for batch in batches for number in batch.column(0).to_pylist()):
            yield pa.RecordBatch.from_pydict({"number": [number], "answer": [answer]})

    return numbers.mapInArrow(each, ANSWERS)


def _answering(task: Callable[[int], str], early: Any) -> Callable[[Iterable[int]], Iterator[tuple[int, str]]]:
    """Return what a task of Spark does with its numbers."""

    def each(numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None:
            time.sleep(context.attemptNumber() * RETRY_SECONDS)
        for number in numbers:
            answer = task(number)
            if early is not None:
                early.add([(number, answer)])
            yield number, answer

    return each


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
