"""The status: flags, the contract in force, schedulers, executors, running sweeps, and the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract, Scheduler
from wane._db import Store
from wane._db.transaction import Transaction
from wane._leases import Lease, Leases
from wane._ledger import Flag, Ledger
from wane._prune.gates import flag_name
from wane._schedule.executor import is_silent
from wane._schedule.sql import Heartbeat, InForce, Timetable, Window
from wane._schedule.timing import current_window, due_at, is_anchored, next_window
from wane._schedule.worker import LEASE
from wane.queue._dialects import messages_of
from wane.queue._sql import Messages

_MOST_EXECUTORS = 1_000


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """A scheduler of the contract, and its state in the database."""

    name: str
    every_seconds: float
    """The longest time between two of its windows."""
    when: str
    """When it sweeps, in words."""
    window: Window | None
    next_at: datetime | None
    """When its next window begins; None if that is as soon as a scheduler runs."""
    overdue_seconds: float
    """How long ago its next window should have been opened."""


@dataclass(frozen=True, slots=True)
class ExecutorStatus:
    """An executor and whether it is alive."""

    heartbeat: Heartbeat
    silent: bool
    other_contract: bool


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Messages of one pool in one state."""

    pool: str
    state: str
    messages: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Status:
    """A snapshot of the status."""

    now: datetime
    master_flag: str
    enabled: bool
    disabled_tables: tuple[str, ...]
    fingerprint: str
    in_force: InForce | None
    schedulers: tuple[SchedulerStatus, ...]
    executors: tuple[ExecutorStatus, ...]
    sweeps: tuple[Lease, ...]
    queue: tuple[QueueStatus, ...]

    @property
    def alive(self) -> bool:
        """Return whether at least one scheduler and one worker are alive."""
        return {"scheduler", "worker"} <= {one.heartbeat.role for one in self.executors if not one.silent}

    @property
    def dead_letters(self) -> int:
        return sum(one.messages for one in self.queue if one.state == "dead")


def read_status(store: Store, contract: Contract) -> Status:
    """Read the status, in a few small statements."""
    store.require_migrated()
    with store.snapshot() as transaction:
        return _read_status(transaction, messages_of(store), contract)


def _read_status(transaction: Transaction, messages: Messages, contract: Contract) -> Status:
    run, timetable = transaction.execute, Timetable(transaction.dialect)
    clock = transaction.clock()
    now = clock or transaction.now()
    settings = contract.sweep
    flags = Ledger.of(transaction).flags()
    master = flags.get(settings.master_flag)
    mine = fingerprint(contract)
    windows = {window.scheduler: window for window in timetable.windows(run)}
    return Status(
        now=now,
        master_flag=settings.master_flag,
        enabled=master is not None and master.enabled,
        disabled_tables=tuple(
            str(table.name) for table in contract.tables if _is_off(flags.get(flag_name(table.name, settings)))
        ),
        fingerprint=mine,
        in_force=timetable.in_force(run),
        schedulers=tuple(_scheduler(one, windows.get(one.name), now) for one in contract.schedulers),
        executors=tuple(
            ExecutorStatus(heartbeat, is_silent(heartbeat, now), heartbeat.fingerprint != mine)
            for heartbeat in timetable.heartbeats(run, _MOST_EXECUTORS)
        ),
        sweeps=tuple(
            one for one in Leases(transaction.dialect).current(run, clock) if one.name.startswith(LEASE.format(""))
        ),
        queue=tuple(QueueStatus(*row) for row in messages.counts(run)),
    )


def _scheduler(one: Scheduler, known: Window | None, now: datetime) -> SchedulerStatus:
    if known is not None and is_anchored(one, known, now):
        next_at: datetime | None = due_at(one, known, now)
    else:
        next_at = next_window(one, current_window(one, now)) if one.cron is not None else None
    overdue = 0.0 if known is None else max((now - known.due_at).total_seconds(), 0.0)
    return SchedulerStatus(one.name, one.longest.total_seconds(), one.when, known, next_at, overdue)


def _is_off(flag: Flag | None) -> bool:
    return flag is not None and not flag.enabled
