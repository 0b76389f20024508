"""The runner: schedulers and workers in one process, each on connections of its own, until a stop is requested.

A pass that fails is reported and retried after a pause; it never ends the loop. Any number of runners on any number of
machines may share one database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from wane._arguments import require_count
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract, Scheduler
from wane._db import Store
from wane._findings import did_you_mean
from wane._leases import Leases
from wane._prune.admission import require_admin
from wane._prune.primitive import whoami
from wane._schedule.adoption import require_in_force
from wane._schedule.backoff import Backoff
from wane._schedule.executor import Executor
from wane._schedule.outage import Outage
from wane._schedule.own_tables import clean_own_tables, keep_one_dead_letter
from wane._schedule.scheduler import tick
from wane._schedule.worker import Cold, Worked, Worker, policy_of
from wane.errors import NotInForce, Unreachable, WaneError, WrongArgument, WrongArgumentType
from wane.events import Listener, TickFailed, WorkFailed, ignore_event
from wane.queue import Queue

_LONGEST_WAIT_SECONDS = 1.0
"""How long a loop waits before it checks whether it has to stop."""
_EXPIRE_SECONDS = 5.0
_EXPIRE_LIMIT = 100
_CLEAN_EVERY = timedelta(hours=1)
_CHECK_CLEANING_SECONDS = 60.0
CLEANING_LEASE = "housekeeping"
_LAST_CHECK_SECONDS = 0.1
_ANSWER_SECONDS = 60.0
"""No statement of a runner takes this long: a server that has not answered by then never will."""
MOST_WORKERS = 64


@dataclass(eq=False, slots=True)
class Chore:
    """Something that a runner does beside its windows, in a thread of its own: at once, and then at intervals.

    What only one process at a time may do, it decides by a lease of its own.
    """

    seconds: float
    call: Callable[[Store, str], None]
    _due_at: float = field(default=float("-inf"), init=False)

    def is_due(self) -> bool:
        """Return whether its interval is over; the next one begins."""
        if time.monotonic() < self._due_at:
            return False
        self._due_at = time.monotonic() + self.seconds
        return True


@dataclass(frozen=True, slots=True)
class Ran:
    """What a runner did."""

    ticks: int = 0
    """Windows that it opened."""
    sweeps: int = 0
    failures: int = 0


@dataclass(slots=True)
class Runner:
    """Runs schedulers and workers."""

    store: Store
    contract: Contract
    schedulers: Collection[str] | None = None
    """Which; None for all of them, an empty list for none."""
    workers: int = 1
    max_runs: int | None = None
    """End after this number of windows of each scheduler, when their sweeps are done; without schedulers, after this
    number of sweeps of each worker."""
    actor: str = field(default_factory=whoami)
    listener: Listener = ignore_event
    stop: threading.Event = field(default_factory=threading.Event)
    """Setting it ends the run. The runner itself never sets it: it may be shared with other parts of an application."""
    chores: Collection[Chore] = ()
    archive: Cold | None = None
    """What carries out rules that archive; None leaves them to others."""
    _ending: threading.Event = field(default_factory=threading.Event, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _ticks: int = field(default=0, init=False)
    _sweeps: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)
    _refused: NotInForce | None = field(default=None, init=False)
    _scheduled: threading.Event = field(default_factory=threading.Event, init=False)
    """The schedulers have opened all windows that they were to open."""
    _outage: Outage = field(init=False)

    def __post_init__(self) -> None:
        self._outage = Outage(self.listener)

    def run(self) -> Ran:
        """Work until a stop is requested, or until `max_runs` is reached.

        Raise NotInForce if another contract is in force.
        """
        chosen = self._chosen()
        self._check(chosen)
        self.store.require_migrated()
        require_admin(self.store, self.contract)
        require_in_force(self.store, self.contract, by=self.actor)
        if not chosen:
            self._scheduled.set()
        threads = [
            threading.Thread(target=self._work, args=(number, bool(chosen)), name=f"wane-work-{number}", daemon=True)
            for number in range(1, self.workers + 1)
        ]
        if chosen:
            threads.append(threading.Thread(target=self._schedule, args=(chosen,), name="wane-schedule", daemon=True))
            threads.append(threading.Thread(target=self._do_chores, name="wane-chores", daemon=True))
        if self.stop.is_set():
            self._ending.set()
        for thread in threads:
            thread.start()
        try:
            self._wait(threads)
        finally:
            # Also after an interrupt: nothing else would stop the threads.
            self._ending.set()
            self._wait(threads)
        if self._refused is not None:
            raise self._refused
        return Ran(self._ticks, self._sweeps, self._failures)

    def _wait(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive():  # With a timeout, so that a signal's handler gets its turn.
                if self.stop.is_set():
                    self._ending.set()
                thread.join(0.1)

    def _chosen(self) -> list[Scheduler]:
        known = {scheduler.name: scheduler for scheduler in self.contract.schedulers}
        if self.schedulers is None:
            return list(known.values())
        if isinstance(self.schedulers, str) or not isinstance(self.schedulers, Collection):
            raise WrongArgumentType(f"schedulers must be a list of names, not {self.schedulers!r}")
        for name in self.schedulers:
            if name not in known:
                hint = did_you_mean(str(name), list(known)) or f"it has: {', '.join(known) or 'none'}"
                raise WrongArgument(f"the contract has no scheduler {name!r}", hint)
        return [known[name] for name in dict.fromkeys(self.schedulers)]

    def _check(self, chosen: list[Scheduler]) -> None:
        for name, value, least in (("workers", self.workers, 0), ("max_runs", self.max_runs, 1)):
            if value is None:
                continue
            require_count(name, value, MOST_WORKERS if name == "workers" else 1_000_000_000, least=least)
        if not hasattr(self.stop, "is_set"):
            raise WrongArgumentType(f"stop must be a threading.Event, not {self.stop!r}")
        if not chosen and not self.workers:
            raise WrongArgument("there is nothing to run: no scheduler and no worker")

    # Loops

    def _loop(
        self,
        role: str,
        number: int,
        body: Callable[[Store, Executor], bool],
        failed: Callable[[str, bool], None],
        *,
        heartbeats: bool = True,
    ) -> None:
        """Repeat the body until it returns that it is done; open the database again if the connection was lost."""
        backoff = Backoff(self._ending)
        executor = Executor(role, fingerprint(self.contract), self.listener, number=number)
        store: Store | None = None
        try:
            while not self._ending.is_set():
                attempts = self._outage.attempts
                try:
                    if store is None:
                        store = self.store.clone(answer_seconds=_ANSWER_SECONDS)
                    if heartbeats:
                        executor.heartbeat(store)
                    if body(store, executor):
                        return
                    backoff.succeeded()
                    self._outage.passed(attempts)
                except NotInForce as problem:
                    self._refused = problem
                    self._ending.set()
                except Exception as problem:  # The loop is where a failing pass fails alone.
                    self._count(failures=1)
                    with suppress(Exception):  # Nor does a listener that fails end it.
                        failed(str(problem).partition("\n")[0], self._is_repeated(problem))
                    backoff.failed()
        finally:
            if store is not None:
                if heartbeats:
                    executor.leave(store)
                store.close()

    def _schedule(self, chosen: list[Scheduler]) -> None:
        left = {scheduler.name: self.max_runs for scheduler in chosen}
        backoff = {scheduler.name: Backoff(self._ending) for scheduler in chosen}
        resting = dict.fromkeys(left, 0.0)
        expiring = Chore(_EXPIRE_SECONDS, self._expire_messages)

        def body(store: Store, executor: Executor) -> bool:
            queue = self._queue(store)
            waits = [_LONGEST_WAIT_SECONDS]
            for scheduler in chosen:
                if left[scheduler.name] == 0 or time.monotonic() < resting[scheduler.name]:
                    continue
                try:
                    done = self._tick(store, scheduler, queue, executor)
                except NotInForce:
                    raise
                except Exception as problem:  # A scheduler that fails, fails alone.
                    resting[scheduler.name] = time.monotonic() + backoff[scheduler.name].pause_seconds()
                    self._count(failures=1)
                    error = str(problem).partition("\n")[0]
                    self.listener(TickFailed(scheduler.name, error, self._is_repeated(problem)))
                    continue
                backoff[scheduler.name].succeeded()
                if done is None:
                    continue
                window, seconds = done
                waits.append(seconds)
                if window is not None and (runs := left[scheduler.name]) is not None:
                    left[scheduler.name] = runs - 1
            last = all(runs == 0 for runs in left.values())
            if last:
                self._scheduled.set()
            executor.heartbeat(store, "waiting")
            if expiring.is_due():
                self._do(expiring, store, executor.name)
            if last:
                return True
            self._ending.wait(max(min(waits), 0.01))
            return False

        try:
            self._loop("scheduler", 1, body, lambda *error: self.listener(TickFailed("wane", *error)))
        finally:
            self._scheduled.set()

    def _do_chores(self) -> None:
        """Do chores, which may take minutes, where no window waits for them; at least once, also in a run of cron's."""
        chores = [Chore(_CHECK_CLEANING_SECONDS, self._clean_own_tables), *self.chores]

        def body(store: Store, executor: Executor) -> bool:
            last = self._scheduled.is_set()
            for chore in chores:
                if chore.is_due() and not self._ending.is_set():
                    self._do(chore, store, executor.name)
            if not last:
                self._scheduled.wait(_LONGEST_WAIT_SECONDS)
            return last

        # A chore may take longer than the pause between two heartbeats, and its process is alive all the same.
        self._loop("chores", 1, body, lambda *error: self.listener(TickFailed("wane", *error)), heartbeats=False)

    def _do(self, chore: Chore, store: Store, holder: str) -> None:
        try:
            chore.call(store, holder)
        except Unreachable:
            raise
        except WaneError as problem:  # Windows go on regardless.
            self.fail(str(problem).partition("\n")[0])

    def _queue(self, store: Store) -> Queue:
        return Queue(store, self.contract.queue.pool, policy=policy_of(self.contract), listener=self.listener)

    def _expire_messages(self, store: Store, holder: str) -> None:
        # Other pools have policies of their own, which are unknown here.
        queue = self._queue(store)
        queue.expire_leases(_EXPIRE_LIMIT)
        keep_one_dead_letter(queue, by=holder)

    def _clean_own_tables(self, store: Store, holder: str) -> None:
        """Clean Wane's own tables once an hour, in the first process that takes the lease, which is not given back."""
        with store.write() as (run, now):
            until = (now or store.now()) + _CLEAN_EVERY
            mine, _ = Leases(store.dialect).take(run, CLEANING_LEASE, holder, until, now)
        if mine:
            clean_own_tables(store, self.contract, actor=holder, listener=self.listener)

    def _tick(
        self, store: Store, scheduler: Scheduler, queue: Queue, executor: Executor
    ) -> tuple[datetime | None, float] | None:
        """Return the window that began, if any, and how long until the next; None if another process holds the lock."""
        ticked = tick(store, self.contract, scheduler, queue, by=executor.name, listener=self.listener)
        if ticked is None:
            return None
        if ticked.window is not None:
            self._count(ticks=1)
        return ticked.window, (ticked.next_at - ticked.now).total_seconds()

    def _work(self, number: int, scheduled: bool) -> None:
        worker: Worker | None = None
        done = 0

        def body(store: Store, executor: Executor) -> bool:
            nonlocal worker, done
            if worker is None or worker.store is not store:
                queue = self._queue(store)
                worker = Worker(store, self.contract, queue, executor, self.listener, self._ending, self.archive)
            require_in_force(store, self.contract, by=self.actor)
            sequence = worker.queue.read_wakeup_sequence()
            ended = worker.work()
            if ended is not None:
                self._count(sweeps=ended is Worked.DONE, failures=ended is Worked.FAILED)
                done += 1
                return not scheduled and self.max_runs is not None and done >= self.max_runs
            executor.heartbeat(store, "waiting")
            if scheduled and self.max_runs is not None and self._scheduled.is_set():
                if not worker.queue.messages(limit=1):
                    return True
                self._ending.wait(_LAST_CHECK_SECONDS)  # The last sweep to end wakes no worker.
                return False
            worker.queue.wait_for_wakeup(sequence, timeout=self._wait_seconds(worker.queue))
            return False

        try:
            self._loop("worker", number, body, lambda *error: self.listener(WorkFailed(None, "reserve", *error)))
        finally:
            if worker is not None:
                worker.queue.close()
                worker.close()

    def _wait_seconds(self, queue: Queue) -> float:
        """Compute the wait until the next lease or pause ends, which causes no wakeup; but never for long."""
        due = queue.next_due()
        if due is None:
            return _LONGEST_WAIT_SECONDS
        return min(max((due - queue.store.now()).total_seconds(), 0.02), _LONGEST_WAIT_SECONDS)

    def _is_repeated(self, problem: Exception) -> bool:
        """Count a failed attempt to reach the database; return whether this outage was reported before."""
        return isinstance(problem, Unreachable) and self._outage.failed()

    def fail(self, error: str) -> None:
        """Count and report a failure that belongs to no scheduler."""
        self._count(failures=1)
        self.listener(TickFailed("wane", error))

    def _count(self, *, ticks: int = 0, sweeps: int = 0, failures: int = 0) -> None:
        with self._lock:
            self._ticks += ticks
            self._sweeps += sweeps
            self._failures += failures
