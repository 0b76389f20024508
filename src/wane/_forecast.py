"""Forecasting how many rows a table will have: a rate with its uncertainty, what the table tends to, and when it
reaches a number of rows. Pure arithmetic.

The rate is the median of the slopes between all pairs of points (Theil and Sen), so a quarter of the points may be
outliers without moving it. Its interval comes from the same slopes, by Kendall's rank statistic (Sen 1968): it assumes
no distribution, but that points scatter around a line independently of each other. Row counts do not: what came
yesterday is still there today, and the line itself wanders. The autocorrelation of neighbouring points shows how much
it does, and a corresponding part of the uncertainty of a random walk is added. Points are first grouped into at most 60
equal spans of time, each with its median.

A line has no end, but a table with a retention window has: it tends to what arrives within the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from statistics import median

from wane._contract.model import Age, Cap, Contract, ExcuseKind, Mark, State, Table
from wane._contract.names import TableName
from wane._contract.settings import GrowthSettings

_MOST_POINTS = 60
_LEAST_POINTS = 4
"""Fewer points are not enough: with three, even a straight line has no interval at this confidence."""
_Z = 1.645
"""The quantile of a normal distribution for a confidence of nine in ten."""
_WALK_Z = 2.0
"""The same for a random walk, whose rate the median of slopes estimates less well than its ends would."""
_ALIKE = 1.25
"""Corrects the autocorrelation of neighbours, which is underestimated because the line was fitted to them."""
_FORECAST_DAYS = 3_650.0
"""A threshold that even the fastest plausible rate does not reach in ten years counts as never reached."""
_SLACK = 1.5
"""A table with more than this factor of its limit is not bounded by it: sweeps are off, or its rows are held."""
_ALIKE_PARTS = 4
"""A part of a period in which more than this factor of another's rows arrived is not similar to it."""
_CONSTANT = (ExcuseKind.SINGLETON, ExcuseKind.CONSTANT, ExcuseKind.IN_PLACE)

Point = tuple[float, float]
"""(days, rows)"""


class Verdict(StrEnum):
    """How a table develops."""

    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"
    IRREGULAR = "irregular"
    UNKNOWN = "unknown"
    """There are too few snapshots of it."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Rows a day, between `low` and `high` with a confidence of nine in ten."""

    rate: float
    low: float
    high: float
    spread: float = 0.0
    """The distance from the line within which nine out of ten points lie."""
    level: float = 0.0
    """The median of the rows over the time that was read."""

    @property
    def verdict(self) -> Verdict:
        if self.low > 0:
            return Verdict.GROWING
        if self.high < 0:
            return Verdict.SHRINKING
        return Verdict.STEADY if self.spread <= self.level / 2 else Verdict.IRREGULAR


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of rows that a table tends to, because a retention window, a cap or an excuse bounds it."""

    rows: int
    high: int
    """The same at the fastest plausible rate."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table will hold, some days from now."""

    days: float
    rows: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class DaysTo:
    """When a table reaches a threshold: `days` from now, or None with `word` as the reason."""

    threshold: int
    days: float | None
    earliest: float | None = None
    latest: float | None = None
    """None: perhaps never."""
    word: str = ""
    """"never" or "n/a", if there are no days."""


def trend(points: Sequence[Point], least_days: float) -> Trend | None:
    """Compute the trend of some points; None if they are too few or lie too close together."""
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
    # How many more pairs may rise than fall by chance.
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
    """Estimate the standard deviation of a random walk's end with these steps; 0 if the points show no random walk."""
    total = sum(one * one for one in off)
    if not total:
        return 0.0
    alike = sum(one * following for one, following in pairwise(off)) / total
    steps = sum((following - one) ** 2 for one, following in pairwise(off))
    return math.sqrt(steps) * min(max(alike, 0.0) * _ALIKE, 1.0)


def _gathered(points: Sequence[Point]) -> list[Point]:
    """Return one point for every span of time that has any: the median of its days and of its rows."""
    begin, end = points[0][0], points[-1][0]
    spans: dict[int, list[Point]] = {}
    for day, rows in points:
        number = 0 if end == begin else min(int((day - begin) / (end - begin) * _MOST_POINTS), _MOST_POINTS - 1)
        spans.setdefault(number, []).append((day, rows))
    return [(median(day for day, _ in some), median(rows for _, rows in some)) for some in spans.values()]


def arriving(parts: Sequence[tuple[float, int]]) -> Trend | None:
    """Compute the rows a day that arrive, from equal parts of a period, each as (days, rows).

    None if the parts are not similar.
    """
    each = [rows / days for days, rows in parts if days > 0]
    if not each or min(each) * _ALIKE_PARTS < max(each):
        return None
    return Trend(sum(rows for _, rows in parts) / sum(days for days, _ in parts), min(each), max(each))


