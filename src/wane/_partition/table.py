"""A table of the contract that is, or may be, partitioned: its table in the database, and its calendar."""

from __future__ import annotations

from dataclasses import dataclass

from wane._contract.lookup import find_table
from wane._contract.model import Contract, Partitioned, Table
from wane._contract.names import TableName
from wane._db import Store
from wane._db.schema import TableInfo
from wane._findings import did_you_mean
from wane._partition.months import Calendar
from wane._partition.sql_steps import LockPatience, named
from wane.errors import PartitionError, UnknownTable

ATTEMPTS = 100
"""The number of attempts to take a lock that makes the application wait."""


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """One table of [partition], resolved."""

    settings: Partitioned
    info: TableInfo
    declared: Table | None
    """Its rules; None for a table that only follows another."""

    @property
    def name(self) -> TableName:
        return self.settings.table

    @property
    def full(self) -> str:
        """Return the full name, as the journal writes it."""
        return named(self.info.schema, self.info.name)

    @property
    def calendar(self) -> Calendar:
        return Calendar(self.settings.time)

    @property
    def patience(self) -> LockPatience:
        return LockPatience(self.settings.lock.total_seconds(), ATTEMPTS)


def find_target(store: Store, contract: Contract, name: str) -> PartitionTarget:
    """Resolve the table of this name under [partition]; raise with what to write if there is none."""
    settings = next((one for one in contract.partitions if str(one.table) == name), None)
    if settings is None:
        for one in contract.partitions:
            if name in [str(follower) for follower, _ in one.followers]:
                raise PartitionError(f"{name} is partitioned along with {one.table}", f"name {one.table}")
        known = [str(one.table) for one in contract.partitions]
        find_table(contract, name)  # Raises for a name that the contract does not have at all.
        hint = did_you_mean(name, known) or (
            f'write [partition.{name}] with `time = "…"` and `keep = "…"` into the contract'
        )
        raise PartitionError(f"the contract does not declare how {name} is partitioned", hint)
    return target_of(store, contract, settings)


def target_of(store: Store, contract: Contract, settings: Partitioned) -> PartitionTarget:
    """Resolve a table of [partition] in the database; raise if it or its time column is missing or has the wrong
    type."""
    info = store.reflect().find(settings.table.schema, settings.table.name)
    if info is None:
        raise UnknownTable(
            f"the database has no table {settings.table}", f"correct or remove [partition.{settings.table}]"
        )
    column = info.column(settings.time.column)
    if column is None:
        near = did_you_mean(settings.time.column, [one.name for one in info.columns])
        raise PartitionError(f"{settings.table} has no column {settings.time.column!r}", near)
    problem = store.types.time(column, settings.time)
    if problem:
        raise PartitionError(problem, f"correct `time` under [partition.{settings.table}]")
    declared = next((one for one in contract.tables if one.name == settings.table), None)
    return PartitionTarget(settings, info, declared)


def followers_of(contract: Contract, settings: Partitioned) -> list[Partitioned]:
    """Return the tables that are partitioned along with another."""
    found = [contract.partitioned(name) for name, _ in settings.followers]
    return [one for one in found if one is not None]
