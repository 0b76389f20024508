"""Maintenance windows: the hours of every day in which sweeps may run, by the clocks of a zone."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

from wane._contract.refused import Refused, written
from wane._contract.wall_clock import instant_of, wall_of
from wane._frozen import frozen

_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY = timedelta(days=1)


@frozen
class Within:
    """The hours from one time of day to another, of the same day or of the next."""

    begins: str
    ends: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.begins}–{self.ends} {self.zone}"

    def closes(self, instant: datetime) -> datetime | None:
        """Return when the hours that an instant is in end; None if it is in none."""
        return next((end for begin, end in self._around(instant) if begin <= instant < end), None)

    def opens(self, instant: datetime) -> datetime:
        """Return the first time at or after an instant at which a sweep may start."""
        return next(max(begin, instant) for begin, end in self._around(instant) if end > instant)

    @property
    def closed(self) -> timedelta:
        """Return how long no sweep may run on a day."""
        return _DAY - self._length

    @property
    def _length(self) -> timedelta:
        return (_since_midnight(self.ends) - _since_midnight(self.begins)) % _DAY

    def _around(self, instant: datetime) -> list[tuple[datetime, datetime]]:
        """Return the hours of the days around an instant, without those that clocks skip."""
        today = wall_of(instant, self.zone).date()
        each = (self._of_day(today + number * _DAY) for number in range(-2, 4))
        return [(begin, end) for begin, end in each if begin < end]

    def _of_day(self, day: date) -> tuple[datetime, datetime]:
        begin = datetime.combine(day, time()) + _since_midnight(self.begins)
        return instant_of(begin, self.zone), instant_of(begin + self._length, self.zone)


def parse_time_of_day(value: object) -> str:
    """Check a time of day and return it."""
    if isinstance(value, str) and _TIME_OF_DAY.fullmatch(value):
        return value
    raise Refused(f"{written(value)} is no time of day", 'write hours and minutes, for example "01:30"')


def _since_midnight(text: str) -> timedelta:
    hours, _, minutes = text.partition(":")
    return timedelta(hours=int(hours), minutes=int(minutes))
