"""The tables that a contract excuses in a database: those it names, and those that a pattern of it matches.

A pattern excuses only tables that the contract does not mention otherwise: rules, followers and excuses by name come
first, and of several patterns the longest.
"""

from __future__ import annotations

from collections.abc import Iterator

from wane._contract.mistakes import key_path
from wane._contract.model import Contract, Excuse
from wane._contract.names import TableName
from wane._db.schema import Kind, Schema, TableInfo
from wane._frozen import frozen

HOLDS_ROWS = (Kind.TABLE, Kind.PARTITIONED, Kind.VIRTUAL)
"""Tables that can grow: views hold no rows, foreign tables are bounded elsewhere, partitions belong to their parent."""


@frozen
class ExcusedTable:
    """A table without rules, and why."""

    name: TableName
    info: TableInfo | None
    """None: the database has no table of this name."""
    excuse: Excuse
    key: TableName
    """The name, or the pattern, under which the contract excuses it."""

    @property
    def path(self) -> str:
        return key_path(["excused", self.key])


def excused_tables(contract: Contract, schema: Schema) -> list[ExcusedTable]:
    """Return every table that the contract excuses: by name, in the order of the file, then by pattern."""
    exact = [
        ExcusedTable(name, schema.find(name.schema, name.name), excuse, name)
        for name, excuse in contract.excused
        if not name.is_pattern
    ]
    return [*exact, *_matched(contract, schema)]


def _matched(contract: Contract, schema: Schema) -> Iterator[ExcusedTable]:
    patterns = [(name, excuse) for name, excuse in contract.excused if name.is_pattern]
    if not patterns:
        return
    patterns.sort(key=lambda one: len(str(one[0])), reverse=True)
    mentioned = mentioned_tables(contract, schema)
    for info in schema.tables:
        if info.kind not in HOLDS_ROWS or info.parent is not None or info.is_side_table or info.qualified in mentioned:
            continue
        names = _names(info, schema)
        for pattern, excuse in patterns:
            if any(pattern.covers(name) for name in names):
                yield ExcusedTable(names[0], info, excuse, pattern)
                break


def _names(info: TableInfo, schema: Schema) -> list[TableName]:
    """Return the names of a table: without its schema, if that finds it, and with it."""
    full = TableName(info.name, info.schema)
    found = schema.find(None, info.name)
    return [TableName(info.name), full] if found is not None and found.qualified == info.qualified else [full]


def mentioned_tables(contract: Contract, schema: Schema) -> set[tuple[str, str]]:
    """Return the tables that the contract names one by one: with rules, excused, or following others."""
    names = [table.name for table in contract.tables]
    names += [name for name, _ in contract.excused if not name.is_pattern]
    names += [follower.reference.table for _, _, follower in contract.followers()]
    return {info.qualified for name in names if (info := schema.find(name.schema, name.name)) is not None}
