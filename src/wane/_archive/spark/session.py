"""The Spark session: one per process, started when it is first needed, quiet, and given nothing secret.

A process that runs for long gives it back: when no work has used it for a while, Java ends (`stopped_when_idle`).
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

from wane._archive.spark import remote_session
from wane._archive.spark.java import java_home
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
    "spark.python.daemon.module": "wane._archive.spark.daemon",
    # A task that runs twice at the same time would write twice.
    "spark.speculation": "false",
    # A corrupted byte is noticed, and not decoded as if it were a value.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}
_LOCAL_ONLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SOCKETS = "spark.python.unix.domain.socket"
"""Java and its Python workers exchange many short messages, which TCP delays by 40 ms for each task."""
_LONGEST_FOLDER = 60
"""Of a socket's path, which must not be longer than about 100 characters, the rest is the name that Spark makes."""
_JAVA = "spark.driver.extraJavaOptions"
_LIVES_LONG = "-XX:+UseSerialGC"
"""Collecting in parallel costs more than it saves in a heap of this size."""
_RUNS_ONCE = f"-XX:TieredStopAtLevel=1 {_LIVES_LONG}"
"""For one short command: compiling thoroughly what runs once takes a start half as much processor time again."""
_LONG_ROWS = 2_000_000
"""Work on as many rows takes so much longer than a start that Java compiles thoroughly: from here on, reading, sorting
and writing rows of ten columns takes no more processor time than with `_RUNS_ONCE`, and less of the clock's."""
_MOST_LINES = 8
_folders: list[str] = []
_output: list[IO[bytes]] = []
"""The output of the Java process, which is shown only if it fails."""


def is_local(settings: SparkSettings) -> bool:
    """Check whether tasks run on this machine."""
    if settings.remote is not None:
        return remote_session.is_loopback(settings.remote)
    return _LOCAL.fullmatch(settings.master) is not None


def session(settings: SparkSettings, starting: Callable[[str], None] = lambda _: None) -> SparkSession:
    """Return the process's session; call `starting` if it has to be started, which takes seconds."""
    with _TURN:
        found = _session(settings, starting)
        _idle.used_at = time.monotonic()
        _idle.lent |= not _blocks.entered
        return found


def _session(settings: SparkSettings, starting: Callable[[str], None]) -> SparkSession:
    try:
        from pyspark.sql import SparkSession
    except ImportError as problem:
        raise SparkError("Spark is missing", "install it: pip install 'wane[spark]'") from problem
    if settings.remote is not None:
        return remote_session.connected(settings, settings.remote, starting)
    if _java_has_ended():
        _forget()
    # Another thread's session is the process's too; Java knows it as active in that thread only.
    active = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if active is not None and not active.sparkContext._jsc.sc().isStopped():
        return active
    remote_session.require_none()
    if settings.master.startswith("spark://"):
        remote_session.require_answer(settings.master, settings.master.removeprefix("spark://").split(","))
    starting(settings.master)
    _idle.own = _start(settings)
    return _idle.own


class _Idle:
    """What decides that the session that this process started is no longer needed. Changed only under `_TURN`."""

    def __init__(self) -> None:
        self.own: SparkSession | None = None
        """The session, if this process started it: one that an application started is not stopped."""
        self.lent = False
        """Whether the session was given to a caller who may have DataFrames of it."""
        self.users = 0
        self.long = 0
        """How much work is under way that takes long."""
        self.used_at = 0.0
        self.timer: threading.Timer | None = None

    def remaining(self, seconds: float) -> float:
        """Return how many of some seconds without use are left."""
        return max(0.0, self.used_at + seconds - time.monotonic())

    def watch(self, seconds: float) -> None:
        """Stop the session when it has been unused for some seconds."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = threading.Timer(self.remaining(seconds), _stop_unused, [seconds])
        self.timer.daemon = True
        self.timer.start()


_idle = _Idle()


class _Blocks(threading.local):
    entered = 0
    """How many `stopped_when_idle` the thread is in."""


_blocks = _Blocks()


@contextmanager
def stopped_when_idle(after: timedelta) -> Iterator[None]:
    """Stop the process's session some time after the last of these blocks in which it was used.

    Not for work that returns DataFrames: they are of no use without their session. One that was also used outside of
    such blocks, by an application in the same process, is not stopped.
    """
    with _TURN:
        _idle.users += 1
        _blocks.entered += 1
        entered_at = time.monotonic()
    try:
        yield
    finally:
        with _TURN:
            _idle.users -= 1
            _blocks.entered -= 1
            if _idle.used_at >= entered_at:
                _idle.used_at = time.monotonic()
            if _idle.own is not None and not _idle.users:
                _idle.watch(after.total_seconds())


@contextmanager
def long_work(rows: int | None = None) -> Iterator[None]:
    """Let a Spark that is started in this block compile as for long work: of many rows, or of any number if None.

    For rows that Java itself reads. Where it only hands out tasks that read them in Python, as when files are verified
    or expire, compiling thoroughly costs more than it saves, however many rows there are.
    """
    if rows is not None and rows < _LONG_ROWS:
        yield
        return
    with _TURN:
        _idle.long += 1
    try:
        yield
    finally:
        with _TURN:
            _idle.long -= 1


def _stop_unused(seconds: float) -> None:
    with _TURN:
        if _idle.users or _idle.lent:
            return  # The end of their work decides, or the end of the process.
        if _idle.remaining(seconds):
            _idle.watch(seconds)
        else:
            _stop()


def _stop() -> None:
    """Stop the session that this process started, with its Java; the next one that is needed is started anew."""
    from pyspark import SparkContext

    own = _idle.own
    if own is None or SparkContext._gateway is None:
        return
    with suppress(Exception):  # Java may have ended already.
        own.stop()
    _forget()


def _java_has_ended() -> bool:
    """Check whether the Java of this process's session was ended by others, as when memory ran out."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget() -> None:
    """End Java, and let the next session have one of its own, whatever PySpark still holds of this one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    _idle.own = SparkSession._instantiatedSession = None
    _idle.lent = False
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    if gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # Which ends it.
        process.wait()


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
    for name, value in {**_QUIET, **(_local_only() if local else {}), **dict(settings.settings)}.items():
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


def _local_only() -> dict[str, str]:
    """Return the settings of a Spark on this machine: its Java lives long in a daemon, and for long work."""
    java = _LIVES_LONG if _idle.users or _idle.long else _RUNS_ONCE
    return {**_LOCAL_ONLY, **_sockets(), _JAVA: java}


def _sockets() -> dict[str, str]:
    """Return the settings of sockets in a folder that only this user can enter, because they ask for no password."""
    folder = _socket_folder()
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": folder} if len(folder) <= _LONGEST_FOLDER else {}


def _socket_folder() -> str:
    """Return the folder of this process's sockets, which is removed when the process ends; a new one if a program that
    removes what is old has removed it."""
    if not _folders or not _is_own(_folders[-1]):
        folder = tempfile.mkdtemp(prefix="wane-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _folders.append(folder)
    return _folders[-1]


def _is_own(folder: str) -> bool:
    with suppress(OSError):
        return Path(folder).stat().st_uid == os.getuid()
    return False


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer what Ctrl-C raises until Java is connected: before that, Java would not notice that we are gone, and run
    for ever."""
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
