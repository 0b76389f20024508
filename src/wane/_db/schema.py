"""The structure of a database, as both stores describe it: tables, columns, keys, indexes, foreign keys, triggers.

Plain values, made by a store's `reflect()`. Names are exact, as the database has them; `schema` is always filled in
(`main` or an attached name on SQLite).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from enum import StrEnum

from wane._contract.names import join_name
from wane._frozen import frozen

PRESSURE_VIEW = "v_queue_retention_pressure"
PRESSURE_FUNCTION = "sql_pressure"
"""The view that shows how much of every table is due, on both stores."""
PRESSURE_COLUMNS = (
    "tbl",
    "rows",
    "oldest",
    "newest",
    "due",
    "share",
    "rows_exactness",
    "due_exactness",
    "share_exactness",
)


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


SEES_ALL_ROWS = (
    "run Wane as a role with BYPASSRLS, which members of it do not inherit, or as the table's owner, unless the table has"
    " FORCE ROW LEVEL SECURITY"
)
"""What resolves that row-level security hides rows."""


@frozen
class Column:
    """A column.

    `type` is the declared type: PostgreSQL's `format_type` text, SQLite's declaration in upper case ("" if none).
    """

    name: str
    type: str
    nullable: bool
    generated: bool = False
    collation: str | None = None
    """The collation that orders the column's text, if it is not plain bytes: None means C, POSIX, BINARY or not a
    text."""
    labels: tuple[str, ...] = ()
    """The labels of an enum type, in order."""
    loose: bool = False
    """PostgreSQL: the collation treats different texts as equal (`done` and `DONE`), so equality must compare the bytes
    too."""
    operators: str | None = None
    """PostgreSQL: the schema of the operators that compare its values, if it is not the system's (`citext`)."""
    has_default: bool = field(default=False, compare=False)
    """Whether a new row gets a value where none is given."""


@frozen
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


@frozen
class ForeignKey:
    """A foreign key of the table that carries it."""

    name: str
    columns: tuple[str, ...]
    to_schema: str
    to_table: str
    to_columns: tuple[str, ...]
    on_delete: OnDelete = OnDelete.NO_ACTION
    locks_parent: bool = True
    """Whether a statement that writes a reference locks the parent row at once: not if the key is deferrable, not
    enforced or disabled."""
    enforced: bool = True
    """PostgreSQL since 18: whether the database checks it and acts on it."""


@frozen
class Trigger:
    """A trigger or rewrite rule that fires when rows are deleted."""

    name: str
    definition: str
    unpinned: str = ""
    """PostgreSQL: its function, if that sets no search path of its own, so that the meaning of bare names in it depends
    on the session."""


SIDE_TABLE = "copies of archived rows, made by wane archive restore --into"
"""The comment of a table that a restore made; it is gone with the table."""


@frozen
class TableInfo:
    """One table of a database."""

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
    """PostgreSQL: policies may hide rows from a reader."""
    hides_rows: bool = False
    """PostgreSQL: they apply to the role that reads, which neither owns the table nor bypasses them."""
    parent: tuple[str, str] | None = None
    """(schema, table) at the root of the tree that a partition belongs to or an inheriting table inherits from."""
    ancestors: tuple[tuple[str, str], ...] = ()
    """PostgreSQL: every (schema, table) that it is a partition of or inherits from, directly or not: their rows include
    its own."""
    inherited_keys: tuple[tuple[str, ...], ...] = ()
    """PostgreSQL: the keys of the tables that it inherits from, by which holds on those name its rows too."""
    partition_key: tuple[str, ...] = ()
    """PostgreSQL: the columns that decide which partition a row is in."""
    partitioning: str | None = None
    """PostgreSQL: how it is partitioned, as the server writes it: RANGE (created_at). None if it is not."""
    rows_estimate: int | None = None
    """The database's own estimate, which costs nothing; None where there is none."""
    is_side_table: bool = False
    """Whether a restore made it, for copies of archived rows."""
    stamp: tuple[int, str] | None = field(default=None, compare=False)
    """PostgreSQL: its oid, and a digest that changes with anything that affects what deleting its rows does."""

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def row_key(self) -> tuple[str, ...]:
        """Return the primary key without the columns that only choose the partition.

        It is the same before and after a table is partitioned.
        """
        rest = tuple(name for name in self.primary_key if name not in self.partition_key)
        return rest or self.primary_key

    @property
    def hold_keys(self) -> tuple[tuple[str, ...], ...]:
        """Return the keys by which a hold may identify a row.

        They are its own, the whole primary key where that has more columns, and those that it inherits.
        """
        return tuple(key for key in dict.fromkeys((self.row_key, self.primary_key, *self.inherited_keys)) if key)

    @property
    def qualified(self) -> tuple[str, str]:
        return self.schema, self.name


@frozen
class Schema:
    """Every table of a database that a contract may cover, and the search path that resolves names without a schema.

    A table of Wane or of an extension is among them only if it refers to one of the others or inherits from it: what
    happens to its rows when rows are deleted must be declared.
    """

    tables: tuple[TableInfo, ...]
    search_path: tuple[str, ...]
    version: int | None = field(default=None, compare=False)
    """SQLite: a number that changes with every change of the schema."""

    def descendants(self, table: TableInfo) -> list[TableInfo]:
        """Return every table whose rows a statement about this one includes: partitions and inheriting tables."""
        return [one for one in self.tables if table.qualified in one.ancestors]

    def with_table(self, other: Schema, name: str) -> Schema:
        """Return these tables and one of another schema, if it is there."""
        known = {table.qualified for table in self.tables}
        more = (table for table in other.tables if table.name == name and table.qualified not in known)
        return replace(self, tables=(*self.tables, *more))

    def find(self, schema: str | None, name: str) -> TableInfo | None:
        """Return the table that this name means, by the search path if it names no schema."""
        for namespace in (schema,) if schema is not None else self.search_path:
            for table in self.tables:
                if table.schema == namespace and table.name == name:
                    return table
        return None


def index_name(table: TableInfo, columns: Sequence[Column]) -> str:
    """Build a name for an index that is proposed to users."""
    name = "_".join([table.name, *(column.name for column in columns)])
    return re.sub(r"\W+", "_", name)[:60] + "_idx"


def qualified(table: TableInfo) -> str:
    """Return a table's full name, as holds write it."""
    return join_name([table.schema, table.name])


def hold_names(table: TableInfo) -> list[str]:
    """Return the names under which holds list rows of a table: its own, and those of its ancestors."""
    return [qualified(table), *(join_name(list(above)) for above in table.ancestors)]
