"""Writing archived values back into SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wane._archive.restore.sql import RestoreDialect
from wane._archive.rows.types import Stored
from wane._db.schema import SIDE_TABLE, Column
from wane._db.sqlite.reflect import OWN_PREFIX
from wane._db.statement import Execute, Parameters

_REAL = ("REAL", "FLOA", "DOUB")


class SqliteRestore(RestoreDialect):
    """Values are bound one by one."""

    most_values = 30_000

    def values(self, p: Parameters, columns: Sequence[tuple[Column, Stored]], rows: Sequence[Sequence[Any]]) -> str:
        given = (
            ", ".join(
                p.bind(f"v{row}_{number}", _value(column, value))
                for number, ((column, _), value) in enumerate(zip(columns, values, strict=True))
            )
            for row, values in enumerate(rows)
        )
        names = ", ".join(f"column{number + 1} AS c{number}" for number in range(len(columns)))
        return f"SELECT {names} FROM (VALUES {', '.join(f'({one})' for one in given)})"

    def insert(self, table: str, names: Sequence[str], values: str) -> str:
        return f"INSERT INTO {table} ({', '.join(names)}) {values}"

    def declared(self, column: Column) -> str:
        return column.type

    def create_side(self, table: str, definition: str) -> Sequence[str]:
        # SQLite stores the text of the statement, with what is commented inside it.
        return (f"CREATE TABLE {table} (/* {SIDE_TABLE} */ {definition})",)

    def refused_side(self, schema: str | None, name: str) -> str:
        if schema not in (None, "main"):
            return "it is not in the main database, and one SQLite transaction over two files is not atomic"
        if name.lower().startswith(OWN_PREFIX):
            return "such names are Wane's own"
        return "such names are SQLite's own" if name.lower().startswith("sqlite_") else ""

    def refused_new(self, run: Execute, schema: str | None, name: str) -> str:
        found = run("SELECT type FROM main.sqlite_master WHERE lower(name) = lower(:name)", {"name": name})
        return f"{found[0][0]} {name} exists" if found else ""


def _value(column: Column, value: Any) -> Any:
    """Convert a whole number in a numeric column back to an integer, which it was before it was archived as a
    fraction."""
    if isinstance(value, float) and value.is_integer() and not any(word in column.type for word in _REAL):
        return int(value)
    return value
