"""One process at a time does a thing: a lease that is renewed beside the work, and given back when it is done."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from wane.errors import StoreError, WaneError
from wane.store import Store
from wane.store.timetable import Lease


@contextmanager
def leased(store: Store, name: str, seconds: float, busy: Callable[[Lease], WaneError]) -> Iterator[Lease]:
    """Hold the lease of this name; if somebody else does, raise what `busy` makes of it."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    with store.acting() as (run, now):
        taken, lease = store.timetable.take_lease(run, name, holder, _until(store, now, seconds), now)
    if not taken:
        raise busy(lease)
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


def _renew(store: Store, lease: Lease, seconds: float, over: threading.Event) -> None:
    """Every step asks for the lease itself, so a renewal that fails is only tried again."""
    while not over.wait(seconds / 3):
        with suppress(StoreError), store.acting() as (run, now):
            if not store.timetable.renew_lease(run, lease, _until(store, now, seconds), now):
                return


def _until(store: Store, now: datetime | None, seconds: float) -> datetime:
    return (now or store.now()) + timedelta(seconds=seconds)
