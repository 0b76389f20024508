"""What a runner does for partitioned tables beside its windows: it creates months ahead, retires months past their
time, and keeps a conversion that was left half-way from stopping the application when its month begins."""

from __future__ import annotations

from wane._contract.model import Contract
from wane._db import Store
from wane.errors import LeaseLost, PartitionBusy, WaneError
from wane.events import Listener, TickFailed

_NAME = "partition"


class PartitionChore:
    """Maintains every table of [partition], in one process at a time."""

    seconds = 600.0

    def __init__(self, contract: Contract, listener: Listener) -> None:
        self._contract = contract
        self._listener = listener

    def __call__(self, store: Store, holder: str) -> None:
        """Maintain each table; one that fails does not affect the others."""
        if not store.has_partitions or not self._contract.partitions:
            return
        from wane._partition.maintenance import maintain_table

        for settings in self._contract.partitions:
            try:
                maintain_table(store, self._contract, settings, actor=holder, listener=self._listener)
            except (PartitionBusy, LeaseLost):
                continue  # Another process holds the lease.
            except WaneError as problem:
                error = str(problem).partition("\n")[0]
                self._listener(TickFailed(_NAME, f"{settings.table}: {error}"))
