"""The lease under which one process at a time changes a table's partitions; it is checked inside every transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wane import leases
from wane.db import Store
from wane.db.statement import Execute
from wane.errors import LeaseLost, PartitionBusy
from wane.leases import Lease, Leases

LEASE_SECONDS = 30
_MOST_SECONDS = 25.0
"""The longest that one statement under the lease may take."""


@contextmanager
def leased(store: Store, table: str) -> Iterator[Lease]:
    """Hold the lease of a table's partitions; raise PartitionBusy if another process holds it."""

    def busy(other: Lease) -> PartitionBusy:
        return PartitionBusy(
            f"{other.holder} is at the partitions of {table}, until {other.until.isoformat()} at least",
            "wait until it is done; if it is dead, its lease ends by itself",
        )

    beside = store.clone()  # The caller may be inside a long statement when the lease has to be renewed.
    try:
        with leases.leased(beside, f"partition {table}", LEASE_SECONDS, busy) as lease:
            yield lease
    finally:
        beside.close()


def require(store: Store, lease: Lease, run: Execute) -> None:
    """Raise unless the lease is still held, and keep it held until the transaction has ended."""
    if not Leases(store.dialect).is_held(run, lease, None, store.clock(), most_seconds=_MOST_SECONDS):
        raise LeaseLost(f"the lease of {lease.name!r} ended", "somebody else may be at it; run it again")
