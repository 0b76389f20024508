"""Applying a plan: exactly the rows that were read, under frozen cutoffs, or a refusal that says what has changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from covering import numbers
from prune.keeping import AT, WEEK, Keeping, ago, follower, insert, jobs, keeping, notes, referenced_by, rule, table
from servers import Database
from wane._contract.model import Age, Cap, Mark, Table
from wane._db.counting import Count, Exactness
from wane._prune.pace import FAST, Pace
from wane._prune.plan import Plan, read_plan
from wane._prune.sweep import Outcome
from wane.errors import PlanError
from wane.events import BatchTaken, Event

SMALL = Pace(target_seconds=0.05, duty=1.0, first_batch=3, least_batch=3, most_batch=3)
MARKING = table(
    "job",
    rule("cleaned", Age(AT, WEEK), then=Mark("cleaned")),
    rule("gone", Age(AT, timedelta(days=50)), when=["cleaned"]),
)


def planned(opened: Keeping, path: Path) -> Plan:
    """Return a plan that was written to a file and read from it."""
    opened.keeper.enable()
    opened.keeper.plan().write(path / "plan.json")
    return read_plan(path / "plan.json")


def test_exactly_what_was_planned_leaves(database: Database, tmp_path: Path) -> None:
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(8)], (100, "done", ago(6.9)), (101, "queued", ago(30)))
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        sweep = opened.keeper.apply(plan, pace=SMALL)
        [swept] = sweep.rules
        assert (swept.outcome, swept.counts) == (Outcome.DONE, {"job": 8})
        assert opened.ids() == [100, 101]
        [entry] = opened.trail()
        assert (entry.rows, entry.run, entry.cutoff) == (8, sweep.run, plan.made_at - WEEK)


def test_a_row_that_became_due_later_stays(database: Database, tmp_path: Path) -> None:
    """Its timestamp is after the frozen cutoff and before the one of now."""
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        late = round((plan.made_at - WEEK).timestamp() * 1_000) + 1
        jobs(database, (2, "done", late), create=False)
        while opened.keeper.store.now() <= plan.made_at + timedelta(milliseconds=5):
            pass
        assert opened.keeper.apply(plan, pace=SMALL).rules[0].rows == 1
        assert opened.ids() == [2]
        assert opened.keeper.sweep(pace=SMALL).rules[0].rows == 1


def test_a_row_that_appeared_since_is_a_refusal(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        jobs(database, (2, "done", ago(40)), create=False)
        with pytest.raises(PlanError, match=r"job.old: the plan lists 1 rows, and at least 2 are due by it now"):
            opened.keeper.apply(plan, pace=SMALL)
        assert opened.ids() == [1, 2]
        assert opened.trail() == []


def test_rows_that_are_gone_since_are_no_problem(database: Database, tmp_path: Path) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(5)])
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        database.execute("DELETE FROM job WHERE id = 1")
        database.execute("UPDATE job SET state = 'queued' WHERE id = 2")
        opened.keeper.hold("job", {"id": 3}, reason="a test")
        assert opened.keeper.apply(plan, pace=SMALL).rules[0].rows == 2
        assert opened.ids() == [2, 3]


def test_a_step_of_nothing_takes_nothing_and_is_reported(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(1)))
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        [swept] = opened.keeper.apply(plan, pace=SMALL).rules
        assert (swept.outcome, swept.rows, swept.batches) == (Outcome.DONE, 0, 1)
        [entry] = opened.trail()
        assert (entry.rows, entry.counts) == (0, {"job": 0})


def test_rows_that_an_earlier_step_marked_do_not_leave_with_the_plan(database: Database, tmp_path: Path) -> None:
    """The marked ones are older; the plan read the others."""
    jobs(database, (1, "done", ago(100)), (2, "done", ago(90)), (3, "cleaned", ago(60)), (4, "cleaned", ago(55)))
    with keeping(database, MARKING) as opened:
        plan = planned(opened, tmp_path)
        assert [step.due.rows for step in plan.steps if step.due] == [2, 2]
        sweep = opened.keeper.apply(plan, pace=SMALL)
        assert {one.rule: one.rows for one in sweep.rules} == {"cleaned": 2, "gone": 2}
        assert database.query("SELECT id, state FROM job ORDER BY id") == [(1, "cleaned"), (2, "cleaned")]


def guarded() -> tuple[Table, Table]:
    return (
        table("note", rule("old", when=()), state=None),
        table("job", rule(unless=[referenced_by("note.job_id")])),
    )


def test_rows_that_an_earlier_step_freed_do_not_leave_with_the_plan(database: Database, tmp_path: Path) -> None:
    """Job 1 is older than job 2, but a note saved it when the plan was made; the note leaves with the same plan."""
    jobs(database, (1, "done", ago(40)), (2, "done", ago(30)))
    notes(database)
    database.execute("ALTER TABLE note ADD COLUMN at_ms bigint")
    insert(database, "note", "id, job_id, at_ms", (1, 1, ago(20)))
    with keeping(database, *guarded()) as opened:
        plan = planned(opened, tmp_path)
        opened.keeper.apply(plan, pace=SMALL)
        assert (opened.ids(), opened.ids("note")) == ([1], [])
        assert opened.keeper.sweep(pace=SMALL).rules[1].rows == 1


def test_followers_leave_with_planned_rows_in_ordinary_batches(database: Database, tmp_path: Path) -> None:
    """One row with forty followers is one row of the plan, and not forty batches of one."""
    jobs(database, (1, "done", ago(30)))
    notes(database, *[(n, 1, "x") for n in range(40)])
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        plan = planned(opened, tmp_path)
        [swept] = opened.keeper.apply(plan, pace=FAST).rules
        assert (swept.counts, swept.batches) == ({"job": 1, "note": 40}, 1)


def test_caps_are_applied_as_planned(database: Database, tmp_path: Path) -> None:
    jobs(database, *[(n, "done", ago(n)) for n in range(10)])
    with keeping(database, table("job", rule("cap", Cap(AT, 4), when=["done"]))) as opened:
        plan = planned(opened, tmp_path)
        assert opened.keeper.apply(plan, pace=SMALL).rules[0].rows == 6
        assert opened.ids() == [0, 1, 2, 3]


def test_only_planned_steps_are_applied(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)), (2, "failed", ago(30)))
    declared = table("job", rule("done", when=["done"]), rule("failed", when=["failed"]))
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        plan = opened.keeper.plan("job.failed")
        assert [one.rule for one in opened.keeper.apply(plan, pace=SMALL).rules] == ["failed"]
        assert opened.ids() == [1]


def test_a_plan_needs_no_approval_but_an_open_gate(database: Database, tmp_path: Path) -> None:
    """The user who applies a plan has read it; the gates are for everybody."""
    jobs(database, *[(n, "done", ago(30)) for n in range(1_200)])
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        opened.keeper.disable()
        [swept] = opened.keeper.apply(plan, pace=FAST).rules
        assert (swept.outcome, swept.rows) == (Outcome.OFF, 0)
        opened.keeper.enable()
        assert opened.keeper.apply(plan, pace=FAST).rules[0].rows == 1_200


def stating(plan: Plan, due: Count | None) -> Plan:
    return replace(plan, steps=tuple(replace(step, due=due) for step in plan.steps))


@pytest.mark.parametrize("exactness", list(Exactness))
def test_no_more_rows_leave_than_the_plan_states_however_it_was_counted(
    database: Database, tmp_path: Path, exactness: Exactness
) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(5)])
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        with pytest.raises(
            PlanError, match=r"job.old: the plan lists 4 rows.*, and at least 5 are due by it now"
        ) as reported:
            opened.keeper.apply(stating(plan, Count(4, exactness)), pace=SMALL)
        assert ("--seconds" in reported.value.hint) == (exactness is not Exactness.EXACT)
        assert (opened.trail(), len(opened.ids())) == ([], 5)

        def insert_once(event: Event) -> None:
            if isinstance(event, BatchTaken) and len(opened.ids()) == 2:
                jobs(database, *[(n, "done", ago(20)) for n in range(10, 20)], create=False)

        with keeping(database, listener=insert_once) as busy:
            assert busy.keeper.apply(stating(plan, Count(6, exactness)), pace=SMALL).rules[0].rows == 6
        assert len(opened.ids()) == 9


def test_a_step_that_states_no_number_is_refused(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        refused(
            opened, stating(planned(opened, tmp_path), None), "job.old: the plan does not state how many rows are due"
        )


@pytest.mark.parametrize("exactness", list(Exactness))
def test_a_step_that_cannot_be_recounted_in_time_is_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exactness: Exactness
) -> None:
    jobs(database)
    database.execute(f"INSERT INTO job (id, state, at_ms) SELECT n, 'done', {ago(30)} + n FROM {numbers(50_000)}")
    monkeypatch.setattr("wane._prune.apply.COUNT_SECONDS", 0.0)
    with keeping(database) as opened:
        plan = stating(planned(opened, tmp_path), Count(50_000, exactness))
        with pytest.raises(PlanError, match="did not finish in 0 seconds") as reported:
            opened.keeper.apply(plan, pace=FAST)
        assert "wane sweep job.old --approve job.old" in reported.value.hint
        assert opened.trail() == []


# --- Refusals -------------------------------------------------------------------------------------------------------


def refused(opened: Keeping, plan: Plan, reported: str) -> None:
    with pytest.raises(PlanError, match=reported) as caught:
        opened.keeper.apply(plan, pace=SMALL)
    assert caught.value.hint
    assert opened.ids() == [1]
    assert opened.trail() == []


def test_a_plan_of_another_contract_is_refused(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
    with keeping(database, table("job", rule(bound=Age(AT, timedelta(days=8))))) as opened:
        refused(opened, plan, "the contract is not the one that the plan was made with")


def test_a_plan_of_another_database_is_refused(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        refused(opened, replace(plan, database=plan.database + "0"), "another database")


def test_an_old_plan_is_refused(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        opened.keeper.enable()
        old = opened.keeper.plan(now=opened.keeper.store.now() - timedelta(hours=25))
        refused(opened, old, "25 hours old")
        young = opened.keeper.plan(now=opened.keeper.store.now() - timedelta(hours=23))
        assert opened.keeper.apply(young, pace=SMALL).rules[0].rows == 1


def test_a_plan_for_a_time_to_come_is_refused(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(1)))
    with keeping(database) as opened:
        opened.keeper.enable()
        ahead = opened.keeper.plan(now=opened.keeper.store.now() + timedelta(days=30))
        assert ahead.due == 1
        refused(opened, ahead, "has not come yet")


def test_a_plan_with_problems_is_refused(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database, table(), table("missing")) as opened:
        plan = planned(opened, tmp_path)
        assert plan.problems
        refused(opened, plan, "rules that do not fit the database")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', "null", '{"format": 99}'])
def test_a_damaged_plan_is_no_plan(tmp_path: Path, damage: str) -> None:
    (tmp_path / "plan.json").write_text(damage)
    with pytest.raises(PlanError):
        read_plan(tmp_path / "plan.json")


def test_a_plan_that_was_applied_takes_nothing_more(database: Database, tmp_path: Path) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        plan = planned(opened, tmp_path)
        opened.keeper.apply(plan, pace=SMALL)
        assert opened.keeper.apply(plan, pace=SMALL).rules[0].rows == 0
        assert [entry.rows for entry in opened.trail()] == [1, 0]
