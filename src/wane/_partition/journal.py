"""The journal of partitioning: the progress of each table, and what became of partitions that were detached.

A step that is one transaction writes here what it did in that same transaction; a step that cannot be one is safe to
repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane._db.postgres.dialect import PostgresDialect
from wane._db.statement import Execute
from wane._journal import Entries, JournalTable
from wane._partition.records import Range

COPYING_FACTS = ("split", "last", "floor")
"""What is noted of a split for as long as rows are copied: the months, the last key to copy, and the last copied."""


@dataclass(frozen=True, slots=True)
class Change:
    """A table being converted to partitions or back; `convert` and `done` means that it is partitioned."""

    table: str
    kind: str
    state: str
    facts: dict[str, Any]
    actor: str
    began_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Retirement:
    """A partition that was detached."""

    id: int
    table: str
    partition: str
    state: str
    lower: str
    upper: str
    place: str | None
    along: list[dict[str, Any]]
    counts: dict[str, int]
    actor: str
    retired_at: datetime
    changed_at: datetime
    drop_at: datetime | None

    @property
    def range(self) -> Range:
        return Range(self.lower, self.upper)


_CHANGES = JournalTable("partition_change", Change, order="table_name")
_RETIRED = JournalTable(
    "partition_retired",
    Retirement,
    moves={"detaching": ("detaching", "quarantined", "attached"), "quarantined": ("attached", "moved", "dropped")},
)


class PartitionJournal:
    """Reads and writes the journal through a function that executes statements."""

    def __init__(self, run: Execute) -> None:
        self._run = run
        self._changes = Entries(_CHANGES, PostgresDialect(), run)
        self._retired = Entries(_RETIRED, PostgresDialect(), run)

    def _now(self) -> datetime:
        [(now,)] = self._run("SELECT clock_timestamp()", {})
        assert isinstance(now, datetime)
        return now

    def change(self, table: str) -> Change | None:
        """Return the progress of a table; None for one that Wane never partitioned."""
        return next(iter(self._changes.find(table_name=table)), None)

    def write(self, table: str, kind: str, state: str, facts: Mapping[str, Any], actor: str) -> None:
        """Record the progress of a table."""
        before, now = self.change(table), self._now()
        values: dict[str, Any] = {"kind": kind, "state": state, "facts": facts, "actor": actor, "changed_at": now}
        if before is None:
            self._changes.add(table_name=table, began_at=now, **values)
        else:
            began_at = before.began_at if before.kind == kind else now
            self._changes.change({"table_name": table}, began_at=began_at, **values)

    def forget(self, table: str) -> None:
        """Delete the record of a table that is plain again and of whose conversion nothing is left."""
        self._changes.delete(table_name=table)

    # Partitions that were detached

    def retire(self, table: str, partition: str, range_: Range, actor: str) -> Retirement:
        """Record that a partition is being detached."""
        now = self._now()
        return self._retired.add(
            table_name=table,
            partition=partition,
            state="detaching",
            lower=range_.lower,
            upper=range_.upper,
            along=[],
            counts={},
            actor=actor,
            retired_at=now,
            changed_at=now,
        )

    def move(self, number: int, state: str, *, drop_at: datetime | None = None, **values: Any) -> None:
        """Record that a partition has reached a state, and what changed of its `place`, `along` and `counts`."""
        self._retired.move(number, state, drop_at=drop_at, changed_at=self._now(), **values)

    def retired(self, table: str, *states: str) -> list[Retirement]:
        """Return the retirements of a table in some states, oldest first."""
        return self._retired.find(table_name=table, state=list(states))
