"""Retention of inbound webhooks: a typed facade over the prune primitives, for the `knocker_…` reference tables.

from wane.webhooks import RetentionPolicy, WebhookRetention

with WebhookRetention.open("sqlite:///hooks.db", contract="wane.toml") as webhooks:
    webhooks.prune_events(older_than=time.time() - 7 * 86_400, limit=100)
    webhooks.run_retention(RetentionPolicy(event_older_than_s=7 * 86_400), stop_event=stop)
"""

from __future__ import annotations

from wane.webhooks._asynchronous import AsyncWebhookRetention
from wane.webhooks._model import (
    PRUNE_EVENTS,
    PRUNE_ORPHAN_DELIVERIES,
    PruneAudit,
    PruneDeliveriesResult,
    PruneEventsResult,
    RetentionPassResult,
    RetentionPolicy,
    RetentionRuns,
)
from wane.webhooks._retention import WebhookRetention

__all__ = [
    "PRUNE_EVENTS",
    "PRUNE_ORPHAN_DELIVERIES",
    "AsyncWebhookRetention",
    "PruneAudit",
    "PruneDeliveriesResult",
    "PruneEventsResult",
    "RetentionPassResult",
    "RetentionPolicy",
    "RetentionRuns",
    "WebhookRetention",
]
