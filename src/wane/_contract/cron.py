"""Cron expressions: minute, hour, day of the month, month and day of the week, by the clocks of a zone.

As in every cron, an expression that restricts both kinds of days means days that match either of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache, lru_cache
from itertools import pairwise

from wane._contract.refused import Refused, written
from wane._contract.wall_clock import instant_of, wall_of
from wane._frozen import frozen

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS: tuple[tuple[str, int, int, Mapping[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _WEEKDAYS),
)
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DAY = timedelta(days=1)
EXAMPLE = 'write minute, hour, day of the month, month and day of the week, for example "15 3 * * *"'


@frozen
class Cron:
    """A cron expression and the zone whose clocks it means."""

    text: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.text} {self.zone}"

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after an instant."""
        fields, wall = _parse(self.text), wall_of(instant, self.zone)
        while (found := instant_of(wall := fields.after(wall), self.zone)) <= instant:
            pass  # Clocks show this hour for the second time.
        return found

    def last_until(self, instant: datetime) -> datetime:
        """Return the last time at or before an instant."""
        fields, wall = _parse(self.text), wall_of(instant, self.zone)
        found = instant_of(earlier := fields.until(wall), self.zone)
        while (later := instant_of(earlier := fields.after(earlier), self.zone)) <= instant:
            found = later
        return found

    @property
    def longest(self) -> timedelta:
        """Return the longest interval between two of its times, by clocks that do not change."""
        return _parse(self.text).longest


@dataclass(frozen=True)
class _Fields:
    times: tuple[time, ...]
    """The times of a day, in order."""
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """Whether a day may match by the month or by the week; else it must match both."""

    def matches(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (of_month or of_week if self.either else of_month and of_week)

    def after(self, wall: datetime) -> datetime:
        """Return the first time after one."""
        day = wall.date()
        if self.matches(day) and (later := bisect_right(self.times, wall.time())) < len(self.times):
            return datetime.combine(day, self.times[later])
        day += _DAY
        while not self.matches(day):
            day += _DAY
        return datetime.combine(day, self.times[0])

    def until(self, wall: datetime) -> datetime:
        """Return the last time at or before one."""
        day = wall.date()
        if self.matches(day) and (earlier := bisect_right(self.times, wall.time())):
            return datetime.combine(day, self.times[earlier - 1])
        day -= _DAY
        while not self.matches(day):
            day -= _DAY
        return datetime.combine(day, self.times[-1])

    @property
    def longest(self) -> timedelta:
        days = [day for day in _nine_years() if self.matches(day)]
        between_days = max(later - earlier for earlier, later in pairwise(days))
        first, last = (datetime.combine(days[0], one) for one in (self.times[0], self.times[-1]))
        in_a_day = (
            datetime.combine(days[0], later) - datetime.combine(days[0], earlier)
            for earlier, later in pairwise(self.times)
        )
        return max(between_days + first - last, *in_a_day, timedelta(0))


def parse_cron(value: object) -> str:
    """Check a cron expression and return it in one spelling."""
    if not isinstance(value, str):
        raise Refused(f"{written(value)} is no cron expression", EXAMPLE)
    text = " ".join(value.lower().split())
    text = _NAMED.get(text, text)
    if len(text.split()) != len(_FIELDS):
        raise Refused(f"{written(value)} has {len(text.split())} fields, and a cron expression has five", EXAMPLE)
    if not any(map(_parse(text).matches, _nine_years())):
        raise Refused(f"{written(value)} names days that no month has", "choose another day")
    return text


@cache
def _nine_years() -> tuple[date, ...]:
    """Return days that contain every combination of day and month, 29 February three times.

    Computed when first needed: most contracts have no cron expression.
    """
    return tuple(date(2000, 1, 1) + number * _DAY for number in range(9 * 365 + 3))


@lru_cache(maxsize=64)
def _parse(text: str) -> _Fields:
    fields = text.split()
    minutes, hours, days, months, weekdays = map(_values, fields, _FIELDS)
    times = tuple(time(hour, minute) for hour in sorted(hours) for minute in sorted(minutes))
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    return _Fields(times, days, months, frozenset(day % 7 for day in weekdays), either)


def _values(text: str, field: tuple[str, int, int, Mapping[str, int]]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        found |= _range(part, *field)
    return frozenset(found)


def _range(text: str, name: str, least: int, most: int, words: Mapping[str, int]) -> set[int]:
    """Parse `*`, `5`, `1-5`, each perhaps with a step: `*/15`, `1-31/2`."""
    span, stepped, step = text.partition("/")
    first, ranged, last = span.partition("-")
    fix = f"the {name} is {least} to {most}" + (f", or {', '.join(words)}" if words else "")
    if stepped and not (step.isdecimal() and 0 < int(step) <= most and (span == "*" or ranged)):
        raise Refused(f"{written(text)} is no {name}", f"write a step behind * or a range: */15, 0-30/10; {fix}")
    low, high = (least, most) if span == "*" else (_number(first, words), _number(last if ranged else first, words))
    if ranged and last == "sun":
        high = 7  # As the end of a week.
    if low is None or high is None or not least <= low <= high <= most:
        raise Refused(f"{written(text)} is no {name}", fix)
    return set(range(low, high + 1, int(step) if stepped else 1))


def _number(text: str, words: Mapping[str, int]) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else words.get(text)
