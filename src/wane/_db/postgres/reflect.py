"""Reflection of a PostgreSQL database: every table, view and foreign table of the users' schemas, as plain values.

The number of statements does not grow with the tables: the names of relations and what connects them, then one
statement per kind of detail for all that are shown, if any of them can have it, in two round trips. They run in one
snapshot, without which stamps would not cover what changed between the two: no rule is bound to what is read inside a
READ COMMITTED transaction. A new session plans each statement and loads the catalogs that it reads, which takes longer
than reading them: so statements are small, and of catalogs that few databases use. What partitions inherit (foreign
keys, triggers) is reported once, at the table that declares it. PostgreSQL 14 to 18; a catalog column that some of them
lack is read through `to_jsonb`, where it is simply absent, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from wane._db.postgres.bounded import run_together
from wane._db.postgres.catalog import ACTIONS, LOCKS_PARENT, OWN_SCHEMA, STAMP
from wane._db.postgres.settings import SEARCH_PATH
from wane._db.schema import SIDE_TABLE, Column, ForeignKey, Index, Kind, Schema, TableInfo, Trigger

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_PATH = "SELECT pg_catalog.current_setting('search_path')"
_SEARCHED = "SELECT pg_catalog.current_schemas(false)::pg_catalog.text[]"

# Schemas that begin with pg_ are the system's by PostgreSQL's own rule: pg_catalog, pg_toast, every session's pg_temp.
NAMES = """
SELECT class.oid,
       namespace.nspname::text,
       class.relname::text,
       class.relkind::text,
       class.relispartition,
       class.relrowsecurity,
       class.reltuples::float8,
       class.relhastriggers OR class.relhasrules,
       namespace.oid
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND namespace.nspname !~ '^pg_'
  AND namespace.nspname <> 'information_schema'
"""

# Found by what they depend on: extensions have few of the objects of a database.
EXTENSION_MEMBERS = """
SELECT classid = 'pg_catalog.pg_namespace'::regclass, objid
FROM pg_catalog.pg_depend
WHERE refclassid = 'pg_catalog.pg_extension'::regclass
  AND deptype = 'e'
  AND classid IN ('pg_catalog.pg_class'::regclass, 'pg_catalog.pg_namespace'::regclass)
"""

# What a relation refers to, with 0, and what it inherits from, with the position among its parents.
CONNECTIONS = """
SELECT conrelid, confrelid, 0 FROM pg_catalog.pg_constraint WHERE contype = 'f'
UNION ALL
SELECT inhrelid, inhparent, inhseqno FROM pg_catalog.pg_inherits
ORDER BY 1, 3
"""

# Since 18 attnotnull is also set while a NOT NULL constraint is not yet valid: such a column can hold NULL.
# Subqueries instead of joins: planning a join of all these catalogs takes longer than reading them. EXISTS in an output
# is planned twice.
COLUMNS = """
SELECT attribute.attrelid,
       attribute.attnum,
       attribute.attname::text,
       pg_catalog.format_type(attribute.atttypid, attribute.atttypmod),
       (attribute.attnotnull OR type.typnotnull) AND (
         SELECT unproven.oid FROM pg_catalog.pg_constraint AS unproven
         WHERE unproven.conrelid = attribute.attrelid
           AND unproven.contype = 'n'
           AND unproven.conkey = ARRAY[attribute.attnum]
           AND NOT unproven.convalidated
         LIMIT 1
       ) IS NULL,
       attribute.attgenerated <> '',
       attribute.attcollation,
       CASE WHEN type.typtype = 'e' THEN ARRAY(
         SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = type.oid ORDER BY enumsortorder
       ) END,
       CASE WHEN type.typtype = 'd' THEN type.typbasetype ELSE type.oid END,
       attribute.atthasdef OR attribute.attidentity <> ''
FROM pg_catalog.pg_attribute AS attribute
JOIN pg_catalog.pg_type AS type ON type.oid = attribute.atttypid
WHERE attribute.attrelid = ANY (%(relations)s::oid[])
  AND attribute.attnum > 0
  AND NOT attribute.attisdropped
