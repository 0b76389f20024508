"""Work claims: who works on what, for how long, and whether finished work may be claimed again.

from wane.claims import Reclaim, WorkClaims

with WorkClaims.open("sqlite:///state.db", reclaim=Reclaim.never()) as claims:
    claim = claims.claim("task-1", "worker-a", ttl=60)
    if claim:
        claims.complete(claim)
    else:
        print(claim)  # who has it, in which state, since when and until when
"""

from __future__ import annotations

from wane.claims._asynchronous import AsyncWorkClaims
from wane.claims._model import Claim, Denial, Finished, Holding, Vacuumed, VacuumedState, Why, Work, WorkState
from wane.claims._reclaim import Reclaim
from wane.claims._work import WorkClaimManager, WorkClaims

__all__ = [
    "AsyncWorkClaims",
    "Claim",
    "Denial",
    "Finished",
    "Holding",
    "Reclaim",
    "Vacuumed",
    "VacuumedState",
    "Why",
    "Work",
    "WorkClaimManager",
    "WorkClaims",
    "WorkState",
]
