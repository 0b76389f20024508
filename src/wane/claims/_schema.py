"""The tables of work claims: checking whether a database has them, whole or in part, and creating what is missing.

The script of the reference contract is the only definition of the tables; its missing parts are run one by one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from wane._db.store import Store
from wane._db.transaction import Transaction
from wane.claims._sql import CLAIMS, TOMBSTONES, add_column
from wane.errors import StoreError
from wane.reference import schema_sql

_CREATES = re.compile(
    r"^(?:CREATE (?:OR REPLACE )?(?P<kind>TABLE|INDEX|SEQUENCE|FUNCTION|TRIGGER)|INSERT INTO(?= wane_)) (?P<name>\w+)",
    re.MULTILINE,
)
_COLUMN = re.compile(r"^    (?P<name>[a-z_]+) +(?P<type>\w+)", re.MULTILINE)
_ADDED = {CLAIMS: ("remembered_until",)}
"""Columns that are added to a table without them; a table that lacks others is not Wane's."""


class SchemaPart(NamedTuple):
    """An object that the script creates."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"the {self.kind} {self.name}" if self.kind != "row" else f"the row of {self.name}"


CLAIMS_TABLE = SchemaPart("table", CLAIMS)


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing part of the schema, and the statements that create it."""

    what: str
    sql: tuple[str, ...]
    needed: bool
    """Whether claims are wrong without it; without an index they are only slow."""


class ClaimSchema(ABC):
    """The tables of work claims in one database. `schema` is the one that the contract names, if any."""

    seconds = 30.0

    def __init__(self, store: Store, schema: str | None) -> None:
        self.store = store
        self.schema = schema

    @abstractmethod
    def schema_name(self) -> str:
        """Return the schema of the tables, also if they do not exist yet."""

    @abstractmethod
    def statements(self, script: str) -> list[str]:
        """Split a script into statements, ready to be run."""

    @abstractmethod
    def present(self) -> set[SchemaPart]:
        """Read the parts that the schema has."""

    @abstractmethod
    def columns(self, table: str) -> set[str]:
        """Read the columns of a table."""

    @abstractmethod
    def prepare(self, transaction: Transaction) -> None:
        """Wait for other installations."""

    @abstractmethod
    def enter(self, transaction: Transaction) -> None:
        """Make unqualified names resolve to the schema."""

    def missing(self) -> list[Missing]:
        """Return what is missing, in the order in which it can be created; raise if a table is not Wane's."""
        present = self.present()
        found: list[Missing] = []
        for part, sql in self._parts():
            if part not in present:
                found.append(Missing(str(part), tuple(sql), needed=part.kind != "index"))
            elif part.kind == "table" and part.name in (CLAIMS, TOMBSTONES):
                found += self._missing_columns(part.name, sql[0])
        return found

    def install(self) -> list[str]:
        """Create what is missing, all or nothing, once for all concurrent processes; return what was created."""
        with self.store.transaction() as transaction:
            self.prepare(transaction)
            missing = self.missing()
            self.enter(transaction)
            for one in missing:
                for statement in one.sql:
                    transaction.execute(statement, {})
        return [one.what for one in missing]

    def printed(self) -> list[tuple[str, str]]:
        """Return what is missing, each with its SQL for a user to run."""
        return [
            (one.what, "\n".join(f"{statement.rstrip(';')};" for statement in one.sql).replace("%%", "%"))
            for one in self.missing()
        ]

    def _missing_columns(self, table: str, script: str) -> list[Missing]:
        has = self.columns(table)
        types = {match["name"]: match["type"] for match in _COLUMN.finditer(script)}
        lacking = [name for name in types if name not in has]
        foreign = [name for name in lacking if name not in _ADDED.get(table, ())]
        if foreign:
            raise StoreError(
                f"{table} in {self.store.shown} is not the table of work claims: it has no {', '.join(foreign)}",
                "rename it, or add what it lacks: `wane claims install --print` on an empty database shows the table",
            )
        return [
            Missing(f"the column {table}.{name}", (add_column(table, name, types[name]),), needed=True)
            for name in lacking
        ]

    def _parts(self) -> list[tuple[SchemaPart, list[str]]]:
        """Return the parts that the script creates, each with its statement and those after it that create nothing."""
        kind = "sqlite" if self.store.kind == "sqlite" else "postgres"
        parts: list[tuple[SchemaPart, list[str]]] = []
        for statement in self.statements(schema_sql("claims", kind)["main"]):  # type: ignore[arg-type]
            match = _CREATES.search(statement)
            if match is None:
                parts[-1][1].append(statement)
            else:
                parts.append((SchemaPart((match["kind"] or "row").lower(), match["name"]), [statement]))
        return parts


def claim_schema(store: Store, schema: str | None) -> ClaimSchema:
    """Return the schema of work claims in a store."""
    if store.kind == "sqlite":
        from wane.claims._sql_sqlite import SqliteClaimSchema

        return SqliteClaimSchema(store, schema)
    from wane.claims._sql_postgres import PostgresClaimSchema

    return PostgresClaimSchema(store, schema)
