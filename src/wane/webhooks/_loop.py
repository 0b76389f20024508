"""The retention loop: when a pass is due, the same for threads and for asyncio.

The time of the last pass is read from the audit trail, by the database's clock, inside the transaction that would run
the next one. So restarts do not starve a pass, and of several processes one runs it.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from wane._arguments import MOST_ROWS, require_count
from wane._db.schema import Kind, TableInfo
from wane._db.transaction import Transaction
from wane._ledger import Ledger
from wane.errors import WrongArgument
from wane.events import RetentionPassFailed, ignore_event
from wane.webhooks._model import PRUNE_EVENTS, PRUNE_ORPHAN_DELIVERIES, RetentionPolicy, RetentionRuns

if TYPE_CHECKING:
    from wane.webhooks._retention import WebhookRetention

PASS = "pass"
"""The input of an audit row that distinguishes a pass from a manual call."""

_GATE = TableInfo("wane", "retention_pass", Kind.TABLE, ())
"""Not a table: the name of the lock that the loop's passes take one at a time, before any table's."""
_MOST_READ = 1_000
"""The number of manual calls after the last pass beyond which it counts as long ago: an extra pass is harmless."""
_LEAST_WAIT_SECONDS = 0.01
_log = logging.getLogger("wane.webhooks")


class Loop:
    """One run of the loop. `step` does the work that is due now and returns how long to wait for the next step."""

    def __init__(self, retention: WebhookRetention, policy: RetentionPolicy, max_runs: int | None) -> None:
        if not isinstance(policy, RetentionPolicy):
            raise WrongArgument(f"a retention loop needs a RetentionPolicy, not {policy!r}")
        if max_runs is not None:
            require_count("max_runs", max_runs, MOST_ROWS)
        self.retention = retention
        self.policy = policy
        self.max_runs = max_runs
        self.passes = 0
        self.failures = 0
        self._wait_seconds = 0.0

    @property
    def runs(self) -> RetentionRuns:
        return RetentionRuns(self.passes, self.failures)

    def step(self) -> float | None:
        """Run a pass if one is due; return the seconds until the next step, or None if there is none."""
        try:
            self._wait_seconds = self.policy.interval_s
            if self.retention.attempt_pass(self.policy, wanted=self._due) is not None:
                self.passes += 1
        except Exception as problem:  # The failure of one pass must not end the loop.
            self.failures += 1
            self._report(problem)
        if self.max_runs is not None and self.passes + self.failures >= self.max_runs:
            return None
        return max(self._wait_seconds, _LEAST_WAIT_SECONDS)

    def _due(self, transaction: Transaction) -> bool:
        transaction.close_gate(_GATE)
        last = self._last_pass(transaction)
        if last is None:
            return True
        interval = timedelta(seconds=self.policy.interval_s)
        since = transaction.now() - last
        # A clock that was set back would otherwise delay the next pass by as long.
        if timedelta(0) <= since < interval:
            self._wait_seconds = (interval - since).total_seconds()
            return False
        return True

    def _last_pass(self, transaction: Transaction) -> datetime | None:
        """Read when each path of this policy last had a pass; return the earliest, or None if one never had."""
        enabled = {
            PRUNE_EVENTS: self.policy.event_older_than_s,
            PRUNE_ORPHAN_DELIVERIES: self.policy.orphan_deliveries_older_than_s,
        }
        ends = [
            next(
                (
                    one.executed_at
                    for one in Ledger.of(transaction).trail(kind=kind, limit=_MOST_READ)
                    if PASS in one.inputs
                ),
                None,
            )
            for kind, window in enabled.items()
            if window is not None
        ]
        known = [end for end in ends if end is not None]
        return min(known) if len(known) == len(ends) else None

    def _report(self, problem: Exception) -> None:
        listener = self.retention.keeper.pruner.listener
        if listener is ignore_event:
            # A loop whose failures go unreported would be worse than an unexpected log line.
            _log.error("a retention pass failed: %s", problem)
        else:
            listener(RetentionPassFailed(self.retention.family.events, str(problem)))
