"""The asyncio facade of partitions.

Every call runs on the keeper's own thread, after its earlier calls and never concurrently with one.
"""

from __future__ import annotations

from wane._aio import Awaited, awaited
from wane._partition.facade import Partition


class AsyncPartition(Awaited[Partition]):
    """A Partition whose calls are awaited. It is `partition` of an AsyncKeeper."""

    convert = awaited(Partition.convert)
    maintain = awaited(Partition.maintain)
    plan = awaited(Partition.plan)
    reattach = awaited(Partition.reattach)
    retire = awaited(Partition.retire)
    split = awaited(Partition.split)
    undo = awaited(Partition.undo)
