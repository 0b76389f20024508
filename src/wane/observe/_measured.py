"""The tables that are measured: every table of the schemas that a contract covers, under the contract's name for it."""

from __future__ import annotations

from dataclasses import dataclass

from wane._contract.model import Contract
from wane._contract.names import TableName
from wane._db import Store
from wane._db.schema import Kind, Schema, TableInfo
from wane._findings import did_you_mean
from wane.errors import UnknownTable

_MEASURED = (Kind.TABLE, Kind.PARTITIONED)
"""Views hold no rows, partitions belong to their table, and foreign tables to another database."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A table, with the name shown to users and its full one."""

    info: TableInfo
    shown: str

    @property
    def full(self) -> str:
        return str(TableName(self.info.name, self.info.schema))


def measured_tables(store: Store, contract: Contract, only: str | None = None) -> list[Measured]:
    """Return every measured table, or the one of a name, the contract's or its own; raise UnknownTable if it is
    missing."""
    schema = store.reflect()
    named = _named(contract, schema)
    found = [
        Measured(table, named.get(table.qualified) or _plain(table, schema))
        for table in schema.tables
        if table.kind in _MEASURED
        and (not contract.store.schemas or table.schema in contract.store.schemas or table.qualified in named)
    ]
    if only is None:
        return sorted(found, key=lambda one: one.shown)
    chosen = [one for one in found if only in (one.shown, one.full, one.info.name)]
    exact = [one for one in chosen if only in (one.shown, one.full)]
    if len(exact or chosen) != 1:
        hint = did_you_mean(only, [one.shown for one in found]) or "`wane growth` lists them"
        several = f": it may be {', '.join(one.full for one in chosen)}" if chosen else ""
        raise UnknownTable(f"no table {only!r} is measured{several}", hint)
    return exact or chosen


def shown_name(contract: Contract, full: str) -> str:
    """Return the name shown to users for a table of which only the full name is known."""
    name = TableName.parse(full)
    known = {str(one) for one in _names(contract)}
    return full if full in known or name.schema not in ("main", "public") else str(TableName(name.name))


def _named(contract: Contract, schema: Schema) -> dict[tuple[str, str], str]:
    found = ((schema.find(name.schema, name.name), str(name)) for name in _names(contract))
    return {table.qualified: name for table, name in found if table is not None}


def _names(contract: Contract) -> list[TableName]:
    names = [table.name for table in contract.tables] + [name for name, _ in contract.excused]
    return [*names, *(follower.reference.table for _, _, follower in contract.followers())]


def _plain(table: TableInfo, schema: Schema) -> str:
    bare = schema.find(None, table.name)
    unambiguous = bare is not None and bare.qualified == table.qualified
    return str(TableName(table.name, None if unambiguous else table.schema))