ORDER BY attribute.attrelid, attribute.attnum
"""

# Types whose values are compared by operators that are not the system's, with the schema of those. 403 is btree, and
# what users create has numbers from 16384 on.
OPERATORS = """
SELECT class.opcintype, namespace.nspname::text
FROM pg_catalog.pg_operator AS operator
JOIN pg_catalog.pg_amop AS equal
  ON equal.amopopr = operator.oid AND equal.amopstrategy = 3 AND equal.amopmethod = 403
JOIN pg_catalog.pg_opclass AS class
  ON class.opcfamily = equal.amopfamily AND class.opcmethod = 403 AND class.opcdefault
 AND class.opcintype = equal.amoplefttype AND class.opcintype = equal.amoprighttype
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = operator.oprnamespace
WHERE operator.oid >= 16384 AND operator.oprnamespace <> 'pg_catalog'::regnamespace
"""
# Most databases have none, and planning that takes ten times as long as this.
_HAS_OPERATORS = "SELECT EXISTS (SELECT FROM pg_catalog.pg_amop WHERE oid >= 16384)"

# "default", which is number 100, is the database's own order.
DEFAULT_COLLATION = 100
DATABASE_ORDER = """
SELECT {provider}, datcollate::text, {locale} FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
"""
COLLATIONS = """
SELECT oid, collprovider::text, collcollate::text, collname::text, NOT collisdeterministic
FROM pg_catalog.pg_collation
WHERE oid = ANY (%(collations)s::oid[])
"""

# Each with its digest, by which a change is noticed.
RELATIONS = f"""
SELECT class.oid,
       class.relrowsecurity AND pg_catalog.row_security_active(class.oid),
       pg_catalog.pg_get_partkeydef(class.oid),
       {STAMP},
       EXISTS (
         SELECT FROM pg_catalog.pg_description AS comment
         WHERE comment.objoid = class.oid
           AND comment.classoid = 'pg_catalog.pg_class'::regclass
           AND comment.objsubid = 0
           AND comment.description = '{SIDE_TABLE}'
       )
FROM pg_catalog.pg_class AS class
WHERE class.oid = ANY (%(relations)s::oid[])
"""

PARTITION_KEYS = """
SELECT parted.partrelid, attribute.attname::text
FROM pg_catalog.pg_partitioned_table AS parted
CROSS JOIN unnest(parted.partattrs::int2[]) WITH ORDINALITY AS part (attnum, position)
JOIN pg_catalog.pg_attribute AS attribute
  ON attribute.attrelid = parted.partrelid AND attribute.attnum = part.attnum
WHERE parted.partrelid = ANY (%(relations)s::oid[])
ORDER BY part.position
"""

INDEXES = """
SELECT index.indrelid,
       class.relname::text,
       index.indisprimary,
       index.indisunique,
       index.indisvalid AND index.indisready,
       method.amname::text,
       (index.indkey::int2[])[0 : index.indnkeyatts - 1],
       index.indcollation::oid[],
       pg_catalog.pg_get_expr(index.indpred, index.indrelid)
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_am AS method ON method.oid = class.relam
WHERE index.indrelid = ANY (%(relations)s::oid[])
"""


# A constraint with a parent is PostgreSQL's copy of one declared at a partitioned table, on either side. A foreign key
# that is not enforced (18) does nothing on delete.
FOREIGN_KEYS = f"""
SELECT key.conrelid,
       key.conname::text,
       ARRAY(
         SELECT attname::text
         FROM unnest(key.conkey) WITH ORDINALITY AS part (attnum, position)
         JOIN pg_catalog.pg_attribute AS attribute
           ON attribute.attrelid = key.conrelid AND attribute.attnum = part.attnum
         ORDER BY position
       ),
       namespace.nspname::text,
       parent.relname::text,
       ARRAY(
         SELECT attname::text
         FROM unnest(key.confkey) WITH ORDINALITY AS part (attnum, position)
         JOIN pg_catalog.pg_attribute AS attribute
           ON attribute.attrelid = key.confrelid AND attribute.attnum = part.attnum
         ORDER BY position
       ),
       CASE WHEN to_jsonb(key) ->> 'conenforced' = 'false' THEN 'a' ELSE key.confdeltype::text END,
       {LOCKS_PARENT},
       to_jsonb(key) ->> 'conenforced' IS DISTINCT FROM 'false'
