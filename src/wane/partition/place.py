"""A table of the contract that is, or may be, partitioned: where it is in the database, and how its months are counted."""

from __future__ import annotations

from dataclasses import dataclass

from wane.contract.lookup import find_table
from wane.contract.model import Contract, Partitioned, Table
from wane.contract.names import TableName
from wane.errors import PartitionError, UnknownTable
from wane.findings import did_you_mean
from wane.partition.months import Calendar
from wane.store import Store
from wane.store.postgres.partition_steps import Patience, named
from wane.store.schema import TableInfo

ATTEMPTS = 100
"""How often a lock is asked for that makes the application wait."""


@dataclass(frozen=True, slots=True)
class Place:
    """One table, found."""

    settings: Partitioned
    info: TableInfo
    declared: Table | None
    """Its rules; None for a table that only follows another."""

    @property
    def name(self) -> TableName:
        return self.settings.table

    @property
    def full(self) -> str:
        """Its full name, as the journal writes it."""
        return named(self.info.schema, self.info.name)

    @property
    def calendar(self) -> Calendar:
        return Calendar(self.settings.time)

    @property
    def patience(self) -> Patience:
        return Patience(self.settings.lock.total_seconds(), ATTEMPTS)


def find_place(store: Store, contract: Contract, name: str) -> Place:
    """The table of this name that [partition] speaks of; raise with what to write if it does not."""
    settings = next((one for one in contract.partitions if str(one.table) == name), None)
    if settings is None:
        for one in contract.partitions:
            if name in [str(follower) for follower, _ in one.followers]:
                raise PartitionError(f"{name} is partitioned along with {one.table}", f"name {one.table}")
        known = [str(one.table) for one in contract.partitions]
        find_table(contract, name)  # A name that the contract does not have at all is told as such.
        hint = did_you_mean(name, known) or (
            f'write [partition.{name}] with `time = "…"` and `keep = "…"` into the contract'
        )
        raise PartitionError(f"the contract does not say how {name} is partitioned", hint)
    return place_of(store, contract, settings)


def place_of(store: Store, contract: Contract, settings: Partitioned) -> Place:
    """Where a table is that [partition] speaks of."""
    info = store.reflect().find(settings.table.schema, settings.table.name)
    if info is None:
        raise UnknownTable(f"the database has no table {settings.table}")
    column = info.column(settings.time.column)
    if column is None:
        near = did_you_mean(settings.time.column, [one.name for one in info.columns])
        raise PartitionError(f"{settings.table} has no column {settings.time.column!r}", near)
    problem = store.types.time(column, settings.time)
    if problem:
        raise PartitionError(problem, f"correct `time` under [partition.{settings.table}]")
    declared = next((one for one in contract.tables if one.name == settings.table), None)
    return Place(settings, info, declared)


def followers_of(contract: Contract, settings: Partitioned) -> list[Partitioned]:
    """The tables that are partitioned along."""
    found = [contract.partitioned(name) for name, _ in settings.followers]
    return [one for one in found if one is not None]
