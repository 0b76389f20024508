"""One writer for each table's archive: a lease that is renewed while the pipeline works, and given back when it is done."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from wane.errors import StoreError
from wane.store import Store
from wane.store.archive_journal import Journal, Lease


@contextmanager
def leased(store: Store, table: str, seconds: int) -> Iterator[Lease]:
    """Hold the lease of a table's archive; raise ArchiveBusy if somebody else does."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    with store.transaction() as transaction:
        lease = Journal(transaction).acquire(table, holder, seconds)
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(store, lease, seconds, over), daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        over.set()
        renewing.join()
        with suppress(StoreError), store.transaction() as transaction:
            Journal(transaction).release(lease)


def _renew(store: Store, lease: Lease, seconds: int, over: threading.Event) -> None:
    """Every step asks for the lease itself, so a renewal that fails is only tried again."""
    while not over.wait(seconds / 3):
        with suppress(StoreError), store.transaction() as transaction:
            if not Journal(transaction).renew(lease, seconds):
                return
