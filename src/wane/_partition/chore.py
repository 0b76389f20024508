"""What a runner does for partitioned tables between ticks: it creates months ahead, retires months past their time, and
keeps a conversion that was left half-way from stopping the application when its month begins."""

from __future__ import annotations

import time
from collections.abc import Callable

from wane._contract.model import Contract
from wane._db import Store
from wane.errors import LeaseLost, PartitionBusy, WaneError
from wane.events import Listener, TickFailed

_CHECK_SECONDS = 600.0
_NAME = "partition"


class PartitionChore:
    """Maintains every table of [partition], in one process at a time."""

    def __init__(self, contract: Contract, listener: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._contract = contract
        self._listener = listener
        self._clock = clock
        self._next_at = float("-inf")

    def __call__(self, store: Store, holder: str) -> None:
        """Maintain each table at most every ten minutes; a table that fails does not affect the others."""
        if store.kind != "postgres" or not self._contract.partitions or self._clock() < self._next_at:
            return
        self._next_at = self._clock() + _CHECK_SECONDS
        from wane._partition.upkeep import keep_table

        for settings in self._contract.partitions:
            try:
                keep_table(store, self._contract, settings, actor=holder, listener=self._listener)
            except (PartitionBusy, LeaseLost):
                continue  # Another process holds the lease.
            except WaneError as problem:
                error = str(problem).partition("\n")[0]
                self._listener(TickFailed(_NAME, f"{settings.table}: {error}"))