FROM pg_catalog.pg_constraint AS key
JOIN pg_catalog.pg_class AS parent ON parent.oid = key.confrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = parent.relnamespace
WHERE key.contype = 'f'
  AND key.conparentid = 0
  AND key.conrelid = ANY (%(relations)s::oid[])
"""

# Bit 8 of tgtype is DELETE; ev_type '4' is ON DELETE; 'D' is disabled.
TRIGGERS = """
SELECT tgrelid, tgname::text, pg_catalog.pg_get_triggerdef(trigger.oid),
       CASE WHEN language.lanname IN ('c', 'internal') OR EXISTS (
         SELECT FROM unnest(function.proconfig) AS setting WHERE setting LIKE 'search_path=%%'
       ) THEN '' ELSE function.oid::regprocedure::text END
FROM pg_catalog.pg_trigger AS trigger
JOIN pg_catalog.pg_proc AS function ON function.oid = trigger.tgfoid
JOIN pg_catalog.pg_language AS language ON language.oid = function.prolang
WHERE NOT tgisinternal
  AND tgparentid = 0
  AND tgtype & 8 <> 0
  AND tgenabled <> 'D'
  AND tgrelid = ANY (%(relations)s::oid[])
UNION ALL
SELECT ev_class, rulename::text, pg_catalog.pg_get_ruledef(oid), ''
FROM pg_catalog.pg_rewrite
WHERE ev_type = '4'
  AND ev_enabled <> 'D'
  AND ev_class = ANY (%(relations)s::oid[])
