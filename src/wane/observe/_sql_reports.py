"""The latest health report in Wane's own tables: one row, with the time from which on it is stale."""

from __future__ import annotations

from datetime import datetime

from wane._db.statement import Dialect, Execute, Parameters


class HealthReports:
    """Reads and writes the report, through a function that runs statements."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.table = dialect.own_table("health_report")

    def write(self, run: Execute, report: str, read_at: datetime, stale_at: datetime) -> None:
        """Replace the report, given as JSON."""
        p = Parameters(self.dialect)
        values = (
            p.bind("read_at", self.dialect.encode_time(read_at)),
            p.bind("stale_at", self.dialect.encode_time(stale_at)),
            self.dialect.json(p.bind("report", report)),
        )
        run(
            f"INSERT INTO {self.table} (id, read_at, stale_at, report) VALUES (1, {', '.join(values)})"
            " ON CONFLICT (id) DO UPDATE SET read_at = excluded.read_at, stale_at = excluded.stale_at,"
            " report = excluded.report",
            p.values,
        )

    def read_at(self, run: Execute) -> datetime | None:
        """Return when the latest recorded report was read; None if there is none."""
        found = run(f"SELECT read_at FROM {self.table}", {})
        return self.dialect.decode_time(found[0][0]) if found else None
