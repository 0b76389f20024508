"""How much room tables take."""

from __future__ import annotations

from wane.store.postgres.dialect import PostgresDialect
from wane.store.schema import Kind, TableInfo
from wane.store.statement import Parameters


def table_size(p: Parameters, table: TableInfo) -> str:
    """The bytes of a table, its indexes, its long values and its partitions."""
    name = f"{p.bind('relation', PostgresDialect().table(table).replace('%%', '%'))}::text::regclass"
    if table.kind is not Kind.PARTITIONED:
        return f"SELECT pg_total_relation_size({name})"
    return f"SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree({name})"
