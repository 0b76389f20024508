"""What becomes of a table's archive when the table's columns change.

A column that was dropped stays in the archive, and later rows are NULL there; a column that was added is added; one
that was renamed is both, unless the contract names it (`wane._archive.rows.names`). A column whose type changed has the
wider of both types, if one holds every value of the other: files stay as they were written, and every reader casts
while it reads (`wider`). Any other change of a type is refused, because no column could hold both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

WHOLE = ("short", "integer", "long")
"""Kinds of whole numbers, each wider than the one before."""
_FRACTIONS = ("float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def wider(one: str, other: str) -> str | None:
    """Return the one of two kinds that holds every value of both; None if neither does.

    Only what delta-rs, DuckDB, Polars, pandas and Spark cast while they read files with the narrower type: whole
    numbers, fractions, and decimals with as many digits after the point.
    """
    for family in (WHOLE, _FRACTIONS):
        if one in family and other in family:
            return max(one, other, key=family.index)
    first, second = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if first and second and first[2] == second[2]:
        return max(one, other, key=lambda kind: int(_DECIMAL.fullmatch(kind)[1]))  # type: ignore[index]
    return one if one == other else None


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of a table's columns, between two sweeps."""

    table: str
    column: str
    was: str | None
    """Its type in the archive before; None if it was added."""
    now: str | None
    """Its type in the archive since; None if it was dropped."""
    renamed_from: str | None = None
    """Its name in the table before, if the contract states that it was renamed."""

    def written(self) -> dict[str, Any]:
        """Return this as the journal stores it."""
        return asdict(self)


def find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ColumnChange]:
    """Compare the columns of tables that are in both, each a list of (column, kind)."""
    found = []
    for table in after:
        if table not in before:
            continue
        was, now = _kinds(before[table]), _kinds(after[table])
        found += [
            ColumnChange(table, name, was.get(name), now.get(name))
            for name in dict.fromkeys([*was, *now])
            if was.get(name) != now.get(name)
        ]
    return found


def find_renames(
    table: str, renamed: Mapping[str, str], before: Sequence[str], after: Mapping[str, str]
) -> list[ColumnChange]:
    """Return the columns that were renamed, by the columns of the last sweep, and those of this one with their
    types."""
    return [
        ColumnChange(table, now, after[now], after[now], was)
        for now, was in renamed.items()
        if was in before and now not in before and now in after
    ]


def _kinds(shape: Sequence[Sequence[str]]) -> dict[str, str]:
    return {one[0]: one[1] for one in shape}
