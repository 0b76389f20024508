"""Schedulers: when a window begins, its sweeps are enqueued, once, by whichever process comes first.

A tick is one transaction that locks the scheduler's row, enqueues one message per table, and writes when the next
window begins. A process that dies in it leaves nothing behind; one that restarts too often changes nothing; windows
that were missed run once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract, Scheduler, Table
from wane._db import Store
from wane._db.statement import Execute
from wane._schedule.sql import Timetable, Window
from wane._schedule.timing import current_window, due_at, is_anchored, next_window
from wane.errors import Locked, NotInForce
from wane.events import Listener, SweepsEnqueued, ignore_event
from wane.queue import Draft, Queue
from wane.queue._dialects import messages_of

KIND = "retention_sweep_{}"


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of checking a scheduler: the window that began, if one did, and when the next one will."""

    scheduler: str
    window: datetime | None
    enqueued: tuple[str, ...]
    next_at: datetime
    now: datetime


def swept_tables(contract: Contract, scheduler: str) -> list[Table]:
    """Return the tables that a scheduler sweeps: those with a rule that can take rows, in the contract's order."""
    return [
        table
        for table in contract.tables
        if table.scheduler == scheduler and not table.append_only and any(rule.active for rule in table.rules)
    ]


def tick(
    store: Store, contract: Contract, scheduler: Scheduler, queue: Queue, *, by: str, listener: Listener = ignore_event
) -> Tick | None:
    """Enqueue the sweeps of a scheduler's window if it has begun. None if another process holds the lock."""
    _require_in_force(store, contract, store.run)
    known = Timetable(store.dialect).window(store.run, scheduler.name)
    now = store.clock() or store.now()
    # The first read locks nothing; only a process that finds the window due locks the row, and checks again.
    if known is not None and is_anchored(scheduler, known, now) and (due := due_at(scheduler, known, now)) > now:
        return Tick(scheduler.name, None, (), due, now)
    try:
        ticked = _open_window(store, contract, scheduler, queue, by)
    except Locked:  # Another process writes the scheduler's first row, or puts a contract in force.
        return None
    if ticked is not None and ticked.window is not None:
        listener(SweepsEnqueued(scheduler.name, ticked.window.isoformat(), ticked.enqueued))
    return ticked


def _open_window(store: Store, contract: Contract, scheduler: Scheduler, queue: Queue, by: str) -> Tick | None:
    """Lock the scheduler's row and enqueue the sweeps of its window; None if another process has it locked."""
    with store.transaction() as transaction:
        run = transaction.execute
        now = transaction.clock() or transaction.now()
        _require_in_force(store, contract, run, lock=True)
        known = Timetable(store.dialect).lock_window(run, scheduler.name, now)
        if known is None:
            return None
        window = current_window(scheduler, now)
        next_at = next_window(scheduler, window)
        if not is_anchored(scheduler, known, now):
            Timetable(store.dialect).write_window(run, Window(scheduler.name, window, next_at))
            return Tick(scheduler.name, None, (), next_at, now)
        if (due := due_at(scheduler, known, now)) > now:
            return Tick(scheduler.name, None, (), due, now)
        drafts = []
        for table in swept_tables(contract, scheduler.name):
            kind = KIND.format(table.name)
            # A sweep that still waits, or is running, does this window's work too.
            if not messages_of(store).unfinished(run, queue.pool, kind):
                key = f"{kind}@{window.isoformat()}"
                target = {"table": str(table.name), "scheduler": scheduler.name, "window": window.isoformat()}
                drafts.append(Draft(kind, key, key, target))
        for start in range(0, len(drafts), 500):
            queue.enqueue_within(transaction, drafts[start : start + 500])
        Timetable(store.dialect).write_window(run, Window(scheduler.name, window, next_at, now, by))
    return Tick(scheduler.name, window, tuple(draft.kind for draft in drafts), next_at, now)


def _require_in_force(store: Store, contract: Contract, run: Execute, *, lock: bool = False) -> None:
    """Raise unless the contract is in force.

    With `lock`, an adoption of another waits until this transaction has ended.
    """
    found = Timetable(store.dialect).in_force(run, lock=lock)
    if found is None or found.fingerprint != fingerprint(contract):
        raise NotInForce("another contract was put in force", "restart with the one in force, or `wane adopt` this one")
