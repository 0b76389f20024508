"""One process at a time changes a table's partitions: a lease that is asked for inside every transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wane.errors import LeaseLost, PartitionBusy
from wane.prune import lease as general
from wane.store import Store
from wane.store.own import Execute
from wane.store.timetable import Lease

LEASE_SECONDS = 30
_MOST_SECONDS = 25.0
"""The longest that one statement under the lease may take."""


@contextmanager
def leased(store: Store, table: str) -> Iterator[Lease]:
    """Hold the lease of a table's partitions; raise PartitionBusy if somebody else does."""

    def busy(other: Lease) -> PartitionBusy:
        return PartitionBusy(
            f"{other.holder} is at the partitions of {table}, until {other.until.isoformat()} at least",
            "wait until it is done; if it is dead, its lease ends by itself",
        )

    beside = store.again()  # The caller may be inside a long statement when the lease has to be renewed.
    try:
        with general.leased(beside, f"partition {table}", LEASE_SECONDS, busy) as lease:
            yield lease
    finally:
        beside.close()


def require(store: Store, lease: Lease, run: Execute) -> None:
    """Raise unless the lease is still the holder's, and keep it so until the transaction has ended."""
    if not store.timetable.holds_lease(run, lease, None, store.clock(), most_seconds=_MOST_SECONDS):
        raise LeaseLost(f"the lease of {lease.name!r} ended", "somebody else may be at it; run it again")
