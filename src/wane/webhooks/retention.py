"""Pruning webhook events and orphan deliveries: the prune primitives in this family's own words.

Every successful call leaves one row in the trail, zero rows included; a failing one leaves none.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wane.contract.model import Contract
from wane.errors import WrongArgument, WrongArgumentType
from wane.events import Listener, nobody
from wane.findings import did_you_mean
from wane.keeper import Keeper, open_keeper
from wane.prune.arguments import MOST_ROWS, require_limit
from wane.prune.primitive import Order, Pruned, Pruner
from wane.store.own import AuditEntry
from wane.store.transaction import Transaction
from wane.webhooks.family import ATTEMPTS, DELIVERIES, EVENTS, LIVE_JOBS, find_family
from wane.webhooks.loop import PASS, Loop
from wane.webhooks.model import (
    KINDS,
    MOST_PRUNED,
    PRUNE_EVENTS,
    PRUNE_ORPHAN_DELIVERIES,
    SETTLED,
    PruneAudit,
    PruneDeliveriesResult,
    PruneEventsResult,
    RetentionPassResult,
    RetentionPolicy,
    RetentionRuns,
    require_statuses,
)

MOST_FOLLOWERS = MOST_ROWS
"""Rows in all that one call may take: an event with more followers loses those first, call by call, and leaves when the rest fits."""


class WebhookRetention:
    """Retention of the webhook tables of one contract on one database. Close it, or use it as a context manager."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.family = find_family(keeper.contract)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        contract: Contract | Path | str,
        actor: str | None = None,
        listener: Listener = nobody,
    ) -> Self:
        """Like `wane.open`."""
        keeper = open_keeper(url, contract=contract, actor=actor, listener=listener)
        try:
            return cls(keeper)
        except BaseException:
            keeper.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.keeper.close()

    def prune_events(
        self,
        *,
        statuses: Collection[str] = SETTLED,
        older_than: float,
        limit: int = 100,
        connection: object | None = None,
    ) -> PruneEventsResult:
        """Prune at most `limit` events received strictly before `older_than` (unix seconds), oldest first, with everything of theirs."""
        order = self._events(require_statuses(statuses), older_than, limit)
        return self._events_result(self._pruner.take(order, None, connection))

    def prune_orphan_deliveries(
        self, *, older_than: float, limit: int = 100, connection: object | None = None
    ) -> PruneDeliveriesResult:
        """Prune at most `limit` deliveries without an event that were received strictly before `older_than` (unix seconds)."""
        order = self._orphans(older_than, limit)
        return self._orphans_result(self._pruner.take(order, None, connection))

    def run_retention_pass(self, policy: RetentionPolicy, *, connection: object | None = None) -> RetentionPassResult:
        """Everything that the policy enables, once, in one transaction: one audit row for each path, all or nothing."""
        result = self.attempt_pass(policy, connection=connection)
        assert result is not None
        return result

    def run_retention(
        self, policy: RetentionPolicy, *, stop_event: threading.Event | None = None, max_runs: int | None = None
    ) -> RetentionRuns:
        """A pass whenever one is due, until told to stop or `max_runs` passes were tried. Stops between passes only.

        When a pass is due, the trail says: `interval_s` after the last one, whoever ran it. So neither frequent restarts nor
        several processes change how often passes happen. A failing pass is told to the listener, and the loop goes on.
        """
        stop = stop_event or threading.Event()
        loop = Loop(self, policy, max_runs)
        while not stop.is_set():
            seconds = loop.step()
            if seconds is None or stop.wait(seconds):
                break
        return loop.runs

    def list_prune_audits(
        self, *, kind: str | None = None, limit: int = 100, connection: object | None = None
    ) -> list[PruneAudit]:
        """The trail of these two kinds, newest first."""
        if kind is not None and kind not in KINDS:
            raise WrongArgument(
                f"{kind!r} is not a kind of prune audit", did_you_mean(kind, KINDS) or f"kinds: {', '.join(KINDS)}"
            )
        require_limit(limit, MOST_PRUNED)
        self.keeper.store.require_migrated()
        with self.keeper.store.transaction(connection) as transaction:
            entries = [one for name in KINDS if kind in (None, name) for one in self._trail(transaction, name, limit)]
        newest = sorted(entries, key=lambda entry: entry.id or 0, reverse=True)[:limit]
        return [self._audit(entry) for entry in newest]

    # What the loop asks

    def attempt_pass(
        self,
        policy: RetentionPolicy,
        *,
        wanted: Callable[[Transaction], bool] = lambda _: True,
        connection: object | None = None,
    ) -> RetentionPassResult | None:
        """A pass, if it is wanted: asked inside the transaction. None if it is not."""
        now = self.keeper.store.now()
        mark = {PASS: uuid.uuid4().hex}
        orders: list[Order] = []
        if policy.event_older_than_s is not None:
            moment = _before(now, policy.event_older_than_s)
            orders.append(self._events(policy.event_statuses, moment, policy.event_limit, mark))
        if policy.orphan_deliveries_older_than_s is not None:
            moment = _before(now, policy.orphan_deliveries_older_than_s)
            orders.append(self._orphans(moment, policy.orphan_deliveries_limit, mark))
        taken = {one.kind: one for one in self._pruner.take_together(orders, None, connection, wanted=wanted)}
        if not taken:
            return None
        events, orphans = taken.get(PRUNE_EVENTS), taken.get(PRUNE_ORPHAN_DELIVERIES)
        return RetentionPassResult(
            None if events is None else self._events_result(events),
            None if orphans is None else self._orphans_result(orphans),
        )

    # Orders and results

    @property
    def _pruner(self) -> Pruner:
        return self.keeper.pruner

    def _events(
        self, statuses: tuple[str, ...], older_than: object, limit: object, mark: dict[str, Any] | None = None
    ) -> Order:
        moment, many = _require_unix_seconds(older_than), require_limit(limit, MOST_PRUNED)
        asked = {"statuses": list(statuses), "older_than": moment, "limit": many}
        order = self._pruner.order(self.family.events, None, statuses, moment)
        return self._named(order, PRUNE_EVENTS, asked, mark)

    def _orphans(self, older_than: object, limit: object, mark: dict[str, Any] | None = None) -> Order:
        moment, many = _require_unix_seconds(older_than), require_limit(limit, MOST_PRUNED)
        order = self._pruner.order(self.family.deliveries, None, None, moment, orphans=True)
        return self._named(order, PRUNE_ORPHAN_DELIVERIES, {"older_than": moment, "limit": many}, mark)

    def _named(self, order: Order, kind: str, asked: dict[str, Any], mark: dict[str, Any] | None) -> Order:
        inputs = {**asked, "queue_name": self.family.queue_name, **(mark or {})}
        return replace(order, kind=kind, limit=asked["limit"], most=MOST_FOLLOWERS, asked=inputs)

    def _events_result(self, pruned: Pruned) -> PruneEventsResult:
        counts = self.family.counts(pruned.counts)
        return PruneEventsResult(*(counts.get(name, 0) for name in (EVENTS, ATTEMPTS, DELIVERIES, LIVE_JOBS)))

    def _orphans_result(self, pruned: Pruned) -> PruneDeliveriesResult:
        return PruneDeliveriesResult(self.family.counts(pruned.counts)[DELIVERIES])

    def _trail(self, transaction: Transaction, kind: str, limit: int) -> list[AuditEntry]:
        return transaction.own.trail(kind=kind, limit=limit)

    def _audit(self, entry: AuditEntry) -> PruneAudit:
        counts = self.family.counts(entry.counts)
        of_events = entry.kind == PRUNE_EVENTS
        assert entry.id is not None

        def count(name: str) -> int | None:
            return counts.get(name, 0) if of_events or name == DELIVERIES else None

        return PruneAudit(
            id=entry.id,
            kind=entry.kind,
            queue_name=entry.inputs.get("queue_name"),
            executed_at=int(entry.executed_at.timestamp()),
            events_pruned=count(EVENTS),
            attempts_pruned=count(ATTEMPTS),
            deliveries_pruned=count(DELIVERIES),
            live_jobs_pruned=count(LIVE_JOBS),
            summary_json=json.dumps(
                {name: entry.inputs[name] for name in ("statuses", "older_than", "limit") if name in entry.inputs}
            ),
        )


def _before(now: datetime, seconds: float) -> float:
    try:
        return (now - timedelta(seconds=seconds)).timestamp()
    except OverflowError:
        raise WrongArgument(f"a window of {seconds!r} seconds is before all time") from None


def _require_unix_seconds(older_than: object) -> float:
    if isinstance(older_than, bool) or not isinstance(older_than, int | float):
        raise WrongArgumentType(
            f"older_than must be unix seconds, not {older_than!r}", "a datetime has them as .timestamp()"
        )
    return older_than
