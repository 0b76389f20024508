"""Health: whether retention does its work, judged from the database alone, with a verdict in words.

A counter cannot show what did not happen, so nothing here relies on a sweep's own report: overdue rows are searched for
in the tables. `examine` reads the facts, `verdict` judges them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from wane._db.counting import Count, Exactness, Figure, as_count, stated
from wane._findings import Finding, open_errors
from wane._schedule.sql import Heartbeat, InForce, Window
from wane.observe._pressure import Pressure


@dataclass(frozen=True, slots=True)
class RuleHealth:
    """One rule: what is due, since when, and the rates at which rows become due and leave. None: unknown."""

    rule: str
    takes: bool
    """Whether the rule removes rows from the table; a rule that marks only changes them."""
    due: Count | None
    oldest_due: datetime | date | None
    late_seconds: float | None
    """How long the oldest due row waits beyond its window and one sweep interval, or 0. None for caps and unswept
    tables."""
    last_sweep: datetime | None
    last_rows: int | None
    """The rows that sweep took."""
    pruned_per_hour: float | None
    """The rows that sweeps took, by the audit trail's latest entries."""
    due_per_hour: float | None
    """The rows that become due within the next sweep interval; beyond the counting limit, the inflow, if known."""

    runs: bool
    """Whether sweeps of it happen: they are on, and an executor is alive or one ran a short while ago."""
    due_per_hour_capped: bool = False
    """Whether more rows become due than are counted, so that the rate is a lower bound."""

    @property
    def drain(self) -> Figure | None:
        """Return the seconds until nothing is due, at this pace; None if never, unknown, or nothing runs."""
        if self.due is None:
            return None
        if self.due == Count(0):
            return Figure(0.0)
        pruned, arriving = self.pruned_per_hour, self.due_per_hour
        if not self.runs or pruned is None or arriving is None or pruned <= arriving:
            return None
        bound = self.due.exactness is Exactness.AT_LEAST or self.due_per_hour_capped
        exactness = Exactness.AT_LEAST if bound else Exactness.ESTIMATE
        return Figure(self.due.rows / (pruned - arriving) * 3_600, exactness)

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            **stated("due", self.due),
            "oldest_due": self.oldest_due,
            "late_seconds": _rounded(self.late_seconds),
            "last_sweep": self.last_sweep,
            "last_rows": self.last_rows,
            "pruned_per_hour": _rounded(self.pruned_per_hour),
            "due_per_hour": _rounded(self.due_per_hour),
            **_drained(self.drain),
        }


@dataclass(frozen=True, slots=True)
class TableHealth:
    """One table. None: unknown, or not provided by this store."""

    pressure: Pressure
    scheduler: str | None
    every_seconds: float | None
    bytes: int | None
    bytes_exact: bool
    """Whether the bytes are exact; on SQLite they may come from a sample."""
    oldest_age_seconds: float | None
    hot_read_ms: float | None
    """A read through the index of its first rule, the fastest of five; timed for the largest tables only."""
    finished: Count | None
    """Rows in states that are not live; counted only where the table may be recommended for partitions."""
    may_partition: bool
    """Whether the store supports partitions, and the table has rules and no partitions."""
    partition_recommended: bool
    partition_near: bool
    """Whether partitions will be recommended soon: by its rows, or by its rate."""
    partition_days: float | None
    """Until it reaches the number of rows for partitions, by its rate; None: never, or unknown."""
    growth_per_day: float | None
    """Rows, by its latest snapshots; None: unknown."""
    enabled: bool
    rules: tuple[RuleHealth, ...]

    @property
    def late_seconds(self) -> float | None:
        return max((one.late_seconds for one in self.rules if one.late_seconds is not None), default=None)

    @property
    def last_sweep(self) -> datetime | None:
        return max((one.last_sweep for one in self.rules if one.last_sweep is not None), default=None)

    @property
    def pruned_per_hour(self) -> float | None:
        """Return the rows an hour that sweeps took, under all of its rules that remove rows; None if unknown."""
        each = [one.pruned_per_hour for one in self.rules if one.takes]
        return None if not each or None in each else sum(one for one in each if one is not None)

    @property
    def inflow_per_hour(self) -> float | None:
        """Return the inflow: the table's growth plus the rows that sweeps took meanwhile; None if unknown."""
        if self.growth_per_day is None or self.pruned_per_hour is None:
            return None
        return max(self.growth_per_day / 24 + self.pruned_per_hour, 0.0)

    @property
    def runs(self) -> bool:
        """Return whether sweeps of it happen."""
        return any(one.runs for one in self.rules)

    @property
    def drain(self) -> Figure | None:
        """Return the seconds until nothing is due under any of its rules; None if never, unknown, or nothing runs."""
        each = [one.drain for one in self.rules]
        known = [one for one in each if one is not None]
        if not known or len(known) < len(each):
            return None
        bound = any(one.exactness is Exactness.AT_LEAST for one in known)
        longest = max(known, key=lambda one: one.value)
        return replace(longest, exactness=Exactness.AT_LEAST) if bound else longest

    def as_dict(self) -> dict[str, Any]:
        pressure = self.pressure.as_dict()
        return {
            "table": pressure.pop("tbl"),
            "scheduler": self.scheduler,
            "every_seconds": self.every_seconds,
            "enabled": self.enabled,
            **pressure,
            **stated("bytes", as_count(self.bytes, exact=self.bytes_exact)),
            "oldest_age_seconds": _rounded(self.oldest_age_seconds),
            "late_seconds": _rounded(self.late_seconds),
            "last_sweep": self.last_sweep,
            "growth_per_day": _rounded(self.growth_per_day),
            "inflow_per_hour": _rounded(self.inflow_per_hour),
            "pruned_per_hour": _rounded(self.pruned_per_hour),
            **_drained(self.drain),
            "hot_read_ms": self.hot_read_ms,
            "partition_recommended": self.partition_recommended,
            "partition_near": self.partition_near,
            "partition_days": _rounded(self.partition_days),
            "rules": [rule.as_dict() for rule in self.rules],
        }


