"""The arguments and results of work claims: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal


class WorkState(StrEnum):
    """The state of a piece of work."""

    AVAILABLE = "available"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    ABANDONED = "abandoned"

    @property
    def finished(self) -> bool:
        return self in (WorkState.COMPLETED, WorkState.ABANDONED)


class Why(StrEnum):
    """Why a worker does not hold a piece of work."""

    LIVE = "live"
    """Another worker holds it now."""
    EXPIRED = "expired"
    """The claim expired; no one has taken it over yet."""
    FINISHED = "finished"
    """It was completed or abandoned, and the policy does not allow a new claim."""
    RETURNED = "returned"
    """The claim expired and was returned: it waits to be claimed."""
    UNKNOWN = "unknown"
    """There is no such work."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds what: all that is needed to extend, complete or abandon.

    The fence identifies this claim uniquely, forever.
    """

    task_id: str
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class Claim(Holding):
    """A claim that was granted."""

    claimed_at: datetime
    expires_at: datetime

    @property
    def granted(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work, as it was when it was read."""

    task_id: str
    state: WorkState
    owner: str | None
    fence: int
    """The fence of its last claim; 0 if it never had one."""
    created_at: datetime | None
    claimed_at: datetime | None
    expires_at: datetime | None
    completed_at: datetime | None
    abandoned_at: datetime | None
    reason: str | None
    remembered_until: datetime | None
    """Of finished work: until when it counts as finished. None: forever."""
    expired: bool
    """It is claimed, and its claim has expired: the next one to claim it gets it."""

    @property
    def finished_at(self) -> datetime | None:
        return {WorkState.COMPLETED: self.completed_at, WorkState.ABANDONED: self.abandoned_at}.get(self.state)


@dataclass(frozen=True, slots=True)
class Finished:
    """The record of finished work, from its row or, where that was pruned, from its tombstone."""

    task_id: str
    outcome: WorkState
    owner: str | None
    fence: int
    finished_at: datetime | None
    remembered_until: datetime | None
    pruned: bool
    """Whether its row was pruned."""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a claim was denied, or lost: who has it, in which state, since when and until when. False in a condition."""

    task_id: str
    why: Why
    state: WorkState | None
    owner: str | None
    fence: int
    since: datetime | None
    """When it was claimed, or finished."""
    until: datetime | None
    """When its claim expires, or expired; of finished work, when it may be claimed again. None: unknown, or never."""
    pruned: bool = False
    """Whether its row was pruned, and this comes from its tombstone."""

    def __bool__(self) -> Literal[False]:
        return False

    @property
    def granted(self) -> Literal[False]:
        return False

    @property
    def residue(self) -> bool:
        """Return whether no one works on it: an expired or finished claim is the reason for the denial."""
        return self.why in (Why.EXPIRED, Why.FINISHED)

    def __str__(self) -> str:
        who = f" by {self.owner}" if self.owner else ""
        since = f" since {_text(self.since)}" if self.since else ""
        if self.why is Why.LIVE:
            return f"{self.task_id} is claimed{who}{since} until {_text(self.until)}"
        if self.why is Why.EXPIRED:
            return f"{self.task_id} was claimed{who}{since}, and the claim ran out at {_text(self.until)}"
        if self.why is Why.RETURNED:
            return f"{self.task_id} is available: the claim ran out and was returned"
        if self.why is Why.UNKNOWN:
            return f"there is no work called {self.task_id}"
        at = f" at {_text(self.since)}" if self.since else ""
        outlook = f"may be claimed again from {_text(self.until)}" if self.until else "is not to be claimed again"
        return f"{self.task_id} was {self.state}{who}{at} and {outlook}"


@dataclass(frozen=True, slots=True)
class VacuumedState:
    """The rows of one state that a vacuum deleted."""

    age_hours: float
    cutoff: datetime
    rows: int
    audit_ids: tuple[int, ...]
    """Its rows in the audit trail, one for each batch."""


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a vacuum deleted. A state without a threshold was not touched, and is not included."""

    states: dict[WorkState, VacuumedState] = field(default_factory=dict)
    more: bool = False
    """Whether the limit was reached; there may be more."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.states.values())

    @property
    def completed(self) -> int:
        return self._rows(WorkState.COMPLETED)

    @property
    def abandoned(self) -> int:
        return self._rows(WorkState.ABANDONED)

    def _rows(self, state: WorkState) -> int:
        return self.states[state].rows if state in self.states else 0


def _text(time: datetime | None) -> str:
    return "an unknown time" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
