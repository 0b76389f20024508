"""The same claims for asyncio: every call runs on the keeper's thread, never at the same time as its own calls."""

from __future__ import annotations

from wane._aio import Awaited, awaited
from wane.claims._work import WorkClaims


class AsyncWorkClaims(Awaited[WorkClaims]):
    """WorkClaims whose calls are awaited. Obtained as `await keeper.claims(…)` of an AsyncKeeper."""

    abandon = awaited(WorkClaims.abandon)
    claim = awaited(WorkClaims.claim)
    close = awaited(WorkClaims.close)
    complete = awaited(WorkClaims.complete)
    extend = awaited(WorkClaims.extend)
    get = awaited(WorkClaims.get)
    install = awaited(WorkClaims.install)
    list_by_state = awaited(WorkClaims.list_by_state)
    list_expired = awaited(WorkClaims.list_expired)
    missing = awaited(WorkClaims.missing)
    missing_sql = awaited(WorkClaims.missing_sql)
    preview_vacuum = awaited(WorkClaims.preview_vacuum)
    remembered = awaited(WorkClaims.remembered)
    return_expired = awaited(WorkClaims.return_expired)
    submit = awaited(WorkClaims.submit)
    vacuum = awaited(WorkClaims.vacuum)
    vacuum_expired = awaited(WorkClaims.vacuum_expired)
