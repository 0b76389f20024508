"""One look after one table: whatever it needs and may have by itself."""

from __future__ import annotations

import threading

from wane.contract.model import Contract, Partitioned
from wane.events import Listener
from wane.partition.convert import Converter
from wane.partition.maintain import Maintainer
from wane.partition.place import place_of
from wane.partition.retire import Retirer
from wane.partition.work import Work
from wane.prune.pace import Pace
from wane.store import Store


def keep_table(store: Store, contract: Contract, settings: Partitioned, *, actor: str, listener: Listener) -> None:
    """Make months ahead; let go those that are past their time, if the flags allow it; take back the bound of a conversion that was left half-way before it stops anybody."""
    steps = store.partitions()
    try:
        place = place_of(store, contract, settings)
        work = Work(store, contract, steps, actor, listener, Pace.of(contract.sweep), threading.Event())
        converter = Converter(work)
        places = (place, *work.followers(place))
        for one in places:
            converter.unbind(one)
        change, *along = [work.change(one) for one in places]
        if change is None or (change.kind, change.state) not in (("convert", "done"), ("split", "copying")):
            return
        Maintainer(work).maintain(place)
        if not any(one is not None and one.kind == "split" for one in (change, *along)):
            # What is to be archived leaves with the table's own sweeps, and its month when it is empty.
            Retirer(work, archiving=None).retire(place)
    finally:
        steps.close()
