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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, TYPE_CHECKING

from wane._archive.java import java_home
from wane._contract.settings import SparkSettings
from wane.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
_ANSWER_SECONDS = 5.0
_output: list[IO[bytes]] = []
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
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
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
            output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
            _output.append(output)
            with _uninterrupted():
                gateway = launch_gateway(configuration, {"stderr": output, "stdout": output})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=configuration, gateway=gateway)
        else:
            context = SparkContext(conf=configuration)
        started = SparkSession(context)
    except Exception as problem:
        hint = _last_lines() or "check [spark] master and settings"
        raise SparkError(f"Spark does not start at {settings.master}: {_reason(problem)}", hint) from problem
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupting)  # The caller decides what Ctrl-C means, not Spark.
    return started


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer what Ctrl-C raises until Java is connected: before that, Java would not notice that we are gone, and run for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[BaseException] = []

    def interrupt(sign: int, frame: FrameType | None) -> None:
        try:
            if callable(before):
                before(sign, frame)
        except BaseException as problem:
            raised.append(problem)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if raised:
        raise raised[0]


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
    causes = [line for line in lines if "Exception" in line and not line.startswith(("at ", "py4j"))]
    return (causes or lines or [type(problem).__name__])[0].removeprefix(": ")


def _last_lines() -> str:
    if not _output:
        return ""
    output = _output[-1]
    output.seek(0)
    lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return "\n".join(line for line in lines[-_MOST_LINES:] if not line.lstrip().startswith("at "))
