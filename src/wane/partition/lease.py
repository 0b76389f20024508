"""One process at a time changes a table's partitions: a lease, renewed beside long steps, and asked for inside every transaction."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from wane.errors import LeaseLost, PartitionBusy, StoreError
from wane.store import Store
from wane.store.own import Execute
from wane.store.timetable import Lease

LEASE_SECONDS = 30
_MOST_SECONDS = 25.0
"""The longest that one statement under the lease may take."""


@contextmanager
def leased(store: Store, table: str) -> Iterator[Lease]:
    """Hold the lease of a table's partitions; raise PartitionBusy if somebody else does."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    beside = store.again()  # The caller may be inside a long statement when the lease has to be renewed.
    try:
        with beside.acting() as (run, now):
            taken, lease = beside.timetable.take_lease(run, f"partition {table}", holder, _until(beside, now), now)
        if not taken:
            raise PartitionBusy(
                f"{lease.holder} is at the partitions of {table}, until {lease.until.isoformat()} at least",
                "wait until it is done; if it is dead, its lease ends by itself",
            )
        over = threading.Event()
        renewing = threading.Thread(target=_renew, args=(beside, lease, over), daemon=True)
        renewing.start()
        try:
            yield lease
        finally:
            over.set()
            renewing.join()
            with suppress(StoreError), beside.acting() as (run, now):
                beside.timetable.end_lease(run, lease, now)
    finally:
        beside.close()


def require(store: Store, lease: Lease, run: Execute) -> None:
    """Raise unless the lease is still the holder's, and keep it so until the transaction has ended."""
    if not store.timetable.holds_lease(run, lease, None, store.clock(), most_seconds=_MOST_SECONDS):
        raise LeaseLost(f"the lease of {lease.name!r} ended", "somebody else may be at it; run it again")


def _renew(store: Store, lease: Lease, over: threading.Event) -> None:
    while not over.wait(LEASE_SECONDS / 3):
        with suppress(StoreError), store.acting() as (run, now):
            if not store.timetable.renew_lease(run, lease, _until(store, now), now):
                return


def _until(store: Store, now: datetime | None) -> datetime:
    return (now or store.now()) + timedelta(seconds=LEASE_SECONDS)
