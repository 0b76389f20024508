"""One round of maintenance of one table: whatever it needs and is allowed automatically."""

from __future__ import annotations

import threading

from wane._contract.model import Contract, Partitioned
from wane._db import Store
from wane._partition.convert import Converter
from wane._partition.months_ahead import MonthsAhead
from wane._partition.retire import Retirer
from wane._partition.sql import partitions_of
from wane._partition.table import target_of
from wane._partition.work import PartitionWork
from wane._prune.pace import Pace
from wane.events import Listener


def maintain_table(store: Store, contract: Contract, settings: Partitioned, *, actor: str, listener: Listener) -> None:
    """Maintain one table.

    Take back the bound of a conversion that was left half-way before it rejects rows, create months ahead, and retire
    those that are past their time if the flags allow it. Partitions that the application makes are only retired.
    """
    steps = partitions_of(store)
    try:
        target = target_of(store, contract, settings)
        work = PartitionWork(store, contract, steps, actor, listener, Pace.of(contract.sweep), threading.Event())
        if settings.by_application:
            Retirer(work, archiving=None).retire(target)
            return
        converter = Converter(work)
        targets = (target, *work.followers(target))
        for one in targets:
            converter.unbind(one)
        change, *along = [work.change(one) for one in targets]
        if change is None or (change.kind, change.state) not in (("convert", "done"), ("split", "copying")):
            return
        MonthsAhead(work).create(target)
        if not any(one is not None and one.kind == "split" for one in (change, *along)):
            # What is to be archived leaves with the table's own sweeps, and its month when it is empty.
            Retirer(work, archiving=None).retire(target)
    finally:
        steps.close()
