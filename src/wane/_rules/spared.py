"""The newest rows of each scope, which a rule spares whatever their age.

They are counted among the rule's own rows, like those of a cap. A row leaves only if as many of its scope are newer, in
the statement that deletes. Where transactions lock rows, the newest are locked first: a row must not leave because of a
newer one that another transaction is deleting.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from wane._db.statement import Parameters

if TYPE_CHECKING:
    from wane._rules.rows import Rows
    from wane._rules.selection import Selection

Nulls = tuple[bool, ...]


class SparedRows:
    """Writes conditions about the rows that one rule spares."""

    def __init__(self, rows: Rows, selection: Selection) -> None:
        assert selection.rule.spare is not None
        self.rows, self.dialect, self.selection = rows, rows.dialect, selection
        self.newest, self.per = selection.rule.spare.newest, selection.spared_per
        self.table = self.dialect.table(selection.table)

    def outnumbered(self, p: Parameters) -> str:
        """Write the condition that a row `t` is not among the newest of its scope."""
        cases = [(self._nulls(nulls), self._newer(p, nulls)) for nulls in self._each()]
        if len(cases) == 1:
            return cases[0][1]
        # No index serves an equality that is true for two NULLs.
        return "CASE\n" + "\n".join(f"  WHEN {when} THEN {newer}" for when, newer in cases) + "\n  END"

    def keys(self, p: Parameters) -> str:
        """Write the query for the keys of the newest rows in the scopes of the rows whose keys fill a slot."""
        key, position = self.selection.key, self.rows.cap_position(self.selection, "n")
        among = self.rows.among(p, self.selection, None)
        limit = p.bind("spared", self.newest)
        found = []
        for nulls in self._each():
            where = [*self._same_scope(nulls), *self.rows.counted(p, self.selection)]
            source = self.rows.newest(p, self.selection, position, where, limit, f"LIMIT {limit}")
            newest = f"SELECT {self.rows.columns(key, 'n')} FROM {source}"
            mine = " AND ".join(one for one in (among, self._nulls(nulls)) if one)
            found.append(
                f"SELECT {self.rows.columns(key, 'x')} FROM {self.table} AS t CROSS JOIN LATERAL ({newest}) AS x"
                f" WHERE {mine}"
            )
        return " UNION ALL ".join(found)

    def _each(self) -> list[Nulls]:
        return list(product(*((False, True) if column.nullable else (False,) for column in self.per)))

    def _nulls(self, nulls: Nulls) -> str:
        return " AND ".join(
            f"{self.rows.column(column)} IS {'' if null else 'NOT '}NULL"
            for column, null in zip(self.per, nulls, strict=True)
            if column.nullable
        )

    def _newer(self, p: Parameters, nulls: Nulls) -> str:
        """Write the condition that as many rows of the scope are newer than a row as are spared."""
        rows, selection = self.rows, self.selection
        mine, theirs = (rows.cap_position(selection, alias) for alias in ("t", "n"))
        walked = [self.dialect.order(alias, selection.time_column, selection.time) for alias in ("t", "n")]
        where = self._same_scope(nulls)
        # Of several lower bounds SQLite walks an index from the first: from the row on, not from the oldest of all.
        if walked[0] != mine[0]:
            # An index finds the second of a text, and its order inside of that is another than that of the instants.
            where.append(f"{walked[1]} >= substr({walked[0]}, 1, 19)")
        where.append(rows.compare(rows.position_columns(selection), theirs, ">", mine))
        where += [*rows.about(p, selection, alias="n"), *rows.counted(p, selection)]
        some = f"SELECT 1 FROM {self.table} AS n\n  WHERE {f'{chr(10)}    AND '.join(where)}"
        return f"({some}\n  LIMIT 1 OFFSET {p.bind('spared', self.newest)} - 1) IS NOT NULL"

    def _same_scope(self, nulls: Nulls) -> list[str]:
        conditions = []
        for column, null in zip(self.per, nulls, strict=True):
            mine, theirs = self.rows.column(column), self.rows.column(column, "n")
            if null:
                conditions.append(f"{theirs} IS NULL")
                continue
            conditions.append(f"{theirs} {self.dialect.sign('=', column)} {mine}")
            if column.loose or (column.collation is not None and not self.dialect.locks_rows):
                conditions.append(" = ".join(self.dialect.bytewise(one, column) for one in (theirs, mine)))
        return conditions
