"""Records of partitions: ranges, leaves, statements with their locks. Only PostgreSQL has them."""

from __future__ import annotations

from dataclasses import dataclass

from wane._db.statement import text_literal

MIN, MAX = "MINVALUE", "MAXVALUE"
"""The ends of everything: a range from or to one of them catches whatever lies outside every month."""


@dataclass(frozen=True, slots=True)
class Ddl:
    """One statement, the lock that it takes, and why it is there."""

    text: str
    lock: str
    why: str


@dataclass(frozen=True, slots=True)
class Range:
    """A half-open range from one literal up to another, which is excluded; or from MINVALUE, or to MAXVALUE."""

    lower: str
    upper: str

    @property
    def sql(self) -> str:
        return f"FROM ({_end(self.lower)}) TO ({_end(self.upper)})"


def _end(literal: str) -> str:
    return literal if literal in (MIN, MAX) else text_literal(literal)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition, other than the DEFAULT one. `pending`: its detachment was begun and not finished."""

    schema: str
    name: str
    range: Range
    pending: bool
    rows_estimate: int | None
