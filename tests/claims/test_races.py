"""Several at once, really at once: one wins, the others learn who did, and nobody's claim is taken from under their
hands."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from claims.working import denied, finish, granted, pass_time, tasks, working
from races.racing import Background, await_true, await_waiting, backend, backend_of
from servers import Database, PostgresDatabase
from together import run_together
from wane._keeper import Keeper
from wane.claims import Claim, Denial, Reclaim, Why, WorkClaims
from wane.errors import ClaimLost

WORKERS = 6


def backend_of_claims(claims: WorkClaims) -> int:
    return backend_of(Keeper(claims.pruner.contract, claims.store))


def race(database: Database, reclaim: Reclaim, task: str) -> list[Claim | Denial]:
    """Claim the task by many processes, each on a connection of its own, when all are ready."""
    ready = threading.Barrier(WORKERS)

    def work(number: int) -> Claim | Denial:
        with working(database, reclaim, install=False) as claims:
            claims.get(task)
            ready.wait(20)
            return claims.claim(task, f"worker-{number}", 60)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(work, range(WORKERS)))


@pytest.mark.parametrize("what", ["unknown", "available", "expired", "completed", "remembered"])
def test_of_several_who_claim_at_once_one_wins(database: Database, what: str) -> None:
    reclaim = Reclaim.by(lambda _: True)
    for round_ in range(4):
        task = f"{what}-{round_}"
        with working(database, reclaim) as claims:
            if what == "available":
                claims.submit(task)
            elif what == "expired":
                granted(claims.claim(task, "old", 60))
                pass_time(database, timedelta(minutes=2))
            elif what in ("completed", "remembered"):
                finish(claims, task)
                if what == "remembered":
                    database.execute("DELETE FROM work_claims")
        answers = race(database, reclaim, task)
        [winner] = [one for one in answers if isinstance(one, Claim)]
        losers = [one for one in answers if isinstance(one, Denial)]
        assert [(one.why, one.owner, one.fence) for one in losers] == [(Why.LIVE, winner.owner, winner.fence)] * (
            WORKERS - 1
        )


def test_every_task_is_done_once_by_several_processes(database: Database) -> None:
    count = 40
    with working(database) as claims:
        for number in range(count):
            claims.submit(f"t{number:03}")
    answers = run_together("claims.claiming", [[database.url, f"p{number}", count] for number in range(4)])
    done = [(task, fence) for answer in answers for task, fence in answer]
    assert Counter(task for task, _ in done) == {f"t{number:03}": 1 for number in range(count)}
    assert len({fence for _, fence in done}) == count


def test_expired_claims_are_returned_once_by_several(database: Database) -> None:
    with working(database) as claims:
        for number in range(30):
            granted(claims.claim(f"t{number}", "old", 60))
        pass_time(database, timedelta(minutes=2))
    ready = threading.Barrier(3)

    def work(_: int) -> list[str]:
        with working(database, install=False) as claims:
            claims.list_expired()
            ready.wait(20)
            return [work.task_id for _ in range(6) for work in claims.return_expired(limit=5)]

    with ThreadPoolExecutor(3) as pool:
        returned = [task for tasks_ in pool.map(work, range(3)) for task in tasks_]
    with working(database, install=False) as claims:
        returned += [work.task_id for work in claims.return_expired()]
    assert sorted(returned) == sorted(f"t{number}" for number in range(30))


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_claim_of_what_another_is_claiming_waits_for_the_outcome(
    postgres_database: PostgresDatabase, end: str
) -> None:
    with working(postgres_database) as claims, working(postgres_database, install=False) as others:
        claims.submit("t")
        others.get("t")
        connection = postgres_database.connect()
        connection.execute("BEGIN")
        first = granted(claims.claim("t", "ada", 60, connection=connection))
        waiting = Background(lambda: others.claim("t", "bob", 60))
        await_waiting(postgres_database, backend_of_claims(others), backend(connection))
        connection.execute(end)
        answer = waiting.result()
        if end == "COMMIT":
            denial = denied(answer)
            assert (denial.owner, denial.fence) == ("ada", first.fence)
        else:
            assert granted(answer).fence > first.fence


def completed_before_it_runs_out(claims: WorkClaims, connection: Any) -> Claim:
    """Claim work for a short time, and complete it in a transaction that stays open. A busy machine takes longer."""
    for seconds in (0.4, 2, 10, 50):
        claim = granted(claims.claim("t", "ada", seconds))
        connection.execute("BEGIN")
        try:
            claims.complete(claim, connection=connection)
        except ClaimLost:
            connection.execute("ROLLBACK")
        else:
            return claim
    pytest.fail("completing takes longer than any claim")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_takeover_waits_for_a_completion_that_is_not_committed(postgres_database: PostgresDatabase, end: str) -> None:
    with working(postgres_database) as claims, working(postgres_database, install=False) as others:
        others.get("t")
        connection = postgres_database.connect()
        old = completed_before_it_runs_out(claims, connection)
        await_true(lambda: bool(others.list_expired()), "the claim runs out")
        waiting = Background(lambda: others.claim("t", "bob", 60))
        await_waiting(postgres_database, backend_of_claims(others), backend(connection))
        connection.execute(end)
        answer = waiting.result()
        if end == "COMMIT":
            assert denied(answer).state == "completed"
            return
        assert granted(answer).fence > old.fence
        with pytest.raises(ClaimLost):
            claims.complete(old)


def test_a_completion_waits_for_a_takeover_and_then_fails(postgres_database: PostgresDatabase) -> None:
    """The takeover is of the very claim that the holder believes to be alive: only its fence differs."""
    with working(postgres_database) as claims, working(postgres_database, install=False) as others:
        old = granted(claims.claim("t", "ada", 60))
        others.get("t")
        connection = postgres_database.connect()
        connection.execute("BEGIN")
        connection.execute("UPDATE work_claims SET state = 'available', expires_at = NULL")
        new = granted(claims.claim("t", "ada", 60, connection=connection))
        waiting = Background(lambda: others.complete(old))
        await_waiting(postgres_database, backend_of_claims(others), backend(connection))
        connection.execute("COMMIT")
        with pytest.raises(ClaimLost) as lost:
            waiting.result()
        assert lost.value.denial.fence == new.fence > old.fence


@pytest.mark.parametrize("act", ["complete", "extend"])
def test_a_claim_that_runs_out_while_its_holder_waits_for_a_lock_is_lost(
    postgres_database: PostgresDatabase, act: str
) -> None:
    """The clock is asked after the wait, also if the row was only locked and not changed."""
    with working(postgres_database) as claims, working(postgres_database, install=False) as others:
        claim = granted(claims.claim("t", "ada", 0.5))
        others.get("t")
        connection = postgres_database.connect()
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM work_claims FOR UPDATE")
        call = (lambda: others.complete(claim)) if act == "complete" else (lambda: others.extend(claim, 60))
        waiting: Background[object] = Background(call)
        await_waiting(postgres_database, backend_of_claims(others), backend(connection))
        await_true(lambda: bool(claims.list_expired()), "the claim runs out")
        connection.execute("COMMIT")
        with pytest.raises(ClaimLost) as lost:
            waiting.result()
        assert lost.value.denial.why is Why.EXPIRED


def test_a_fence_that_is_drawn_late_is_larger_than_one_that_was_given_meanwhile(
    postgres_database: PostgresDatabase,
) -> None:
    """A claim that waited for the row draws the fence after the wait, not before."""
    with working(postgres_database) as claims, working(postgres_database, install=False) as others:
        claims.submit("t")
        others.get("t")
        connection = postgres_database.connect()
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM work_claims FOR UPDATE")
        waiting = Background(lambda: others.claim("t", "bob", 60))
        await_waiting(postgres_database, backend_of_claims(others), backend(connection))
        between = granted(claims.claim("other", "ada", 60))
        connection.execute("COMMIT")
        assert granted(waiting.result()).fence > between.fence


def test_a_vacuum_leaves_what_is_reopened_meanwhile(postgres_database: PostgresDatabase) -> None:
    with working(postgres_database, Reclaim.always()) as claims, working(postgres_database, install=False) as others:
        finish(claims, "t")
        pass_time(postgres_database, timedelta(days=30))
        others.get("t")
        connection = postgres_database.connect()
        connection.execute("BEGIN")
        granted(claims.claim("t", "bob", 60, connection=connection))
        waiting = Background(lambda: others.vacuum(completed_age_hours=1))
        await_true(lambda: not waiting.running or _waits(postgres_database, others), "the vacuum waits, or gave up")
        connection.execute("COMMIT")
        assert waiting.result().rows == 0
        assert tasks(postgres_database) == ["t"]


def _waits(database: Database, claims: WorkClaims) -> bool:
    pid = backend_of_claims(claims)
    return bool(database.query("SELECT 1 FROM pg_stat_activity WHERE pid = ? AND wait_event_type = 'Lock'", (pid,)))


def test_threads_that_share_claims_take_turns(database: Database) -> None:
    with working(database) as claims, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: claims.claim(f"t{number % 5}", f"w{number}", 60), range(40)))
    assert Counter(one.task_id for one in answers if isinstance(one, Claim)) == {f"t{number}": 1 for number in range(5)}
