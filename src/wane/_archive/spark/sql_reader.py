"""How a reader pins the snapshot that it reads."""

from __future__ import annotations

BEGIN_POSTGRES = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
BEGIN_SQLITE = ("BEGIN", "SELECT count(*) FROM sqlite_master")
"""A transaction of SQLite sees the state that its first read finds."""
PING = "SELECT 1"


def use_snapshot(exported: str) -> str:
    """Write the statement that reads a snapshot that another connection exported."""
    return f"SET TRANSACTION SNAPSHOT '{exported}'"
