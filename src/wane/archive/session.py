"""The Spark session: one per process, started when it is first needed, quiet, and told nothing secret."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from wane.archive.java import java_home
from wane.contract.model import SparkSettings
from wane.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
"""Told how many tasks are done, and of how many."""

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
    # A task that is run twice at a time would write twice.
    "spark.speculation": "false",
    # A byte that the disk changed is noticed, and not decoded as if it were a value.
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
_said: list[IO[bytes]] = []
"""Where the Java process says what nobody needs to read, unless it fails."""


def is_local(settings: SparkSettings) -> bool:
    """Whether tasks run on this machine."""
    return _LOCAL.fullmatch(settings.master) is not None


def session(settings: SparkSettings, starting: Callable[[str], None] = lambda _: None) -> SparkSession:
    """The process's session; `starting` is told if it has to be started, which takes seconds."""
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
    """Spark itself takes a minute to notice that nobody is there."""
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
    # On a cluster, a Python that is shipped there: it must have Wane in it.
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
            signal.signal(signal.SIGINT, interrupting)  # Whoever runs this decides what Ctrl-C means, not Spark.
    return started


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until Java and we know each other: before that, Java would not notice that we are gone, and stay for ever."""
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
    """What goes wrong is told by us, in one line: Spark's Python side would log every error with all of Java's traceback, and the
    line to Java every Ctrl-C that cuts it."""
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
    """Progress that nobody looks at."""


def run(spark: SparkSession, task: Callable[[int], str], count: int, progress: Progress = unseen) -> list[str]:
    """Run a task for every number below `count`, each on its own, wherever there is room; return what they answer, in any order."""
    if not count:
        return []

    def each(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"answer": [task(number)]})

    try:
        with _watched(spark, count, progress):
            answers = spark.range(0, count, 1, count).mapInArrow(each, "answer string").collect()
    except Exception as problem:
        raise SparkError(f"a task failed on Spark: {_cause(problem)}") from problem
    return [row.answer for row in answers]


@contextmanager
def _watched(spark: SparkSession, count: int, progress: Progress) -> Iterator[None]:
    """Tell now and then how many tasks of this thread's next job are done."""
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "wane")
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def watch() -> None:
        told = 0
        while not over.wait(_LOOK_SECONDS):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            if done > told:
                progress(done, count)
                told = done

    watching = threading.Thread(target=watch, name="wane-progress", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _cause(problem: Exception) -> str:
    """The last line of a task's own traceback, which stands somewhere in the middle of Spark's."""
    lines = [line.strip() for line in str(problem).splitlines()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    return named[-1] if named else lines[0] if lines else type(problem).__name__
