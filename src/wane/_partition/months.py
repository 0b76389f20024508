"""Months, and how the values of a time column mark where they begin. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from wane._contract.model import Time, Unit
from wane._partition.records import MAX, MIN

_PER_SECOND = {Unit.SECONDS: 1, Unit.MILLISECONDS: 1_000, Unit.MICROSECONDS: 1_000_000}


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A month of a year."""

    year: int
    month: int

    def later(self, months: int = 1) -> Self:
        count = self.year * 12 + self.month - 1 + months
        return type(self)(count // 12, count % 12 + 1)

    @property
    def name(self) -> str:
        """Return the name as partitions use it: 2026_12."""
        return f"{self.year:04}_{self.month:02}"

    @property
    def archived_name(self) -> str:
        """Return the name as archived tables use it: 202612."""
        return f"{self.year:04}{self.month:02}"

    @classmethod
    def named(cls, text: str) -> Self:
        year, _, month = text.partition("_")
        return cls(int(year), int(month))


@dataclass(frozen=True, slots=True)
class Calendar:
    """Where months begin, by the encoding of a time column. With a zone, months begin at that zone's midnight."""

    time: Time

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.time.zone or "UTC")

    def begins(self, month: Month) -> datetime:
        """Return the time at which a month begins, in UTC."""
        return datetime(month.year, month.month, 1, tzinfo=self._zone).astimezone(UTC)

    def literal(self, month: Month) -> str:
        """Return the beginning of a month as a value of the column, as PostgreSQL writes it."""
        if self.time.unit in _PER_SECOND:
            return str(int(self.begins(month).timestamp()) * _PER_SECOND[self.time.unit])
        return f"{month.year:04}-{month.month:02}-01 00:00:00" + ("+00" if self.time.zone is None else "")

    def month_of(self, timestamp: datetime) -> Month:
        local = timestamp.astimezone(self._zone)
        return Month(local.year, local.month)

    def compact_name(self, timestamp: datetime) -> str:
        """Return the name of a time within other names: 20261231, or 20261231060000 where it does not begin a day."""
        local = timestamp.astimezone(self._zone)
        return f"{local:%Y%m%d}" if f"{local:%H%M%S}" == "000000" else f"{local:%Y%m%d%H%M%S}"

    def timestamp(self, literal: str) -> datetime | None:
        """Return the time that a value of the column means, in UTC.

        None for what no calendar has: the ends of everything, infinity, years BC.
        """
        if literal in (MIN, MAX) or "infinity" in literal or literal.endswith("BC"):
            return None
        try:
            if self.time.unit in _PER_SECOND:
                return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
                    seconds=float(literal) / _PER_SECOND[self.time.unit]
                )
            found = datetime.fromisoformat(literal)
            return (found if found.tzinfo else found.replace(tzinfo=self._zone)).astimezone(UTC)
        except (ValueError, OverflowError):
            return None
