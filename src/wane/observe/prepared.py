"""Prepared probes for repeated readings: written once, and run at another time each time.

Times in a statement are relative to the time at which it is run, so its text never changes and the database can reuse
its plan. How a time is encoded is still decided by the dialect.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from wane.contract.model import Time
from wane.db.schema import Column
from wane.db.statement import Dialect, Parameters
from wane.rules.probes import Probe
from wane.rules.rows import Rows

ANCHOR = datetime(2020, 1, 1, tzinfo=UTC)
"""The time that prepared probes are written with: it stands for the time at which they are run."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A bound on a column of a certain type, at an offset before or after now."""

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


class PreparedRows(Rows):
    """Writes times as bounds whose values are bound later."""

    def __init__(self, dialect: Dialect, *, holds: bool, moments: dict[_Moment, str] | None = None) -> None:
        super().__init__(dialect, holds=holds)
        self._moments: dict[_Moment, str] = {} if moments is None else moments

    def without_holds(self) -> PreparedRows:
        return PreparedRows(self.dialect, holds=False, moments=self._moments)

    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        return self._later(alias, column, time, moment, inclusive)

    def since(self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime) -> list[str]:
        return self._later(alias, column, time, moment, None)

    def _later(self, alias: str, column: Column, time: Time, moment: datetime, inclusive: bool | None) -> list[str]:
        # Columns of one type share their values, whatever their names and tables are.
        shared = _Moment(replace(column, name="", nullable=True), time, moment - ANCHOR, inclusive)
        suffix = self._moments.setdefault(shared, f"_at_{len(self._moments)}")
        return shared.write(self.dialect, Parameters(self.dialect, suffix), alias, column, ANCHOR)

    def values(self, now: datetime) -> dict[str, object]:
        """Return the value, at a time, of every bound that was written so far."""
        values: dict[str, object] = {}
        for moment, suffix in self._moments.items():
            p = Parameters(self.dialect, suffix)
            moment.write(self.dialect, p, "t", moment.column, now)
            values |= p.values
        return values


class PreparedProbes:
    """Stores the texts of probes, each under its own key."""

    def __init__(self, dialect: Dialect) -> None:
        self.rows = PreparedRows(dialect, holds=True)
        self._p = self.rows.parameters()
        self._texts: dict[Hashable, str] = {}

    def probe(self, key: Hashable, write: Probe) -> Probe:
        """Return the probe of a key, written only once."""
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = write(self._p)
        return lambda _: text

    def values(self, now: datetime) -> dict[str, object]:
        """Return the parameters of all prepared probes at a time."""
        return {**self._p.values, **self.rows.values(now)}
