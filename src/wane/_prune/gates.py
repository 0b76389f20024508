"""The two gates of every sweep, read from the database before each batch.

A master flag, off until enabled, and one per table, on until disabled.
"""

from __future__ import annotations

from collections.abc import Mapping

from wane._contract.names import TableName
from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._findings import pasted
from wane._ledger import Flag, Ledger


def flag_name(table: TableName | str | None, settings: SweepSettings) -> str:
    """Return the name of a table's flag, or of the master flag."""
    return settings.master_flag if table is None else settings.table_flag.replace("{table}", str(table))


def closed_flag(flags: Mapping[str, Flag], table: TableName | str, settings: SweepSettings) -> tuple[str, str] | None:
    """Return which flag turns sweeps of the table off, and what turns it on; None if they are on."""
    master, own = flags.get(flag_name(None, settings)), flags.get(flag_name(table, settings))
    if master is None or not master.enabled:
        return f"the master flag {settings.master_flag} is off", "`wane enable` turns it on"
    if own is not None and not own.enabled:
        return f"the flag {own.name} is off", f"{pasted('enable', table)} turns it on"
    return None


def closed_gate(flags: Mapping[str, Flag], table: TableName | str, settings: SweepSettings) -> str:
    """Return why sweeps of the table are off; "" if they are on."""
    closed = closed_flag(flags, table, settings)
    return "" if closed is None else ": ".join(closed)


def append_only_gate(table: TableName | str) -> str:
    """Return why nothing that runs by itself takes rows from an append-only table."""
    return f"{table} is append-only: only an explicit prune takes rows from it"


def set_gate(
    store: Store, table: TableName | str | None, settings: SweepSettings, *, enabled: bool, by: str | None = None
) -> str:
    """Turn the master flag, or a table's, on or off; return its name. A running sweep sees it at its next batch."""
    from wane._prune.primitive import whoami  # A plan only reads gates, and need not import how rows are taken.

    store.require_migrated()
    name = flag_name(table, settings)
    with store.transaction() as transaction:
        Ledger.of(transaction).set_flag(Flag(name, enabled, transaction.now(), by or whoami()))
    return name