"""

_KINDS = {
    "r": Kind.TABLE,
    "p": Kind.PARTITIONED,
    "v": Kind.VIEW,
    "m": Kind.MATERIALIZED_VIEW,
    "f": Kind.FOREIGN,
}


_BYTEWISE_LOCALES = frozenset({"c", "posix", "c.utf8"})

_Rows = dict[int, list[tuple[Any, ...]]]
_Statement = tuple[str, Mapping[str, object]]


def reflect(
    connection: psycopg.Connection[Any],
    schemas: Collection[str] = (),
    *,
    own: bool = False,
    path: str | None = None,
    settings: str | None = None,
) -> Schema:
    """Read every table of `schemas`, or of every schema that is not the system's, an extension's or Wane's own.

    With `own`, read Wane's own tables alone instead. In either case the result includes every other table that refers
    to one of them or inherits from it. `path` is the search path by which names without a schema are resolved, if it is
    not the connection's. Types that are not the system's are named with their schemas, whatever the path is. `settings`
    is the statement that sets what the transaction needs, if none is open.
    """
    with _one_snapshot(connection, settings) as opening:
        searching = [] if path is None else [_set_path(path)]
        first = run_together(
            connection,
            [
                *opening,
                (_PATH, {}),
                *searching,
                (_SEARCHED, {}),
                _set_path(SEARCH_PATH),
                (NAMES, {}),
                (EXTENSION_MEMBERS, {}),
                (CONNECTIONS, {}),
                (_HAS_OPERATORS, {}),
                (_database_order(connection.info.server_version), {}),
            ],
        )
        [(before,)], *_, [(searched,)], _, found, members, connected, [(has_operators,)], [database] = first[
            len(opening) :
        ]
        referred: dict[int, set[int]] = defaultdict(set)
        parents: dict[int, list[int]] = defaultdict(list)
        for relation, other, inherited in connected:
            if inherited:
                parents[relation].append(other)
            else:
                referred[relation].add(other)
        shown = _shown(found, members, referred, parents, schemas, own=own)
        relations = [row for row in found if row[0] in shown]
        kinds = [RELATIONS, COLUMNS, INDEXES]  # And what some of them have.
        kinds += [] if shown.isdisjoint(referred) else [FOREIGN_KEYS]
        kinds += [TRIGGERS] if any(row[7] for row in relations) else []
        kinds += [PARTITION_KEYS] if any(row[3] == "p" for row in relations) else []
        kinds += [OPERATORS] if has_operators else []
        details = _read_details(connection, [row[0] for row in relations], kinds, database, path=before)
    names = {row[0]: (row[1], row[2]) for row in found}
    tables = [
        replace(
            _table(row, details),
            parent=names.get(_root(row[0], parents)),
            ancestors=tuple(names[one] for one in _ancestors(row[0], parents) if one in names),
        )
        if row[0] in parents
        else _table(row, details)
        for row in relations
    ]
    keys = {table.qualified: table.hold_keys for table in tables}
    tables = [
        replace(table, inherited_keys=tuple(dict.fromkeys(key for one in table.ancestors for key in keys.get(one, ()))))
        if table.kind is Kind.TABLE and table.ancestors
        else table
        for table in tables
    ]
    return Schema(tuple(sorted(tables, key=lambda table: table.qualified)), tuple(searched))


def read_schemas(connection: psycopg.Connection[Any], path: str) -> list[str]:
    """Return the schemas that a search path means now, inside a transaction, whose own path stays as it is."""
    [(before,)], _, [(found,)] = run_together(connection, [(_PATH, {}), _set_path(path), (_SEARCHED, {})])
    run_together(connection, [_set_path(before)])
    return list(found)


def _set_path(path: str) -> _Statement:
    return "SELECT pg_catalog.set_config('search_path', %(path)s, true)", {"path": path}


def _shown(
    found: list[tuple[Any, ...]],
    members: list[tuple[Any, ...]],
    referred: dict[int, set[int]],
    parents: dict[int, list[int]],
    schemas: Collection[str],
    *,
    own: bool,
) -> set[int]:
    """Return the requested relations, and whatever refers to one of them or inherits from it.

    A schema that an extension owns is hidden unless it was requested; a table that an extension owns always is. An
    extension that stores the rows of a table in a schema of its own handles their keys by itself; those inheriting
    tables stay hidden.
    """
    hidden_schemas = {number for is_schema, number in members if is_schema}
    hidden_tables = {number for is_schema, number in members if not is_schema}
    shown, above = set(), {}
    for relation, schema, *_, number in found:
        of_extension = number in hidden_schemas
        requested = schema in schemas or own if schemas or own else not of_extension
        if requested and (schema == OWN_SCHEMA) is own and relation not in hidden_tables:
            shown.add(relation)
        above[relation] = referred.get(relation, set()) | set(() if of_extension else parents.get(relation, ()))
    while more := {relation for relation, others in above.items() if relation not in shown and others & shown}:
        shown |= more
    return shown


def _root(relation: int, parents: dict[int, list[int]]) -> int:
    """Return the root of a relation, always by the first of its parents."""
    while relation in parents:
        relation = parents[relation][0]
    return relation


def _ancestors(relation: int, parents: dict[int, list[int]]) -> list[int]:
    """Return every relation that one inherits from, by any of its parents."""
    found: dict[int, None] = {}
    left = list(parents[relation])
    while left:
        one = left.pop(0)
        if one not in found:
            found[one] = None
            left += parents.get(one, [])
    return list(found)


@contextmanager
def _one_snapshot(connection: psycopg.Connection[Any], settings: str | None) -> Iterator[list[_Statement]]:
    """Yield the statements that begin a transaction, to be sent with the first ones that read; none if one is open."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        yield []
        return
    try:
        yield [(_BEGIN, {}), *([] if settings is None else [(settings, {})])]
        connection.commit()
    except BaseException:
        # A broken connection has ended it already.
        if not connection.closed:
            connection.rollback()
        raise


@dataclass(frozen=True, slots=True)
class _Details:
    """The rows of each detail by the relation they belong to, without the relation's oid."""

    relations: _Rows
    columns: _Rows
    indexes: _Rows
    foreign_keys: _Rows
    triggers: _Rows
    partition_keys: _Rows
    collations: dict[int, str | None]
    loose: set[int]
    """Collations that treat different texts as equal."""
    operators: dict[int, str]
    """The schemas of the operators that compare values of a type, where that is not the system's."""


