"""The sizes of tables on PostgreSQL. A partitioned table is the sum of its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wane._db.postgres.dialect import PostgresDialect
from wane._db.schema import Kind, TableInfo
from wane._db.statement import Parameters, Statement
from wane._db.store import Store

READ_SECONDS = 30.0
"""The time limit of one read of the catalogs."""

PARTS = """
SELECT wanted.schema, wanted.name, part.oid
FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = wanted.schema
JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = wanted.name
CROSS JOIN LATERAL (
  SELECT class.oid UNION SELECT relid::oid FROM pg_catalog.pg_partition_tree(class.oid)
) AS part (oid)
"""
"""The wanted tables, each with the OIDs of itself and of its partitions."""

SIZES = f"SELECT schema, name, sum(pg_total_relation_size(oid))::bigint FROM ({PARTS}) AS parts GROUP BY schema, name"


def read_sizes(store: Store, tables: Sequence[TableInfo]) -> dict[tuple[str, str], int]:
    """Read the bytes of tables with their indexes, by their full names."""
    found = store.read(Statement(SIZES, names_of(tables)), READ_SECONDS)
    return {(schema, name): size for schema, name, size in found if size is not None}


def names_of(tables: Sequence[TableInfo]) -> dict[str, Any]:
    """Return the parameters of PARTS."""
    return {"schemas": [table.schema for table in tables], "names": [table.name for table in tables]}


def table_size(p: Parameters, table: TableInfo) -> str:
    """Write the query for the bytes of a table, its indexes, its long values and its partitions."""
    name = f"{p.bind('relation', PostgresDialect().table(table).replace('%%', '%'))}::text::regclass"
    if table.kind is not Kind.PARTITIONED:
        return f"SELECT pg_total_relation_size({name})"
    return f"SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree({name})"
