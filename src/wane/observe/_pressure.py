"""Pressure: for every table that the contract names, how many rows it has, how old they are, and how many are due.

It is cheap enough to be read every few seconds: beyond `[health] counted_rows`, rows are counted only within a fraction
of a second, or estimated, and every number states which it is; the oldest and the newest row are the ends of an index.
A table that cannot be read in time is reported without numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from wane._db.counting import Count, Figure, share_of, stated
from wane._db.timestamps import shown_time
from wane.observe._facts import TableFacts


@dataclass(frozen=True, slots=True)
class Pressure:
    """One table.

    None means unknown: not read in time, or, for times and due rows, a table without a rule to read them by.
    """

    table: str
    rows: Count | None
    oldest: datetime | date | None = None
    """The day, where the column has days."""
    newest: datetime | date | None = None
    due: Count | None = None
    lacks_index: bool = False
    """Whether the times are unknown because no index is ordered by them, and the table has too many rows to read."""

    @classmethod
    def of(cls, facts: TableFacts) -> Pressure:
        name, time_range = str(facts.table.name), facts.table.time_range
        if time_range is None:
            return cls(name, facts.rows, facts.oldest, facts.newest, facts.due)
        oldest, newest = (shown_time(one, time_range.time) for one in (facts.oldest, facts.newest))
        return cls(name, facts.rows, oldest, newest, facts.due, facts.lacks_index)

    @property
    def share(self) -> Figure | None:
        """Return the share of due rows: as exact as the two counts, or None where they do not even give a bound."""
        return share_of(self.due, self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the columns of the view `v_queue_retention_pressure`."""
        rows, due, share = stated("rows", self.rows), stated("due", self.due), stated("share", self.share)
        return {
            "tbl": self.table,
            "rows": rows.pop("rows"),
            "oldest": self.oldest,
            "newest": self.newest,
            "due": due.pop("due"),
            "share": share.pop("share"),
            **rows,
            **due,
            **share,
        }
