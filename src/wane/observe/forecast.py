"""What a series of row counts will become: a rate with its uncertainty, by Theil and Sen. Pure arithmetic.

The rate is the median of the slopes between all pairs of points, so a quarter of the points may be nonsense without moving it. Its
interval comes from the same slopes, by Kendall's rank statistic (Sen 1968): it assumes no distribution, but that points scatter
around a line independently of each other. Rows that arrive one day more and one day less do not: what came yesterday is still
there today, and the line itself wanders. How much of that there is shows in how alike neighbouring points lie; so much of the
uncertainty of a random walk is added. Points are gathered into at most 60 equal spans of time first, each with its median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

_MOST_POINTS = 60
_LEAST_POINTS = 4
"""Fewer say nothing: with three, even a straight line has no interval at this confidence."""
_Z = 1.645
"""Nine out of ten."""
_WALK_Z = 2.0
"""The same for a random walk, whose rate the median of slopes does not find as well as its ends would."""
_ALIKE = 1.25
"""Neighbours look less alike than they are, because the line was laid through them."""
_HORIZON_DAYS = 3_650.0
"""What even the fastest plausible rate does not reach in ten years is not going to happen."""

Point = tuple[float, float]
"""(days, rows)"""


class Verdict(StrEnum):
    """What a table does."""

    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"
    IRREGULAR = "irregular"
    UNKNOWN = "unknown"
    """Too little is remembered of it."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Rows a day, between `low` and `high` in nine cases of ten."""

    rate: float
    low: float
    high: float
    spread: float = 0.0
    """How far points lie from the line, nine out of ten of them."""
    level: float = 0.0
    """Rows in the middle of the time that was looked at."""

    @property
    def verdict(self) -> Verdict:
        if self.low > 0:
            return Verdict.GROWING
        if self.high < 0:
            return Verdict.SHRINKING
        return Verdict.STEADY if self.spread <= self.level / 2 else Verdict.IRREGULAR


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table will hold, some days from now."""

    days: float
    rows: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class DaysTo:
    """When a table reaches so many rows: `days` from now, or None with the word that says why."""

    threshold: int
    days: float | None
    earliest: float | None = None
    latest: float | None = None
    """None: perhaps never."""
    word: str = ""
    """"never" or "n/a", if there are no days."""


def trend(points: Sequence[Point], least_days: float) -> Trend | None:
    """The trend of some points; None if they are too few or lie too close together."""
    if len({day for day, _ in points}) < _LEAST_POINTS:
        return None
    raw, points = points, _gathered(sorted(points))
    count = len(points)
    if count < _LEAST_POINTS or points[-1][0] - points[0][0] < least_days:
        return None
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for number, earlier in enumerate(points)
        for later in points[number + 1 :]
    )
    # How many pairs more may rise than fall by mere chance.
    chance = _Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    first = max(math.floor((len(slopes) - chance) / 2) - 1, 0)
    last = min(math.ceil((len(slopes) + chance) / 2), len(slopes) - 1)
    rate = median(slopes)
    middle = median(rows - rate * day for day, rows in points)
    off = [rows - rate * day - middle for day, rows in points]
    wander = _WALK_Z * _wandering(off) / (points[-1][0] - points[0][0])
    return Trend(
        rate,
        rate - math.hypot(rate - slopes[first], wander),
        rate + math.hypot(slopes[last] - rate, wander),
        sorted(abs(rows - rate * day - middle) for day, rows in raw)[math.ceil(0.9 * len(raw)) - 1],
        median(rows for _, rows in points),
    )


def _wandering(off: Sequence[float]) -> float:
    """How far the end of a random walk with these steps would be from where it is, in one case of three; nothing if it is none."""
    total = sum(one * one for one in off)
    if not total:
        return 0.0
    alike = sum(one * following for one, following in pairwise(off)) / total
    steps = sum((following - one) ** 2 for one, following in pairwise(off))
    return math.sqrt(steps) * min(max(alike, 0.0) * _ALIKE, 1.0)


def _gathered(points: Sequence[Point]) -> list[Point]:
    """One point for every span of time that has any: the median of its days and of its rows."""
    begin, end = points[0][0], points[-1][0]
    spans: dict[int, list[Point]] = {}
    for day, rows in points:
        number = 0 if end == begin else min(int((day - begin) / (end - begin) * _MOST_POINTS), _MOST_POINTS - 1)
        spans.setdefault(number, []).append((day, rows))
    return [(median(day for day, _ in some), median(rows for _, rows in some)) for some in spans.values()]


def days_to(threshold: int, rows: int, found: Trend | None) -> DaysTo:
    """When so many rows are reached, if they are."""
    if rows >= threshold:
        return DaysTo(threshold, 0.0, 0.0, 0.0)
    if found is None:
        return DaysTo(threshold, None, word="n/a")
    left = threshold - rows
    if found.verdict is Verdict.GROWING:
        return DaysTo(threshold, left / found.rate, left / found.high, left / found.low)
    if left > found.spread and (found.high <= 0 or left / found.high > _HORIZON_DAYS):
        return DaysTo(threshold, None, word="never")
    return DaysTo(threshold, None, left / found.high if found.high > 0 else None, word="n/a")


def expected(rows: int, found: Trend, days: float) -> Expected:
    """What a table will hold if it goes on like this."""

    def at_least_none(value: float) -> int:
        return max(round(value), 0)

    return Expected(
        days,
        at_least_none(rows + found.rate * days),
        at_least_none(rows + found.low * days - found.spread),
        at_least_none(rows + found.high * days + found.spread),
    )
