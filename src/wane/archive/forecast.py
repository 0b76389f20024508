"""Forecasting a table's size by what arrives and what leaves: rows a day, and the days to a number of rows. Pure
arithmetic.

A rate is given only for tables whose last four weeks were similar; for others no forecast is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WEEKS = 4
DAYS = WEEKS * 7
NEVER, UNKNOWN = "never", "n/a"
_UNLIKE = 4
"""A week with more than this factor of another's rows is not similar to it."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows a day: what arrives, and what becomes due. None: the weeks were not similar."""

    arriving: float | None
    leaving: float = 0.0
    constant: bool = False
    """It does not grow, according to the contract."""


def flow(weeks: Sequence[int], due_now: int, due_later: int, later_days: int) -> Flow:
    """Compute the flow from the rows that arrived in each of the last four weeks, and those that are due now and some
    days later."""
    leaving = max(due_later - due_now, 0) / later_days
    if not any(weeks):
        return Flow(0.0, leaving)
    alike = min(weeks) * _UNLIKE >= max(weeks)
    return Flow(sum(weeks) / DAYS if alike else None, leaving)


def days_to(threshold: int, rows: int | None, moving: Flow) -> float | str:
    """Compute the days until a table has `threshold` rows; `never`, or `n/a` if that is unknown."""
    if rows is not None and rows >= threshold:
        return 0.0
    if moving.constant:
        return NEVER
    if rows is None or moving.arriving is None:
        return UNKNOWN
    net = moving.arriving - moving.leaving
    return round((threshold - rows) / net, 1) if net > 0 else NEVER
