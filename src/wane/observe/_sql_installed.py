"""The stamp of installed database objects, which distinguishes them from others' and names their contract."""

from __future__ import annotations

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.statement import Statement
from wane._db.store import Store

STAMP = "Wane SQL surface, contract "

FINGERPRINT = f"""\
SELECT substr(obj_description(oid, 'pg_proc'), {len(STAMP) + 1}) FROM pg_proc
WHERE proname = 'contract_fingerprint' AND pronamespace = to_regnamespace('{OWN_SCHEMA}')
  AND obj_description(oid, 'pg_proc') LIKE '{STAMP}%'"""
"""Reads the fingerprint of the contract that the SQL functions were installed for."""


def functions_fingerprint(store: Store, seconds: float) -> str | None:
    """Read the fingerprint of the contract that the database's functions were installed for; None if there are none."""
    if not store.has_functions:
        return None
    found = store.read(Statement(FINGERPRINT.replace("%", "%%"), {}), seconds)
    return str(found[0][0]) if found else None
