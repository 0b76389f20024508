"""Recording health: the report of one reading, stored for readers that cannot judge themselves.

`wane.fn_retention_health()` returns it with its age. It is recorded by `wane run` at intervals, and on request; reading
health by itself writes nothing.
"""

from __future__ import annotations

import json
from datetime import date, timedelta

from wane._contract.model import Contract
from wane._db import Store
from wane._leases import Leases
from wane.observe._examine import examine
from wane.observe._health import Health
from wane.observe._probe import READ_SECONDS, Prober
from wane.observe._sql_reports import HealthReports

STALE_AFTER_INTERVALS = 3
"""A report that was not replaced for this number of intervals is stale."""
_LEASE = "health"


def _isoformat(value: date) -> str:
    return value.isoformat()


def record_health(store: Store, contract: Contract, health: Health) -> None:
    """Store the report of a reading; it replaces the one before."""
    store.require_migrated()
    report = json.dumps(health.as_dict(), ensure_ascii=False, default=_isoformat)
    stale_at = health.now + STALE_AFTER_INTERVALS * contract.health.every
    with store.transaction() as transaction:
        HealthReports(store.dialect).write(transaction.execute, report, health.now, stale_at)


class HealthChore:
    """Records a health report once in an interval, in one of all processes."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._prober = Prober(contract)
        self.seconds = contract.health.every.total_seconds() / 2

    def __call__(self, store: Store, holder: str) -> None:
        """Record a report if one is due and no other process holds the lease."""
        every = self._contract.health.every
        latest = HealthReports(store.dialect).read_at(store.reader(READ_SECONDS))
        # A report dated in the future, by a clock set forward by mistake, does not count.
        if latest is not None and timedelta(0) <= store.now() - latest < every:
            return
        with store.write() as (run, now):
            until = (now or store.now()) + every / 2
            taken, _ = Leases(store.dialect).take(run, _LEASE, holder, until, now)
        if taken:
            record_health(store, self._contract, examine(self._prober.read(store), self._contract))
