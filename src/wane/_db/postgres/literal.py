"""Values as PostgreSQL literals."""

from __future__ import annotations

from psycopg import sql


def literal(value: object) -> str:
    """Write a value as a SQL literal."""
    return sql.Literal(value).as_string(None).strip()
