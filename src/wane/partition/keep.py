"""One look after one table: whatever it needs and may have by itself."""

from __future__ import annotations

from wane.contract.model import Contract, Partitioned
from wane.events import Listener
from wane.partition.convert import Converter
from wane.partition.maintain import Maintainer
from wane.partition.place import followers_of, place_of
from wane.store import Store


def keep_table(store: Store, contract: Contract, settings: Partitioned, *, actor: str, listener: Listener) -> None:
    """Make months ahead; take back the bound of a conversion that was left half-way before it stops anybody."""
    steps = store.partitions()
    try:
        place = place_of(store, contract, settings)
        converter = Converter(store, contract, steps, actor=actor, listener=listener)
        for one in (place, *(place_of(store, contract, follower) for follower in followers_of(contract, settings))):
            converter.unbind(one)
        with steps.journaling() as journal:
            change = journal.change(place.full)
        if change is None or change.kind != "convert" or change.state != "done":
            return
        maintainer = Maintainer(store, contract, steps, listener=listener)
        maintainer.maintain(place)
    finally:
        steps.close()
