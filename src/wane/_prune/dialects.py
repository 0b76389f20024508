"""Taking rows, for each store."""

from __future__ import annotations

from wane._db.transaction import Transaction
from wane._prune.sql_postgres import PostgresRowTaker
from wane._prune.sql_sqlite import SqliteRowTaker
from wane._prune.take import RowTaker
from wane._rules.rows import Rows


def row_taker(transaction: Transaction) -> RowTaker:
    """Return what takes rows inside a transaction. Nothing leaves without an audit row, so holds can always be read."""
    rows = Rows(transaction.dialect, holds=True)
    return PostgresRowTaker(transaction, rows) if transaction.kind == "postgres" else SqliteRowTaker(transaction, rows)
