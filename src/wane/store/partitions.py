"""Partitions in Wane's words: ranges, leaves, statements with their locks. Only PostgreSQL has them."""

from __future__ import annotations

from dataclasses import dataclass

MIN, MAX = "MINVALUE", "MAXVALUE"
"""The ends of everything: a range from or to there catches whatever lies outside every month."""


@dataclass(frozen=True, slots=True)
class Ddl:
    """One statement, the lock that it takes, and why it is there."""

    text: str
    lock: str
    why: str


@dataclass(frozen=True, slots=True)
class Range:
    """From a literal to another, which is not in it; or from MINVALUE, or to MAXVALUE."""

    lower: str
    upper: str

    @property
    def sql(self) -> str:
        return f"FROM ({_end(self.lower)}) TO ({_end(self.upper)})"


def _end(literal: str) -> str:
    return literal if literal in (MIN, MAX) else quoted(literal)


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition. `pending`: it is being detached, and whoever did that did not finish."""

    schema: str
    name: str
    range: Range
    pending: bool
    rows_estimate: int | None
