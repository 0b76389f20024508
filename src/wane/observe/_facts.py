"""The facts that one reading of a database finds: what pressure, health and gauges are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from wane._db.counting import Count
from wane._findings import Finding
from wane._ledger import RuleSweeps
from wane._rules.probes import ProbedTable
from wane._rules.selection import Selection
from wane.errors import StoreError
from wane.observe._binding import BoundContract
from wane.observe._own_facts import OwnFacts


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """One rule. None: not read in time, or, of the times, nothing is due."""

    selection: Selection
    due: Count | None
    oldest_due: datetime | None = None
    soon: int | None = None
    """The rows that become due within the next sweep interval, up to one more than are counted."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table. None: not read in time, or not known to this store."""

    table: ProbedTable
    rows: Count | None
    oldest: datetime | None
    newest: datetime | None
    due: Count | None
    """Under any of its rules, each row counted once."""
    rules: tuple[RuleFacts, ...]
    bytes: int | None = None
    hot_seconds: float | None = None
    """A read through the index of its rules, the fastest of some; of the largest tables."""
    finished: Count | None = None
    """Rows in states that are not live; estimated only where the table may be recommended for partitions."""
    lacks_index: bool = False
    """Whether its oldest and newest row were not read, because no index is ordered by time and it has many rows."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What one reading found."""

    database: str
    """Its URL, as it may be shown."""
    kind: str
    """"sqlite" or "postgres"."""
    now: datetime
    bound: BoundContract
    tables: tuple[TableFacts, ...]
    own: OwnFacts | None = None
    """None if Wane's own tables are missing, or were not read."""
    problem: StoreError | None = None
    """Why they could not be read."""
    swept: Mapping[tuple[str, str], RuleSweeps] = field(default_factory=dict)
    functions: str | None = None
    """The fingerprint of the contract that functions inside the database were installed for."""
    promises: tuple[Finding, ...] = ()
