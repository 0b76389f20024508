"""Pruning webhook events and orphan deliveries: the prune primitives in the terms of this table family.

Every successful call writes one row to the audit trail, also if it prunes nothing; a failing one writes none.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from wane._arguments import MOST_ROWS, require_limit, require_number, require_text, require_time, time_before
from wane._closable import Closable
from wane._contract.model import Contract
from wane._db.transaction import Transaction
from wane._findings import did_you_mean
from wane._keeper import Keeper, open_keeper
from wane._ledger import AuditEntry, Ledger
from wane._prune.primitive import Order, Pruned, Pruner
from wane.errors import WrongArgument
from wane.events import Listener, ignore_event
from wane.webhooks._family import ATTEMPTS, DELIVERIES, EVENTS, LIVE_JOBS, find_family, with_queue
from wane.webhooks._loop import PASS, Loop
from wane.webhooks._model import (
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
"""The most rows in all that one call may delete. An event with more followers loses those first, call by call, and
leaves when the rest fits."""


class WebhookRetention(Closable):
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
        listener: Listener = ignore_event,
    ) -> Self:
        """Open like `wane.open`."""
        keeper = open_keeper(url, contract=contract, actor=actor, listener=listener)
        try:
            return cls(keeper)
        except BaseException:
            keeper.close()
            raise

    def close(self) -> None:
        self.keeper.close()

    def prune_events(
        self,
        *,
        statuses: Collection[str] = SETTLED,
        older_than: float,
        limit: int = 100,
        queue: str | None = None,
        connection: object | None = None,
    ) -> PruneEventsResult:
        """Prune at most `limit` events received strictly before `older_than` (unix seconds), oldest first.

        Their followers leave with them. Live jobs do so if they are in `queue`, or else in the queue that the contract
        names.
        """
        order = self._events(require_statuses(statuses), older_than, limit, queue)
        return self._events_result(self._pruner.take(order, None, connection))

    def prune_orphan_deliveries(
        self, *, older_than: float, limit: int = 100, queue: str | None = None, connection: object | None = None
    ) -> PruneDeliveriesResult:
        """Prune at most `limit` deliveries without an event, received strictly before `older_than` (unix seconds).

        `queue` is recorded in the audit trail; it defaults to the queue that the contract names.
        """
        order = self._orphans(older_than, limit, queue)
        return self._orphans_result(self._pruner.take(order, None, connection))

    def run_retention_pass(self, policy: RetentionPolicy, *, connection: object | None = None) -> RetentionPassResult:
        """Run everything that the policy enables once, in one transaction, with one audit row for each path."""
        result = self.attempt_pass(policy, connection=connection)
        assert result is not None
        return result

    def run_retention_pass_before(
        self,
        *,
        statuses: Collection[str] = SETTLED,
        events_older_than: float | None = None,
        events_limit: int = 100,
        orphans_older_than: float | None = None,
        orphans_limit: int = 100,
        queue: str | None = None,
        connection: object | None = None,
    ) -> RetentionPassResult:
        """Run a pass by cutoffs in unix seconds instead of ages.

        A path whose cutoff is None is off; enabling no path is an error.
        """
        if events_older_than is None and orphans_older_than is None:
            raise WrongArgument(
                "the pass enables nothing: no threshold, no deletion",
                "give events_older_than, orphans_older_than, or both",
            )
        mark = {PASS: uuid.uuid4().hex}
        orders: list[Order] = []
        if events_older_than is not None:
            orders.append(self._events(require_statuses(statuses), events_older_than, events_limit, queue, mark))
        if orphans_older_than is not None:
            orders.append(self._orphans(orphans_older_than, orphans_limit, queue, mark))
        result = self._pass(orders, lambda _: True, connection)
        assert result is not None
        return result

    def run_retention(
        self, policy: RetentionPolicy, *, stop_event: threading.Event | None = None, max_runs: int | None = None
    ) -> RetentionRuns:
        """Run a pass whenever one is due, until `stop_event` is set or `max_runs` passes were tried.

        It stops between passes only. A pass is due `interval_s` after the last one in the audit trail, whichever
        process ran it. So neither frequent restarts nor several processes change how often passes run. A failing pass
        is reported to the listener, and the loop continues.
        """
        stop = stop_event or threading.Event()
        loop = Loop(self, policy, max_runs)
        while not stop.is_set():
            seconds = loop.step()
            if seconds is None or stop.wait(seconds):
                break
        return loop.runs

    def list_prune_audits(
        self,
        *,
        kind: str | None = None,
        since: float | None = None,
        limit: int = 100,
        connection: object | None = None,
    ) -> list[PruneAudit]:
        """List the audit trail of these two kinds, newest first; with `since` (unix seconds) only from then on.

        Without a `connection`, it waits for no writer.
        """
        if kind is not None and kind not in KINDS:
            raise WrongArgument(
                f"{kind!r} is not a kind of prune audit", did_you_mean(kind, KINDS) or f"kinds: {', '.join(KINDS)}"
            )
        require_limit(limit, MOST_PRUNED)
        begin = None if since is None else require_time("since", _require_unix_seconds("since", since))
        store = self.keeper.store
        store.require_migrated()
        with store.snapshot() if connection is None else store.transaction(connection) as transaction:
            entries = [
                one
                for name in KINDS
                if kind in (None, name)
                for one in Ledger.of(transaction).trail(kind=name, since=begin, limit=limit)
            ]
        newest = sorted(entries, key=lambda entry: entry.id or 0, reverse=True)[:limit]
        return [self._audit(entry) for entry in newest]

    # Called by the loop

    def attempt_pass(
        self,
        policy: RetentionPolicy,
        *,
        wanted: Callable[[Transaction], bool] = lambda _: True,
        connection: object | None = None,
    ) -> RetentionPassResult | None:
        """Run a pass if `wanted`, which is called inside the transaction, returns true; return None if it does not."""
        now = self.keeper.store.now()
        mark = {PASS: uuid.uuid4().hex}
        orders: list[Order] = []
        if policy.event_older_than_s is not None:
            cutoff = time_before(now, policy.event_older_than_s).timestamp()
            orders.append(self._events(policy.event_statuses, cutoff, policy.event_limit, None, mark))
        if policy.orphan_deliveries_older_than_s is not None:
            cutoff = time_before(now, policy.orphan_deliveries_older_than_s).timestamp()
            orders.append(self._orphans(cutoff, policy.orphan_deliveries_limit, None, mark))
        return self._pass(orders, wanted, connection)

    def _pass(
        self, orders: Sequence[Order], wanted: Callable[[Transaction], bool], connection: object | None
    ) -> RetentionPassResult | None:
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
        self,
        statuses: tuple[str, ...],
        older_than: object,
        limit: object,
        queue: object,
        mark: dict[str, Any] | None = None,
    ) -> Order:
        cutoff, many = _require_unix_seconds("older_than", older_than), require_limit(limit, MOST_PRUNED)
        requested = {"statuses": list(statuses), "older_than": cutoff, "limit": many}
        order = self._pruner.order(self.family.events, None, statuses, cutoff)
        if queue is not None:
            order = replace(order, rule=with_queue(order.rule, require_text("queue", queue)))
        return self._named(order, PRUNE_EVENTS, requested, queue, mark)

    def _orphans(self, older_than: object, limit: object, queue: object, mark: dict[str, Any] | None = None) -> Order:
        cutoff, many = _require_unix_seconds("older_than", older_than), require_limit(limit, MOST_PRUNED)
        order = self._pruner.order(self.family.deliveries, None, None, cutoff, orphans=True)
        return self._named(order, PRUNE_ORPHAN_DELIVERIES, {"older_than": cutoff, "limit": many}, queue, mark)

    def _named(
        self, order: Order, kind: str, requested: dict[str, Any], queue: object, mark: dict[str, Any] | None
    ) -> Order:
        name = self.family.queue_name if queue is None else require_text("queue", queue)
        inputs = {**requested, "queue_name": name, **(mark or {})}
        return replace(order, kind=kind, limit=requested["limit"], most=MOST_FOLLOWERS, requested=inputs)

    def _events_result(self, pruned: Pruned) -> PruneEventsResult:
        counts = self.family.counts(pruned.counts)
        return PruneEventsResult(*(counts.get(name, 0) for name in (EVENTS, ATTEMPTS, DELIVERIES, LIVE_JOBS)))

    def _orphans_result(self, pruned: Pruned) -> PruneDeliveriesResult:
        return PruneDeliveriesResult(self.family.counts(pruned.counts)[DELIVERIES])

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


def _require_unix_seconds(name: str, value: object) -> float:
    return require_number(name, value, unit="unix seconds", hint="a datetime has them as .timestamp()")
