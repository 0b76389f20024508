"""Reflection of a SQLite database: every table of `main` and of the attached databases, as plain values.

Reads only, in one read transaction, so the result is one snapshot of the schema; a caller's open transaction stays as
it is. A view or virtual table that SQLite itself cannot open is reported without columns instead of failing the rest.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from wane._db.migrations import migrations
from wane._db.schema import SIDE_TABLE, Column, ForeignKey, Index, Kind, OnDelete, Schema, TableInfo, Trigger
from wane._db.sqlite import ddl
from wane._db.statement import Dialect
from wane._frozen import frozen
from wane.reference import schema_sql

OWN_PREFIX = "wane_"
"""The prefix of the names of Wane's own tables. An application's table may have it too."""

_CREATES = re.compile(rf"^CREATE TABLE ({OWN_PREFIX}\w+)", re.MULTILINE)

ROWID_KEY = "PRIMARY KEY"
"""The name given to the key of a rowid table: SQLite has no index entry for it, but it orders and finds rows like
one."""

DATABASES = "SELECT name FROM pragma_database_list WHERE name <> 'temp' ORDER BY seq"

# Unknown before SQLite 3.37, where it answers with no rows at all.
TABLE_TYPES = "PRAGMA table_list"

OBJECTS = "SELECT type, name, tbl_name, coalesce(sql, '') FROM {schema}.sqlite_master ORDER BY name"

COLUMNS = """
SELECT name, type, "notnull", pk, hidden, dflt_value IS NOT NULL FROM pragma_table_xinfo(?, ?) WHERE hidden <> 1 ORDER BY cid
"""

INDEXES = 'SELECT name, "unique", origin, partial FROM pragma_index_list(?, ?) ORDER BY name'

INDEX_COLUMNS = 'SELECT name, coll FROM pragma_index_xinfo(?, ?) WHERE "key" ORDER BY seqno'

FOREIGN_KEYS = """
SELECT id, "table", "from", "to", on_delete FROM pragma_foreign_key_list(?, ?) ORDER BY id DESC, seq
"""

REFERENCES = """
SELECT one.name, key."table" FROM {schema}.sqlite_master AS one, pragma_foreign_key_list(one.name, ?) AS key
WHERE one.type = 'table'
"""

STATISTICS = "SELECT tbl, stat FROM {schema}.sqlite_stat1"

VERSION = "PRAGMA main.schema_version"

TEMPORARY_TRIGGERS = "SELECT name, tbl_name, sql FROM sqlite_temp_master WHERE type = 'trigger'"


@frozen
class _Object:
    """A row of sqlite_master."""

    type: str
    name: str
    table: str
    sql: str


def reflect(connection: sqlite3.Connection, *, own: bool = False) -> Schema:
    """Read every table, view and virtual table, except SQLite's and Wane's own and the insides of virtual tables.

    With `own`, read Wane's own tables alone instead. In either case the result includes every other table that refers
    to one of them.
    """
    with _snapshot(connection) as cursor:
        shadows: dict[str, list[str]] = defaultdict(list)
        for schema, name, type_, *_ in cursor.execute(TABLE_TYPES):
            if type_ == "shadow":
                shadows[schema].append(name)
        databases = [schema for (schema,) in cursor.execute(DATABASES)]
        tables = [
            table
            for schema in (["main"] if own else databases)
            for table in _Database(cursor, schema).tables(shadows[schema], own=own)
        ]
        [(version,)] = cursor.execute(VERSION)
    return Schema(tuple(sorted(tables, key=lambda table: table.qualified)), ("main",), version)


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    cursor = connection.cursor()
    cursor.row_factory = None  # the caller's connection may have its own
    cursor.execute("SAVEPOINT wane_reflect")  # unlike BEGIN it works inside and outside of a transaction
    try:
        yield cursor
    finally:
        cursor.execute("RELEASE wane_reflect")
        cursor.close()


@cache
def own_names() -> frozenset[bytes]:
    """Return the names of Wane's own tables, folded."""
    scripts = [one.sql for one in migrations("sqlite")] + [schema_sql("claims", "sqlite")["main"]]
    names = {name for script in scripts for name in _CREATES.findall(script)}
    return frozenset(fold(name) for name in (*names, f"{OWN_PREFIX}migration"))


