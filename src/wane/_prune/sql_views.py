"""The tables that a view reads."""

from __future__ import annotations

import json
from contextlib import suppress

from wane._contract.names import join_name
from wane._db import Store
from wane._db.schema import TableInfo
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Statement
from wane.errors import StoreError

_SECONDS = 5.0
_BEHIND = """
WITH RECURSIVE reads AS (
    SELECT to_regclass(%(view)s)::oid AS relation
  UNION
    SELECT source.refobjid
    FROM reads
    JOIN pg_catalog.pg_rewrite AS rule ON rule.ev_class = reads.relation
    JOIN pg_catalog.pg_depend AS source
      ON source.classid = 'pg_catalog.pg_rewrite'::regclass AND source.objid = rule.oid
     AND source.refclassid = 'pg_catalog.pg_class'::regclass
)
SELECT DISTINCT namespace.nspname::text, class.relname::text
FROM reads
JOIN pg_catalog.pg_class AS class ON class.oid = reads.relation AND class.relkind IN ('r', 'p')
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
ORDER BY 1, 2
"""


def tables_behind(store: Store, view: TableInfo) -> list[str]:
    """Return the full names of the tables that a view reads, directly or through other views; empty if unknown."""
    if isinstance(store, SqliteStore):
        return _by_first_pages(store, view)
    name = store.dialect.table(view).replace("%%", "%")
    return [join_name([schema, table]) for schema, table in store.read(Statement(_BEHIND, {"view": name}), _SECONDS)]


def _by_first_pages(store: SqliteStore, view: TableInfo) -> list[str]:
    # No catalog lists what a view reads. The program that reads all of it opens every table, or an index of it, by its
    # first page.
    with suppress(StoreError):
        program = store.read(Statement(f"EXPLAIN SELECT * FROM {store.dialect.table(view)}", {}), _SECONDS)
        pages = json.dumps([row[3] for row in program if row[1] == "OpenRead"])
        text = (
            f"SELECT DISTINCT tbl_name FROM {store.dialect.quote(view.schema)}.sqlite_master WHERE rootpage IN"
            " (SELECT value FROM json_each(:pages)) ORDER BY 1"
        )
        return [join_name([view.schema, name]) for (name,) in store.read(Statement(text, {"pages": pages}), _SECONDS)]
    return []
