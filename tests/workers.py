"""Running tests in several processes: forks of one that has collected them, so collection is paid once and a worker
costs nothing.

Invariant: every test that was collected is reported, also when the worker that ran it dies. A worker that died fails
its test and is replaced by another fork.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

AT_ONCE = 2
"""How many tests a worker has: the one that it runs, and the next one, whose fixtures may be those of the first."""
LONGEST_SERIES = 20
STOP_SECONDS = 30.0
"""How long workers may take to end a test that is interrupted."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in as many processes as `--numprocesses` says, or in this one without it."""
    count: int = session.config.getoption("numprocesses")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    Loop(session).run(min(count, len(session.items)))
    return True


@dataclass
class Series:
    """Tests that one worker runs in this order."""

    tests: deque[int]
    divisible: bool = True
    """Whether another worker may take a part of it."""


@dataclass
class Worker:
    """A process that runs tests, as the process that collected them knows it."""

    process: int
    pipe: Connection
    assigned: deque[int]
    series: Series
    """What it runs after the assigned ones."""
    last: bool = False
    """Whether it ends after the assigned ones."""


class Loop:
    """Hands out tests and reports what becomes of them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        self._tests = Tests(session.items, session.config.getoption("numprocesses"))
        self._workers: dict[Connection, Worker] = {}

    def run(self, count: int) -> None:
        reporter: Any = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # The files of several workers alternate.
        # Made before the forks, so that they share it.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for _ in range(count):
                self._start()
            while self._workers:
                for pipe in wait(list(self._workers)):
                    assert isinstance(pipe, Connection)
                    self._listen(self._workers[pipe])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            self._stop()

    def _start(self) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python 3.12 warns of threads: those here belong to allocators of libraries, and only wait.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process == 0:
            for pipe in (ours, *self._workers):
                pipe.close()
            work(self._session, theirs)
        theirs.close()
        worker = Worker(process, ours, deque(), Series(deque()))
        self._workers[ours] = worker
        self._assign(worker)

    def _stop(self) -> None:
        """End the workers of a run that ends early, in order as far as they let it."""
        for worker in self._workers.values():
            worker.pipe.close()
            os.kill(worker.process, signal.SIGINT)
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers.values():
            while os.waitpid(worker.process, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(worker.process, signal.SIGKILL)
                time.sleep(0.01)

    def _assign(self, worker: Worker) -> None:
        while len(worker.assigned) < AT_ONCE and not worker.last:
            if not worker.series.tests:
                worker.series = self._tests.take() or self._part_of_others()
            if worker.series.tests:
                worker.assigned.append(worker.series.tests.popleft())
            else:
                worker.last = True
            send(worker, None if worker.last else worker.assigned[-1])

    def _part_of_others(self) -> Series:
        """Return half of what the worker with most to do has before it, or an empty series."""
        others = [worker.series.tests for worker in self._workers.values() if worker.series.divisible]
        most = max(others, key=len, default=deque[int]())
        return Series(deque(reversed([most.pop() for _ in range((len(most) + 1) // 2)])))

    def _listen(self, worker: Worker) -> None:
        kind, stated = receive(worker)
        if kind == "ended":
            self._bury(worker)
        elif kind == "report":
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=stated)
            self._hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            self._hook.pytest_warning_recorded.call_historic(kwargs=stated)
        else:
            item = self._session.items[worker.assigned.popleft()]
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            self._assign(worker)

    def _bury(self, worker: Worker) -> None:
        """Report what became of the tests of a worker that has ended, and replace it if it has not done what it had
        to."""
        _, status = os.waitpid(worker.process, 0)
        worker.pipe.close()
        del self._workers[worker.pipe]
        if not worker.assigned:
            return
        item = self._session.items[worker.assigned.popleft()]
        died = f"the worker that ran this test ended: exit code {os.waitstatus_to_exitcode(status)}"
        self._hook.pytest_runtest_logreport(
            report=pytest.TestReport(item.nodeid, item.location, {}, "failed", died, "call")
        )
        self._tests.give_back(Series(worker.assigned + worker.series.tests, worker.series.divisible))
        self._start()


def receive(worker: Worker) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        return "ended", None
    return message


def send(worker: Worker, test: int | None) -> None:
    with contextlib.suppress(OSError):  # It has died: the next that is read from it is its end.
        worker.pipe.send(test)


class Tests:
    """The series that no worker has: those of the mark `group`, which are never divided, and parts of files, whose
    tests share fixtures."""

    def __init__(self, items: Sequence[pytest.Item], workers: int) -> None:
        groups: dict[str, list[int]] = {}
        slow: list[int] = []
        files: dict[Path, list[int]] = {}
        for number, item in enumerate(items):
            if group := item.get_closest_marker("group"):
                groups.setdefault(group.args[0], []).append(number)
            elif item.get_closest_marker("slow"):
                slow.append(number)
            else:
                files.setdefault(item.path, []).append(number)
        size = max(1, min(LONGEST_SERIES, len(items) // (8 * workers)))
        # What takes long begins first, so that no worker is alone with it at the end.
        self._series = deque(
            [
                *(Series(deque(tests), divisible=False) for tests in groups.values()),
                *(Series(deque([test])) for test in slow),
                *(
                    Series(deque(tests[start : start + size]))
                    for tests in files.values()
                    for start in range(0, len(tests), size)
                ),
            ]
        )

    def take(self) -> Series | None:
        return self._series.popleft() if self._series else None

    def give_back(self, series: Series) -> None:
        self._series.appendleft(series)


class Reporting:
    """Sends what a worker has to report to the process that collected the tests. Registered as the terminal, which only
    that one has."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe
        self.known = True
        """Whether what is recorded is known there already, as it is while the records of before are passed to this."""
        self._tw = config.get_terminal_writer()  # What pytest-timeout writes the stacks of threads to.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._pipe.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        if not self.known:
            message = warning_message
            plain = warnings.WarningMessage(str(message.message), message.category, message.filename, message.lineno)
            stated = {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}
            self._pipe.send(("warning", stated))


def work(session: pytest.Session, pipe: Connection) -> NoReturn:
    """Run the tests that come through the pipe, and end the process."""
    code = 1
    try:
        become_worker(session.config, pipe)
        test: int | None = pipe.recv()
        while test is not None:
            item, following = session.items[test], pipe.recv()
            coming = None if following is None else session.items[following]
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=coming)
            pipe.send(("done", None))
            test = following
        code = 0
    except (EOFError, OSError, KeyboardInterrupt):  # The run has ended.
        session._setupstate.teardown_exact(None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        os._exit(code)


def become_worker(config: pytest.Config, pipe: Connection) -> None:
    """Share nothing with the process that collected the tests, nor with its other forks, that two of them would
    change."""
    atexit._clear()  # What that process does at its end.
    random.seed()
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # Into a file, with one position for all.
    capture.start_global_capturing()
    capture.suspend_global_capture()
    reporting = Reporting(config, pipe)
    for plugin in ("terminalreporter", "terminalprogress-plugin"):
        config.pluginmanager.unregister(name=plugin)
    config.pluginmanager.register(reporting, "terminalreporter")
    reporting.known = False
