"""Pressure: for every table that the contract names, how many rows it has, how old they are, and how many are due.

It is cheap enough to be read every few seconds: counts stop at `[health] counted_rows` and are estimated beyond, and
say so; the oldest and the newest row are the ends of an index. A table that cannot be read in time is reported without
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane._db.counting import Count
from wane.observe._facts import TableFacts


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

    @classmethod
    def of(cls, facts: TableFacts) -> Pressure:
        return cls(str(facts.table.name), facts.rows, facts.oldest, facts.newest, facts.due)

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
