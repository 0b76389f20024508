"""The two gates of every sweep, read from the database before each batch: a master flag, off until enabled, and one per table, on until disabled."""

from __future__ import annotations

from wane.contract.names import TableName
from wane.prune.primitive import whoami
from wane.store import Store
from wane.store.own import Flag
from wane.store.transaction import Transaction

MASTER = "iu_core.retention_enabled"


def table_flag(table: TableName | str) -> str:
    """The name of a table's own flag."""
    return f"queue.retention.{table}.enabled"


def closed_gate(transaction: Transaction, table: TableName | str, master: str = MASTER) -> str:
    """Why sweeps of the table are off; "" if they are on."""
    flags = transaction.own.flags()
    if master not in flags or not flags[master].enabled:
        return f"the master flag {master} is off: `wane enable` turns it on"
    own = flags.get(table_flag(table))
    if own is not None and not own.enabled:
        return f"the flag {own.name} is off: `wane enable {table}` turns it on"
    return ""


def set_gate(
    store: Store, table: TableName | str | None, *, enabled: bool, by: str | None = None, master: str = MASTER
) -> str:
    """Turn the master flag, or a table's, on or off; return the flag's name. A running sweep sees it at its next batch."""
    store.require_migrated()
    name = master if table is None else table_flag(table)
    with store.transaction() as transaction:
        transaction.own.set_flag(Flag(name, enabled, transaction.now(), by or whoami()))
    return name
