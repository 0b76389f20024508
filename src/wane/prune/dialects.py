"""Taking rows, for each store."""

from __future__ import annotations

from datetime import datetime

from wane.db.statement import Statement
from wane.db.store import Store
from wane.db.transaction import Transaction
from wane.prune import sql_postgres, sql_sqlite
from wane.prune.sql_postgres import PostgresTaking
from wane.prune.sql_sqlite import SqliteTaking
from wane.prune.taking import Taking
from wane.rules.rows import Rows, rows_of
from wane.rules.selection import Selection


def taking(transaction: Transaction) -> Taking:
    """Return what takes rows inside a transaction. Nothing leaves without an audit row, so holds can always be read."""
    rows = Rows(transaction.dialect, holds=True)
    return PostgresTaking(transaction, rows) if transaction.kind == "postgres" else SqliteTaking(transaction, rows)


def preview(store: Store, selection: Selection, now: datetime, limit: int) -> list[Statement]:
    """Return the statements that would take the oldest due rows, to be shown and explained."""
    write = sql_postgres.preview if store.kind == "postgres" else sql_sqlite.preview
    return write(rows_of(store), selection, now, limit)
