"""Space on PostgreSQL: the size of tables and indexes, and about how much of it a fresh copy would not need.

The estimate compares the size of a table with what its rows need by the planner's statistics; it costs nothing, needs
no extension, and is about right for tables without large values. A partitioned table is the sum of its partitions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from wane._db.postgres.sizes import PARTS, READ_SECONDS, names_of
from wane._db.schema import TableInfo
from wane._db.statement import Statement
from wane._db.store import Store
from wane.observe._space_model import IndexSpace, TableSpace

_PAGE = 8192
_PAGE_HEADER = 24
_ROW_HEADER = 24
_POINTER = 4
_INDEX_HEADER = 8
_INDEX_FILL = 0.9

# Statements for a user to run, each for a name.
VACUUM = "VACUUM (ANALYZE) {};"
ANALYZE = "ANALYZE {};"
TRIM = "VACUUM (TRUNCATE, ANALYZE) {};"
REWRITE = "VACUUM (FULL, ANALYZE) {};"
REINDEX = "REINDEX INDEX CONCURRENTLY {};"

# pg_stats shows the statistics of tables that the role may read; of others the width is NULL.
TABLES = f"""
SELECT parts.schema, parts.name, parts.oid,
       pg_relation_size(parts.oid)::bigint,
       (pg_table_size(parts.oid) - pg_relation_size(parts.oid))::bigint,
       pg_indexes_size(parts.oid)::bigint,
       CASE WHEN class.reltuples >= 0 AND class.relpages > 0
            THEN class.reltuples::float8 / class.relpages * (pg_relation_size(parts.oid) / 8192.0) END,
       coalesce((SELECT option_value::int FROM pg_options_to_table(class.reloptions) WHERE option_name = 'fillfactor'), 100),
       coalesce(live.n_live_tup, 0),
       coalesce(live.n_dead_tup, 0),
       greatest(live.last_vacuum, live.last_autovacuum),
       (SELECT sum((1 - null_frac) * avg_width)::float8 FROM pg_catalog.pg_stats
         WHERE schemaname = namespace.nspname AND tablename = class.relname AND NOT inherited),
       CASE WHEN class.reltoastrelid <> 0 THEN pg_relation_size(class.reltoastrelid) ELSE 0 END::bigint
FROM ({PARTS}) AS parts
JOIN pg_catalog.pg_class AS class ON class.oid = parts.oid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
LEFT JOIN pg_catalog.pg_stat_all_tables AS live ON live.relid = parts.oid
WHERE class.relkind <> 'p' -- A partitioned table holds nothing itself.
"""

INDEXES = f"""
SELECT parts.schema, parts.name, parts.oid, namespace.nspname::text, class.relname::text,
       pg_relation_size(class.oid)::bigint,
       class.reltuples::float8,
       index.indpred IS NOT NULL,
       method.amname = 'btree',
       (SELECT CASE WHEN count(stats.avg_width) = index.indnatts THEN sum((1 - stats.null_frac) * stats.avg_width)::float8 END
          FROM pg_catalog.pg_attribute AS attribute
          JOIN pg_catalog.pg_class AS owner ON owner.oid = attribute.attrelid
          JOIN pg_catalog.pg_namespace AS owner_namespace ON owner_namespace.oid = owner.relnamespace
          LEFT JOIN pg_catalog.pg_stats AS stats ON stats.schemaname = owner_namespace.nspname
            AND stats.tablename = owner.relname AND stats.attname = attribute.attname AND NOT stats.inherited
         WHERE attribute.attrelid = index.indrelid AND attribute.attnum = ANY (index.indkey::int2[]))
FROM ({PARTS}) AS parts
JOIN pg_catalog.pg_index AS index ON index.indrelid = parts.oid
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid AND class.relkind = 'i'
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_catalog.pg_am AS method ON method.oid = class.relam
ORDER BY 4, 5
"""

_Key = tuple[str, str]


def read_space(store: Store, tables: Sequence[TableInfo]) -> dict[_Key, TableSpace]:
    """Read the sizes of tables, and how much of them is unused, by their full names."""
    parts: dict[_Key, list[tuple[Any, ...]]] = defaultdict(list)
    rows_of: dict[int, float] = {}
    for schema, name, oid, *facts in store.read(Statement(TABLES, names_of(tables)), READ_SECONDS):
        _, _, _, believed, _, live, *_ = facts
        # The planner's number misses rows deleted since; the activity statistics count some twice, and after a crash
        # none.
        rows_of[oid] = float(live) if believed is None else believed if not live else min(believed, float(live))
        parts[schema, name].append((rows_of[oid], *facts))
    indexes: dict[_Key, list[IndexSpace]] = defaultdict(list)
    for schema, name, oid, *facts in store.read(Statement(INDEXES, names_of(tables)), READ_SECONDS):
        indexes[schema, name].append(_index(rows_of.get(oid, 0.0), *facts))
    return {key: _table(key, some, indexes[key]) for key, some in parts.items()}


def _table(key: _Key, parts: list[tuple[Any, ...]], indexes: list[IndexSpace]) -> TableSpace:
    rows = sum(part[0] for part in parts)
    heap, beside, index_bytes = (sum(part[number] for part in parts) for number in (1, 2, 3))
    dead = sum(part[7] for part in parts)
    # A part without rows needs no statistics.
    known = [part for part in parts if part[9] is not None or not part[0]]
    unused = None
    if len(known) == len(parts) and (rows or dead):
        unused = sum(max(part[1] - _needed(part[0] + part[7], part[9] or 0.0, part[5]), 0) for part in parts)
    width = sum(part[0] * part[9] for part in parts if part[9] is not None and part[0])
    measured = sum(part[0] for part in parts if part[9] is not None)
    per_row = None
    if measured:
        # Large values are stored separately, those of deleted rows too.
        per_row = _aligned(_ROW_HEADER + width / measured) + _POINTER + sum(part[10] for part in parts) / (rows + dead)
    elif rows or dead:
        per_row = (heap + beside) / (rows + dead)
    vacuumed = [part[8] for part in parts if part[8] is not None]
    return TableSpace(
        *key,
        table_bytes=heap + beside,
        index_bytes=index_bytes,
        rows=round(rows),
        dead_rows=dead,
        row_bytes=per_row,
        unused_bytes=unused,
        vacuumed_at=max(vacuumed, default=None),
        indexes=tuple(indexes),
    )


def _needed(rows: float, width: float, fill: int) -> int:
    """Estimate the bytes that a number of rows needs in fresh pages."""
    usable_bytes = (_PAGE - _PAGE_HEADER) * fill / 100
    in_page = max(int(usable_bytes / (_aligned(_ROW_HEADER + width) + _POINTER)), 1)
    return math.ceil(rows / in_page) * _PAGE


def _index(
    rows: float, schema: str, name: str, size: int, believed: float, partial: bool, btree: bool, width: float | None
) -> IndexSpace:
    if not btree or width is None:
        return IndexSpace(schema, name, size)
    # The index's own estimate is from the last vacuum; rows may have been deleted since.
    entries = max(believed, 0.0) if partial else rows
    needed = entries * (_aligned(_INDEX_HEADER + width) + _POINTER) / _INDEX_FILL
    return IndexSpace(schema, name, size, max(size - math.ceil(needed / _PAGE + 2) * _PAGE, 0))


def _aligned(size: float) -> int:
    return math.ceil(size / 8) * 8
