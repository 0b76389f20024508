"""The gates of a sweep as a condition of SQL, for batches that the database takes without asking `closed_gate`."""

from __future__ import annotations

from collections.abc import Callable

from wane._contract.names import TableName
from wane._contract.settings import SweepSettings
from wane._db.statement import Dialect
from wane._prune.gates import flag_name


def gates_are_open(
    dialect: Dialect, table: TableName, settings: SweepSettings, write: Callable[[str, str], str]
) -> str:
    """Write the condition that `closed_gate` would return "" for the table.

    `write` takes a name and a value, and returns the value as the statement has it: bound, or a literal.
    """
    flags = dialect.own_table("flag")
    master, own = write("master", flag_name(None, settings)), write("own", flag_name(table, settings))
    return (
        f"EXISTS (SELECT 1 FROM {flags} WHERE name = {master} AND enabled)"
        f" AND NOT EXISTS (SELECT 1 FROM {flags} WHERE name = {own} AND NOT enabled)"
    )
