"""Partitions on PostgreSQL: all steps of converting a table, maintaining it, retiring months, and undoing."""

from __future__ import annotations

from wane._db.store import Store
from wane._partition.sql_convert import Converting
from wane._partition.sql_months import Months
from wane._partition.sql_retire import RetireSteps
from wane._partition.sql_split import Splitting
from wane._partition.sql_undo import UndoSteps
from wane.errors import StoreError


class PostgresPartitions(Converting, UndoSteps, Months, RetireSteps, Splitting):
    """All steps of partitioning."""


def partitions_of(store: Store) -> PostgresPartitions:
    """Return the steps of partitioning, over a connection of their own.

    Raise StoreError if the store has no partitions or its URL leads to a connection pooler.
    """
    if not store.has_partitions:
        raise StoreError("SQLite has no partitions", "prune by rows, or move the table to PostgreSQL")
    from wane._db.postgres.store import (
        PostgresStore,  # It needs the driver, which an embedded installation does not have.
    )

    assert isinstance(store, PostgresStore)
    if store.is_pooled:
        raise StoreError(
            "partitioning needs a session of its own, and the URL leads to a connection pooler",
            "use the URL of the server itself for it; nothing was changed",
        )
    return PostgresPartitions(store.clone())
