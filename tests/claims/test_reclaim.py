"""Whether finished work may be claimed again is the policy's answer, and pruning changes nothing about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from claims.working import DAY, HOUR, denied, finish, granted, make_older, pass_time, submitted, tasks, working
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._keeper import Keeper
from wane._prune.pace import FAST
from wane._prune.sweep import Sweeper
from wane._sqlfunctions import install as install_functions
from wane.claims import Denial, Finished, Reclaim, Why, WorkClaims, WorkState
from wane.errors import ClaimLost, WrongArgument, WrongArgumentType
from wane.sqlite import register

OLD = 30 * DAY
OUTCOMES = ["completed", "abandoned"]


def keeper_of(claims: WorkClaims) -> Keeper:
    return Keeper(claims.pruner.contract, claims.store, actor="tester")


def stays(claims: WorkClaims, database: Database) -> None:
    """Require that nothing is pruned."""


def vacuum(claims: WorkClaims, database: Database) -> None:
    claims.vacuum(completed_age_hours=168, abandoned_age_hours=24)


def sweep(claims: WorkClaims, database: Database) -> None:
    keeper = keeper_of(claims)
    keeper.enable()
    Sweeper(keeper.store, keeper.contract, "tester", unattended=False, pace=FAST).sweep(["work_claims"])


def prune(claims: WorkClaims, database: Database) -> None:
    for rule in OUTCOMES:
        keeper_of(claims).prune("work_claims", rule=rule, limit=100)


def sql_function(claims: WorkClaims, database: Database) -> None:
    if database.store == "sqlite":
        connection = sqlite3.connect(database.url.removeprefix("sqlite:///"), isolation_level=None)
        register(connection, contract=keeper_of(claims).contract)
        for rule in OUTCOMES:
            connection.execute("SELECT wane_prune('work_claims', ?, 100)", (rule,)).fetchall()
        connection.close()
        return
    install_functions(keeper_of(claims))
    for rule in OUTCOMES:
        database.query("SELECT wane.prune('work_claims', ?, 100)", (rule,))


def delete(claims: WorkClaims, database: Database) -> None:
    database.execute("DELETE FROM work_claims")


def truncate(claims: WorkClaims, database: Database) -> None:
    database.execute("TRUNCATE work_claims" if database.store == "postgres" else "DELETE FROM work_claims WHERE 1")


def replace_row(claims: WorkClaims, database: Database) -> None:
    """Insert the task as an application does by itself, over the finished row."""
    if database.store == "sqlite":
        database.execute("REPLACE INTO work_claims (task_id) VALUES ('t')")
    else:
        database.execute("DELETE FROM work_claims")
        database.execute("INSERT INTO work_claims (task_id) VALUES ('t')")


Way = Callable[[WorkClaims, Database], None]
WAYS: list[Way] = [stays, vacuum, sweep, prune, sql_function, delete, truncate, replace_row]
PRUNED = [vacuum, sweep, prune, sql_function, delete, truncate]


def age(database: Database) -> None:
    pass_time(database, OLD)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_never_means_never_whatever_became_of_the_row(database: Database, way: Way, outcome: str) -> None:
    with working(database) as claims:
        claim = finish(claims, "t", outcome)
        age(database)
        before = denied(claims.claim("t", "bob", 60))
        way(claims, database)
        if way in PRUNED:
            assert tasks(database) == []
        denial = denied(claims.claim("t", "bob", 60))
        assert replace(denial, pruned=False) == before
        assert denial.pruned == (way is not stays)
        assert (denial.why, denial.state, denial.owner, denial.fence) == (Why.FINISHED, outcome, "ada", claim.fence)
        assert (denial.since, denial.until) == (before.since, None)
        assert denial.residue
        assert f"was {outcome} by ada" in str(denial)
        assert denied(claims.submit("t")) == denial
        assert tasks(database) == (["t"] if way in (stays, replace_row) else [])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("first", ["submit", "claim"])
def test_always_means_at_once_with_a_larger_fence(database: Database, way: Way, outcome: str, first: str) -> None:
    with working(database, Reclaim.always()) as claims:
        old = finish(claims, "t", outcome)
        assert tasks(database, "work_claim_tombstones") == [], "nothing needs to be remembered"
        age(database)
        way(claims, database)
        if first == "submit":
            work = submitted(claims.submit("t"))
            assert (work.state, work.owner, work.completed_at, work.abandoned_at) == ("available", None, None, None)
        new = granted(claims.claim("t", "bob", 60))
        assert new.fence > old.fence
        assert claims.complete(new).fence == new.fence


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_cool_down_ends_at_its_time_whether_the_row_is_there_or_not(
    database: Database, way: Way, outcome: str
) -> None:
    with working(database, Reclaim.after(OLD + HOUR)) as claims:
        old = finish(claims, "t", outcome)
        age(database)
        way(claims, database)
        denial = denied(claims.claim("t", "bob", 60))
        assert denial.since is not None
        assert denial.until == denial.since + OLD + HOUR
        assert "may be claimed again from" in str(denial)
        pass_time(database, HOUR + timedelta(seconds=1))
        assert claims.remembered("t") is None
        assert granted(claims.claim("t", "bob", 60)).fence > old.fence


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_callback_is_reported_the_same_whether_the_row_is_there_or_not(database: Database, way: Way) -> None:
    requested: list[Finished] = []
    answer = [False]

    def decide(finished: Finished) -> bool:
        requested.append(finished)
        return answer[0]

    with working(database, Reclaim.by(decide)) as claims:
        old = finish(claims, "t")
        age(database)
        denied(claims.claim("t", "bob", 60))
        way(claims, database)
        denied(claims.claim("t", "bob", 60))
        before, after = requested
        assert replace(after, pruned=False) == before
        assert (before.task_id, before.outcome, before.owner, before.fence) == ("t", "completed", "ada", old.fence)
        assert after.pruned == (way is not stays)
        answer[0] = True
        assert granted(claims.claim("t", "bob", 60)).fence > old.fence
        assert tasks(database, "work_claim_tombstones") == []


def test_a_callback_decides_by_what_it_is_reported(database: Database) -> None:
    with working(database, Reclaim.by(lambda finished: finished.task_id.startswith("nightly-"))) as claims:
        finish(claims, "nightly-1")
        finish(claims, "once")
        granted(claims.claim("nightly-1", "bob", 60))
        denied(claims.claim("once", "bob", 60))


@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_a_callback_that_does_not_answer_yes_or_no_is_an_error(database: Database, answer: object) -> None:
    with working(database, Reclaim.by(lambda _: answer)) as claims:  # type: ignore[arg-type,return-value]
        finish(claims, "t")
        with pytest.raises(WrongArgumentType, match="True or False"):
            claims.claim("t", "bob", 60)
        work = claims.get("t")
        assert work is not None
        assert work.state == "completed"


def test_a_callback_that_fails_changes_nothing(database: Database) -> None:
    def fail(_: Finished) -> bool:
        raise RuntimeError("no idea")

    with working(database, Reclaim.by(fail)) as claims:
        finish(claims, "t")
        with pytest.raises(RuntimeError):
            claims.claim("t", "bob", 60)
        granted(claims.claim("u", "bob", 60))
        assert [work.state for work in [claims.get("t")] if work] == ["completed"]


@pytest.mark.parametrize("way", [stays, vacuum, delete], ids=lambda way: way.__name__)
@pytest.mark.parametrize("policy", ["never", "by"])
def test_never_and_a_callback_may_be_bounded_by_a_window(database: Database, way: Way, policy: str) -> None:
    window = OLD + HOUR
    chosen = Reclaim.never(remember=window) if policy == "never" else Reclaim.by(lambda _: False, remember=window)
    with working(database, chosen) as claims:
        old = finish(claims, "t")
        age(database)
        way(claims, database)
        denial = denied(claims.claim("t", "bob", 60))
        assert denial.since is not None
        assert denial.until == denial.since + window
        pass_time(database, 2 * HOUR)
        assert granted(claims.claim("t", "bob", 60)).fence > old.fence


def test_abandoned_work_may_have_a_policy_of_its_own(database: Database) -> None:
    with working(database, Reclaim.never(), Reclaim.always()) as claims:
        finish(claims, "done")
        finish(claims, "up", "abandoned")
        assert tasks(database, "work_claim_tombstones") == ["done"]
        denied(claims.claim("done", "bob", 60))
        granted(claims.claim("up", "bob", 60))


def test_without_a_policy_it_is_never(database: Database) -> None:
    with working(database) as claims:
        assert claims.reclaim == Reclaim.never()
        assert claims.reclaim_abandoned == Reclaim.never()


def test_a_recurring_id_lives_repeatedly(database: Database) -> None:
    with working(database, Reclaim.after(HOUR)) as claims:
        fences = []
        for round_ in range(4):
            fences.append(finish(claims, "nightly", OUTCOMES[round_ % 2]).fence)
            denied(claims.claim("nightly", "bob", 60))
            if round_ % 2:
                delete(claims, database)
            denied(claims.submit("nightly"))
            pass_time(database, HOUR + timedelta(seconds=1))
            submitted(claims.submit("nightly"))
        assert fences == sorted(set(fences))


def test_what_was_decided_when_the_work_ended_holds_under_a_later_policy(database: Database) -> None:
    """Else the answer would depend on whether the row was pruned in between."""
    with working(database, Reclaim.always()) as claims:
        finish(claims, "free")
    with working(database, Reclaim.never(), install=False) as claims:
        granted(claims.claim("free", "bob", 60))


def test_work_that_was_finished_by_hand_is_remembered_too(database: Database) -> None:
    with working(database) as claims:
        claims.submit("t")
        database.execute("UPDATE work_claims SET state = 'completed', completed_at = CURRENT_TIMESTAMP")
        database.execute("INSERT INTO work_claims (task_id, state) VALUES ('u', 'abandoned')")
        database.execute("DELETE FROM work_claims")
        assert denied(claims.claim("t", "bob", 60)).state == "completed"
        assert denied(claims.claim("u", "bob", 60)).state == "abandoned"


def test_work_that_was_reopened_by_hand_can_be_claimed(database: Database) -> None:
    with working(database) as claims:
        old = finish(claims, "t")
        database.execute("UPDATE work_claims SET state = 'available', completed_at = NULL")
        assert tasks(database, "work_claim_tombstones") == []
        assert granted(claims.claim("t", "bob", 60)).fence > old.fence


def test_finished_work_of_unknown_age_does_not_cool_down(database: Database) -> None:
    with working(database, Reclaim.after(HOUR)) as claims:
        database.execute("INSERT INTO work_claims (task_id, state) VALUES ('t', 'completed')")
        denial = denied(claims.claim("t", "bob", 60))
        assert (denial.since, denial.until) == (None, None)


@pytest.mark.parametrize("way", PRUNED, ids=lambda way: way.__name__)
def test_fences_grow_whatever_deletes_the_rows_between(database: Database, way: Way) -> None:
    with working(database, Reclaim.always()) as claims:
        fences = []
        for _ in range(3):
            fences.append(finish(claims, "t").fence)
            age(database)
            way(claims, database)
            assert tasks(database) == []
            assert tasks(database, "work_claim_tombstones") == []
        assert fences == sorted(set(fences))


def test_a_former_holder_stays_locked_out_after_prune_and_resubmission(database: Database) -> None:
    """The trap: a vacuum that resets the fence lets an old holder complete the work of the new one."""
    with working(database, Reclaim.always()) as claims:
        old = finish(claims, "t")
        age(database)
        vacuum(claims, database)
        submitted(claims.submit("t"))
        new = granted(claims.claim("t", "ada", 60))
        assert new.fence != old.fence
        with pytest.raises(ClaimLost):
            claims.complete(old)
        claims.complete(new)


def test_tombstones_leave_when_the_policy_no_longer_needs_them(database: Database) -> None:
    with working(database, Reclaim.after(40 * DAY)) as claims:
        finish(claims, "cooling")
        with working(database, Reclaim.never(), install=False) as others:
            finish(others, "never")
        age(database)
        vacuum(claims, database)
        prune_tombstones(claims)
        assert tasks(database, "work_claim_tombstones") == ["cooling", "never"]
        pass_time(database, 11 * DAY)
        assert prune_tombstones(claims) == 1
        assert tasks(database, "work_claim_tombstones") == ["never"]


def prune_tombstones(claims: WorkClaims) -> int:
    return keeper_of(claims).prune("work_claim_tombstones", rule="forgotten", limit=100).rows


def test_an_expired_tombstone_counts_for_nothing_before_it_is_swept(database: Database) -> None:
    with working(database, Reclaim.never(remember=HOUR)) as claims:
        finish(claims, "t")
        delete(claims, database)
        pass_time(database, 2 * HOUR)
        assert tasks(database, "work_claim_tombstones") == ["t"]
        granted(claims.claim("t", "bob", 60))


def test_a_correction_of_the_timestamp_reaches_the_memory(database: Database) -> None:
    with working(database, Reclaim.after(HOUR)) as claims:
        finish(claims, "t")
        make_older(database, "t", timedelta(minutes=30))
        memory = claims.remembered("t")
        work = claims.get("t")
        assert memory is not None
        assert work is not None
        assert (memory.finished_at, memory.remembered_until) == (work.completed_at, work.remembered_until)


@pytest.mark.parametrize("window", [timedelta(0), timedelta(seconds=-1), timedelta(days=40_000)])
def test_a_window_that_cannot_be_meant_is_refused(window: timedelta) -> None:
    for make in (
        Reclaim.after,
        lambda window: Reclaim.never(remember=window),
        lambda window: Reclaim.by(bool, remember=window),
    ):
        with pytest.raises(WrongArgument):
            make(window)


@pytest.mark.parametrize("window", [60, None, "1h", True])
def test_a_window_is_a_timedelta(window: object) -> None:
    with pytest.raises(WrongArgumentType):
        Reclaim.after(window)  # type: ignore[arg-type]


def test_a_callback_is_a_function() -> None:
    with pytest.raises(WrongArgumentType):
        Reclaim.by("always")  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["never", Reclaim, 0])
def test_a_policy_is_a_reclaim(sqlite_database: SqliteDatabase, policy: object) -> None:
    with pytest.raises(WrongArgumentType, match=r"Reclaim\.never"), working(sqlite_database, policy):  # type: ignore[arg-type]
        pass


def test_the_memory_is_written_in_the_schema_of_the_claims(postgres_database: PostgresDatabase) -> None:
    """Whatever the search path of the session that finishes work by hand."""
    with working(postgres_database) as claims:
        claims.submit("t")
        other = postgres_database.connect()
        other.execute("CREATE SCHEMA elsewhere")
        other.execute("SET search_path = elsewhere")
        other.execute("UPDATE public.work_claims SET state = 'completed'")
        assert isinstance(claims.claim("t", "bob", 60), Denial)
        memory = claims.remembered("t")
        assert memory is not None
        assert memory.outcome is WorkState.COMPLETED
