"""One writer for each table's archive."""

from __future__ import annotations

from contextlib import AbstractContextManager

from wane.errors import ArchiveBusy
from wane.prune import lease
from wane.store import Store
from wane.store.timetable import Lease


def leased(store: Store, table: str, seconds: int) -> AbstractContextManager[Lease]:
    """Hold the lease of a table's archive; raise ArchiveBusy if somebody else does."""

    def busy(other: Lease) -> ArchiveBusy:
        return ArchiveBusy(
            f"the archive of {table} is being written by {other.holder}, until {other.until.isoformat()} at least",
            "wait until it is done; if it is dead, its lease ends by itself",
        )

    return lease.leased(store, f"archive {table}", seconds, busy)
