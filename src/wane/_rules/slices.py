"""A table walked by its key, a bounded number of rows at a time: for rules whose rows no index has in order of time.

A slice is what lies between two keys. Its ends are found along the index of the key; the due rows in it are found by
every condition of `Rows.due`. A walk ends at the key that was last when it began: one that followed the rows that an
application adds meanwhile might never come back to the first ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wane._db.statement import NOW, Parameters, Slot, Statement
from wane._frozen import frozen
from wane._rules.rows import Rows, all_of, nested
from wane._rules.run_step import IF_LARGE, RunStep
from wane._rules.selection import Selection

_LIMIT = Slot("limit")
_ROWS = Slot("slice_rows")


@frozen
class SliceStatements:
    """The statements that walk a table by its key."""

    last: Statement
    """Find the last key."""
    first: Statement
    """Find the first and the last key of the first slice, and how many rows it has."""
    next: Statement
    """The same for the slice behind a key."""
    due: Statement
    """Find the keys of the due rows between two keys, in their order."""

    def steps(self) -> Iterator[RunStep]:
        """Yield the statements as they run."""
        yield RunStep("find where the walk ends", self.last, IF_LARGE)
        yield RunStep("find where the first slice ends", self.first, IF_LARGE)
        yield RunStep("find where the next one ends", self.next, IF_LARGE)
        yield RunStep("find the due rows in it", self.due, IF_LARGE)


def slice_statements(rows: Rows, selection: Selection) -> SliceStatements:
    """Write the statements that walk the table of a rule by its key."""
    writer = _SliceWriter(rows, selection)
    return SliceStatements(writer.last(), writer.ends(behind=False), writer.ends(behind=True), writer.due())


class _SliceWriter:
    def __init__(self, rows: Rows, selection: Selection) -> None:
        self.rows, self.dialect, self.selection = rows, rows.dialect, selection
        self.table = f"{self.dialect.table(selection.table)} AS t"
        self.columns = [rows.column(column) for column in selection.key]
        self.names = [f"key_{number}" for number in range(len(selection.key))]

    def last(self) -> Statement:
        p = self.rows.parameters()
        where = self.rows.identified(self.selection, "t")
        condition = f"\nWHERE {all_of(where)}" if where else ""
        keys = ", ".join(map(self.dialect.encode_key, self.columns))
        order = ", ".join(f"{column} DESC" for column in self.columns)
        return p.statement(f"SELECT {keys}\nFROM {self.table}{condition}\nORDER BY {order}\nLIMIT 1")

    def ends(self, *, behind: bool) -> Statement:
        p = self.rows.parameters()
        where = [*self.rows.identified(self.selection, "t"), *([self._beside(p, ">", "floor")] if behind else [])]
        where.append(self._beside(p, "<=", "until"))
        named = ", ".join(f"{column} AS {name}" for column, name in zip(self.columns, self.names, strict=True))
        rows = (
            f"SELECT {named}\nFROM {self.table}\nWHERE {all_of(where)}\nORDER BY {', '.join(self.columns)}\n"
            f"LIMIT {p.bind('slice_rows', _ROWS)}"
        )
        ends = [
            f"(SELECT * FROM slice ORDER BY {', '.join(f'{name}{how}' for name in self.names)} LIMIT 1) AS {alias}"
            for alias, how in (("first", ""), ("last", " DESC"))
        ]
        outputs = [self.dialect.encode_key(f"{alias}.{name}") for alias in ("first", "last") for name in self.names]
        return p.statement(
            f"WITH slice AS MATERIALIZED {nested(rows)}\n"
            f"SELECT {', '.join(outputs)}, (SELECT count(*) FROM slice)\nFROM {', '.join(ends)}"
        )

    def due(self) -> Statement:
        p = self.rows.parameters()
        where = [
            self._beside(p, ">=", "first"),
            self._beside(p, "<=", "last"),
            self.dialect.recheck(self.rows.due(p, self.selection, NOW)),
        ]
        keys = ", ".join(map(self.dialect.encode_key, self.columns))
        return p.statement(
            f"SELECT {keys}\nFROM {self.table}\nWHERE {all_of(where)}\nORDER BY {', '.join(self.columns)}\n"
            f"LIMIT {p.bind('limit', _LIMIT)}"
        )

    def _beside(self, p: Parameters, sign: str, name: str) -> str:
        slots: Sequence[Slot] = [Slot(f"{name}_{number}") for number in range(len(self.columns))]
        bound = [
            self.dialect.decode_key(p, f"{name}_key", column, slot)
            for column, slot in zip(self.selection.key, slots, strict=True)
        ]
        return self.rows.compare(self.selection.key, self.columns, sign, bound)
