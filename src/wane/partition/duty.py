"""What a runner does for partitioned tables between ticks: months are made ahead, months past their time leave, and a conversion that somebody
left half-way does not stop the application when its month begins."""

from __future__ import annotations

import time
from collections.abc import Callable

from wane.contract.model import Contract
from wane.errors import LeaseLost, PartitionBusy, WaneError
from wane.events import Listener, TickFailed
from wane.store import Store

_LOOK_SECONDS = 600.0
_NAME = "partition"


class PartitionDuty:
    """Looks after every table of [partition], by one process of all at a time."""

    def __init__(self, contract: Contract, listener: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._contract = contract
        self._listener = listener
        self._clock = clock
        self._look_at = float("-inf")

    def __call__(self, store: Store, holder: str) -> None:
        """Look after each table; one that fails, fails alone."""
        if store.kind != "postgres" or not self._contract.partitions or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_SECONDS
        from wane.partition.keep import keep_table

        for settings in self._contract.partitions:
            try:
                keep_table(store, self._contract, settings, actor=holder, listener=self._listener)
            except (PartitionBusy, LeaseLost):
                continue  # Somebody else is at it.
            except WaneError as problem:
                error = str(problem).partition("\n")[0]
                self._listener(TickFailed(_NAME, f"{settings.table}: {error}"))