def _read_details(
    connection: psycopg.Connection[Any], relations: list[int], kinds: list[str], database: Sequence[Any], *, path: str
) -> _Details:
    """Read some kinds of details of relations; the transaction has the search path `path` in the end."""
    requested = {"relations": relations}
    found = run_together(connection, [*((kind, requested) for kind in kinds), _set_path(path)])
    read = dict(zip(kinds, found, strict=False))
    operators = read.pop(OPERATORS, [])
    grouped = {kind: _grouped(rows) for kind, rows in read.items()}
    columns, indexes = grouped[COLUMNS], grouped[INDEXES]
    used = {row[5] for rows in columns.values() for row in rows}
    used.update(collation for rows in indexes.values() for row in rows for collation in row[6])
    used -= {0, DEFAULT_COLLATION}
    provider, collate, locale = database
    collations = [(DEFAULT_COLLATION, provider, collate, (provider == "i" and locale) or collate, False)]
    if used:
        [others] = run_together(connection, [(COLLATIONS, {"collations": list(used)})])
        collations += others
    return _Details(
        grouped[RELATIONS],
        columns,
        indexes,
        grouped.get(FOREIGN_KEYS, {}),
        grouped.get(TRIGGERS, {}),
        grouped.get(PARTITION_KEYS, {}),
        {oid: _order(provider, locale, name) for oid, provider, locale, name, _ in collations},
        {oid for oid, *_, loose in collations if loose},
        dict(operators),
    )


def _database_order(version: int) -> str:
    """Write the query for a database's own order, with the columns that a version of the server has."""
    provider = "'c'" if version < 150000 else "datlocprovider::text"
    locale = "NULL" if version < 150000 else "daticulocale" if version < 170000 else "datlocale"
    return DATABASE_ORDER.format(provider=provider, locale=locale)


def _grouped(found: list[tuple[Any, ...]]) -> _Rows:
    """Group details by the relations that they belong to."""
    rows: _Rows = defaultdict(list)
    for relation, *rest in found:
        rows[relation].append(tuple(rest))
    return rows


def _order(provider: str, locale: str | None, name: str) -> str | None:
    """Return the collation's name; None if it orders by bytes, as the builtin provider's and libc's C family do."""
    if provider == "b":
        return None
    if provider == "c" and (locale or "").lower().replace("-", "") in _BYTEWISE_LOCALES:
        return None
    return name


def _table(relation: tuple[Any, ...], details: _Details) -> TableInfo:
    oid, schema, name, relkind, is_partition, row_security, tuples, *_ = relation
    [(hides, partitioning, stamp, is_side_table)] = details.relations[oid]
    columns = details.columns.get(oid, [])
    indexes = details.indexes.get(oid, [])
    names = {number: column for number, column, *_ in columns}
    return TableInfo(
        schema,
        name,
        _kind(relkind, is_partition),
        tuple(_column(row, details) for row in columns),
        primary_key=next((tuple(names[number] for number in row[5]) for row in indexes if row[1]), ()),
        indexes=tuple(_index(row, names, details.collations) for row in sorted(indexes)),
        foreign_keys=_foreign_keys(details.foreign_keys.get(oid, [])),
        delete_triggers=tuple(Trigger(*row) for row in sorted(details.triggers.get(oid, []))),
        row_security=row_security,
        hides_rows=hides,
        partition_key=tuple(name for (name,) in details.partition_keys.get(oid, [])),
        partitioning=partitioning,
        rows_estimate=None if tuples < 0 or relkind == "v" else int(tuples),
        is_side_table=is_side_table,
        stamp=(oid, stamp),
    )


def _kind(relkind: str, is_partition: bool) -> Kind:
    # A foreign table that serves as a partition stays foreign: that its rows are elsewhere matters more.
    return Kind.PARTITION if is_partition and relkind != "f" else _KINDS[relkind]


def _column(row: tuple[Any, ...], details: _Details) -> Column:
    _, name, type_, not_null, generated, collation, labels, compared, has_default = row
    operators = details.operators.get(compared)
    order, loose = details.collations.get(collation), collation in details.loose
    return Column(name, type_, not not_null, generated, order, tuple(labels or ()), loose, operators, has_default)


def _index(row: tuple[Any, ...], names: dict[int, str], collations: dict[int, str | None]) -> Index:
    name, _, unique, valid, method, numbers, orders, predicate = row
    return Index(
        name,
        tuple(names.get(number) for number in numbers),  # 0 stands for an expression
        unique,
        predicate,
        tuple(collations.get(order) for order in orders),
        valid,
        method,
    )


def _foreign_keys(rows: list[tuple[Any, ...]]) -> tuple[ForeignKey, ...]:
    keys = [
        ForeignKey(name, tuple(columns), schema, table, tuple(to_columns), ACTIONS[action], locks_parent, enforced)
        for name, columns, schema, table, to_columns, action, locks_parent, enforced in rows
    ]
    return tuple(sorted(keys, key=lambda key: (key.columns, key.name)))
