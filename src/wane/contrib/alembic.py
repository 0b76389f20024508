"""Alembic and SQLAlchemy: Wane's own tables stay out of migrations that are generated.

In `env.py`:

    from wane.contrib.alembic import include_name

    context.configure(connection=connection, target_metadata=metadata, include_schemas=True, include_name=include_name)
"""

from __future__ import annotations

from collections.abc import Mapping

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.sqlite.reflect import OWN_PREFIX


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """Return whether Alembic compares what has that name: everything but the tables that `wane migrate` creates."""
    if type_ == "schema":
        return name != OWN_SCHEMA
    if type_ == "table":
        schema = parent_names.get("schema_name")
        return schema != OWN_SCHEMA and not (schema is None and (name or "").startswith(OWN_PREFIX))
    return True
