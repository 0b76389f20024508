"""The rows of the demonstration's database, family by family.

Every family is a function from a World to the loads that fill its tables, parents first. Rows are the same for the same
seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

Native = Callable[[int | None], Any]
"""Converts unix seconds to what the store uses in a native time column."""


@dataclass(frozen=True, slots=True)
class Load:
    """The rows of one table."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]


class World:
    """The time, the size and the random seed that all families share."""

    def __init__(self, *, rows: int, now: datetime, random_seed: int, native: Native) -> None:
        self.rows = rows
        self.now = int(now.timestamp())
        self.native = native
        self._random_seed = random_seed

    def luck(self, table: str) -> Random:
        """Return a table's own random numbers, so that a change to one table leaves the others alone."""
        return Random(f"{self._random_seed}/{table}")

    def count(self, share: float, least: int = 10) -> int:
        """Compute how many rows a table gets: its share of all, but never less than `least`."""
        return max(least, round(self.rows * share))

    def ago(self, seconds: float) -> int:
        return self.now - int(seconds)

    def times(self, luck: Random, count: int, days: float) -> list[int]:
        """Draw times of the last days, oldest first, so that numbers assigned in order grow with time."""
        return sorted(self.ago(luck.random() * days * DAY) for _ in range(count))


def load(table: str, columns: str, rows: Iterator[tuple[Any, ...]] | Sequence[tuple[Any, ...]]) -> Load:
    return Load(table, tuple(columns.split()), list(rows))
