"""What a database looks like, as both stores describe it: tables, columns, keys, indexes, foreign keys, triggers.

Plain values, made by a store's `reflect()`. Names are exact, as the database has them; `schema` is always filled in
(`main` or an attached name on SQLite).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Kind(StrEnum):
    """What an entry that can be read like a table really is."""

    TABLE = "table"
    PARTITIONED = "partitioned table"
    PARTITION = "partition"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    FOREIGN = "foreign table"
    VIRTUAL = "virtual table"


class OnDelete(StrEnum):
    """What a foreign key does to the referring row when its parent is deleted."""

    NO_ACTION = "NO ACTION"
    RESTRICT = "RESTRICT"
    CASCADE = "CASCADE"
    SET_NULL = "SET NULL"
    SET_DEFAULT = "SET DEFAULT"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `type` is the declared type: PostgreSQL's `format_type` text, SQLite's declaration in upper case ("" if none)."""

    name: str
    type: str
    nullable: bool
    generated: bool = False
    collation: str | None = None
    """The collation that orders the column's text, if it is not plain bytes: None means C, POSIX, BINARY or not a text."""
    labels: tuple[str, ...] = ()
    """The labels of an enum type, in order."""
    loose: bool = False
    """PostgreSQL: the collation calls different texts equal (`done` and `DONE`), so equality must ask for the bytes too."""
    operators: str | None = None
    """PostgreSQL: the schema of the operators that compare its values, if it is not the system's (`citext`)."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index. A column that is an expression appears as None."""

    name: str
    columns: tuple[str | None, ...]
    unique: bool = False
    predicate: str | None = None
    """The WHERE of a partial index, as the database prints it."""
    collations: tuple[str | None, ...] = ()
    """For each column the collation it is ordered by, None for plain bytes or not a text."""
    valid: bool = True
    method: str = "btree"
    """The access method. Only a btree finds ranges in order; PostgreSQL's hash, gin, gist and brin do not."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key of the table that carries it."""

    name: str
    columns: tuple[str, ...]
    to_schema: str
    to_table: str
    to_columns: tuple[str, ...]
    on_delete: OnDelete = OnDelete.NO_ACTION
    locks_parent: bool = True
    """Whether a statement that writes a reference locks the parent row at once: not if the key is deferrable, not enforced or disabled."""
    enforced: bool = True
    """PostgreSQL since 18: whether the database checks it and acts by it."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger or rewrite rule that fires when rows are deleted."""

    name: str
    definition: str
    unpinned: str = ""
    """PostgreSQL: its function, if that says no search path of its own, so that what bare names in it mean depends on the session."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table as it is."""

    schema: str
    name: str
    kind: Kind
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    """The primary key's index included, where the store has one."""
    foreign_keys: tuple[ForeignKey, ...] = ()
    delete_triggers: tuple[Trigger, ...] = ()
    row_security: bool = False
    """PostgreSQL: policies may hide rows from whoever reads."""
    parent: tuple[str, str] | None = None
    """(schema, table) at the root of the tree that a partition belongs to or an inheriting table inherits from."""
    ancestors: tuple[tuple[str, str], ...] = ()
    """PostgreSQL: every (schema, table) that it is a partition of or inherits from, directly or not: their rows include its own."""
    inherited_keys: tuple[tuple[str, ...], ...] = ()
    """PostgreSQL: the keys of the tables that it inherits from, by which holds on those name its rows too."""
    partition_key: tuple[str, ...] = ()
    """PostgreSQL: the columns that decide in which partition a row lies."""
    rows_estimate: int | None = None
    """What the database believes, for free; None where it does not know."""
    stamp: tuple[int, str] | None = field(default=None, compare=False)
    """PostgreSQL: its number in the catalogs, and a digest that changes with whatever decides what deleting its rows does."""

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The primary key, without what only says in which partition the row lies: the same before and after a table is partitioned."""
        rest = tuple(name for name in self.primary_key if name not in self.partition_key)
        return rest or self.primary_key

    @property
    def hold_keys(self) -> tuple[tuple[str, ...], ...]:
        """The keys that a hold may know a row by: its own, the whole primary key where that says more, and those that it inherits."""
        return tuple(key for key in dict.fromkeys((self.row_key, self.primary_key, *self.inherited_keys)) if key)

    @property
    def qualified(self) -> tuple[str, str]:
        return self.schema, self.name


@dataclass(frozen=True, slots=True)
class Schema:
    """Every table of a database that a contract may speak of, and where a name without a schema is looked up.

    A table of Wane or of an extension is among them only if it refers to one of the others or inherits from it: what happens to its
    rows when rows leave must be declared.
    """

    tables: tuple[TableInfo, ...]
    search_path: tuple[str, ...]
    version: int | None = field(default=None, compare=False)
    """SQLite: a number that changes with every change of the schema."""

    def heirs(self, table: TableInfo) -> list[TableInfo]:
        """Return every table whose rows a statement about this one includes: its partitions, and what inherits from it."""
        return [one for one in self.tables if table.qualified in one.ancestors]

    def with_table(self, other: Schema, name: str) -> Schema:
        """These tables and one of another schema, if it is there."""
        known = {table.qualified for table in self.tables}
        more = (table for table in other.tables if table.name == name and table.qualified not in known)
        return replace(self, tables=(*self.tables, *more))

    def find(self, schema: str | None, name: str) -> TableInfo | None:
        """The table that this name means, by the search path if it names no schema."""
        for place in (schema,) if schema is not None else self.search_path:
            for table in self.tables:
                if table.schema == place and table.name == name:
                    return table
        return None


def index_name(table: TableInfo, columns: Sequence[Column]) -> str:
    """A name for an index that is proposed to people."""
    name = "_".join([table.name, *(column.name for column in columns)])
    return re.sub(r"\W+", "_", name)[:60] + "_idx"
