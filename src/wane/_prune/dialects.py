"""Taking rows, for each store."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.transaction import Transaction
from wane._leases import Fence
from wane._prune.sql_postgres import PostgresRowTaker
from wane._prune.sql_sqlite import SqliteRowTaker
from wane._prune.take import RowTaker
from wane._rules.rows import Rows
from wane._rules.selection import Selection

if TYPE_CHECKING:
    from wane._prune.sql_batch_call import BatchCall
    from wane._prune.sql_batch_loop import BatchLoop


def row_taker(transaction: Transaction) -> RowTaker:
    """Return what takes rows inside a transaction. Nothing leaves without an audit row, so holds can always be read."""
    rows = Rows(transaction.dialect, holds=True)
    return PostgresRowTaker(transaction, rows) if transaction.kind == "postgres" else SqliteRowTaker(transaction, rows)


def repeated_batches(
    store: Store, selection: Selection, now: datetime, settings: SweepSettings, fence: Fence | None
) -> BatchCall | BatchLoop | None:
    """Return what takes several batches of a rule's sweep at once; None if nothing can."""
    if store.kind == "sqlite":
        from wane._prune.sql_batch_loop import batch_loop

        return batch_loop(store, selection, settings, fence)
    from wane._prune.sql_batch_call import batch_call

    return batch_call(store, selection, now, settings, fence)
