"""The partition that a row is in: when it leaves as a whole, and what keeps it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from wane._contract.duration import Forever
from wane._contract.model import Contract, Partitioned
from wane._contract.names import TableName, split_name
from wane._db import Store
from wane._db.schema import TableInfo
from wane._findings import pasted
from wane._partition.journal import PartitionJournal
from wane._partition.model import QuarantinedRow, RowPartition
from wane._partition.records import Leaf
from wane._partition.retiring_table import RetiringTable
from wane._partition.sql import partitions_of
from wane._partition.sql_cover import is_cover
from wane._partition.sql_ddl import qualified_name
from wane._partition.table import target_of
from wane._partition.work import PartitionWork
from wane._prune.pace import Pace
from wane._rules.queries import queries_of
from wane.errors import TimedOut, WaneError
from wane.events import ignore_event

_SECONDS = 2.0


def _partitioned(store: Store, contract: Contract, table: TableName) -> Partitioned | None:
    """Return how a table is partitioned by the contract; None if it is not, or cannot be in this database."""
    found = next((one for one in contract.partitions if one.table == table), None)
    return found if store.has_partitions and store.migrated else None


def partition_of_row(
    store: Store, contract: Contract, table: TableName, key: Mapping[str, object]
) -> RowPartition | None:
    """Report which partition the row of a key leaves with, and when; None if its table has none that are retired."""
    settings = _partitioned(store, contract, table)
    if settings is None:
        return None
    try:
        return _read(store, contract, settings, key)
    except WaneError:  # It is not partitioned yet, or its rules do not fit: the rules themselves report that.
        return None


def quarantined_row(
    store: Store, contract: Contract, table: TableName, info: TableInfo, key: Mapping[str, object]
) -> QuarantinedRow | None:
    """Find the row of a key in the partitions of its table that are in quarantine; None if none has it."""
    settings = _partitioned(store, contract, table)
    if settings is None:
        return None
    columns = [column for name in key if (column := info.column(name)) is not None]
    for one in PartitionJournal(store.run).retired(target_of(store, contract, settings).full, "quarantined"):
        if one.place is None:
            continue
        schema, name = split_name(one.place)
        quarantined = replace(info, schema=schema, name=name)
        if store.read(queries_of(store).key_text(quarantined, columns, key), _SECONDS):
            reattach = pasted("partition", "retire", table, "--reattach", one.partition).strip("`")
            return QuarantinedRow(one.partition, one.place, one.drop_at, reattach)
    return None


def _read(store: Store, contract: Contract, settings: Partitioned, key: Mapping[str, object]) -> RowPartition | None:
    steps = partitions_of(store)
    try:
        target = target_of(store, contract, settings)
        work = PartitionWork(store, contract, steps, "", ignore_event, Pace.of(contract.sweep), threading.Event())
        found = _RetirementExplainer(RetiringTable.of(work, target, None))
        name = steps.partition_of(target.info, key)
        return None if name is None else found.explain(name)
    finally:
        steps.close()


@dataclass(frozen=True, slots=True)
class _RetirementExplainer:
    """Explains partitions of one table."""

    leaving: RetiringTable

    def explain(self, name: str) -> RowPartition:
        leaving, a = self.leaving, self.leaving.anatomy
        leaf = next((one for one in leaving.work.steps.leaves(a.schema, a.name) if one.name == name), None)
        keep = leaving.target.settings.keep
        ends = None if leaf is None else leaving.target.calendar.timestamp(leaf.range.upper)
        if leaf is None or ends is None or isinstance(keep, Forever) or is_cover(a, leaf):
            why = "by the contract" if isinstance(keep, Forever) else "it has no end in time, or only catches rows"
            return RowPartition(name, ends, None, f"{name}, its partition, is never retired: {why}")
        after = ends + keep
        if after > leaving.now:
            when = f"after {after:%Y-%m-%d %H:%M:%S} UTC, if every row in it may leave then"
            return RowPartition(name, ends, after, f"{name}, its partition, is retired {when}")
        return RowPartition(name, ends, after, self._past(leaf))

    def _past(self, leaf: Leaf) -> str:
        leaving = self.leaving
        retire = pasted("partition", "retire", leaving.name)
        try:
            why = leaving.hindered(leaf) or leaving.why(
                leaving.weigh(qualified_name(leaving.anatomy, leaf.name), _SECONDS)
            )
        except TimedOut:
            return (
                f"{leaf.name}, its partition, is past its time; {retire.rstrip('`')} --dry-run` counts what must stay"
            )
        if why:
            return f"{leaf.name}, its partition, is past its time and stays: {why}"
        closed = leaving.closed()
        if closed:
            return f"{leaf.name}, its partition, would be retired, but {closed}"
        return f"it leaves with its partition {leaf.name}: with `wane run` within ten minutes, or with {retire}"
