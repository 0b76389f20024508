"""What deleting rows relies on, read from the catalogs in the transaction that deletes.

A foreign key to a table, or a trigger on it, can be added only under a lock that conflicts with DELETE's. So once rows
were deleted, a fresh snapshot of the catalogs shows every one that acted on them. An inheriting table can be added
meanwhile: it is then visible here, or was not affected.
"""

from __future__ import annotations

from wane._db.postgres.catalog import ACTIONS, BELONGS_TO_EXTENSION, STAMP
from wane._db.statement import Execute, Statement
from wane._rules.rows import Rows
from wane._rules.selection import Selection, losing, schema_changed

_ACTION = " ".join(f"WHEN '{letter}' THEN '{action}'" for letter, action in ACTIONS.items())

# Foreign keys are found by the triggers that they have on the parent, because those have an index. On PostgreSQL 14
# only partitions have them, by copies of the key; the one that was declared is at the end of the chain.
_WITH = f"""
WITH RECURSIVE part AS (
    SELECT class.oid, class.oid AS named
    FROM unnest(%(tables)s::text[]) AS name
    JOIN pg_catalog.pg_class AS class ON class.oid = pg_catalog.to_regclass(name)
  UNION
    SELECT class.oid, part.named
    FROM part
    JOIN pg_catalog.pg_inherits AS descendant ON descendant.inhparent = part.oid
    JOIN pg_catalog.pg_class AS class ON class.oid = descendant.inhrelid
    WHERE NOT pg_catalog.pg_is_other_temp_schema(class.relnamespace)
      AND NOT {BELONGS_TO_EXTENSION.format(catalog="pg_namespace", oid="class.relnamespace")}
),
known AS (
    SELECT fires.tgconstraint AS oid
    FROM part JOIN pg_catalog.pg_trigger AS fires ON fires.tgrelid = part.oid
    WHERE fires.tgconstraint <> 0
  UNION
    SELECT key.conparentid
    FROM known JOIN pg_catalog.pg_constraint AS key ON key.oid = known.oid
    WHERE key.conparentid <> 0
),
named AS NOT MATERIALIZED (
    SELECT class.oid, namespace.nspname || '.' || class.relname AS name
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
)
"""
_EFFECTS = f"""
SELECT 'foreign key ' || key.conname || ' of ' || child.name || ' ('
       || array_to_string(ARRAY(
            SELECT mine.attname FROM unnest(key.conkey) WITH ORDINALITY AS one (attnum, position)
            JOIN pg_catalog.pg_attribute AS mine ON mine.attrelid = key.conrelid AND mine.attnum = one.attnum
            ORDER BY position), ', ')
       || ') to ' || parent.name || ' ('
       || array_to_string(ARRAY(
            SELECT theirs.attname FROM unnest(key.confkey) WITH ORDINALITY AS one (attnum, position)
            JOIN pg_catalog.pg_attribute AS theirs ON theirs.attrelid = key.confrelid AND theirs.attnum = one.attnum
            ORDER BY position), ', ')
       || ') ON DELETE ' || CASE key.confdeltype::text {_ACTION} END AS effect
FROM known
JOIN pg_catalog.pg_constraint AS key ON key.oid = known.oid AND key.contype = 'f' AND key.conparentid = 0
JOIN part ON part.oid = key.confrelid
JOIN named AS child ON child.oid = key.conrelid
JOIN named AS parent ON parent.oid = key.confrelid
UNION
SELECT 'trigger ' || fires.tgname || ' on ' || named.name
FROM part
JOIN pg_catalog.pg_trigger AS fires ON fires.tgrelid = part.oid
JOIN named ON named.oid = part.oid
WHERE NOT fires.tgisinternal AND fires.tgparentid = 0 AND fires.tgtype & 8 <> 0 AND fires.tgenabled <> 'D'
UNION
SELECT 'trigger ' || rule.rulename || ' on ' || named.name
FROM part
JOIN pg_catalog.pg_rewrite AS rule ON rule.ev_class = part.oid
JOIN named ON named.oid = part.oid
WHERE rule.ev_type = '4' AND rule.ev_enabled <> 'D'
UNION
SELECT 'descendant ' || descendant.name || ' of ' || root.name
FROM part
JOIN pg_catalog.pg_class AS class ON class.oid = part.oid AND NOT class.relispartition
JOIN named AS descendant ON descendant.oid = part.oid
JOIN named AS root ON root.oid = part.named
WHERE part.oid <> part.named
"""


def read_stamps(selection: Selection) -> Statement:
    """Write the query for the stamps of the tables that a rule was bound to: cheap enough for every batch.

    It has no values, so a prepared one is planned only once.
    """
    relations = ",".join(f"{number:d}" for number, _ in sorted(selection.dependencies.stamps))
    found = f"class.oid = ANY ('{{{relations}}}'::oid[])"
    return Statement(f"SELECT class.oid, {STAMP} FROM pg_catalog.pg_class AS class WHERE {found}", {})


def read_effects(rows: Rows, selection: Selection) -> Statement:
    """Write the query for everything that decides what happens when rows of a rule's tables are deleted.

    It returns one array in a fixed order. Unlike the stamps, it is the same after a dump and with one more partition.
    """
    names = [rows.dialect.table(table).replace("%%", "%") for table in losing(selection)]
    text = f'{_WITH}\nSELECT ARRAY(SELECT effect FROM ({_EFFECTS}) AS found ORDER BY effect COLLATE "C")'
    return Statement(text, {"tables": names})


def require_same_effects(rows: Rows, run: Execute, selection: Selection) -> None:
    """Raise SchemaChanged unless deleting rows has the effects that it had when the rule was bound.

    Partitions may be added and dropped.
    """
    statement = read_effects(rows, selection)
    [(effects,)] = run(statement.text, statement.parameters)
    if set(effects) != selection.dependencies.effects:
        raise schema_changed(selection, "foreign keys, triggers or descendants were added, changed or dropped")
