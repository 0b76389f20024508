"""One life of a piece of work: submitted, claimed, extended, finished, taken over, returned. The same on every
store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claims.working import HOUR, denied, finish, granted, make_older, pass_time, stamp, submitted, tasks, working
from servers import Database
from wane._db.store import Store
from wane.claims import Claim, Denial, Holding, Reclaim, Why, WorkClaimManager, WorkClaims, WorkState
from wane.errors import ClaimLost

SECOND = timedelta(seconds=1)


def clock(claims: WorkClaims) -> datetime:
    store: Store = claims.store
    return store.now()


def test_submitted_work_is_available(claims: WorkClaims) -> None:
    before = clock(claims)
    work = submitted(claims.submit("t"))
    assert (work.task_id, work.state, work.owner, work.fence, work.expired) == ("t", "available", None, 0, False)
    assert work.created_at is not None
    assert before - SECOND <= work.created_at <= clock(claims) + SECOND
    assert claims.get("t") == work


def test_submitting_twice_changes_nothing(claims: WorkClaims) -> None:
    first = submitted(claims.submit("t"))
    assert claims.submit("t") == first
    granted(claims.claim("t", "ada", 60))
    claimed = submitted(claims.submit("t"))
    assert (claimed.state, claimed.owner) == (WorkState.CLAIMED, "ada")


def test_a_claim_is_held_by_one_until_it_runs_out(claims: WorkClaims) -> None:
    claims.submit("t")
    claim = granted(claims.claim("t", "ada", timedelta(seconds=60)))
    assert (claim.task_id, claim.owner, claim.granted) == ("t", "ada", True)
    assert abs(claim.expires_at - claim.claimed_at - timedelta(seconds=60)) < timedelta(milliseconds=50)
    assert claim.fence > 0
    work = claims.get("t")
    assert work is not None
    assert (work.state, work.owner, work.fence, work.expires_at) == ("claimed", "ada", claim.fence, claim.expires_at)


def test_work_that_was_never_submitted_can_be_claimed(claims: WorkClaims) -> None:
    granted(claims.claim("new", "ada", 60))
    assert [work.task_id for work in claims.list_by_state("claimed")] == ["new"]


def test_a_denied_claim_states_who_has_it_since_when_and_until_when(claims: WorkClaims) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    denial = denied(claims.claim("t", "bob", 60))
    assert denial == Denial(
        "t", Why.LIVE, WorkState.CLAIMED, "ada", claim.fence, claim.claimed_at, claim.expires_at, pruned=False
    )
    assert not denial
    assert not denial.granted
    assert not denial.residue
    assert str(denial).startswith("t is claimed by ada since ")


def test_the_same_owner_is_denied_a_second_claim(claims: WorkClaims) -> None:
    granted(claims.claim("t", "ada", 60))
    assert denied(claims.claim("t", "ada", 60)).owner == "ada"


def test_an_expired_claim_is_taken_over_and_its_former_holder_can_do_nothing(
    claims: WorkClaims, database: Database
) -> None:
    old = granted(claims.claim("t", "ada", 60))
    pass_time(database, timedelta(seconds=61))
    new = granted(claims.claim("t", "bob", 60))
    assert new.fence > old.fence
    for act in (claims.complete, claims.abandon, lambda claim: claims.extend(claim, 60)):
        with pytest.raises(ClaimLost) as lost:
            act(old)
        assert (lost.value.denial.why, lost.value.denial.owner) == (Why.LIVE, "bob")
    assert claims.complete(new).state == "completed"


def test_an_expired_claim_is_lost_even_if_it_was_not_taken_over(claims: WorkClaims, database: Database) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    pass_time(database, timedelta(seconds=61))
    for act in (claims.complete, claims.abandon, lambda claim: claims.extend(claim, 60)):
        with pytest.raises(ClaimLost, match="ran out") as lost:
            act(claim)
        denial = lost.value.denial
        assert (denial.why, denial.owner, denial.residue) == (Why.EXPIRED, "ada", True)
    work = claims.get("t")
    assert work is not None
    assert (work.state, work.expired) == ("claimed", True)


def test_a_claim_has_run_out_exactly_at_its_time(claims: WorkClaims, database: Database) -> None:
    """At or before now: on PostgreSQL the clock moves on, so only the edge in the past can be exact."""
    claim = granted(claims.claim("t", "ada", 60))
    timestamp = stamp(database, clock(claims))
    database.execute("UPDATE work_claims SET expires_at = ?", (timestamp,))
    assert [work.task_id for work in claims.list_expired()] == ["t"]
    with pytest.raises(ClaimLost):
        claims.complete(claim)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"owner": "bob"}, id="owner"),
        pytest.param({"fence": 1}, id="older fence"),
        pytest.param({"fence": 10**12}, id="newer fence"),
        pytest.param({"task_id": "other"}, id="task"),
    ],
)
def test_only_the_holder_extends_completes_or_abandons(claims: WorkClaims, wrong: dict[str, object]) -> None:
    granted(claims.claim("first", "ada", 60))
    claim = granted(claims.claim("t", "ada", 60))
    fields: dict[str, object] = {"task_id": "t", "owner": "ada", "fence": claim.fence, **wrong}
    forged = Holding(**fields)  # type: ignore[arg-type]
    before = claims.get("t")
    for act in (claims.complete, claims.abandon, lambda claim: claims.extend(claim, 600)):
        with pytest.raises(ClaimLost):
            act(forged)
    assert claims.get("t") == before


def test_another_process_completes_by_task_owner_and_fence(claims: WorkClaims) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    assert claims.complete(Holding("t", "ada", claim.fence)).state == "completed"


def test_extending_keeps_the_fence_and_never_shortens(claims: WorkClaims) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    longer = claims.extend(claim, 600)
    assert isinstance(longer, Claim)
    assert (longer.fence, longer.claimed_at) == (claim.fence, claim.claimed_at)
    assert longer.expires_at - claim.expires_at > timedelta(seconds=530)
    assert claims.extend(claim, 1).expires_at == longer.expires_at


@pytest.mark.parametrize("outcome", ["completed", "abandoned"])
def test_finishing_records_its_own_time(claims: WorkClaims, outcome: str, database: Database) -> None:
    claim = granted(claims.claim("t", "ada", 600))
    make_older(database, "t", timedelta(seconds=100))
    before = clock(claims)
    work = claims.complete(claim) if outcome == "completed" else claims.abandon(claim, reason="too hard")
    assert (work.state, work.owner, work.fence) == (outcome, "ada", claim.fence)
    assert work.finished_at is not None
    assert before - SECOND <= work.finished_at <= clock(claims) + SECOND
    assert work.claimed_at == claim.claimed_at - timedelta(seconds=100)
    other = work.abandoned_at if outcome == "completed" else work.completed_at
    assert other is None
    assert work.reason == (None if outcome == "completed" else "too hard")


@pytest.mark.parametrize("outcome", ["completed", "abandoned"])
def test_to_finish_twice_is_to_finish_once(claims: WorkClaims, outcome: str) -> None:
    """A caller that lost the connection during the commit repeats the call."""
    claim = granted(claims.claim("t", "ada", 60))
    act = claims.complete if outcome == "completed" else claims.abandon
    assert act(claim) == act(claim)


def test_completed_work_is_not_abandoned_and_abandoned_work_not_completed(claims: WorkClaims) -> None:
    done, given_up = finish(claims, "done"), finish(claims, "up", "abandoned")
    with pytest.raises(ClaimLost) as lost:
        claims.abandon(done)
    assert (lost.value.denial.state, lost.value.denial.why) == ("completed", Why.FINISHED)
    with pytest.raises(ClaimLost):
        claims.complete(given_up)
    with pytest.raises(ClaimLost):
        claims.extend(done, 60)


def test_what_has_no_row_is_lost(claims: WorkClaims, database: Database) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    database.execute("DELETE FROM work_claims")
    with pytest.raises(ClaimLost, match="no work called t") as lost:
        claims.complete(claim)
    assert lost.value.denial.why is Why.UNKNOWN


def test_expired_claims_are_listed_and_returned_the_oldest_first(claims: WorkClaims, database: Database) -> None:
    holders = {}
    for number, task in enumerate(["b", "a", "d", "c"]):
        holders[task] = granted(claims.claim(task, f"w-{task}", 10 + number))
    live = granted(claims.claim("live", "ada", 600))
    claims.submit("free")
    assert claims.list_expired() == []
    pass_time(database, timedelta(seconds=60))
    assert [work.task_id for work in claims.list_expired()] == ["b", "a", "d", "c"]
    assert [work.task_id for work in claims.list_expired(limit=2)] == ["b", "a"]
    returned = claims.return_expired(limit=3)
    assert [(work.task_id, work.owner, work.state) for work in returned] == [
        (task, f"w-{task}", "claimed") for task in ("b", "a", "d")
    ]
    assert [work.task_id for work in claims.list_expired()] == ["c"]
    work = claims.get("b")
    assert work is not None
    assert (work.state, work.owner, work.expires_at, work.fence) == ("available", None, None, holders["b"].fence)
    with pytest.raises(ClaimLost) as lost:
        claims.complete(holders["b"])
    assert lost.value.denial.why is Why.RETURNED
    assert granted(claims.claim("b", "bob", 60)).fence > max(claim.fence for claim in holders.values())
    assert claims.complete(live).state == "completed"


def test_claims_that_are_live_are_never_returned(claims: WorkClaims) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    assert claims.return_expired() == []
    claims.complete(claim)


def test_each_state_is_listed_oldest_first(claims: WorkClaims, database: Database) -> None:
    for state, ages in {"completed": [3, 9, 6], "abandoned": [5, 1, 7]}.items():
        for age in ages:
            finish(claims, f"{state}-{age}", state)
            make_older(database, f"{state}-{age}", age * HOUR)
    for age in (2, 4):
        claims.submit(f"available-{age}")
        make_older(database, f"available-{age}", age * HOUR)
    granted(claims.claim("claimed-long", "ada", 600))
    granted(claims.claim("claimed-short", "ada", 60))
    listed = {state: [work.task_id for work in claims.list_by_state(state)] for state in WorkState}
    assert listed == {
        "available": ["available-4", "available-2"],
        "claimed": ["claimed-short", "claimed-long"],
        "completed": ["completed-9", "completed-6", "completed-3"],
        "abandoned": ["abandoned-7", "abandoned-5", "abandoned-1"],
    }
    assert [work.task_id for work in claims.list_by_state("completed", limit=1)] == ["completed-9"]


def test_unknown_work_is_none(claims: WorkClaims) -> None:
    assert claims.get("t") is None
    assert claims.remembered("t") is None


def test_fences_of_different_tasks_differ(claims: WorkClaims) -> None:
    fences = [granted(claims.claim(f"t{number}", "ada", 60)).fence for number in range(20)]
    assert fences == sorted(set(fences))


def test_rows_of_the_application_itself_are_claimed_like_others(claims: WorkClaims, database: Database) -> None:
    """The table's defaults are enough: an application may submit by an INSERT of its own."""
    database.execute("INSERT INTO work_claims (task_id) VALUES ('mine')")
    work = claims.get("mine")
    assert work is not None
    assert work.created_at is not None
    assert abs(work.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    granted(claims.claim("mine", "ada", 60))


def test_a_fence_is_larger_than_one_that_was_written_by_hand(claims: WorkClaims, database: Database) -> None:
    database.execute("INSERT INTO work_claims (task_id, fence) VALUES ('t', 5000)")
    assert granted(claims.claim("t", "ada", 60)).fence > 5000


def test_timestamps_beyond_all_calendars_do_not_break_a_probe(claims: WorkClaims, database: Database) -> None:
    far = "'infinity'" if database.store == "postgres" else "'9999-99-99 99:99:99'"
    database.execute(
        f"INSERT INTO work_claims (task_id, state, owner, fence, claimed_at, expires_at) VALUES ('t', 'claimed', 'x', 1, {far}, {far})"
    )
    denial = denied(claims.claim("t", "ada", 60))
    assert (denial.owner, denial.until) == ("x", None)


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_call_inside_the_callers_transaction_commits_and_vanishes_with_it(
    claims: WorkClaims, database: Database, outcome: str
) -> None:
    claims.submit("t")
    claims.submit("u")
    connection = database.connect()
    connection.execute("BEGIN")
    claim = granted(claims.claim("t", "ada", 60, connection=connection))
    assert denied(claims.claim("t", "bob", 60, connection=connection)).owner == "ada"
    claims.extend(claim, 600, connection=connection)
    claims.complete(claim, connection=connection)
    assert submitted(claims.submit("new", connection=connection)).state == "available"
    claims.abandon(granted(claims.claim("u", "ada", 60, connection=connection)), connection=connection)
    inside = claims.get("t", connection=connection)
    assert inside is not None
    assert inside.state == "completed"
    assert claims.remembered("t", connection=connection) is not None
    connection.execute(outcome.upper())
    states: dict[str, str] = dict(database.query("SELECT task_id, state FROM work_claims"))
    if outcome == "commit":
        assert states == {"t": "completed", "u": "abandoned", "new": "available"}
        assert tasks(database, "work_claim_tombstones") == ["t", "u"]
    else:
        assert states == {"t": "available", "u": "available"}
        assert tasks(database, "work_claim_tombstones") == []


def test_a_lost_claim_leaves_the_callers_transaction_usable(claims: WorkClaims, database: Database) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    connection = database.connect()
    connection.execute("BEGIN")
    connection.execute("INSERT INTO work_claims (task_id) VALUES ('mine')")
    with pytest.raises(ClaimLost):
        claims.complete(Holding("t", "bob", claim.fence), connection=connection)
    connection.execute("COMMIT")
    assert tasks(database) == ["mine", "t"]


def test_the_older_name_is_the_same_class() -> None:
    assert WorkClaimManager is WorkClaims
    assert WorkClaimManager.vacuum_expired is WorkClaims.vacuum


def test_claims_open_with_nothing_but_a_url(database: Database) -> None:
    with WorkClaims.open(database.url, reclaim=Reclaim.always(), actor="ada") as claims:
        claims.install()
        finish(claims, "t")
        granted(claims.claim("t", "bob", 60))
    with working(database, install=False) as others:
        assert denied(others.claim("t", "eve", 60)).owner == "bob"
