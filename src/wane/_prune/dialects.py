"""Taking rows, for each store."""

from __future__ import annotations

from wane._db.transaction import Transaction
from wane._prune.sql_postgres import PostgresTaking
from wane._prune.sql_sqlite import SqliteTaking
from wane._prune.taking import Taking
from wane._rules.rows import Rows


def taking(transaction: Transaction) -> Taking:
    """Return what takes rows inside a transaction. Nothing leaves without an audit row, so holds can always be read."""
    rows = Rows(transaction.dialect, holds=True)
    return PostgresTaking(transaction, rows) if transaction.kind == "postgres" else SqliteTaking(transaction, rows)
