"""Writing archived values back into PostgreSQL: every value is passed as a text and cast to its column's type."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from wane._archive.restore.sql import RestoreDialect
from wane._archive.rows.types import Stored
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.schema import SIDE_TABLE, Column
from wane._db.statement import Execute, Parameters

_LONGEST_NAME = 63
_MAY_CREATE = """
SELECT has_schema_privilege(n.oid, 'CREATE'),
  EXISTS (SELECT 1 FROM pg_class AS c WHERE c.relnamespace = n.oid AND c.relname = %(name)s)
FROM pg_namespace AS n WHERE n.nspname = %(schema)s
"""


class PostgresRestore(RestoreDialect):
    """Values are passed as one array for each column."""

    most_values = 1_000_000

    def values(self, p: Parameters, columns: Sequence[tuple[Column, Stored]], rows: Sequence[Sequence[Any]]) -> str:
        arrays = [
            f"{p.bind(f'v{number}', [_text(row[number]) for row in rows])}::text[]" for number in range(len(columns))
        ]
        names = ", ".join(f"c{number}" for number in range(len(columns)))
        typed = ", ".join(f"u.c{number}::{_type(column)} AS c{number}" for number, (column, _) in enumerate(columns))
        return f"SELECT {typed} FROM unnest({', '.join(arrays)}) AS u({names})"

    def insert(self, table: str, names: Sequence[str], values: str) -> str:
        return f"INSERT INTO {table} ({', '.join(names)}) OVERRIDING SYSTEM VALUE {values}"

    def declared(self, column: Column) -> str:
        return _type(column)

    def create_side(self, table: str, definition: str) -> Sequence[str]:
        return f"CREATE TABLE {table} ({definition})", f"COMMENT ON TABLE {table} IS '{SIDE_TABLE}'"

    def refused_side(self, schema: str | None, name: str) -> str:
        if schema == OWN_SCHEMA:
            return "its schema is Wane's own"
        if schema is not None and (schema.startswith("pg_") or schema == "information_schema"):
            return "its schema is the server's own"
        if len(name.encode()) > _LONGEST_NAME:
            return f"it has more than {_LONGEST_NAME} bytes, and PostgreSQL would cut it off"
        return ""

    def refused_new(self, run: Execute, schema: str | None, name: str) -> str:
        found = run(_MAY_CREATE, {"schema": schema, "name": name})
        if not found:
            return "its schema does not exist" if schema else "the search path has no schema for it"
        [(permitted, taken)] = found
        if taken:
            return "something that is no table has this name"
        return "" if permitted else f"the role may not create tables in the schema {schema}"


def _type(column: Column) -> str:
    return column.type.replace("%", "%%")


def _text(value: Any) -> str | None:
    """Encode a value as PostgreSQL reads it, under the settings of our connections."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    # The shortest digits that represent exactly this number.
    return repr(value) if isinstance(value, float) else str(value)
