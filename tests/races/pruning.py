"""One of several processes that prune the same table until nothing is due."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from together import begin
from wane._contract.model import Cap
from wane._keeper import open_keeper
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome
from wane.errors import Locked
from wane.events import BatchTaken, Event

_MOST_CALLS = 10_000
_EMPTY_CALLS = 50
"""A call that loses a race for the same rows takes none, so taking none once does not mean that none are due."""
_BETWEEN_BATCHES_SECONDS = 0.005
"""SQLite gives the write lock to the process that polls it first: without this, one process can do it all."""


def main(url: str, contract: str, name: str, how: str, limit: int) -> dict[str, Any]:
    """Return how many rows of each table it took, and how often a lock refused it."""
    table, _, rule = name.partition(".")
    taken: Counter[str] = Counter()
    locked = 0

    def received(event: Event) -> None:
        if isinstance(event, BatchTaken):
            taken.update(event.counts)
            time.sleep(_BETWEEN_BATCHES_SECONDS)

    with open_keeper(url, contract=Path(contract), actor="one of several", listener=received) as keeper:
        cap = isinstance(keeper.contract.tables[0].rule(rule).bound, Cap)
        begin()
        pace = Pace(target_seconds=0.05, duty=1.0, first_batch=limit, least_batch=limit, most_batch=limit)
        empty = 0
        for _ in range(_MOST_CALLS):
            if empty == _EMPTY_CALLS:
                break
            if how == "sweep":
                [swept] = keeper.sweep(name, approve=[name], pace=pace).rules
                if swept.outcome is Outcome.FAILED:
                    raise RuntimeError(swept.message)
                empty = 0 if swept.rows else empty + 1
                continue
            try:
                counts = keeper.prune(table, rule=rule, limit=limit).counts
            except Locked:
                if not cap:
                    raise
                locked += 1  # A cap skips nothing; its caller tries again.
                continue
            taken.update(counts)
            empty = 0 if sum(counts.values()) else empty + 1
    return {"taken": taken, "locked": locked}
