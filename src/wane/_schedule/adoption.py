"""Many runners, one owner of the configuration: the contract in force, and how another one replaces it."""

from __future__ import annotations

from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract
from wane._db import Store
from wane._schedule.sql import InForce, Timetable
from wane.errors import NotInForce


def adopt(store: Store, contract: Contract, *, by: str) -> InForce:
    """Put a contract in force. Runners with another one stop at their next batch."""
    return _put(store, contract, by=by, only_if_none=False)


def require_in_force(store: Store, contract: Contract, *, by: str) -> InForce:
    """Raise if another contract is in force. Where none is, put this one in force."""
    wanted = fingerprint(contract)
    found = Timetable(store.dialect).in_force(store.run) or _put(store, contract, by=by, only_if_none=True)
    if found.fingerprint != wanted:
        raise NotInForce(
            f"the contract in force is {found.fingerprint}, adopted by {found.adopted_by} on"
            f" {found.adopted_at:%Y-%m-%d %H:%M:%S} UTC; this one is {wanted}",
            "run the one in force, or put this one in force with `wane adopt`",
        )
    return found


def _put(store: Store, contract: Contract, *, by: str, only_if_none: bool) -> InForce:
    store.require_migrated()
    with store.transaction() as transaction:
        run = transaction.execute
        Timetable(store.dialect).adopt(run, fingerprint(contract), by, transaction.clock(), only_if_none=only_if_none)
        found = Timetable(store.dialect).in_force(run)
    assert found is not None
    return found
