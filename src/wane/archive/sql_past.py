"""Deleting old details from the archive's journals.

A sweep itself is retained for good: archived rows carry its number, and it records their table, their rule, and which
columns they had. So is an expiry: it records when its rows were erased. Unfinished work is never touched, whatever its
age.
"""

from __future__ import annotations

from datetime import datetime

from wane.db.transaction import Transaction

_AT_ONCE = 500
"""The most sweeps, restores and jobs, of each, whose details one call deletes: the next one continues."""


def forget(transaction: Transaction, table: str, before: datetime) -> dict[str, int]:
    """Delete the details of what was done before a time for a table.

    Return the number of restores, ranges of sweeps and jobs that were deleted.
    """
    past = _Past(transaction, table, before)
    restores = past.ended("archive_restore", "state = 'done'")
    for part in ("archive_restore_kept", "archive_restore_piece"):
        past.delete(part, "restore_id", restores)
    # A sweep without ranges was handled before.
    ranged = f"EXISTS (SELECT 1 FROM {past.own('archive_range')} AS r WHERE r.sweep_id = o.id)"
    sweeps = past.ended("archive_sweep", f"state = 'done' AND {ranged}")
    past.delete("archive_stale", "sweep_id", sweeps)
    jobs = past.ended("archive_job", "(state = 'abandoned' OR (state = 'done' AND kind = 'compact'))")
    return {
        "restores": past.delete("archive_restore", "id", restores),
        "ranges": past.delete("archive_range", "sweep_id", sweeps),
        "jobs": past.delete("archive_job", "id", jobs),
    }


class _Past:
    def __init__(self, transaction: Transaction, table: str, before: datetime) -> None:
        self.transaction = transaction
        self.dialect = transaction.dialect
        self.own = self.dialect.own_table
        self.table = table
        self.before = before

    def ended(self, name: str, condition: str) -> list[int]:
        """Return work of the table that ended before the time, oldest first."""
        p = self.transaction.parameters()
        found = self.transaction.execute(
            f"SELECT o.id FROM {self.own(name)} AS o WHERE o.table_name = {p.bind('table', self.table)}"
            f" AND o.changed_at < {p.bind('before', self.dialect.encode_time(self.before))} AND {condition}"
            f" ORDER BY o.id LIMIT {p.bind('limit', _AT_ONCE)}",
            p.values,
        )
        return [number for (number,) in found]

    def delete(self, name: str, column: str, numbers: list[int]) -> int:
        gone = 0
        for number in numbers:
            p = self.transaction.parameters()
            found = self.transaction.execute(
                f"DELETE FROM {self.own(name)} WHERE {column} = {p.bind('number', number)} RETURNING 1", p.values
            )
            gone += len(found)
        return gone
