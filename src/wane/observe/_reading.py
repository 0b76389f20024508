"""Reading users' tables within a time budget.

Each statement is bounded, and all together have a budget. Tables are read in one statement, or, if that fails, one by
one, those that were read longest ago first, so that a small budget reaches every table in the end.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from wane._contract.model import Contract
from wane._db import Store
from wane._db.counting import Count, Exactness, count_in_slices
from wane._db.statement import Statement
from wane._rules.probes import UNREAD, Probe, Probes, gather
from wane._rules.reads import held_tables
from wane._rules.rows import rows_of
from wane.errors import StoreError, Unreachable
from wane.observe._binding import BoundContract

PROBE_SECONDS = 0.25
"""The most that one statement on users' tables may take."""
OWN_SECONDS = 2.0
"""The most that one statement on Wane's own tables may take."""
_TOGETHER = 256
"""The most probes in one statement."""

_COUNT_SECONDS = 0.5
"""The most that counting beyond the limit of probes may take in one reading."""

T = TypeVar("T")
Key = tuple[tuple[str, str], str]
"""A table by its full name, and what is probed of it."""


def attempt(read: Callable[[], T]) -> T | None:
    """Return what a read finds; None if it takes too long or is refused."""
    try:
        return read()
    except Unreachable:
        raise
    except StoreError:
        return None


class Memory:
    """Remembers from one reading to the next what was read when, and what failed."""

    def __init__(self, retry_seconds: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin empty; retry probes that failed only after `retry_seconds`."""
        self.clock = clock
        self._retry_seconds = retry_seconds
        self._read_at: dict[Key, float] = defaultdict(lambda: float("-inf"))
        self._failed_at: dict[Key, float] = defaultdict(lambda: float("-inf"))
        self.many_rows: set[tuple[tuple[str, str], tuple[str, ...]]] = set()
        """Tables, each with the rules that take rows, or none, of which so many were found that they were estimated."""

    def resting(self, key: Key) -> bool:
        """Check whether probes failed a short while ago."""
        return self.clock() - self._failed_at[key] < self._retry_seconds

    def read_at(self, key: Key) -> float:
        return self._read_at[key]

    def note(self, key: Key, *, failed: bool) -> None:
        """Remember that probes were run, and whether one of them failed although it had its full time."""
        self._read_at[key] = self.clock()
        if failed:
            self._failed_at[key] = self.clock()


class Reading:
    """Runs prepared probes at one point in time, within a budget. All probes are written with `NOW` as the time."""

    def __init__(self, store: Store, contract: Contract, bound: BoundContract, memory: Memory, seconds: float) -> None:
        self.store = store
        self.contract = contract
        self.bound = bound
        self.now = store.now()
        self.most = contract.health.counted_rows
        """Rows are counted up to here."""
        self._memory = memory
        self.many_rows = memory.many_rows
        self._end = memory.clock() + seconds
        self._count_seconds = _COUNT_SECONDS
        self.held = held_tables(store, self.left(PROBE_SECONDS))
        """The tables in which anything is held, if that could be read."""
        self.probes = Probes(bound.prepared.rows, self.held)
        """Writes probes."""

    def left(self, most: float) -> float:
        """Return the seconds that a statement may take: `most`, or what is left of the budget."""
        return max(min(self._end - self._memory.clock(), most), 0.001)

    @property
    def in_time(self) -> bool:
        """Return whether anything of the budget is left."""
        return self._memory.clock() < self._end

    def count_on(self, up_to: Callable[[int], Statement], most: int | None = None) -> Count:
        """Count more rows than a probe counts, for a fraction of a second, or up to `most`; return a lower bound if
        there are too many.

        A count takes at most half of the time that is left for counting, so that something is left for the next.
        """
        left = max(min(self._count_seconds, self._end - self._memory.clock()), 0.0)
        if not left:
            return Count(self.most, Exactness.AT_LEAST)
        began, first = self._memory.clock(), most or 10 * self.most
        found = attempt(lambda: count_in_slices(self.store, up_to, first, min(left / 2, PROBE_SECONDS), most))
        self._count_seconds -= self._memory.clock() - began
        return found or Count(self.most, Exactness.AT_LEAST)

    def execute(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Read Wane's own tables."""
        return self.store.read(Statement(text, parameters), self.left(OWN_SECONDS))

    def read(self, groups: Mapping[Key, Mapping[str, Probe]]) -> dict[Key, dict[str, Any]]:
        """Run groups of probes: together, or, if that fails, group by group, and then one by one.

        Return the values of those that were read, by their names; UNREAD for one that failed.
        """
        waiting = {key: probes for key, probes in groups.items() if probes and not self._memory.resting(key)}
        found: dict[Key, dict[str, Any]] = {}
        for part in list(_parts(waiting)) if len(waiting) > 1 else []:
            values = self._run([probe for key in part for probe in waiting[key].values()])
            if values is not None:
                each = iter(values)
                found |= {key: dict(zip(waiting.pop(key), each, strict=False)) for key in part}
        for key in sorted(waiting, key=self._memory.read_at):
            if not self.in_time:
                break
            found[key] = self._read_one(key, waiting[key])
        for key in found.keys() - waiting.keys():
            self._memory.note(key, failed=False)
        return found

    def _read_one(self, key: Key, probes: Mapping[str, Probe]) -> dict[str, Any]:
        unhurried = self._end - self._memory.clock() >= PROBE_SECONDS
        values = self._run(list(probes.values()))
        if values is None:
            each = [self._run([probe]) for probe in probes.values()] if len(probes) > 1 else [None]
            values = [UNREAD if one is None else one[0] for one in each]
        if unhurried or UNREAD not in values:  # Else the budget ended, and it comes first next time.
            self._memory.note(key, failed=UNREAD in values)
        return dict(zip(probes, values, strict=True))

    def _run(self, probes: Sequence[Probe]) -> list[Any] | None:
        """Run some probes in one statement; return None if it takes too long or is refused."""
        if not self.in_time:
            return None
        text, p = gather(rows_of(self.store), probes, self.bound.prepared.values(self.now))
        try:
            [found] = self.store.read(p.statement(text), self.left(PROBE_SECONDS), often=True)
        except Unreachable:
            raise
        except StoreError:
            return None
        return list(found)


def _parts(groups: Mapping[Key, Mapping[str, Probe]]) -> Iterator[list[Key]]:
    """Cut groups into parts of a bounded number of probes."""
    part: list[Key] = []
    size = 0
    for key, probes in groups.items():
        if part and size + len(probes) > _TOGETHER:
            yield part
            part, size = [], 0
        part.append(key)
        size += len(probes)
    if part:
        yield part
