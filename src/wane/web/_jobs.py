"""Work that takes longer than a request may: queries of the archive and restores, each on a thread of its own.

A job belongs to this process, and is forgotten some time after it ended. What a restore does is in the database's own
journal: if the process ends, the next restore of the table, or the next sweep of it, resumes it. A Spark that jobs
started ends when they have not used it for a while.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from wane._archive.spark.session import stopped_when_idle
from wane._keeper import Keeper
from wane.errors import ArchiveError, WaneError
from wane.web._problems import RequestRefused, problem_of

MOST_UNFINISHED = 8
"""Jobs that wait or run; another one is refused."""
_AT_ONCE = 2
_MOST_REMEMBERED = 20
_FRESH_SECONDS = 60.0
"""How long the same question gets the same answer."""
_ABANDONED_SECONDS = 60.0
"""A query whose result no client has requested in this time is stopped."""
_LONGEST_SECONDS = 600.0
"""A query that takes longer is stopped."""


class JobState(StrEnum):
    """How far a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


Work = Callable[[Keeper, "ArchiveJob"], Any]


@dataclass(slots=True)
class ArchiveJob:
    """One piece of work: the request, its caller, the progress, and the result."""

    id: str
    kind: str
    table: str
    inputs: Mapping[str, Any]
    actor: str
    created_at: datetime
    bounded: bool
    """Whether it is stopped when it takes too long, or no client requests it any more."""
    state: JobState = JobState.WAITING
    seconds: float | None = None
    result: Any = None
    problem: dict[str, Any] | None = None
    began: float = field(default_factory=time.monotonic)
    requested: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)
    closing: bool = False

    @property
    def unfinished(self) -> bool:
        return not self.ended.is_set()

    def go_on(self) -> None:
        """Raise ArchiveError if it must stop: its work calls this often."""
        now = time.monotonic()
        if self.closing:
            raise ArchiveError("the server is stopping", "ask again when it runs")
        if self.bounded and now - self.began > _LONGEST_SECONDS:
            raise ArchiveError(
                f"the query took longer than {_LONGEST_SECONDS:.0f} seconds", "ask for a month, or for fewer rows"
            )
        if self.bounded and now - self.requested > _ABANDONED_SECONDS:
            raise ArchiveError("no client waits for this query any more", "ask again")

    def summary(self) -> dict[str, Any]:
        """Return the job as the API lists it, without its result."""
        return {
            "id": self.id,
            "kind": self.kind,
            "table": self.table,
            "inputs": dict(self.inputs),
            "actor": self.actor,
            "created_at": self.created_at,
            "state": self.state,
            "seconds": round(time.monotonic() - self.began if self.seconds is None else self.seconds, 3),
            "problem": self.problem,
        }

    def document(self) -> dict[str, Any]:
        """Return the job with its result; None until it is done."""
        return {**self.summary(), "result": self.result}


class ArchiveJobs:
    """The jobs of one process: some at once, some that wait, and the last ones that ended."""

    def __init__(self, open_one: Callable[[], Keeper]) -> None:
        self._open = open_one
        self._jobs: OrderedDict[str, ArchiveJob] = OrderedDict()
        self._turn = threading.Lock()
        self._slots = threading.Semaphore(_AT_ONCE)

    def begin(
        self, kind: str, table: str, inputs: Mapping[str, Any], actor: str, now: datetime, work: Work, *, bounded: bool
    ) -> ArchiveJob:
        """Begin a job, or return the unfinished or fresh one of the same request, if it only reads."""
        with self._turn:
            same = next((one for one in self._jobs.values() if bounded and _answers(one, kind, table, inputs)), None)
            if same is not None:
                same.requested = time.monotonic()
                return same
            if sum(one.unfinished for one in self._jobs.values()) >= MOST_UNFINISHED:
                raise RequestRefused(429, "TooManyJobs", f"{MOST_UNFINISHED} jobs are unfinished", "wait for them")
            job = ArchiveJob(secrets.token_hex(6), kind, table, dict(inputs), actor, now, bounded)
            self._jobs[job.id] = job
            self._forget()
        # A daemon: a restore may take hours, and the next process resumes it.
        threading.Thread(target=self._run, args=(job, work), name=f"wane-{kind}", daemon=True).start()
        return job

    def find(self, number: str) -> ArchiveJob:
        """Return a job, and record that a client requested it; refuse a number that is unknown."""
        with self._turn:
            job = self._jobs.get(number)
        if job is None:
            raise RequestRefused(
                404, "UnknownJob", "there is no such job, or not any more", "the page of the archive lists restores"
            )
        job.requested = time.monotonic()
        return job

    def newest(self, limit: int) -> list[ArchiveJob]:
        """Return the newest jobs."""
        with self._turn:
            return list(self._jobs.values())[::-1][:limit]

    def close(self) -> None:
        """Stop queries as soon as possible. A restore goes on until the process ends."""
        with self._turn:
            for job in self._jobs.values():
                job.closing = True

    def _forget(self) -> None:
        for number in [one.id for one in self._jobs.values() if not one.unfinished][:-_MOST_REMEMBERED]:
            del self._jobs[number]

    def _run(self, job: ArchiveJob, work: Work) -> None:
        with self._slots:
            job.began = time.monotonic()
            job.state = JobState.RUNNING
            try:
                job.go_on()
                with self._open() as keeper, stopped_when_idle(keeper.contract.spark.idle_stop):
                    job.result = work(Keeper(keeper.contract, keeper.store, actor=job.actor), job)
                job.state = JobState.DONE
            except (WaneError, RequestRefused) as problem:
                job.problem, job.state = problem_of(problem), JobState.FAILED
            except Exception:
                job.problem = problem_of(
                    RequestRefused(500, "InternalError", "this failed unexpectedly: see the server's log")
                )
                job.state = JobState.FAILED
                raise
            finally:
                job.seconds = time.monotonic() - job.began
                job.ended.set()


def _answers(job: ArchiveJob, kind: str, table: str, inputs: Mapping[str, Any]) -> bool:
    requested = (job.kind, job.table, job.inputs) == (kind, table, dict(inputs))
    ended = job.seconds is not None and time.monotonic() - job.began - job.seconds > _FRESH_SECONDS
    return requested and job.state is not JobState.FAILED and not ended