def shifted(found: Trend, rate: float) -> Trend:
    """Return a trend with a constant rate added: what leaves, for example."""
    return replace(found, rate=found.rate + rate, low=found.low + rate, high=found.high + rate)


_UNNAMED = "\0"
"""Stands for a state that a contract does not name: no column holds it."""


def longest_stay(table: Table) -> timedelta | None:
    """Return how long a row stays after its time; None if it may stay for ever, or its expiry decides.

    Rows in a live state are left out: how long work takes is not declared.
    """

    def stay(state: State | None, marked: tuple[State | None, ...] = ()) -> timedelta | None:
        mine = [one for one in table.rules if one.selects(state) and not one.conditions and one.spare is None]
        aged = [one.bound for one in mine if isinstance(one.bound, Age) and not isinstance(one.action, Mark)]
        keeps = [bound.keep for bound in aged if bound.longer is None]
        if keeps:
            return min(keeps)
        marks = [one.action.state for one in mine if isinstance(one.bound, Age) and isinstance(one.action, Mark)]
        return stay(marks[0], (*marked, state)) if marks and marks[0] not in (*marked, state) else None

    states = dict.fromkeys([*(state for rule in table.rules for state in rule.states), *dict(table.excused)])
    each = [stay(state) for state in states]
    if not each or any(rule.all_but is not None for rule in table.rules):
        each.append(stay(_UNNAMED if each or table.state is not None else None))
    return None if None in each else max(one for one in each if one is not None)


def window_limit(found: Trend | None, keep: timedelta | None) -> Limit | None:
    """Return the limit of a table whose rows arrive at a rate and stay for a time."""
    if found is None or keep is None:
        return None
    days = keep / timedelta(days=1)
    return Limit(max(round(found.rate * days), 0), max(round(found.high * days), 0))


def find_limit(contract: Contract, name: str, rows: int, found: Trend | None) -> Limit | None:
    """Return the limit of a table with `rows` rows now, where `found` is what arrives; None if nothing bounds it."""
    limits: list[Limit | None] = []
    for excused, excuse in contract.excused:
        if excused.covers(TableName.parse(name)) and excuse.kind in _CONSTANT:
            most = rows if excuse.rows is None else excuse.rows
            limits.append(Limit(most, most))
    for table in contract.tables:
        if str(table.name) == name:
            whole = [rule for rule in table.rules if not rule.by_state and not rule.conditions]
            caps = [rule.bound for rule in whole if isinstance(rule.bound, Cap)]
            limits += [Limit(cap.most, cap.most) for cap in caps if not cap.per]
            limits.append(window_limit(found, longest_stay(table)))
    holding = [one for one in limits if one is not None and rows <= _SLACK * one.high]
    return min(holding, key=lambda one: one.high, default=None)


def days_to(threshold: int, rows: int | None, found: Trend | None, limit: Limit | None = None) -> DaysTo:
    """Forecast when a threshold is reached, if at all."""
    if rows is not None and rows >= threshold:
        return DaysTo(threshold, 0.0, 0.0, 0.0)
    if limit is not None and limit.high < threshold:
        return DaysTo(threshold, None, word="never")
    if rows is None or found is None:
        return DaysTo(threshold, None, word="n/a")
    left = threshold - rows
    if found.verdict is Verdict.GROWING and (limit is None or limit.rows >= threshold):
        return DaysTo(threshold, left / found.rate, left / found.high, left / found.low)
    if left > found.spread and (found.high <= 0 or left / found.high > _FORECAST_DAYS):
        return DaysTo(threshold, None, word="never")
    return DaysTo(threshold, None, left / found.high if found.high > 0 else None, word="n/a")


def days_to_each(
    settings: GrowthSettings, rows: int | None, found: Trend | None, limit: Limit | None
) -> tuple[DaysTo, ...]:
    """Forecast when each threshold of a contract is reached, if at all."""
    return tuple(days_to(threshold, rows, found, limit) for threshold in settings.thresholds)


def expected(rows: int, found: Trend, days: float, limit: Limit | None = None) -> Expected:
    """Forecast the rows of a table if the trend continues, up to its limit."""

    def bounded(value: float, most: float) -> int:
        return max(round(min(value, max(most, rows))), 0)

    most, high = (math.inf, math.inf) if limit is None else (limit.rows, limit.high)
    return Expected(
        days,
        bounded(rows + found.rate * days, most),
        bounded(rows + found.low * days - found.spread, most),
        bounded(rows + found.high * days + found.spread, high),
    )
