"""Work claims in a test's database, and a clock that moves when the test says so: every stamp becomes older."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from servers import Database
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane.claims import Claim, Denial, Reclaim, Work, WorkClaims
from wane.reference import contract_path

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
CLAIM_STAMPS = ("created_at", "claimed_at", "expires_at", "completed_at", "abandoned_at", "remembered_until")
TOMBSTONE_STAMPS = ("finished_at", "remembered_until")


@contextmanager
def working(
    database: Database, reclaim: Reclaim | None = None, abandoned: Reclaim | None = None, *, install: bool = True
) -> Iterator[WorkClaims]:
    """Yield claims on a connection of their own, with everything installed."""
    with open_store(resolve_url(database.url)) as store:
        keeper = Keeper(load_contract(contract_path("claims")), store, actor="tester")
        claims = keeper.claims(reclaim=reclaim, reclaim_abandoned=abandoned)
        if install:
            keeper.migrate()
            claims.install()
        yield claims


def pass_time(database: Database, by: timedelta) -> None:
    """Let time go by. Tombstones first: those of rows that are still there are written again by the rows' own
    change."""
    _make_older(database, "work_claim_tombstones", TOMBSTONE_STAMPS, by)
    _make_older(database, "work_claims", CLAIM_STAMPS, by)


def make_older(database: Database, task: str, by: timedelta) -> None:
    """Let time go by for one piece of work."""
    _make_older(database, "work_claims", CLAIM_STAMPS, by, task)


def _make_older(
    database: Database, table: str, stamps: tuple[str, ...], by: timedelta, task: str | None = None
) -> None:
    where, values = ("", ()) if task is None else (" WHERE task_id = ?", (task,))
    if database.store == "postgres":
        changes = ", ".join(f"{name} = {name} - make_interval(secs => {by.total_seconds()})" for name in stamps)
        database.execute(f"UPDATE {table} SET {changes}{where}", values)
        return
    rows = database.query(f"SELECT task_id, {', '.join(stamps)} FROM {table}{where}", values)
    changed = [(*(None if one is None else _text(_timestamp(one) - by) for one in row[1:]), row[0]) for row in rows]
    names = ", ".join(f"{name} = ?" for name in stamps)
    database.executemany(f"UPDATE {table} SET {names} WHERE task_id = ?", changed)


def _timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _text(timestamp: datetime) -> str:
    return timestamp.strftime("%Y-%m-%d %H:%M:%S.%f")


def stamp(database: Database, timestamp: datetime) -> Any:
    """Return a timestamp, as the tables write it."""
    return timestamp if database.store == "postgres" else _text(timestamp)


def granted(answer: Claim | Denial) -> Claim:
    assert isinstance(answer, Claim), str(answer)
    return answer


def denied(answer: Claim | Work | Denial) -> Denial:
    assert isinstance(answer, Denial), answer
    return answer


def submitted(answer: Work | Denial) -> Work:
    assert isinstance(answer, Work), str(answer)
    return answer


def finish(claims: WorkClaims, task: str, outcome: str = "completed", owner: str = "ada") -> Claim:
    """Claim a task and finish it."""
    claim = granted(claims.claim(task, owner, 60))
    if outcome == "completed":
        claims.complete(claim)
    else:
        claims.abandon(claim, reason="a test")
    return claim


def tasks(database: Database, table: str = "work_claims") -> list[str]:
    return [task for (task,) in database.query(f"SELECT task_id FROM {table} ORDER BY task_id")]
