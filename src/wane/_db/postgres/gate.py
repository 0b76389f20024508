"""The gate of a table: batches hold it shared, and placing a hold takes it exclusively."""

from __future__ import annotations

from collections.abc import Sequence

from wane._db.schema import TableInfo, hold_names

GATE = 0x77616E65
"""The key space of the advisory locks that Wane uses; they end with the transaction, so connection poolers do not
disturb them."""
ENTER = "SELECT pg_advisory_xact_lock_shared(%(gate)s, hashtext(name)) FROM unnest(%(tables)s::text[]) AS gates(name)"


def gates(tables: Sequence[TableInfo]) -> dict[str, object]:
    """Return the parameters of ENTER."""
    names = dict.fromkeys(name for table in tables for name in hold_names(table))
    return {"gate": GATE, "tables": sorted(names)}
