"""Rows that seem due, and must not leave.

Each trap carries its own name in a column, so that a query can check afterwards whether its rows still exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trap:
    """Planted rows of one table, and why every one of them stays."""

    table: str
    name: str
    column: str
    """The column that carries the trap's name."""
    why: str
    rows: int = 12
    lasting: bool = True
    """False: the rows stay at the time of seeding and are due right after it."""

    @property
    def predicate(self) -> str:
        """Return the condition that finds the planted rows, on every store."""
        return f"{self.column} LIKE 'trap/{self.name}/%'"

    def values(self) -> Iterator[str]:
        """Yield what the planted rows carry in the column."""
        return (f"trap/{self.name}/{number:02}" for number in range(self.rows))


TRAPS = (
    # State store
    Trap("presence_entries", "quiet-tenant", "instance_id", "old, not expired, and its tenant is far below the cap"),
    Trap("connections", "long-connection", "connection_id", "opened a year ago and refreshed a second ago"),
    Trap(
        "channel_inbound_dedupe", "zero-expiry", "message_id", "expires at 0, which is a placeholder and no timestamp"
    ),
    Trap("channel_inbox", "replied", "message_id", "completed long ago, and a reply still refers to it", rows=24),
    Trap("channel_inbox", "failed-with-reply", "message_id", "failed long ago, and a reply still refers to it"),
    Trap("channel_inbox", "stuck", "message_id", "processing for weeks: live, whatever its age"),
    Trap("channel_inbox", "from-tomorrow", "message_id", "received in the future, by a sender with a wrong clock"),
    Trap("channel_inbox", "inbox-boundary", "message_id", "exactly as old as its window", lasting=False),
    Trap("channel_outbox", "never-attempted", "dedupe_key", "failed without a time of sending: its age is unknown"),
    Trap("channel_outbox", "waiting-reply", "dedupe_key", "queued for weeks: live, whatever its age"),
    Trap("channel_outbox", "sent-reply", "dedupe_key", "sent: the application deletes it after delivery", rows=24),
    Trap("lane_leases", "held-lane", "lease_owner", "the lease is renewed and runs on"),
    Trap("workspace_leases", "held-workspace", "lease_owner", "the lease is renewed and runs on"),
    Trap("oauth_pending", "open-handshake", "state", "a user is still typing a password"),
    Trap("outbox", "outbox-boundary", "topic", "exactly as old as its window", lasting=False),
    Trap("outbox_consumers", "slow-consumer", "consumer_id", "far behind, but its cursor moved inside the window"),
    # Work claims
    Trap("work_claims", "old-live-claim", "task_id", "claimed months ago and extended ever since"),
    Trap("work_claims", "expired-claim", "task_id", "its lease ran out: it can be taken over, not forgotten"),
    Trap("work_claims", "available-again", "task_id", "available, with the stamps of an earlier life"),
    Trap("work_claims", "completed-unstamped", "task_id", "completed without a time: its age is unknown"),
    Trap("work_claims", "abandoned-lately", "task_id", "claimed long ago, abandoned an hour ago: the giving up counts"),
    Trap("work_claims", "claims-boundary", "task_id", "exactly as old as its window", lasting=False),
    Trap("work_claim_tombstones", "never-again", "task_id", "remembered without an end: it may never be claimed again"),
    # Webhooks
    Trap("knocker_events", "dead-event", "dedupe_key", "dead: waits for an operator, however old it is"),
    Trap("knocker_events", "failed-event", "dedupe_key", "failed: waits for its next attempt or an operator"),
    Trap("knocker_events", "stuck-event", "dedupe_key", "received weeks ago and never processed: live"),
    Trap("knocker_events", "zero-received", "dedupe_key", "received at 0, which is a placeholder and no timestamp"),
    Trap("knocker_events", "events-boundary", "dedupe_key", "exactly as old as its window", lasting=False),
    Trap("knocker_deliveries", "young-orphan", "provider_delivery_id", "an orphan, but received an hour ago"),
    Trap("knocker_deliveries", "receipt-of-dead", "provider_delivery_id", "old, but its event is dead and stays"),
    Trap("_honker_live", "other-queue", "worker_id", "its event is due, but the job belongs to another queue"),
    # Substrate
    Trap("event_outbox", "future-event", "event_stream", "created in the future, by a writer with a wrong clock"),
    Trap("event_outbox", "epoch-event", "event_stream", "created on 1970-01-01, which is a placeholder"),
    Trap("event_outbox", "event-boundary", "event_stream", "exactly as old as its window", lasting=False),
    Trap("event_pending", "undrained", "event_stream", "old, and not drained"),
    Trap("iu_route_dead_letter", "unresolved-route", "error", "failed two years ago, and not resolved", rows=24),
    Trap("job_dead_letter", "unresolved-job", "error", "failed two years ago, and not resolved", rows=24),
    Trap("job_queue", "needed-by-dead-letter", "dedupe_key", "cleaned, but its dead letter is unresolved", rows=24),
    Trap("job_queue", "failed-job", "dedupe_key", "failed months ago: live, an operator may retry it"),
    Trap("job_queue", "forgotten-job", "dedupe_key", "queued months ago: live, whatever its age"),
    Trap("job_queue", "unfinished-success", "dedupe_key", "succeeded without a time: its age is unknown"),
    Trap("job_queue", "cleaned-but-audited", "dedupe_key", "marked as cleaned, and still inside the audit window"),
    Trap("dot_iu_command_run", "running-command", "command", "started months ago and still running"),
    Trap("dot_iu_command_run", "command-boundary", "command", "exactly as old as its window", lasting=False),
    Trap("iu_lifecycle_log", "old-law", "unit_ref", "ten years old, and append-only by law"),
    Trap("iu_core.iu_staging_record", "foreign-staging", "source", "old, but another service governs it"),
)


def trap(name: str) -> Trap:
    """Return the trap of this name; raise KeyError if there is none."""
    for one in TRAPS:
        if one.name == name:
            return one
    raise KeyError(name)
