"""The scopes of a cap per scope, walked along the cap's index.

A walk seeks from one scope to the next, and in each only as many rows as the cap allows, so it reads no more of a
scope with a million rows than of one that is just beyond its cap. Scopes with a NULL have walks of their own,
because no comparison finds them. Columns that treat different values as equal cannot be walked: an index has them in
another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from wane._contract.model import Cap
from wane._db.schema import Column
from wane._db.statement import Dialect, Parameters, Slot, Statement

if TYPE_CHECKING:
    from wane._rules.rows import Rows
    from wane._rules.selection import Selection

Nulls = tuple[bool, ...]
"""For each column of a scope, whether it is NULL."""
Scope = tuple[Any, ...]

MOST_SCOPES = 1_000
"""How many scopes beyond their cap one call reads."""
FEW_SCOPES = 1
"""How many of them a batch reads at first: each takes as long as its cap is high. Every further read is of twice as
many."""
SCOPES = Slot("scopes")
"""How many scopes a statement finds."""


def can_walk(dialect: Dialect, selection: Selection) -> bool:
    """Return whether an index has the scopes of a cap in order."""
    return not any(
        column.loose or (column.collation is not None and not dialect.locks_rows) for column in selection.per
    )


def walks(selection: Selection) -> list[Nulls]:
    """Return the walks that find all scopes, in the order in which they follow each other."""
    return list(product(*((False, True) if column.nullable else (False,) for column in selection.per)))


def walk_of(selection: Selection, scope: Scope) -> int:
    """Return the number of the walk that finds a scope."""
    return walks(selection).index(tuple(value is None for value in scope))


def each_scope(find: Callable[[Scope | None, int], list[Scope]], floor: Scope | None) -> Iterator[Scope]:
    """Yield scopes beyond their cap: the one in which the batch before ended, then those behind it.

    `find` reads some behind a scope. At most MOST_SCOPES are read.
    """
    if floor is not None:
        yield floor
    few, left = FEW_SCOPES, MOST_SCOPES
    while left > 0:
        found = find(floor, min(few, left))
        yield from found
        if len(found) < few:
            return
        floor, few, left = found[-1], few * 2, left - len(found)


class ScopeWalk:
    """Writes queries that walk the scopes of one rule."""

    def __init__(self, rows: Rows, selection: Selection) -> None:
        assert isinstance(selection.rule.bound, Cap)
        self.rows, self.dialect, self.selection = rows, rows.dialect, selection
        self.bound = selection.rule.bound
        self.table = self.dialect.table(selection.table)

    def beyond(self, begin: int | None = None, *, edged: bool = False) -> Statement:
        """Write the query for scopes that hold more rows than the cap allows.

        With the number of a walk, only for those behind a scope of that walk. If `edged`, with the position of the
        first row of each that its cap excludes, which it reads in any case, and the number of transactions that had
        ended.
        """
        p = self.rows.parameters()
        behind = [Slot(f"behind_{number}") for number in range(len(self.selection.per))]
        each = list(enumerate(walks(self.selection)))[begin or 0 :]
        tables = [self._walk(p, number, nulls, behind if number == begin else None) for number, nulls in each]
        found = [self._beyond_in(p, number, nulls, edged=edged) for number, nulls in each]
        union = "\nUNION ALL\n".join(found)
        return p.statement(f"WITH RECURSIVE {', '.join(tables)}\n{union}\nLIMIT {p.bind('scopes', SCOPES)}")

    def keys_beyond(self, p: Parameters) -> str:
        """Write the query for the keys of the rows that the caps of all scopes exclude."""
        each = list(enumerate(walks(self.selection)))
        tables = [self._walk(p, number, nulls) for number, nulls in each]
        found = [self._keys_in(p, number, nulls) for number, nulls in each]
        return f"WITH RECURSIVE {', '.join(tables)} {' UNION ALL '.join(found)}"

    def _walk(self, p: Parameters, number: int, nulls: Nulls, behind: Sequence[object] | None = None) -> str:
        """Write the table of the scopes of one walk."""
        walked = self._walked(nulls)
        if not walked:
            # A single scope, of NULLs alone; nothing is behind it.
            return f"walk_{number}(s) AS (SELECT 1{'' if behind is None else ' WHERE false'})"
        outputs, names = self.rows.columns(walked, "n"), ", ".join(_names(walked))
        start = None if behind is None else self._bound(p, nulls, behind)
        first = f"SELECT {outputs} FROM {self._first(nulls, start)}"
        step = self._first(nulls, [f"s.{name}" for name in _names(walked)])
        following = self.dialect.join_first("x", self.table, self.selection.key, walked, step)
        rest = f"SELECT {self.rows.columns(walked, 'x')} FROM walk_{number} AS s {following}"
        return f"walk_{number}({names}) AS (SELECT * FROM ({first}) AS f UNION ALL {rest})"

    def _first(self, nulls: Nulls, behind: Sequence[str] | None) -> str:
        """Write the source of the first row of the next scope behind one, `n`."""
        walked = self._walked(nulls)
        mine = [self.rows.column(column, "n") for column in walked]
        conditions = [
            f"{self.rows.column(column, 'n')} IS {'' if null else 'NOT '}NULL"
            for column, null in zip(self.selection.per, nulls, strict=True)
            if column.nullable
        ]
        conditions += self.rows.identified(self.selection, "n")
        if behind is not None:
            conditions.append(self.rows.compare(walked, mine, ">", behind))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"{self.table} AS n{where} ORDER BY {', '.join(mine)} LIMIT 1"

    def _bound(self, p: Parameters, nulls: Nulls, scope: Sequence[object]) -> list[str]:
        return [
            self.dialect.decode_key(p, "behind", column, value)
            for column, value, null in zip(self.selection.per, scope, nulls, strict=True)
            if not null
        ]

    def _beyond_in(self, p: Parameters, number: int, nulls: Nulls, *, edged: bool) -> str:
        named = dict(zip((column.name for column in self._walked(nulls)), _names(self._walked(nulls)), strict=True))
        outputs = [
            self.dialect.encode_key(f"s.{named[column.name]}" if column.name in named else "NULL")
            for column in self.selection.per
        ]
        source = self._first_excess(p, nulls)
        if not edged:
            return f"SELECT {', '.join(outputs)} FROM walk_{number} AS s WHERE (SELECT 1 FROM {source}) IS NOT NULL"
        selection, position = self.selection, self.rows.position_columns(self.selection)
        ended = self.dialect.ended_transactions
        assert ended is not None
        edge = self.dialect.join_first("x", self.table, selection.key, position, source)
        outputs += [self.dialect.encode_key(one) for one in self.rows.cap_position(selection, "x")]
        return f"SELECT {', '.join([*outputs, ended])} FROM walk_{number} AS s {edge}"

    def _keys_in(self, p: Parameters, number: int, nulls: Nulls) -> str:
        """Write the query for the keys at or below the first row of each scope that its cap excludes."""
        rows, selection = self.rows, self.selection
        position = rows.position_columns(selection)
        edge = self.dialect.join_first("x", self.table, selection.key, position, self._first_excess(p, nulls))
        below = rows.compare(position, rows.cap_position(selection, "b"), "<=", rows.cap_position(selection, "x"))
        where = " AND ".join([*self._same_scope("b", nulls), below])
        return (
            f"SELECT {rows.columns(selection.key, 'b')} FROM walk_{number} AS s {edge}"
            f" JOIN {self.table} AS b ON {where}"
        )

    def _first_excess(self, p: Parameters, nulls: Nulls) -> str:
        """Write the source of the first row of a scope `s` that its cap excludes, `n`."""
        where = [*self._same_scope("n", nulls), *self.rows.counted(p, self.selection)]
        position = self.rows.cap_position(self.selection, "n")
        return self.rows.first_excluded(p, self.selection, self.bound, position, where)

    def _same_scope(self, alias: str, nulls: Nulls) -> list[str]:
        walked = self._walked(nulls)
        same = [
            f"{self.rows.column(column, alias)} {self.dialect.sign('=', column)} s.{name}"
            for column, name in zip(walked, _names(walked), strict=True)
        ]
        missing = [column for column, null in zip(self.selection.per, nulls, strict=True) if null]
        return [*same, *(f"{self.rows.column(column, alias)} IS NULL" for column in missing)]

    def _walked(self, nulls: Nulls) -> list[Column]:
        return [column for column, null in zip(self.selection.per, nulls, strict=True) if not null]


def _names(columns: Sequence[Column]) -> list[str]:
    return [f"s{number}" for number in range(len(columns))]
