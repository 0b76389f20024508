"""Looks that are asked again and again: written once, and asked at another moment each time.

What a statement says of moments is counted from whenever it is asked, so its text never changes and the database can keep its plan. What
a value is at that moment is still the dialect's to say.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from wane.contract.model import Time
from wane.store.looks import Look
from wane.store.rows import Rows
from wane.store.schema import Column
from wane.store.statement import Dialect, Parameters

ANCHOR = datetime(2020, 1, 1, tzinfo=UTC)
"""Where looks that are kept are written: it stands for the moment at which they are asked."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A bound on a column of a certain type, so and so long before or after now."""

    column: Column
    time: Time
    offset: timedelta
    inclusive: bool | None
    """None: a lower bound."""

    def write(self, dialect: Dialect, p: Parameters, alias: str, column: Column, now: datetime) -> list[str]:
        moment = now + self.offset
        if self.inclusive is None:
            return dialect.since(p, alias, column, self.time, moment)
        return dialect.before(p, alias, column, self.time, moment, inclusive=self.inclusive)


class KeptRows(Rows):
    """Writes moments as bounds whose values are told later."""

    def __init__(self, dialect: Dialect, moments: dict[_Moment, str] | None = None) -> None:
        super().__init__(dialect)
        self._moments: dict[_Moment, str] = {} if moments is None else moments

    def without_holds(self) -> KeptRows:
        return KeptRows(self.dialect, self._moments)

    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        return self._later(alias, column, time, moment, inclusive)

    def since(self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime) -> list[str]:
        return self._later(alias, column, time, moment, None)

    def _later(self, alias: str, column: Column, time: Time, moment: datetime, inclusive: bool | None) -> list[str]:
        # Columns of one type share their values, whatever they are called and in whichever table they are.
        shared = _Moment(replace(column, name="", nullable=True), time, moment - ANCHOR, inclusive)
        suffix = self._moments.setdefault(shared, f"_at_{len(self._moments)}")
        return shared.write(self.dialect, Parameters(self.dialect, suffix), alias, column, ANCHOR)

    def values(self, now: datetime) -> dict[str, object]:
        """What every bound that was written so far is at a moment."""
        values: dict[str, object] = {}
        for moment, suffix in self._moments.items():
            p = Parameters(self.dialect, suffix)
            moment.write(self.dialect, p, "t", moment.column, now)
            values |= p.values
        return values


class Kept:
    """Keeps the texts of looks, each under a key of its own."""

    def __init__(self, dialect: Dialect) -> None:
        self.rows = KeptRows(dialect)
        self.rows.with_holds = True  # Whoever knows that there are none says so.
        self._p = self.rows.parameters()
        self._texts: dict[Hashable, str] = {}

    def look(self, key: Hashable, write: Look) -> Look:
        """A look that is written once."""
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = write(self._p)
        return lambda _: text

    def values(self, now: datetime) -> dict[str, object]:
        """What all looks that are kept need to be asked at a moment."""
        return {**self._p.values, **self.rows.values(now)}
