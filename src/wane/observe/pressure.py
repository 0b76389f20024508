"""Pressure: for every table that the contract names, how many rows it has, how old they are, and how many are due.

It is cheap enough to be read every few seconds: counts stop at `[health] counted_rows` and are estimated beyond, and
say so; the oldest and the newest row are the ends of an index. A table that cannot be read in time is reported without
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from wane.contract.model import Contract
from wane.db import Store
from wane.db.counting import Count, Exactness
from wane.db.statement import Statement
from wane.db.timestamps import read_time
from wane.errors import StoreError, Unreachable
from wane.observe.reading import Reading
from wane.observe.watched import Watched
from wane.rules.probes import UNREAD, Probe, Probes, WatchedTable
from wane.rules.rows import rows_of
from wane.rules.selection import Selection


@dataclass(frozen=True, slots=True)
class RuleDue:
    """What is due under one rule; None: not read in time."""

    selection: Selection
    due: Count | None


@dataclass(frozen=True, slots=True)
class Pressure:
    """One table.

    None means unknown: not read in time, or, for times and due rows, a table without a rule to read them by.
    """

    table: str
    rows: Count | None
    oldest: datetime | None = None
    newest: datetime | None = None
    due: Count | None = None

    @property
    def share(self) -> float | None:
        """Return the share of due rows; it is as exact as the two counts."""
        if self.due is None or self.rows is None:
            return None
        return round(min(self.due.rows / self.rows.rows, 1.0), 4) if self.rows.rows else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the columns of the view `v_queue_retention_pressure`."""
        return {
            "tbl": self.table,
            "rows": None if self.rows is None else self.rows.rows,
            "oldest": self.oldest,
            "newest": self.newest,
            "due": None if self.due is None else self.due.rows,
            "share": self.share,
            "rows_exactness": None if self.rows is None else self.rows.exactness.value,
            "due_exactness": None if self.due is None else self.due.exactness.value,
        }


@dataclass(frozen=True, slots=True)
class PressureReading:
    """One table's pressure, and what is due under each of its rules."""

    watched: WatchedTable
    pressure: Pressure
    rules: tuple[RuleDue, ...]


def read_pressure(asking: Reading, contract: Contract, watched: Watched) -> list[PressureReading]:
    """Read the pressure of every table."""
    tables = [_Looking(asking, table, contract.health.counted_rows) for table in watched.tables]
    looks = [look for one in tables for look in one.looks()]
    # Statements that may scan all rows run last, and alone, so that they delay no other.
    quick = [look for look in looks if not look.slow]
    slow = [look for look in looks if look.slow]
    values = asking.read([one.write for one in quick])
    for one in slow:
        values += asking.read([one.write])
    for look, value in zip([*quick, *slow], values, strict=True):
        look.owner.found[look.name] = value
    return [one.reading() for one in tables]


@dataclass(frozen=True, slots=True)
class _Named:
    owner: _Looking
    name: str
    write: Probe
    slow: bool = False


class _Looking:
    """The probes of one table, and their results."""

    def __init__(self, asking: Reading, table: WatchedTable, most: int) -> None:
        self.asking = asking
        self.store = asking.store
        self.table = table
        self.now = asking.now
        self.most = most
        self.found: dict[str, Any] = {}

    def looks(self) -> Iterable[_Named]:
        table, looks, most = self.table, self.asking.looks, self.most
        count = partial(looks.count, table=table.info, most=most, alone=table.alone)
        yield _Named(self, "rows", self._look("rows", count))
        if table.sight is not None:
            for name in ("oldest", "newest"):
                edge = partial(looks.edge, sight=table.sight, most=most, newest=name == "newest")
                yield _Named(self, name, self._look(name, edge))
        for number, selection in enumerate(self.table.selections):
            yield _Named(self, f"due_{number}", self._count([selection]), slow=bool(selection.per))
        if self.table.overlapping:
            slow = any(selection.per for selection in self.table.selections)
            yield _Named(self, "due", self._count(self.table.selections), slow=slow)

    def _look(self, name: str, write: Probe) -> Probe:
        return self.asking.look(name, self.table.info.qualified, write)

    def _count(self, selections: Sequence[Selection]) -> Probe:
        at, most = self.asking.written_at, self.most
        write = partial(self.asking.looks.count_due, selections=selections, now=at, most=most)
        return self.asking.look_due("due", selections, write)

    def reading(self) -> PressureReading:
        found = self.found
        rules = tuple(
            RuleDue(selection, self._due(found[f"due_{number}"], selection))
            for number, selection in enumerate(self.table.selections)
        )
        pressure = Pressure(
            str(self.table.name),
            self._rows(found["rows"]),
            self._moment(found.get("oldest")),
            self._moment(found.get("newest")),
            self._all_due(found.get("due", UNREAD), [one.due for one in rules]) if rules else None,
        )
        return PressureReading(self.table, pressure, rules)

    def _moment(self, value: Any) -> datetime | None:
        sight = self.table.sight
        return None if sight is None or value is UNREAD else read_time(value, sight.time)

    def _rows(self, found: Any) -> Count | None:
        if found is UNREAD:
            return None
        if found <= self.most:
            return Count(found)
        return self._beyond(self._estimate(lambda: self.store.estimate_rows(self.table.info)))

    def _due(self, found: Any, selection: Selection) -> Count | None:
        if found is UNREAD:
            return None
        if found <= self.most:
            return Count(found)
        exact = rows_of(self.store).count_due(selection, self.now)
        return self._beyond(self._estimate(lambda: self.store.estimate(exact)))

    def _all_due(self, together: Any, each: Sequence[Count | None]) -> Count | None:
        """Count what is due under any of the rules; None if a count is missing."""
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        if not self.table.overlapping:
            exactness = [one.exactness for one in known]
            worst = next((one for one in (Exactness.AT_LEAST, Exactness.ESTIMATE) if one in exactness), Exactness.EXACT)
            return Count(sum(one.rows for one in known), worst)
        if together is UNREAD:
            return None
        if together <= self.most:
            return Count(together)
        # How many rows two rules share is unknown; at least the larger number is due.
        return Count(max(self.most, *(one.rows for one in known)), Exactness.AT_LEAST)

    def _beyond(self, estimate: int | None) -> Count:
        if estimate is None:
            return Count(self.most, Exactness.AT_LEAST)
        return Count(max(estimate, self.most), Exactness.ESTIMATE)

    def _estimate(self, ask: Callable[[], int | None]) -> int | None:
        try:
            return ask()
        except Unreachable:
            raise
        except StoreError:
            return None


def estimate_states(store: Store, table: WatchedTable) -> int | None:
    """Estimate the rows in states that are not live, by the planner; None where the store has no such planner."""
    if not table.finished or not table.selections:
        return None
    p = store.parameters()
    text = Probes(rows_of(store)).count_states(p, table.selections[0], table.finished)
    return store.estimate(Statement(text, dict(p.values)))
