"""When a scheduler's windows begin: by an interval, or by a cron expression; and only in its maintenance window.

Everything follows from the contract, the window that the database stores, and the database's clock, so all processes
agree.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from wane._contract.model import Scheduler
from wane._schedule.sql import Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def window_start(now: datetime, every: timedelta) -> datetime:
    """Compute the start of the window that a time is in: windows are counted from 1970, the same in every process."""
    return _EPOCH + (now - _EPOCH) // every * every


def current_window(scheduler: Scheduler, now: datetime) -> datetime:
    """Return the start of the window that a time is in."""
    return window_start(now, scheduler.every) if scheduler.cron is None else scheduler.cron.last_until(now)


def next_window(scheduler: Scheduler, window: datetime) -> datetime:
    """Return when the window after one begins, and sweeps may start."""
    begins = window + scheduler.every if scheduler.cron is None else scheduler.cron.next_after(window)
    return _opening(scheduler, begins)


def is_anchored(scheduler: Scheduler, known: Window, now: datetime) -> bool:
    """Check whether the next window follows from the stored one.

    A cron expression waits for its next time: if it is new, nothing was missed, and a window that lies ahead was opened
    by a wrong clock. An interval begins at once.
    """
    return scheduler.cron is None or (known.window_at is not None and known.window_at <= now)


def due_at(scheduler: Scheduler, known: Window, now: datetime) -> datetime:
    """Return when the next window begins, or could begin: a time at or before now means at once."""
    if scheduler.cron is not None:
        assert known.window_at is not None
        begins = scheduler.cron.next_after(known.window_at)
    elif known.window_at is None:
        begins = known.due_at
    elif known.window_at > window_start(now, scheduler.every):
        begins = now  # A window that lies ahead was opened by a wrong clock; waiting for it could take years.
    else:
        # A shorter interval counts at once, not after the longer one that was stored.
        begins = min(known.due_at, known.window_at + scheduler.every)
    return begins if scheduler.within is None else _opening(scheduler, max(begins, now))


def _opening(scheduler: Scheduler, instant: datetime) -> datetime:
    return instant if scheduler.within is None else scheduler.within.opens(instant)
