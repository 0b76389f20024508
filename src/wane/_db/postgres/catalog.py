"""Fragments shared by statements over PostgreSQL's catalogs, and the schema of Wane's own tables.

It needs no driver.
"""

from __future__ import annotations

from wane._db.schema import OnDelete

OWN_SCHEMA = "wane"
"""The schema of Wane's own tables; contracts do not cover them."""

# The versions of catalog rows, by xmin: comparing those is cheap, and no change is missed. The action of a foreign key
# when rows of its parent are deleted is carried out by triggers of the parent. Temporary tables of other sessions are
# out of reach.
STAMP = """
(
  SELECT sum(hashtextextended(part.text, 0))::text
  FROM (
    SELECT concat('column ', own.attnum, ' ', own.xmin)
    FROM pg_catalog.pg_attribute AS own WHERE own.attrelid = class.oid AND own.attnum > 0
    UNION ALL
    SELECT concat('trigger ', fires.oid, ' ', fires.xmin)
    FROM pg_catalog.pg_trigger AS fires WHERE fires.tgrelid = class.oid
    UNION ALL
    SELECT concat('rule ', rule.oid, ' ', rule.xmin)
    FROM pg_catalog.pg_rewrite AS rule WHERE rule.ev_class = class.oid
    UNION ALL
    SELECT concat('descendant ', descendant.inhrelid)
    FROM pg_catalog.pg_inherits AS descendant
    WHERE descendant.inhparent = class.oid AND NOT pg_catalog.pg_is_other_temp_schema(
      (SELECT below.relnamespace FROM pg_catalog.pg_class AS below WHERE below.oid = descendant.inhrelid)
    )
    UNION ALL
    SELECT concat('index ', index.indexrelid, ' ', index.xmin)
    FROM pg_catalog.pg_index AS index WHERE index.indrelid = class.oid AND index.indisunique
  ) AS part (text)
)
"""
"""A digest that changes with the columns, unique keys, triggers, rules, inbound foreign keys or inheriting tables of
the relation `class`."""

BELONGS_TO_EXTENSION = """
EXISTS (
  SELECT FROM pg_catalog.pg_depend AS member
  WHERE member.deptype = 'e' AND member.classid = 'pg_catalog.{catalog}'::regclass AND member.objid = {oid}
)
"""

LOCKS_PARENT = """
NOT key.condeferrable AND coalesce((
  SELECT bool_and(checks.tgenabled IN ('O', 'A')) FROM pg_catalog.pg_trigger AS checks
  WHERE checks.tgconstraint = key.oid AND checks.tgrelid = key.conrelid
), false)
"""
"""Whether a statement that writes a reference by the foreign key `key` locks the parent row at once.

Its triggers do: one that is not enforced (18) has none. SET CONSTRAINTS can defer any deferrable key to the commit. A
key that is not validated checks new references like any other.
"""

ACTIONS = {
    "a": OnDelete.NO_ACTION,
    "r": OnDelete.RESTRICT,
    "c": OnDelete.CASCADE,
    "n": OnDelete.SET_NULL,
    "d": OnDelete.SET_DEFAULT,
}
