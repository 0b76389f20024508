"""The journal of partitioning, in Wane's own tables: the progress of each table, and what became of partitions that
were detached.

A step that is one transaction writes here what it did in that same transaction; a step that cannot be one is safe to
repeat.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from wane.db.postgres.catalog import OWN_SCHEMA
from wane.db.statement import Execute
from wane.partition.records import Range

_CHANGE = f"{OWN_SCHEMA}.partition_change"
_RETIRED = f"{OWN_SCHEMA}.partition_retired"
_COLUMNS = (
    "id, table_name, partition, state, lower, upper, place, along, counts, actor, retired_at, changed_at, drop_at"
)


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
    range: Range
    place: str | None
    along: list[dict[str, Any]]
    counts: dict[str, int]
    actor: str
    retired_at: datetime
    changed_at: datetime
    drop_at: datetime | None


class PartitionJournal:
    """Reads and writes the journal through a function that executes statements."""

    def __init__(self, run: Execute) -> None:
        self._run = run

    def change(self, table: str) -> Change | None:
        found = self._run(
            f"SELECT table_name, kind, state, facts, actor, began_at, changed_at FROM {_CHANGE} WHERE table_name = %(table)s",
            {"table": table},
        )
        if not found:
            return None
        name, kind, state, facts, actor, began, changed = found[0]
        return Change(name, kind, state, facts, actor, began.astimezone(UTC), changed.astimezone(UTC))

    def write(self, table: str, kind: str, state: str, facts: Mapping[str, Any], actor: str) -> None:
        """Record the progress of a table."""
        self._run(
            f"INSERT INTO {_CHANGE} AS c (table_name, kind, state, facts, actor, began_at, changed_at) VALUES (%(table)s,"
            " %(kind)s, %(state)s, %(facts)s::jsonb, %(actor)s, clock_timestamp(), clock_timestamp())"
            " ON CONFLICT (table_name) DO UPDATE SET kind = excluded.kind, state = excluded.state, facts = excluded.facts,"
            " actor = excluded.actor, changed_at = excluded.changed_at,"
            " began_at = CASE WHEN c.kind = excluded.kind THEN c.began_at ELSE excluded.began_at END",
            {"table": table, "kind": kind, "state": state, "facts": json.dumps(facts), "actor": actor},
        )

    def forget(self, table: str) -> None:
        """Delete the record of a table that is plain again and of whose conversion nothing is left."""
        self._run(f"DELETE FROM {_CHANGE} WHERE table_name = %(table)s", {"table": table})

    # Partitions that were detached

    def retire(self, table: str, partition: str, range_: Range, actor: str) -> int:
        [(number,)] = self._run(
            f"INSERT INTO {_RETIRED} (table_name, partition, state, lower, upper, along, counts, actor, retired_at, changed_at)"
            " VALUES (%(table)s, %(partition)s, 'detaching', %(lower)s, %(upper)s, '[]', '{}', %(actor)s, clock_timestamp(),"
            " clock_timestamp()) RETURNING id",
            {
                "table": table,
                "partition": partition,
                "lower": range_.lower,
                "upper": range_.upper,
                "actor": actor,
            },
        )
        return int(number)

    def move(
        self,
        number: int,
        state: str,
        *,
        place: str | None,
        along: list[dict[str, Any]] | None = None,
        counts: Mapping[str, int] | None = None,
        drop_at: datetime | None = None,
    ) -> None:
        self._run(
            f"UPDATE {_RETIRED} SET state = %(state)s, place = %(place)s, along = coalesce(%(along)s::jsonb, along),"
            " counts = coalesce(%(counts)s::jsonb, counts), drop_at = %(drop_at)s, changed_at = clock_timestamp()"
            " WHERE id = %(id)s",
            {
                "id": number,
                "state": state,
                "place": place,
                "along": None if along is None else json.dumps(along),
                "counts": None if counts is None else json.dumps(counts),
                "drop_at": drop_at,
            },
        )

    def retired(self, table: str, *states: str) -> list[Retirement]:
        """Return the retirements of a table in some states, oldest first."""
        found = self._run(
            f"SELECT {_COLUMNS} FROM {_RETIRED} WHERE table_name = %(table)s AND state = ANY (%(states)s::text[]) ORDER BY id",
            {"table": table, "states": list(states)},
        )
        return [_retirement(row) for row in found]


def _retirement(row: tuple[Any, ...]) -> Retirement:
    number, table, partition, state, lower, upper, place, along, counts, actor, retired, changed, drop_at = row
    return Retirement(
        number,
        table,
        partition,
        state,
        Range(lower, upper),
        place,
        along,
        counts,
        actor,
        retired.astimezone(UTC),
        changed.astimezone(UTC),
        None if drop_at is None else drop_at.astimezone(UTC),
    )
