"""One look after one table: whatever it needs and may have by itself."""

from __future__ import annotations

import threading

from wane.contract.model import Contract, Partitioned, Retired
from wane.errors import PartitionError
from wane.events import Listener
from wane.partition.convert import Converter
from wane.partition.maintain import Maintainer
from wane.partition.place import followers_of, place_of
from wane.partition.retire import Retirer
from wane.prune.pace import Pace
from wane.store import Store


def keep_table(store: Store, contract: Contract, settings: Partitioned, *, actor: str, listener: Listener) -> None:
    """Make months ahead; let go those that are past their time, if the flags allow it; take back the bound of a conversion that was left half-way before it stops anybody."""
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
        Maintainer(store, contract, steps, listener=listener).maintain(place)
        if settings.then is Retired.ARCHIVE:
            return  # That is for `wane partition retire`, which may start Spark.
        Retirer(
            store,
            contract,
            steps,
            actor=actor,
            listener=listener,
            archiving=_no_archive,
            pace=Pace.of(contract.sweep),
            stop=threading.Event(),
        ).retire(place)
    finally:
        steps.close()


def _no_archive(table: str) -> None:
    raise PartitionError(f"{table} is archived first", "run `wane partition retire`")
