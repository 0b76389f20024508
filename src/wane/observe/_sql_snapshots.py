"""Snapshots of table sizes: the same statements on both stores.

Tables have their full names, whatever a contract calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from wane._contract.settings import GrowthSettings
from wane._db.counting import as_count, stated
from wane._db.statement import Dialect, Execute
from wane._forecast import Limit, Trend

_COLUMNS = (
    "taken_at, table_name, row_count, exact, bytes, bytes_exact, rate, rate_low, rate_high, row_limit, row_limit_high,"
    " last_row, last_audit"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The size of one table at one time."""

    taken_at: datetime
    table: str
    rows: int | None
    exact: bool
    """Whether the rows were counted; otherwise they are the database's estimate."""
    bytes: int | None
    bytes_exact: bool
    rate: float | None = None
    """Rows a day, as forecast at that time."""
    rate_low: float | None = None
    rate_high: float | None = None
    row_limit: int | None = None
    """What the table tends to, as forecast at that time; None: nothing bounds it, or that is unknown."""
    row_limit_high: int | None = None
    last_row: int | None = None
    """The number of the table's last row, where the store numbers rows."""
    last_audit: int | None = None
    """The latest entry of the audit trail when rows were counted."""

    def as_dict(self) -> dict[str, Any]:
        """Return it with the exactness of its sizes in words."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("exact", "bytes_exact")}
        rows, size = as_count(self.rows, exact=self.exact), as_count(self.bytes, exact=self.bytes_exact)
        return {**plain, **stated("rows", rows), **stated("bytes", size)}

    @property
    def trend(self) -> Trend | None:
        """Return the stored trend: its rate alone, not the spread of the points around it."""
        if self.rate is None or self.rate_low is None or self.rate_high is None:
            return None
        return Trend(self.rate, self.rate_low, self.rate_high)

    @property
    def limit(self) -> Limit | None:
        if self.row_limit is None or self.row_limit_high is None:
            return None
        return Limit(self.row_limit, self.row_limit_high)


def oldest_valid(settings: GrowthSettings, now: datetime) -> datetime:
    """Return the time before which a snapshot no longer holds for a table."""
    return now - max(2 * settings.every, settings.least)


class Snapshots:
    """Reads and writes snapshots through a function that runs statements."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.table = dialect.own_table("snapshot")

    def _(self, name: str) -> str:
        return self.dialect.placeholder(name)

    def write(self, run: Execute, snapshot: Snapshot) -> None:
        """Store a snapshot; it replaces one of the same minute.

        A table's first one on a day (UTC) is retained for longer.
        """
        minute = snapshot.taken_at.astimezone(UTC).replace(second=0, microsecond=0)
        day = minute.replace(hour=0, minute=0)
        run(
            f"INSERT INTO {self.table} (grain, {_COLUMNS}) VALUES ("
            f"CASE WHEN EXISTS (SELECT 1 FROM {self.table} WHERE table_name = {self._('name')}"
            f" AND taken_at >= {self._('day')} AND taken_at < {self._('next')} AND grain = 'day') THEN 'fine' ELSE 'day' END,"
            f" {self._('at')}, {self._('name')}, {self._('rows')}, {self._('exact')}, {self._('bytes')},"
            f" {self._('bytes_exact')}, {self._('rate')}, {self._('low')}, {self._('high')}, {self._('limit')}, {self._('limit_high')},"
            f" {self._('last_row')}, {self._('last_audit')})"
            " ON CONFLICT (taken_at, table_name) DO UPDATE SET row_count = excluded.row_count, exact = excluded.exact,"
            " bytes = excluded.bytes, bytes_exact = excluded.bytes_exact, rate = excluded.rate,"
            " rate_low = excluded.rate_low, rate_high = excluded.rate_high,"
            " row_limit = excluded.row_limit, row_limit_high = excluded.row_limit_high,"
            " last_row = excluded.last_row, last_audit = excluded.last_audit",
            {
                "name": snapshot.table,
                "day": self.dialect.encode_time(day),
                "next": self.dialect.encode_time(day + timedelta(days=1)),
                "at": self.dialect.encode_time(minute),
                "rows": snapshot.rows,
                "exact": snapshot.exact,
                "bytes": snapshot.bytes,
                "bytes_exact": snapshot.bytes_exact,
                "rate": snapshot.rate,
                "low": snapshot.rate_low,
                "high": snapshot.rate_high,
                "limit": snapshot.row_limit,
                "limit_high": snapshot.row_limit_high,
                "last_row": snapshot.last_row,
                "last_audit": snapshot.last_audit,
            },
        )

    def latest_at(self, run: Execute, now: datetime) -> datetime | None:
        """Read when the last pass ran. One dated in the future, by a clock set forward by mistake, does not count."""
        [(stamp,)] = run(
            f"SELECT max(taken_at) FROM {self.table} WHERE taken_at <= {self._('now')}",
            {"now": self.dialect.encode_time(now)},
        )
        return None if stamp is None else self.dialect.decode_time(stamp)

    def latest(self, run: Execute, now: datetime, limit: int) -> list[Snapshot]:
        """Read the snapshots of the last pass."""
        return self._read(
            run(
                f"SELECT {_COLUMNS} FROM {self.table} WHERE taken_at = (SELECT max(taken_at) FROM {self.table}"
                f" WHERE taken_at <= {self._('now')}) ORDER BY table_name LIMIT {self._('limit')}",
                {"now": self.dialect.encode_time(now), "limit": limit},
            )
        )

    def history(self, run: Execute, table: str, since: datetime, until: datetime, limit: int) -> list[Snapshot]:
        """Read the snapshots of one table, oldest first; beyond the limit, the latest ones."""
        found = run(
            f"SELECT {_COLUMNS} FROM {self.table} WHERE table_name = {self._('name')} AND taken_at >= {self._('since')}"
            f" AND taken_at <= {self._('until')} ORDER BY taken_at DESC LIMIT {self._('limit')}",
            {
                "name": table,
                "since": self.dialect.encode_time(since),
                "until": self.dialect.encode_time(until),
                "limit": limit,
            },
        )
        return self._read(found)[::-1]

    def nearest_bytes(self, run: Execute, table: str, at: datetime, until: datetime) -> tuple[datetime, int] | None:
        """Read the first stored size of a table since a time, with its time; None if there is none."""
        found = run(
            f"SELECT taken_at, bytes FROM {self.table} WHERE table_name = {self._('name')} AND taken_at >= {self._('at')}"
            f" AND taken_at <= {self._('until')} AND bytes IS NOT NULL ORDER BY taken_at LIMIT 1",
            {"name": table, "at": self.dialect.encode_time(at), "until": self.dialect.encode_time(until)},
        )
        return (self.dialect.decode_time(found[0][0]), found[0][1]) if found else None

    def _read(self, found: Sequence[tuple[Any, ...]]) -> list[Snapshot]:
        return [
            Snapshot(self.dialect.decode_time(at), table, rows, bool(exact), size, bool(size_exact), *rates)
            for at, table, rows, exact, size, size_exact, *rates in found
        ]
