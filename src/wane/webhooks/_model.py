"""The arguments and results of the webhook facade: plain values, validated when they are constructed.

There is no default window anywhere: without a threshold nothing is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from wane._arguments import require_limit, require_positive, require_states
from wane.errors import WrongArgument, WrongArgumentType

PRUNE_EVENTS = "prune_events"
PRUNE_ORPHAN_DELIVERIES = "prune_orphan_deliveries"
KINDS = (PRUNE_EVENTS, PRUNE_ORPHAN_DELIVERIES)
AUDITS_VIEW = "knocker_prune_audits"
"""The view of their audit rows in the database, for statements in SQL."""

SETTLED = ("handled", "ignored")
"""The statuses that are pruned by default."""
NEVER = ("failed", "dead")
"""The statuses that wait for an operator and are never pruned, regardless of the contract."""
MOST_PRUNED = 1_000
"""The most events, or orphan deliveries, that one call prunes."""


@dataclass(frozen=True, slots=True)
class PruneEventsResult:
    """What left with the events that were pruned. Live jobs are those of the named queue only."""

    events_pruned: int
    attempts_pruned: int
    deliveries_pruned: int
    live_jobs_pruned: int


@dataclass(frozen=True, slots=True)
class PruneDeliveriesResult:
    """The orphan deliveries that were pruned."""

    deliveries_pruned: int


@dataclass(frozen=True, slots=True)
class RetentionPassResult:
    """What one pass deleted; None for a path that its policy does not enable."""

    events: PruneEventsResult | None
    orphan_deliveries: PruneDeliveriesResult | None


@dataclass(frozen=True, slots=True)
class RetentionRuns:
    """The outcome of a retention loop."""

    passes: int
    failures: int


@dataclass(frozen=True, slots=True)
class PruneAudit:
    """One row of the audit trail. Counts that do not apply to its kind are None."""

    id: int
    kind: str
    queue_name: str | None
    executed_at: int
    """Unix seconds."""
    events_pruned: int | None
    attempts_pruned: int | None
    deliveries_pruned: int | None
    live_jobs_pruned: int | None
    summary_json: str
    """The arguments of the call: `statuses` (events only), `older_than`, `limit`."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What a retention pass prunes, and how often.

    A path without a window is off; a policy that enables no path is an error.
    """

    interval_s: float = 60.0
    event_statuses: tuple[str, ...] = SETTLED
    event_older_than_s: float | None = None
    event_limit: int = 100
    orphan_deliveries_older_than_s: float | None = None
    orphan_deliveries_limit: int = 100

    def __post_init__(self) -> None:
        require_positive("interval_s", self.interval_s, unit="seconds")
        object.__setattr__(self, "event_statuses", require_statuses(self.event_statuses))
        for name in ("event_older_than_s", "orphan_deliveries_older_than_s"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name), unit="seconds")
        require_limit(self.event_limit, MOST_PRUNED)
        require_limit(self.orphan_deliveries_limit, MOST_PRUNED)
        if self.event_older_than_s is None and self.orphan_deliveries_older_than_s is None:
            raise WrongArgument(
                "the policy enables nothing: no threshold, no deletion",
                "give event_older_than_s, orphan_deliveries_older_than_s, or both",
            )


def require_statuses(statuses: object) -> tuple[str, ...]:
    """Validate statuses to prune: texts, at least one, and none that waits for an operator."""
    found = require_states(statuses)
    texts = tuple(status for status in found if isinstance(status, str))
    if len(texts) != len(found):
        raise WrongArgumentType(f"statuses must be texts, not {found!r}")
    for status in texts:
        if status in NEVER:
            raise WrongArgument(f"events in the status {status!r} wait for an operator: they are never pruned here")
    return texts
