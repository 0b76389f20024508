"""The Spark session: one per process, started when it is first needed, quiet, and given nothing secret."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from wane.archive.failure import raised
from wane.archive.java import java_home
from wane.contract.model import SparkSettings
from wane.errors import SparkError

if TYPE_CHECKING:
    from pyspark.accumulators import AccumulatorParam
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
"""Called with the number of tasks that are done, and the number of all."""

_TURN = threading.Lock()
_LOCAL = re.compile(r"local(\[.*\])?")
_QUIET = {
    "spark.app.name": "wane",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    # The older default has no minima and maxima.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A task that runs twice at the same time would write twice.
    "spark.speculation": "false",
    # A corrupted byte is noticed, and not decoded as if it were a value.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}
_LOCAL_ONLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Short jobs: compiling them thoroughly takes longer than running them.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_MOST_LINES = 8
_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 1.0
"""How much longer each attempt of a task waits than the one before: the obstacle may need a while to pass."""
_said: list[IO[bytes]] = []
"""The output of the Java process, which is shown only if it fails."""


def is_local(settings: SparkSettings) -> bool:
    """Check whether tasks run on this machine."""
    return _LOCAL.fullmatch(settings.master) is not None


def session(settings: SparkSettings, starting: Callable[[str], None] = lambda _: None) -> SparkSession:
    """Return the process's session; call `starting` if it has to be started, which takes seconds."""
    with _TURN:
        try:
            from pyspark.sql import SparkSession
        except ImportError as problem:
            raise SparkError("Spark is missing", "install it: pip install 'wane[spark]'") from problem
        # Another thread's session is the process's too; Java knows it as active in that thread only.
        active = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        if active is not None and not active.sparkContext._jsc.sc().isStopped():
            return active
        _require_answer(settings.master)
        starting(settings.master)
        return _start(settings)


def _require_answer(master: str) -> None:
    """Raise SparkError if no master answers; Spark itself takes a minute to notice that."""
    if not master.startswith("spark://"):
        return
    reasons = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
                return
        except (OSError, ValueError, OverflowError) as problem:
            reasons.append(str(problem))
    raise SparkError(f"no Spark answers at {master}: {'; '.join(reasons)}", "check [spark] master, and that it runs")


def _start(settings: SparkSettings) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = java_home()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # On a cluster, the Python that is deployed there: it must have Wane installed.
    os.environ["PYSPARK_PYTHON"] = dict(settings.settings).get("spark.pyspark.python", sys.executable)
    configuration = SparkConf(loadDefaults=False)
    local = is_local(settings)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in {**_QUIET, **(_LOCAL_ONLY if local else {}), **dict(settings.settings)}.items():
        configuration.set(name, value)
    configuration.setMaster(settings.master)
    _hush()
    interrupting = signal.getsignal(signal.SIGINT)
    try:
        if SparkContext._gateway is None:
            said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
            _said.append(said)
            with _uninterrupted():
                gateway = launch_gateway(configuration, {"stderr": said, "stdout": said})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=configuration, gateway=gateway)
        else:
            context = SparkContext(conf=configuration)
        started = SparkSession(context)
    except Exception as problem:
        hint = _last_words() or "check [spark] master and settings"
        raise SparkError(f"Spark does not start at {settings.master}: {_reason(problem)}", hint) from problem
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupting)  # The caller decides what Ctrl-C means, not Spark.
    return started


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C until Java is connected: before that, Java would not notice that we are gone, and run for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda sign, frame: came.append((sign, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and callable(before):
        before(*came[0])


def _hush() -> None:
    """Silence Spark's and py4j's loggers: Wane reports errors itself, in one line.

    Spark's Python side would log every error with all of Java's traceback, and py4j every Ctrl-C that interrupts it.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    root = logging.getLogger()
    if _not_from_the_line not in root.filters:
        root.addFilter(_not_from_the_line)


def _not_from_the_line(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _reason(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    telling = [line for line in lines if "Exception" in line and not line.startswith(("at ", "py4j"))]
    return (telling or lines or [type(problem).__name__])[0].removeprefix(": ")


def _last_words() -> str:
    if not _said:
        return ""
    said = _said[-1]
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    return "\n".join(line for line in lines[-_MOST_LINES:] if not line.lstrip().startswith("at "))


def unseen(done: int, of: int) -> None:
    """Ignore progress."""


def run(spark: SparkSession, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
    """Run a task for every number below `count`, in parallel; yield their answers as they arrive, in any order.

    Spark retries a task that raises, after a pause; what was answered is yielded before a failure is raised.
    """
    if count:
        yield from _Job(spark, task, count).answers(progress)


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
                job.join(_LOOK_SECONDS)
                before, done = done, max(done, self._done())
                if done > before:
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
                time.sleep(context.attemptNumber() * _AGAIN_SECONDS)
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
