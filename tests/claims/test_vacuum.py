"""Vacuuming: completed work ages by completion, abandoned work by abandonment, and nothing else ever leaves."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from claims.working import DAY, HOUR, denied, finish, granted, make_older, pass_time, stamp, tasks, working
from servers import Database
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._ledger import AuditEntry
from wane.claims import Vacuumed, WorkClaims, WorkState
from wane.errors import NotInstalled, NotMigrated, UnknownTable, WrongArgument, WrongArgumentType
from wane.events import Event, RowsPruned

BOTH = {"completed_age_hours": 168, "abandoned_age_hours": 24}


def done(claims: WorkClaims, database: Database, task: str, outcome: str, age: timedelta) -> None:
    """Work that was finished so long ago."""
    finish(claims, task, outcome)
    make_older(database, task, age)


def trail(claims: WorkClaims) -> list[AuditEntry]:
    return Keeper(claims.pruner.contract, claims.store).audit()[::-1]


def test_old_completed_work_leaves(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "completed", 8 * DAY)
    vacuumed = claims.vacuum(**BOTH)
    assert (vacuumed.completed, vacuumed.abandoned, vacuumed.rows) == (1, 0, 1)
    assert tasks(database) == []


def test_recent_completed_work_stays(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "completed", 6 * DAY)
    assert claims.vacuum(**BOTH).rows == 0
    assert tasks(database) == ["t"]


def test_old_abandoned_work_leaves(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "abandoned", 2 * DAY)
    assert claims.vacuum(**BOTH).abandoned == 1
    assert tasks(database) == []


def test_recent_abandoned_work_stays(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "abandoned", 23 * HOUR)
    assert claims.vacuum(**BOTH).rows == 0
    assert tasks(database) == ["t"]


def test_claimed_work_stays(claims: WorkClaims, database: Database) -> None:
    granted(claims.claim("t", "ada", 366 * DAY))
    pass_time(database, 300 * DAY)
    assert claims.vacuum(**BOTH).rows == 0
    assert tasks(database) == ["t"]


def test_expired_claims_stay_and_can_be_taken_over(claims: WorkClaims, database: Database) -> None:
    granted(claims.claim("t", "ada", 60))
    pass_time(database, 300 * DAY)
    assert claims.vacuum(**BOTH).rows == 0
    granted(claims.claim("t", "bob", 60))


def test_available_work_stays(claims: WorkClaims, database: Database) -> None:
    claims.submit("t")
    pass_time(database, 300 * DAY)
    assert claims.vacuum(**BOTH).rows == 0
    assert tasks(database) == ["t"]


def test_available_work_with_the_stamps_of_an_earlier_life_stays(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "completed", 300 * DAY)
    database.execute("UPDATE work_claims SET state = 'available', abandoned_at = completed_at")
    assert claims.vacuum(**BOTH).rows == 0


def test_mixed_work_leaves_by_its_own_age(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "completed-old", "completed", 8 * DAY)
    done(claims, database, "completed-recent", "completed", 2 * DAY)
    done(claims, database, "abandoned-old", "abandoned", 2 * DAY)
    done(claims, database, "abandoned-recent", "abandoned", HOUR)
    claims.submit("available")
    make_older(database, "available", 300 * DAY)
    granted(claims.claim("claimed", "ada", 60))
    make_older(database, "claimed", 300 * DAY)
    vacuumed = claims.vacuum(**BOTH)
    assert (vacuumed.completed, vacuumed.abandoned) == (1, 1)
    assert tasks(database) == ["abandoned-recent", "available", "claimed", "completed-recent"]


def test_an_empty_table_is_vacuumed_of_nothing_and_audited(claims: WorkClaims) -> None:
    vacuumed = claims.vacuum(**BOTH)
    assert (vacuumed.rows, vacuumed.more) == (0, False)
    assert [(entry.kind, entry.counts) for entry in trail(claims)] == [("vacuum", {"work_claims": 0})] * 2


@pytest.mark.parametrize(("outcome", "stays"), [("completed", "abandoned"), ("abandoned", "completed")])
def test_one_threshold_leaves_the_other_state_untouched(
    claims: WorkClaims, database: Database, outcome: str, stays: str
) -> None:
    for state in (outcome, stays):
        done(claims, database, state, state, 300 * DAY)
    vacuumed = claims.vacuum(**{f"{outcome}_age_hours": 1})
    assert list(vacuumed.states) == [WorkState(outcome)]
    assert vacuumed.rows == 1
    assert tasks(database) == [stays]


@pytest.mark.parametrize("outcome", ["completed", "abandoned"])
def test_the_age_counts_from_the_end_and_not_from_the_claim(
    claims: WorkClaims, database: Database, outcome: str
) -> None:
    """All stamps differ, and those of the other state are older than every window."""
    claim = granted(claims.claim("t", "ada", 366 * DAY))
    make_older(database, "t", 300 * DAY)
    if outcome == "completed":
        claims.complete(claim)
    else:
        claims.abandon(claim)
    other = "abandoned_at" if outcome == "completed" else "completed_at"
    database.execute(f"UPDATE work_claims SET {other} = created_at")
    assert claims.vacuum(**BOTH).rows == 0
    assert tasks(database) == ["t"]


def test_the_cutoff_is_strict(claims: WorkClaims, database: Database) -> None:
    finish(claims, "t")
    now = claims.store.now()
    database.execute("UPDATE work_claims SET completed_at = ?", (stamp(database, now - timedelta(hours=1)),))
    vacuumed = claims.vacuum(completed_age_hours=1)
    [state] = vacuumed.states.values()
    assert state.cutoff > now - timedelta(hours=1)
    assert vacuumed.rows == 1
    finish(claims, "u")
    later = claims.store.now() + timedelta(minutes=5)
    database.execute("UPDATE work_claims SET completed_at = ?", (stamp(database, later - timedelta(hours=1)),))
    assert claims.vacuum(completed_age_hours=1).rows == 0


def test_completed_work_without_a_timestamp_stays(claims: WorkClaims, database: Database) -> None:
    database.execute("INSERT INTO work_claims (task_id, state) VALUES ('t', 'completed')")
    assert claims.vacuum(completed_age_hours=0.001).rows == 0


def test_without_any_threshold_nothing_happens(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "completed", 300 * DAY)
    with pytest.raises(WrongArgument, match="no threshold, no deletion"):
        claims.vacuum()
    with pytest.raises(WrongArgument, match="no threshold, no deletion"):
        claims.preview_vacuum()
    assert tasks(database) == ["t"]
    assert trail(claims) == []


@pytest.mark.parametrize("hours", [0, -1, -0.5, math.nan, math.inf, -math.inf, 1e9, pytest.param(10**400, id="huge")])
@pytest.mark.parametrize("name", ["completed_age_hours", "abandoned_age_hours"])
def test_an_age_that_cannot_be_meant_is_refused(
    claims: WorkClaims, database: Database, hours: float, name: str
) -> None:
    done(claims, database, "t", "completed", 300 * DAY)
    other = {"completed_age_hours": 1, "abandoned_age_hours": 1, name: hours}
    with pytest.raises(WrongArgument):
        claims.vacuum(**other)  # type: ignore[arg-type]
    assert tasks(database) == ["t"]


@pytest.mark.parametrize("hours", [True, "168", timedelta(hours=168)])
def test_an_age_is_a_number(claims: WorkClaims, hours: object) -> None:
    with pytest.raises(WrongArgumentType):
        claims.vacuum(completed_age_hours=hours)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, 10**9])
def test_a_limit_that_cannot_be_meant_is_refused(claims: WorkClaims, limit: int) -> None:
    with pytest.raises(WrongArgument):
        claims.vacuum(**BOTH, limit=limit)


def fill(database: Database, outcome: str, count: int) -> None:
    old = stamp(database, datetime.now(UTC) - 300 * DAY)
    database.executemany(
        f"INSERT INTO work_claims (task_id, state, {outcome}_at, remembered_until) VALUES (?, ?, ?, ?)",
        [(f"{outcome}-{number:05}", outcome, old, old) for number in range(count)],
    )


def test_rows_leave_in_batches_each_with_its_audit_row(claims: WorkClaims, database: Database) -> None:
    fill(database, "completed", 2_500)
    vacuumed = claims.vacuum(completed_age_hours=168)
    assert (vacuumed.completed, vacuumed.more) == (2_500, False)
    assert [entry.counts["work_claims"] for entry in trail(claims)] == [1_000, 1_000, 500]
    assert vacuumed.states[WorkState.COMPLETED].audit_ids == tuple(entry.id for entry in trail(claims))
    assert trail(claims)[0].inputs == {"states": ["completed"], "completed_age_hours": 168.0, "limit": 10_000}
    assert {entry.actor for entry in trail(claims)} == {"tester"}


def test_the_limit_is_of_all_states_together_and_the_rest_leaves_next_time(
    claims: WorkClaims, database: Database
) -> None:
    fill(database, "completed", 30)
    fill(database, "abandoned", 30)
    first = claims.vacuum(**BOTH, limit=40)
    assert (first.completed, first.abandoned, first.more) == (30, 10, True)
    second = claims.vacuum(**BOTH, limit=40)
    assert (second.completed, second.abandoned, second.more) == (0, 20, False)


def test_the_oldest_leave_first(claims: WorkClaims, database: Database) -> None:
    for task, days in (("young", 10), ("old", 30), ("middle", 20)):
        done(claims, database, task, "completed", days * DAY)
    claims.vacuum(completed_age_hours=168, limit=2)
    assert tasks(database) == ["young"]


def test_a_preview_reports_the_counts_and_changes_nothing(claims: WorkClaims, database: Database) -> None:
    fill(database, "completed", 7)
    fill(database, "abandoned", 3)
    steps = claims.preview_vacuum(**BOTH)
    assert {state.value: step.due.rows for state, step in steps.items() if step.due} == {"completed": 7, "abandoned": 3}
    assert len(tasks(database)) == 10
    assert trail(claims) == []


def test_a_vacuum_reads_no_flag(claims: WorkClaims, database: Database) -> None:
    """Flags gate sweeps. An explicit vacuum is explicit."""
    Keeper(claims.pruner.contract, claims.store).disable()
    done(claims, database, "t", "completed", 8 * DAY)
    assert claims.vacuum(**BOTH).rows == 1


def test_a_held_row_stays(claims: WorkClaims, database: Database) -> None:
    keeper = Keeper(claims.pruner.contract, claims.store)
    for task in ("held", "free"):
        done(claims, database, task, "completed", 8 * DAY)
    keeper.hold("work_claims", {"task_id": "held"}, reason="a test")
    assert claims.vacuum(**BOTH).rows == 1
    assert tasks(database) == ["held"]


def test_a_vacuum_inside_the_callers_transaction_vanishes_with_it(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "completed", 8 * DAY)
    connection = database.connect()
    connection.execute("BEGIN")
    assert claims.vacuum(**BOTH, connection=connection).rows == 1
    connection.execute("ROLLBACK")
    assert tasks(database) == ["t"]
    assert trail(claims) == []


def test_what_was_vacuumed_is_still_remembered(claims: WorkClaims, database: Database) -> None:
    done(claims, database, "t", "completed", 8 * DAY)
    claims.vacuum(**BOTH)
    denial = denied(claims.claim("t", "bob", 60))
    assert (denial.state, denial.pruned) == ("completed", True)


def keeper(database: Database, text: str, tmp_path: Path, events: list[Event] | None = None) -> Keeper:
    received = events if events is not None else []
    path = tmp_path / "wane.toml"
    path.write_text(text)
    return Keeper(load_contract(path), open_store(resolve_url(database.url)), listener=received.append)


OTHER = '[scheduler]\ntick = { every = "5m" }\n[table.other]\nwhy = "x"\nscheduler = "tick"\ntime = "at"\n[table.other.rule.old]\nkeep = "7d"\n'


def test_a_contract_that_does_not_speak_of_claims_leaves_them_to_the_reference_contract(
    claims: WorkClaims, database: Database, tmp_path: Path
) -> None:
    done(claims, database, "t", "completed", 8 * DAY)
    events: list[Event] = []
    with keeper(database, OTHER, tmp_path, events) as opened:
        assert opened.claims().vacuum(**BOTH).rows == 1
    assert [event.counts for event in events if isinstance(event, RowsPruned)] == [
        {"work_claims": 1},
        {"work_claims": 0},
    ]


def test_the_users_own_contract_counts_where_it_speaks_of_claims(
    claims: WorkClaims, database: Database, tmp_path: Path
) -> None:
    """A floor of the contract holds for a vacuum too."""
    done(claims, database, "t", "completed", 8 * DAY)
    text = 'include = ["reference:claims"]\n[floor]\nwork_claims = "20h"\n'
    with keeper(database, text, tmp_path) as opened, pytest.raises(WrongArgument, match="floor"):
        opened.claims().vacuum(completed_age_hours=1)
    assert tasks(database) == ["t"]


def test_a_contract_that_excuses_the_claims_is_obeyed(claims: WorkClaims, database: Database, tmp_path: Path) -> None:
    done(claims, database, "t", "completed", 8 * DAY)
    text = OTHER + '[excused]\nwork_claims = { append_only = "never deleted, by law" }\n'
    with keeper(database, text, tmp_path) as opened, pytest.raises(UnknownTable, match="excused"):
        opened.claims().vacuum(**BOTH)
    assert tasks(database) == ["t"]


@pytest.mark.unmigrated
def test_without_the_trail_nothing_is_vacuumed(database: Database) -> None:
    with working(database, install=False) as claims:
        claims.install()
        done(claims, database, "t", "completed", 8 * DAY)
        with pytest.raises(NotMigrated):
            claims.vacuum(**BOTH)
        assert tasks(database) == ["t"]


def test_without_the_tables_it_states_what_to_do(database: Database) -> None:
    with working(database, install=False) as claims, pytest.raises(NotInstalled, match="wane claims install"):
        claims.vacuum(**BOTH)


def test_a_vacuum_that_took_nothing_of_a_state_states_zero() -> None:
    assert (Vacuumed().rows, Vacuumed().completed, Vacuumed().abandoned) == (0, 0, 0)
