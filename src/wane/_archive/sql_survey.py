"""Statements of the survey: the number of rows of a table in a slice of time, and how many of them will be due when.
Each reads one slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from wane._db.statement import Parameters, Statement
from wane._db.timestamps import LATEST
from wane._rules.queries import Queries
from wane._rules.rows import Rows
from wane._rules.selection import Selection


@dataclass(frozen=True, slots=True)
class Slice:
    """From a time, included, to another, excluded."""

    start: datetime
    end: datetime

    @property
    def month(self) -> str:
        return f"{self.start:%Y-%m}"


class SurveyRows:
    """Writes statements about the rows of a table by their time."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def _in(self, p: Parameters, selection: Selection, slice_: Slice) -> list[str]:
        column, time, dialect = selection.time_column, selection.time, self.rows.dialect
        since = dialect.since(p, "t", column, time, slice_.start)
        return [*since, *dialect.before(p, "t", column, time, slice_.end, inclusive=False)]

    def edge(self, selection: Selection, *, newest: bool) -> Statement:
        """Write the query of the time of the oldest or the newest row that has one."""
        p = self.rows.parameters()
        column, time, dialect = selection.time_column, selection.time, self.rows.dialect
        order = f"{dialect.order('t', column, time)} {'DESC' if newest else 'ASC'}"
        probes = []
        for one in time.each:
            where = [
                *dialect.plausible(p, "t", column, one),
                *dialect.before(p, "t", column, one, LATEST, inclusive=False),
            ]
            source = f"{dialect.table(selection.table)} AS t WHERE {' AND '.join(where)}"
            probe = f"SELECT {self.rows.column(column)} AS row_time FROM {source} ORDER BY {order} LIMIT 1"
            probes.append((probe, one))
        return p.statement(
            Queries(self.rows).first_of(probes, newest=newest, instants=False) if time.also else probes[0][0]
        )

    def count(self, selection: Selection, slice_: Slice) -> Statement:
        """Write the query of the number of rows in a slice, whatever their state."""
        p = self.rows.parameters()
        where = " AND ".join(self._in(p, selection, slice_))
        return p.statement(f"SELECT count(*) FROM {self.rows.dialect.table(selection.table)} AS t WHERE {where}")

    def due(
        self, selection: Selection, slice_: Slice | None, at: datetime, others: Sequence[Selection] = ()
    ) -> Statement:
        """Write the query of the number of rows that are due at a time, if nothing happens to them until then.

        Only those of a slice, if one is given, and without those that other rules of the table take as well.
        """
        p = self.rows.parameters()
        conditions = [*self.rows.due(p, selection, at), *([] if slice_ is None else self._in(p, selection, slice_))]
        conditions += [f"({' AND '.join(self.rows.due(p, other, at))}) IS NOT TRUE" for other in others]
        where = " AND ".join(conditions)
        return p.statement(f"SELECT count(*) FROM {self.rows.dialect.table(selection.table)} AS t WHERE {where}")
