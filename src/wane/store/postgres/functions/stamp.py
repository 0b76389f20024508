"""What everything that is installed bears, so that it can be told from what others put there, and for which contract it is."""

from __future__ import annotations

from wane.store.postgres.reflect import OWN_SCHEMA

STAMP = "Wane SQL surface, contract "

FINGERPRINT = f"""\
SELECT substr(obj_description(oid, 'pg_proc'), {len(STAMP) + 1}) FROM pg_proc
WHERE proname = 'contract_fingerprint' AND pronamespace = to_regnamespace('{OWN_SCHEMA}')
  AND obj_description(oid, 'pg_proc') LIKE '{STAMP}%'"""
"""The fingerprint of the contract that a surface was installed for."""
