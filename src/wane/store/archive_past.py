"""What the archive's journals forget: the details of work that has been done for long.

A sweep itself is remembered for good: archived rows know its number, and it says whose they are, by which rule they left, and which columns they
had. So is an expiry: it says when its rows were erased. Unfinished work is never touched, whatever its age.
"""

from __future__ import annotations

from datetime import datetime

from wane.store.transaction import Transaction

_AT_ONCE = 500
"""How many sweeps, restores and jobs one call forgets, at the most of each: the next one goes on."""


def forget(transaction: Transaction, table: str, before: datetime) -> dict[str, int]:
    """Forget what was done before a moment for a table; return how many restores, ranges of sweeps and compactions that were."""
    past = _Past(transaction, table, before)
    restores = past.ended("archive_restore", "state = 'done'")
    for part in ("archive_restore_kept", "archive_restore_piece"):
        past.delete(part, "restore_id", restores)
    # A sweep without ranges was forgotten before.
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
        self.dialect = transaction.rows.dialect
        self.own = self.dialect.own
        self.table = table
        self.before = before

    def ended(self, name: str, condition: str) -> list[int]:
        """Work of the table that ended before the moment, oldest first."""
        p = self.transaction.rows.parameters()
        found = self.transaction.execute(
            f"SELECT o.id FROM {self.own(name)} AS o WHERE o.table_name = {p.bind('table', self.table)}"
            f" AND o.changed_at < {p.bind('before', self.dialect.stamp(self.before))} AND {condition}"
            f" ORDER BY o.id LIMIT {p.bind('limit', _AT_ONCE)}",
            p.values,
        )
        return [number for (number,) in found]

    def delete(self, name: str, column: str, numbers: list[int]) -> int:
        gone = 0
        for number in numbers:
            p = self.transaction.rows.parameters()
            found = self.transaction.execute(
                f"DELETE FROM {self.own(name)} WHERE {column} = {p.bind('number', number)} RETURNING 1", p.values
            )
            gone += len(found)
        return gone