def fold(name: str) -> bytes:
    """Return what SQLite compares names by: case-insensitive, for ASCII letters only."""
    return name.encode("utf-8", "surrogatepass").lower()


class _Database:
    """One schema of the connection while it is being read."""

    def __init__(self, cursor: sqlite3.Cursor, schema: str) -> None:
        self._cursor = cursor
        self._schema = schema
        self._quoted = Dialect.quote(schema)
        rows = cursor.execute(OBJECTS.format(schema=self._quoted))
        self._objects = [_Object(*row) for row in rows]
        self._index_sql = {entry.name: entry.sql for entry in self._objects if entry.type == "index"}
        self._triggers = self._delete_triggers()
        self._estimates = self._row_estimates()

    def tables(self, shadows: list[str], *, own: bool) -> list[TableInfo]:
        entries = {
            name: entry
            for entry in self._objects
            if entry.type in ("table", "view") and not (name := fold(entry.name)).startswith(b"sqlite_")
        }
        references = [
            (fold(table), fold(parent))
            for table, parent in self._cursor.execute(REFERENCES.format(schema=self._quoted), (self._schema,))
        ]
        hidden = self._internal_names(shadows)
        shown = {name for name in entries if (name in own_names()) == own and name not in hidden}
        while more := {table for table, parent in references if parent in shown} - shown:
            shown |= more
        # A foreign key is completed from its parent, which may be one that is not shown.
        needed = shown | {parent for table, parent in references if table in shown}
        tables = self._resolved([self._table(entry) for name, entry in entries.items() if name in needed])
        return [table for table in tables if fold(table.name) in shown]

    def _internal_names(self, shadows: list[str]) -> set[bytes]:
        """Return the tables inside virtual ones: as SQLite lists them, or by name (old versions, missing modules).

        SQLite goes by the name too, and so takes a user's table `docs_content` for a part of `docs`, even where `docs`
        is but an index over it.
        """
        virtual = [entry for entry in self._objects if entry.type == "table" and ddl.is_virtual(entry.sql)]
        named = {fold(f"{entry.name}_{suffix}") for entry in virtual for suffix in ddl.shadow_suffixes(entry.sql)}
        users = {fold(f"{entry.name}_content") for entry in virtual if ddl.indexes_content_of_others(entry.sql)}
        return (named | {fold(name) for name in shadows}) - users

    def _table(self, entry: _Object) -> TableInfo:
        triggers = tuple(self._triggers[fold(entry.name)])
        if entry.type == "view" or ddl.is_virtual(entry.sql):
            kind = Kind.VIEW if entry.type == "view" else Kind.VIRTUAL
            columns = tuple(_column(row, None) for row in self._readable_columns(entry.name))
            return TableInfo(self._schema, entry.name, kind, columns, delete_triggers=triggers)
        rows = self._pragma(COLUMNS, entry.name)
        columns = tuple(map(_column, rows, ddl.column_collations(entry.sql, len(rows))))
        key = tuple(name for _, name in sorted((row[3], row[0]) for row in rows if row[3]))
        indexes, is_rowid = self._indexes(entry.name, key)
        if is_rowid:
            columns = tuple(replace(column, nullable=False) if column.name in key else column for column in columns)
        return TableInfo(
            self._schema,
            entry.name,
            Kind.TABLE,
            columns,
            primary_key=key,
            indexes=indexes,
            foreign_keys=self._foreign_keys(entry),
            delete_triggers=triggers,
            rows_estimate=self._estimates.get(fold(entry.name)),
            is_side_table=f"/* {SIDE_TABLE} */" in entry.sql,
        )

    def _pragma(self, statement: str, name: str) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, (name, self._schema)).fetchall()

    def _readable_columns(self, name: str) -> list[tuple[Any, ...]]:
        try:
            return self._pragma(COLUMNS, name)
        except sqlite3.OperationalError:  # a view over something that was dropped, a module that is not loaded
            return []

    def _indexes(self, table: str, key: tuple[str, ...]) -> tuple[tuple[Index, ...], bool]:
        """Return the indexes, and whether the key is the rowid: then no entry has the origin of a primary key."""
        rows = self._pragma(INDEXES, table)
        indexes = [self._index(name, bool(unique), bool(partial)) for name, unique, _, partial in rows]
        is_rowid = bool(key) and not any(origin == "pk" for _, _, origin, _ in rows)
        if is_rowid:
            indexes.insert(0, Index(ROWID_KEY, key, unique=True, collations=(None,)))
        return tuple(indexes), is_rowid

    def _index(self, name: str, unique: bool, partial: bool) -> Index:
        rows = self._pragma(INDEX_COLUMNS, name)
        return Index(
            name,
            tuple(column for column, _ in rows),
            unique,
            ddl.index_predicate(self._index_sql[name]) if partial else None,
            tuple(_order(collation) for _, collation in rows),
        )

    def _foreign_keys(self, entry: _Object) -> tuple[ForeignKey, ...]:
        """Return the foreign keys as written; an omitted parent column is still missing."""
        grouped: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for row in self._pragma(FOREIGN_KEYS, entry.name):
            grouped[row[0]].append(row)
        # SQLite counts foreign keys from the last one written to the first.
        names = ddl.foreign_key_names(entry.sql) if grouped else ()
        if len(names) != len(grouped):
            names = ("",) * len(grouped)
        return tuple(_foreign_key(name, self._schema, rows) for name, rows in zip(names, grouped.values(), strict=True))

    def _resolved(self, tables: list[TableInfo]) -> list[TableInfo]:
        """Return the tables with foreign keys that name their parents exactly.

        SQLite accepts any case and a mere table name.
        """
        parents = {fold(table.name): table for table in tables}
        return [
            replace(
                table,
                foreign_keys=tuple(
                    sorted(
                        (_pointing_at(key, parents.get(fold(key.to_table))) for key in table.foreign_keys),
                        key=lambda key: (key.columns, key.name),
                    )
                ),
            )
            for table in tables
        ]

    def _delete_triggers(self) -> defaultdict[bytes, list[Trigger]]:
        triggers: defaultdict[bytes, list[Trigger]] = defaultdict(list)
        for entry in self._objects:
            if entry.type == "trigger" and ddl.fires_on_delete(entry.sql):
                triggers[fold(entry.table)].append(Trigger(entry.name, entry.sql))
        return triggers

    def _row_estimates(self) -> dict[bytes, int]:
        """Return what ANALYZE counted.

        A partial index counts its own rows only, so the largest number is the table's.
        """
        if not any(entry.name == "sqlite_stat1" for entry in self._objects):
            return {}
        estimates: dict[bytes, int] = {}
        for table, statistics in self._cursor.execute(STATISTICS.format(schema=self._quoted)):
            first = str(statistics).partition(" ")[0]
            if isinstance(table, str) and first.isdecimal():
                estimates[fold(table)] = max(int(first), estimates.get(fold(table), 0))
        return estimates


def _order(collation: str | None) -> str | None:
    name = (collation or "BINARY").upper()
    return None if name == "BINARY" else name


def _column(row: tuple[Any, ...], collation: str | None) -> Column:
    name, type_, not_null, _, hidden, has_default = row
    generated = hidden in (2, 3)
    return Column(
        name, type_.upper(), not not_null, generated, collation=_order(collation), has_default=bool(has_default)
    )


def _foreign_key(name: str, schema: str, rows: list[tuple[Any, ...]]) -> ForeignKey:
    columns = tuple(row[2] for row in rows)
    return ForeignKey(
        name or f"FOREIGN KEY ({', '.join(columns)})",
        columns,
        schema,
        rows[0][1],
        tuple(row[3] for row in rows if row[3] is not None),
        OnDelete(rows[0][4]),
    )


def _pointing_at(key: ForeignKey, parent: TableInfo | None) -> ForeignKey:
    if parent is None:
        return key
    exact = {fold(column.name): column.name for column in parent.columns}
    named = tuple(exact.get(fold(column), column) for column in key.to_columns)
    return replace(key, to_table=parent.name, to_columns=named or parent.primary_key)
