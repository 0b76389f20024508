"""The statements of the queue, for each store."""

from __future__ import annotations

from wane._db.store import Store
from wane.queue._sql import Messages
from wane.queue._sql_postgres import PostgresMessages
from wane.queue._sql_sqlite import SqliteMessages


def messages_of(store: Store) -> Messages:
    """Return what reads and writes a store's messages."""
    return PostgresMessages(store.dialect) if store.kind == "postgres" else SqliteMessages(store.dialect)
