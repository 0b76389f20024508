"""One writer for each table's archive: a lease that is renewed while the pipeline works, and given back when it is done."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from wane.errors import ArchiveBusy, StoreError
from wane.store import Store
from wane.store.timetable import Lease


@contextmanager
def leased(store: Store, table: str, seconds: int) -> Iterator[Lease]:
    """Hold the lease of a table's archive; raise ArchiveBusy if somebody else does."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    with store.acting() as (run, now):
        until = _until(store, now, seconds)
        taken, lease = store.timetable.take_lease(run, f"archive {table}", holder, until, now)
    if not taken:
        raise ArchiveBusy(
            f"the archive of {table} is being written by {lease.holder}, until {lease.until.isoformat()} at least",
            "wait until it is done; if it is dead, its lease ends by itself",
        )
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(store, lease, seconds, over), daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        over.set()
        renewing.join()
        with suppress(StoreError), store.acting() as (run, now):
            store.timetable.end_lease(run, lease, now)


def _renew(store: Store, lease: Lease, seconds: int, over: threading.Event) -> None:
    """Every step asks for the lease itself, so a renewal that fails is only tried again."""
    while not over.wait(seconds / 3):
        with suppress(StoreError), store.acting() as (run, now):
            if not store.timetable.renew_lease(run, lease, _until(store, now, seconds), now):
                return


def _until(store: Store, now: datetime | None, seconds: int) -> datetime:
    return (now or store.now()) + timedelta(seconds=seconds)
