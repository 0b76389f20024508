"""Statements over Wane's own tables that use the database's clock."""

from __future__ import annotations

from datetime import datetime

from wane._db.statement import Dialect


class ClockedStatements:
    """Writes such statements. `now` may be None where the clock can be read inside the statement."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._locks = dialect.locks_rows
        self._now = "coalesce(%(now)s::timestamptz, clock_timestamp())" if self._locks else ":now"

    def _(self, name: str) -> str:
        return self.dialect.placeholder(name)

    def _times(self, now: datetime | None) -> dict[str, object]:
        assert now is not None or self._locks
        return {"now": None if now is None else self.dialect.encode_time(now)}
