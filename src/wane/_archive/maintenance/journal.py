"""The journal of the archive's own maintenance: which files were to be replaced by which, and whether they were.

A job is recorded before the archive is changed, so that the process that recovers from a crash knows what was intended;
it is done in the transaction that writes its audit entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane._archive.journal import AT_ONCE
from wane._db.transaction import Transaction
from wane._journal import Entries, JournalTable

EXPIRE = "expire"
COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class MaintenanceJob:
    """Some files of the archive that are replaced by others."""

    id: int
    table: str
    kind: str
    planned_at: datetime
    changed_at: datetime
    plan: Any
    audit_id: int | None


JOBS = JournalTable(
    "archive_job",
    MaintenanceJob,
    unfinished="state = 'planned'",
    moves={"planned": ("done", "abandoned")},
)


class Jobs:
    """Reads and writes these jobs inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self._jobs = Entries(JOBS, transaction.dialect, transaction.execute)

    def begin(self, table: str, kind: str, *, actor: str) -> int:
        """Enter a job that has no plan yet; return its number, by which its files are named."""
        now = self.transaction.now()
        values = {"table_name": table, "kind": kind, "planned_at": now, "changed_at": now, "actor": actor}
        return self._jobs.add(state="planned", plan=None, **values).id

    def plan(self, number: int, plan: Any) -> None:
        """Record what the job is to replace."""
        self._jobs.change({"id": number}, plan=plan)

    def end(self, number: int, state: str, *, audit_id: int | None = None) -> None:
        """Record that a job is done or abandoned."""
        self._jobs.move(number, state, changed_at=self.transaction.now(), audit_id=audit_id)

    def open(self) -> list[MaintenanceJob]:
        """Return jobs that were begun and have not ended, newest first."""
        return self._jobs.unfinished()[::-1]

    def done(self, table: str, kind: str, limit: int) -> list[MaintenanceJob]:
        """Return jobs of a table that were done, newest first."""
        return self._jobs.find(table_name=table, kind=kind, state="done", limit=limit, newest_first=True)

    def forget(self, table: str, before: datetime) -> int:
        """Delete jobs of a table that ended before a time, and return how many there were.

        Expiries are retained for good: they record when their rows were erased.
        """
        condition = "(state = 'abandoned' OR (state = 'done' AND kind = 'compact'))"
        ended = self._jobs.ended(before, AT_ONCE, condition, table_name=table)
        return sum(self._jobs.delete(id=job.id) for job in ended)