@dataclass(frozen=True, slots=True)
class SchedulerHealth:
    """A scheduler of the contract."""

    name: str
    every_seconds: float
    window: Window | None
    late_seconds: float


@dataclass(frozen=True, slots=True)
class Health:
    """The state of retention, and everything that is wrong with it."""

    now: datetime
    database: str
    fingerprint: str
    in_force: InForce | None
    migrated: bool
    enabled: bool
    master_flag: str
    disabled_tables: tuple[str, ...]
    functions: str | None
    """The fingerprint of the contract that functions inside the database were installed for."""
    dead_letters: int
    uncovered: tuple[str, ...]
    schedulers: tuple[SchedulerHealth, ...]
    executors: tuple[Heartbeat, ...]
    tables: tuple[TableHealth, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def healthy(self) -> bool:
        """Return whether there are no errors but accepted ones; warnings and notes do not count."""
        return not open_errors(self.findings)

    @property
    def silent(self) -> tuple[Heartbeat, ...]:
        return tuple(one for one in self.executors if one.is_silent(self.now))

    @property
    def verdict(self) -> str:
        """Return the verdict in a sentence."""
        unhealthy = open_errors(self.findings)
        if not unhealthy:
            return "healthy"
        codes = dict.fromkeys(one.code for one in unhealthy)
        return f"unhealthy: {', '.join(codes)}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as `wane health --json` prints it, except that times stay datetime values."""
        return {
            "healthy": self.healthy,
            "verdict": self.verdict,
            "now": self.now,
            "database": self.database,
            "contract": self.fingerprint,
            "in_force": None if self.in_force is None else self.in_force.fingerprint,
            "migrated": self.migrated,
            "enabled": self.enabled,
            "disabled_tables": list(self.disabled_tables),
            "functions": self.functions,
            "dead_letters": self.dead_letters,
            "uncovered": list(self.uncovered),
            "schedulers": [
                {
                    "scheduler": one.name,
                    "every_seconds": one.every_seconds,
                    "due_at": None if one.window is None else one.window.due_at,
                    "late_seconds": _rounded(one.late_seconds),
                }
                for one in self.schedulers
            ],
            "executors": [
                {"executor": one.executor, "role": one.role, "beat_at": one.beat_at, "silent": one.is_silent(self.now)}
                for one in self.executors
            ],
            "tables": [table.as_dict() for table in self.tables],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def _drained(drain: Figure | None) -> dict[str, Any]:
    return stated("drain_seconds", None if drain is None else replace(drain, value=round(drain.value, 1)))


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
