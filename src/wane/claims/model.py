"""What goes into work claims and comes out of them: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal


class WorkState(StrEnum):
    """Where a piece of work stands."""

    AVAILABLE = "available"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    ABANDONED = "abandoned"

    @property
    def finished(self) -> bool:
        return self in (WorkState.COMPLETED, WorkState.ABANDONED)


class Why(StrEnum):
    """Why somebody does not hold a piece of work."""

    LIVE = "live"
    """Somebody else holds it, now."""
    EXPIRED = "expired"
    """The claim ran out; nobody has taken it over yet."""
    FINISHED = "finished"
    """It was completed or abandoned, and the policy does not let it be claimed again."""
    RETURNED = "returned"
    """The claim ran out and was returned: it waits to be claimed."""
    UNKNOWN = "unknown"
    """There is no such work."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds what: all that it takes to extend, complete or abandon. The fence tells this claim from every other, for ever."""

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
    """Of finished work: how long it counts as finished. None: for ever."""
    expired: bool
    """It is claimed, and its claim has run out: whoever claims it next gets it."""

    @property
    def finished_at(self) -> datetime | None:
        return {WorkState.COMPLETED: self.completed_at, WorkState.ABANDONED: self.abandoned_at}.get(self.state)


@dataclass(frozen=True, slots=True)
class Finished:
    """What is known of finished work, from its row or, where that was pruned, from its tombstone."""

    task_id: str
    outcome: WorkState
    owner: str | None
    fence: int
    finished_at: datetime | None
    remembered_until: datetime | None
    pruned: bool
    """Its row is gone."""


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
    """When its claim runs out, or ran out; of finished work, when it may be claimed again. None: not known, or never."""
    pruned: bool = False
    """Its row is gone, and this is what is remembered of it."""

    def __bool__(self) -> Literal[False]:
        return False

    @property
    def granted(self) -> Literal[False]:
        return False

    @property
    def residue(self) -> bool:
        """Nobody works on it: what denies is what is left of somebody who did."""
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
        again = f"may be claimed again from {_text(self.until)}" if self.until else "is not to be claimed again"
        return f"{self.task_id} was {self.state}{who}{at} and {again}"


@dataclass(frozen=True, slots=True)
class VacuumedState:
    """What a vacuum took of one state."""

    age_hours: float
    cutoff: datetime
    rows: int
    audit_ids: tuple[int, ...]
    """Its rows in the trail, one for each batch."""


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a vacuum took. A state without a threshold was not touched, and is not here."""

    states: dict[WorkState, VacuumedState] = field(default_factory=dict)
    more: bool = False
    """The limit was reached; there may be more."""

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


def _text(moment: datetime | None) -> str:
    return "an unknown moment" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
