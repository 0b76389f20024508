"""The tables of work claims: whether a database has them, whole or in part, and creating what is missing.

The script of the reference contract is the one place that says what they look like; it is run part by part, those that are missing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from wane.errors import StoreError
from wane.reference import schema_sql
from wane.store.base import Store
from wane.store.claims import CLAIMS, TOMBSTONES
from wane.store.transaction import Transaction

_CREATES = re.compile(
    r"^(?:CREATE (?:OR REPLACE )?(?P<kind>TABLE|INDEX|SEQUENCE|FUNCTION|TRIGGER)|INSERT INTO(?= wane_)) (?P<name>\w+)",
    re.MULTILINE,
)
_COLUMN = re.compile(r"^    (?P<name>[a-z_]+) +(?P<type>\w+)", re.MULTILINE)
_ADDED = {CLAIMS: ("remembered_until",)}
"""Columns that a table without them gets; one that lacks others is somebody else's."""


class Part(NamedTuple):
    """Something that the script creates."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"the {self.kind} {self.name}" if self.kind != "row" else f"the row of {self.name}"


CLAIMS_TABLE = Part("table", CLAIMS)


@dataclass(frozen=True, slots=True)
class Missing:
    """What a database lacks, and the statements that bring it."""

    what: str
    sql: tuple[str, ...]
    needed: bool
    """Without an index claims are slow; without anything else they are wrong."""


class ClaimSchema(ABC):
    """The tables of work claims in one database. `schema` is where the contract says that they lie, if it says so."""

    seconds = 30.0

    def __init__(self, store: Store, schema: str | None) -> None:
        self.store = store
        self.schema = schema

    @abstractmethod
    def place(self) -> str:
        """The schema in which the tables lie, or would."""

    @abstractmethod
    def statements(self, script: str) -> list[str]:
        """The statements of a script, ready to be run."""

    @abstractmethod
    def present(self) -> set[Part]:
        """Every part of that kind that the schema has."""

    @abstractmethod
    def columns(self, table: str) -> set[str]:
        """The columns of a table."""

    @abstractmethod
    def prepare(self, transaction: Transaction) -> None:
        """Wait for others who install."""

    @abstractmethod
    def enter(self, transaction: Transaction) -> None:
        """Let names mean what lies in the schema."""

    def missing(self) -> list[Missing]:
        """What is missing, in the order in which it can be created; raise if a table is not one of ours."""
        present = self.present()
        found: list[Missing] = []
        for part, sql in self._parts():
            if part not in present:
                found.append(Missing(str(part), tuple(sql), needed=part.kind != "index"))
            elif part.kind == "table" and part.name in (CLAIMS, TOMBSTONES):
                found += self._missing_columns(part.name, sql[0])
        return found

    def install(self) -> list[str]:
        """Create what is missing, all or nothing, once, however many processes try at a time; return what was created."""
        with self.store.transaction() as transaction:
            self.prepare(transaction)
            missing = self.missing()
            self.enter(transaction)
            for one in missing:
                for statement in one.sql:
                    transaction.execute(statement, {})
        return [one.what for one in missing]

    def printed(self) -> list[tuple[str, str]]:
        """What is missing, each with its SQL as people would write it."""
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
            Missing(
                f"the column {table}.{name}", (f"ALTER TABLE {table} ADD COLUMN {name} {types[name]}",), needed=True
            )
            for name in lacking
        ]

    def _parts(self) -> list[tuple[Part, list[str]]]:
        """What the script creates, each with the statements that belong to it: its own, and those behind that create nothing."""
        kind = "sqlite" if self.store.kind == "sqlite" else "postgres"
        parts: list[tuple[Part, list[str]]] = []
        for statement in self.statements(schema_sql("claims", kind)["main"]):  # type: ignore[arg-type]
            match = _CREATES.search(statement)
            if match is None:
                parts[-1][1].append(statement)
            else:
                parts.append((Part((match["kind"] or "row").lower(), match["name"]), [statement]))
        return parts


def claim_schema(store: Store, schema: str | None) -> ClaimSchema:
    """The tables of work claims in a store."""
    if store.kind == "sqlite":
        from wane.store.sqlite.claims import SqliteClaimSchema

        return SqliteClaimSchema(store, schema)
    from wane.store.postgres.claims import PostgresClaimSchema

    return PostgresClaimSchema(store, schema)
