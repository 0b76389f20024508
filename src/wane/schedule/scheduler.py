"""Schedulers: when a window begins, its sweeps are enqueued, once, whoever comes first.

A tick is one transaction that locks the scheduler's row, enqueues one message per table, and writes when the next window begins. A
process that dies in it leaves nothing behind; one that restarts too often changes nothing; windows that were missed run once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from wane.contract.fingerprint import fingerprint
from wane.contract.model import Contract, Scheduler, Table
from wane.errors import NotInForce
from wane.events import Listener, SweepsEnqueued, nobody
from wane.queue import Draft, Queue
from wane.store import Store
from wane.store.own import Execute
from wane.store.timetable import Window

KIND = "retention_sweep_{}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    """What one look at a scheduler found: the window that began, if one did, and when the next one will."""

    scheduler: str
    window: datetime | None
    enqueued: tuple[str, ...]
    next_at: datetime
    now: datetime


def swept_tables(contract: Contract, scheduler: str) -> list[Table]:
    """The tables that a scheduler sweeps: those with a rule that can take rows, in the contract's order."""
    return [
        table
        for table in contract.tables
        if table.scheduler == scheduler and not table.append_only and any(rule.active for rule in table.rules)
    ]


def window_start(now: datetime, every: timedelta) -> datetime:
    """The beginning of the window that a moment is in: windows are counted from 1970, the same for everybody."""
    return _EPOCH + (now - _EPOCH) // every * every


def tick(
    store: Store, contract: Contract, scheduler: Scheduler, queue: Queue, *, by: str, listener: Listener = nobody
) -> Tick | None:
    """Enqueue the sweeps of a scheduler's window if it has begun. None if another process is at it."""
    _require_in_force(store, contract, store.run)
    known = store.timetable.window(store.run, scheduler.name)
    now = store.clock() or store.now()
    # Looking locks nothing; only who finds the window due locks the row, and looks again.
    if known is not None and not _is_due(known, scheduler, now):
        return Tick(scheduler.name, None, (), _due_at(known, scheduler), now)
    with store.transaction() as transaction:
        run = transaction.execute
        now = transaction.clock() or transaction.now()
        _require_in_force(store, contract, run, lock=True)
        known = store.timetable.lock_window(run, scheduler.name, now)
        if known is None:
            return None
        if not _is_due(known, scheduler, now):
            return Tick(scheduler.name, None, (), _due_at(known, scheduler), now)
        window = window_start(now, scheduler.every)
        drafts = []
        for table in swept_tables(contract, scheduler.name):
            kind = KIND.format(table.name)
            # A sweep that still waits, or is at work, does this window's work too.
            if not store.messages.unfinished(run, queue.pool, kind):
                key = f"{kind}@{window.isoformat()}"
                target = {"table": str(table.name), "scheduler": scheduler.name, "window": window.isoformat()}
                drafts.append(Draft(kind, key, key, target))
        for start in range(0, len(drafts), 500):
            queue.enqueue_within(transaction, drafts[start : start + 500])
        next_at = window + scheduler.every
        store.timetable.write_window(run, Window(scheduler.name, window, next_at, now, by))
    kinds = tuple(draft.kind for draft in drafts)
    listener(SweepsEnqueued(scheduler.name, window.isoformat(), kinds))
    return Tick(scheduler.name, window, kinds, next_at, now)


def _due_at(known: Window, scheduler: Scheduler) -> datetime:
    """When the next window begins. A shorter interval counts at once, not after the longer one that was written down."""
    return known.due_at if known.window_at is None else min(known.due_at, known.window_at + scheduler.every)


def _is_due(known: Window, scheduler: Scheduler, now: datetime) -> bool:
    # A window that lies ahead was opened by a clock that was wrong; waiting for it could take years.
    ahead = known.window_at is not None and known.window_at > window_start(now, scheduler.every)
    return ahead or now >= _due_at(known, scheduler)


def _require_in_force(store: Store, contract: Contract, run: Execute, *, lock: bool = False) -> None:
    """With `lock`, whoever adopts another contract waits until this transaction has ended."""
    found = store.timetable.in_force(run, lock=lock)
    if found is None or found.fingerprint != fingerprint(contract):
        raise NotInForce("another contract was put in force", "restart with the one in force, or `wane adopt` this one")
