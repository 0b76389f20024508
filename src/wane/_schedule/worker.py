"""Workers: reserve a sweep, take the table's lease, sweep under its fence, and report how it ended.

While a sweep runs, a second thread with a connection of its own renews the reservation and the lease. A worker that
lost either stops at its next batch, because every batch checks the lease inside its own transaction. The lease ends
exactly when the reservation ends, so the next worker that receives the message of a dead worker finds the table free.

Where the scheduler has a maintenance window, a sweep begins inside it only, and stops at its end. What is left leaves
in the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from wane._contract.fingerprint import fingerprint
from wane._contract.lookup import find_table
from wane._contract.model import Contract, Table
from wane._db import Store
from wane._db.transaction import Transaction
from wane._leases import Fence, Lease, Leases
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, Sweep, Sweeper, SweptRule
from wane._schedule.executor import Executor
from wane.errors import Locked, UnknownTable, WaneError
from wane.events import Listener, WorkFailed, ignore_event
from wane.queue import Answer, Queue, Reservation, RetryPolicy

LEASE = "sweep:{}"
_MOST_SUPERSEDED = 100
_LONGEST_STATEMENT_SECONDS = 30.0
_LEAST_ANSWER_SECONDS = 10.0
"""The minimum time that the renewing thread waits for an answer; after a lease without one there is nothing left to
renew."""


class Worked(StrEnum):
    """How the work on one message ended."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """A stop was requested; another worker continues."""


class Cold(Protocol):
    """Carries out the rules of a table that archive, and maintains its archive."""

    def work(
        self,
        store: Store,
        table: Table,
        *,
        actor: str,
        listener: Listener,
        fence: Callable[[Transaction], None],
        stop: threading.Event,
    ) -> list[SweptRule]:
        """Do what is due, under the fence, until a stop is requested."""


@dataclass(slots=True)
class _Hours:
    """The rest of a maintenance window."""

    seconds: float
    closed: threading.Event = field(default_factory=threading.Event)
    """Set when it has ended."""
    _began: float = field(default_factory=time.monotonic)

    def are_over(self) -> bool:
        if time.monotonic() - self._began >= self.seconds:
            self.closed.set()
        return self.closed.is_set()


@dataclass(slots=True)
class Worker:
    """Does one sweep after the other."""

    store: Store
    contract: Contract
    queue: Queue
    executor: Executor
    listener: Listener = ignore_event
    stop: threading.Event = field(default_factory=threading.Event)
    archive: Cold | None = None
    """What carries out rules that archive; None leaves them to others."""
    _fingerprint: str = field(init=False)
    _keeping: Store | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._fingerprint = fingerprint(self.contract)

    @property
    def _lease_seconds(self) -> float:
        return self.queue.policy.lease.total_seconds()

    def close(self) -> None:
        if self._keeping is not None:
            self._keeping.close()

    def work(self) -> Worked | None:
        """Do the next sweep, and return how it ended; None if there is none."""
        reservation = self.queue.reserve()
        if reservation is None:
            return None
        scheduler = reservation.message.target.get("scheduler")
        name = scheduler if isinstance(scheduler, str) else None
        try:
            return self._do(reservation)
        except WaneError as problem:
            self._give_back(reservation, name, problem.message)
            return Worked.FAILED

    def _do(self, reservation: Reservation) -> Worked:
        message = reservation.message
        table = self._table(message.target.get("table"))
        hours = self._hours(table)
        if hours is not None and hours.seconds <= 0:
            return self._ack(reservation, table) or Worked.STOPPED
        name = LEASE.format(table.name)
        mine, lease = self._take_lease(name, reservation.lease_expires_at)
        if not mine:
            raise Locked(
                f"{lease.holder} sweeps {table.name}, at least until {lease.until:%H:%M:%S} UTC",
                "nothing needs to be done: the message is delivered again after that",
            )
        self.executor.heartbeat(self.store, f"sweeping {table.name}")
        try:
            with self._renewing(reservation, lease, hours) as ended:
                sweep = self._sweep(table, lease, message.idempotency_key, ended)
        finally:
            with suppress(WaneError), self.store.write() as (run, now):
                Leases(self.store.dialect).end(run, lease, now)
            with suppress(WaneError):
                self.executor.heartbeat(self.store, "waiting")
        closed = hours is not None and hours.closed.is_set()
        lost = ended.is_set() and not self.stop.is_set() and not closed
        return self._settle(reservation, table, sweep, lost=lost, closed=closed)

    def _hours(self, table: Table) -> _Hours | None:
        """Return what is left of the maintenance window of a table's scheduler; None if it may be swept at any time."""
        schedulers = (one for one in self.contract.schedulers if one.name == table.scheduler)
        within = next((one.within for one in schedulers), None)
        if within is None:
            return None
        now = self.store.clock() or self.store.now()
        closes = within.closes(now)
        return _Hours(0.0 if closes is None else (closes - now).total_seconds())

    def _table(self, name: object) -> Table:
        try:
            return find_table(self.contract, str(name))
        except WaneError as problem:
            raise UnknownTable(
                f"the contract has no table {name!r}", "add the table, or resolve the dead letter that this becomes"
            ) from problem

    def _take_lease(self, name: str, until: datetime) -> tuple[bool, Lease]:
        with self.store.write() as (run, now):
            return Leases(self.store.dialect).take(run, name, self.executor.name, until, now)

    def _sweep(self, table: Table, lease: Lease, run: str, ended: threading.Event) -> Sweep:
        # The server's limit for a stalled transaction is less than the lease: a process that takes over does not wait
        # for it.
        most_seconds = min(self._lease_seconds * 2 / 3, _LONGEST_STATEMENT_SECONDS)
        lost = f"the lease on {table.name} is another's, or another contract is in force"
        fence = Fence(lease, self._fingerprint, most_seconds, lost)
        sweeper = Sweeper(
            self.store,
            self.contract,
            self.executor.name,
            self.listener,
            pace=Pace.of(self.contract.sweep),
            stop=ended,
            fence=fence,
        )
        swept = sweeper.sweep([str(table.name)], run=run)
        if self.archive is None or ended.is_set():
            return swept
        moved = self.archive.work(
            self.store, table, actor=self.executor.name, listener=self.listener, fence=fence, stop=ended
        )
        return Sweep(swept.run, (*swept.rules, *moved))

    @contextmanager
    def _renewing(
        self, reservation: Reservation, lease: Lease, hours: _Hours | None = None
    ) -> Iterator[threading.Event]:
        """Renew the reservation and the lease as long as the sweep runs. The event is set when it must end."""
        ended, done = threading.Event(), threading.Event()
        if self._keeping is None:
            self._keeping = self.store.clone(answer_seconds=max(self._lease_seconds, _LEAST_ANSWER_SECONDS))
        thread = threading.Thread(
            target=self._keep,
            args=(self._keeping, reservation, lease, ended, done, hours),
            name="wane-keep",
            daemon=True,
        )
        thread.start()
        try:
            yield ended
        finally:
            done.set()
            thread.join()

    def _keep(
        self,
        store: Store,
        reservation: Reservation,
        lease: Lease,
        ended: threading.Event,
        done: threading.Event,
        hours: _Hours | None,
    ) -> None:
        queue = Queue(store, self.queue.pool, policy=self.queue.policy)
        pause = self._lease_seconds / 3
        renewed = time.monotonic()
        # Short steps, so that a stop is noticed soon; renewing after a third of the lease leaves time for failures.
        while not done.wait(min(pause, 0.1)):
            if self.stop.is_set() or (hours is not None and hours.are_over()):
                ended.set()
            began = time.monotonic()
            if began - renewed < pause:
                continue
            try:
                until = queue.renew(reservation.message_id, reservation.token).lease_expires_at
                with store.write() as (run, now):
                    valid = until is not None and Leases(store.dialect).renew(run, lease, until, now)
                self.executor.heartbeat(store)
            except WaneError:
                continue  # The database is busy or unreachable. The fence checks the lease itself.
            renewed = began
            if not valid:
                ended.set()
                return

    def _settle(self, reservation: Reservation, table: Table, sweep: Sweep, *, lost: bool, closed: bool) -> Worked:
        """Ack the sweep, or give it back."""
        failed, stopped, fused = (
            [rule for rule in sweep.rules if rule.outcome is outcome]
            for outcome in (Outcome.FAILED, Outcome.STOPPED, Outcome.FUSED)
        )
        on_request = bool(stopped) and (self.stop.is_set() or closed) and not failed and not lost
        # A stop on purpose is no failure: it makes no dead letter. What is left leaves with the next window.
        last = on_request and (closed or reservation.message.deliveries >= self.queue.policy.attempts)
        if (failed or stopped or lost) and not last:
            # Each failed rule has reported its failure; the message records why it comes back.
            why = "; ".join(map(_ending, [*failed, *stopped])) or "lost its lease to another process"
            if not on_request and not failed:
                self.listener(WorkFailed(table.scheduler, reservation.message.kind, why))
            self._release(reservation, why)
            return Worked.STOPPED if on_request else Worked.FAILED
        for rule in fused:
            # A retry would find the same; a user must review it, and until then every window reports it.
            self.listener(WorkFailed(table.scheduler, reservation.message.kind, _ending(rule)))
        refused = self._ack(reservation, table)
        if refused is not None or on_request:
            return refused or Worked.STOPPED
        if not any(rule.outcome is Outcome.OFF for rule in sweep.rules):
            self._supersede(reservation, f"{self.executor.name}: a later sweep succeeded")
        return Worked.FAILED if fused else Worked.DONE

    def _ack(self, reservation: Reservation, table: Table) -> Worked | None:
        """Complete the message; return FAILED if that is refused."""
        answered = self.queue.ack(reservation.message_id, reservation.token)
        if answered.accepted:
            return None
        self.listener(WorkFailed(table.scheduler, reservation.message.kind, f"ack: {answered.answer.value}"))
        return Worked.FAILED

    def _give_back(self, reservation: Reservation, scheduler: str | None, why: str) -> None:
        self.listener(WorkFailed(scheduler, reservation.message.kind, why))
        with suppress(WaneError):
            self._release(reservation, why)

    def _release(self, reservation: Reservation, why: str) -> None:
        answered = self.queue.release(reservation.message_id, reservation.token, why[:10_000] or "failed")
        if answered.answer is Answer.DEAD_LETTERED:
            self._supersede(reservation, f"{self.executor.name}: {reservation.message_id} failed too")

    def _supersede(self, reservation: Reservation, by: str) -> None:
        """Resolve earlier dead letters of the same table: only the latest describes its state."""
        for letter in self.queue.dead_letters(kind=reservation.message.kind, limit=_MOST_SUPERSEDED):
            if letter.message.message_id != reservation.message_id:
                self.queue.resolve(letter.message.message_id, by=by[:1_000])


def policy_of(contract: Contract) -> RetryPolicy:
    """Return the retry policy that a contract sets."""
    settings = contract.queue
    return RetryPolicy(
        attempts=settings.attempts,
        lease=settings.lease,
        backoff=settings.backoff,
        most_backoff=max(timedelta(minutes=10), settings.backoff),
        pause_after_expiry=False,  # A worker's death does not indicate a problem of the sweep.
        remember=settings.remember,
    )


def _ending(rule: SweptRule) -> str:
    return f"{rule.table}.{rule.rule}: {rule.message}"
