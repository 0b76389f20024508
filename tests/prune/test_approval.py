"""Approving what the fuse stopped: the plan that was reviewed may leave in unattended sweeps, once, and nothing
else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from covering import numbers
from prune.keeping import Keeping, ago, jobs, keeping, rule, table
from servers import Database
from wane._contract.settings import Budget, SweepSettings
from wane._prune.approval import FuseReview
from wane._prune.pace import FAST
from wane._prune.sweep import Outcome, SweptRule
from wane.errors import PlanError, UnknownRule, WrongArgument

DUE = 60
FUSED = SweepSettings(fuse_rows=20)
TWO = table("job", rule("done", when=["done"]), rule("failed", when=["failed"]))


@pytest.fixture
def opened(database: Database) -> Iterator[Keeping]:
    """Yield a keeper: sixty rows are due, thirty under each of two rules, and two live ones stay."""
    rows = [(n, ("done", "failed")[n % 2], ago(60)) for n in range(DUE)]
    jobs(database, *rows, (900, "queued", ago(60)), (901, "queued", ago(60)))
    with keeping(database, TWO, sweep=replace(FUSED, first_fuse=0.4)) as opened:
        opened.keeper.enable()
        yield opened


def sweep(opened: Keeping, name: str = "job.done") -> SweptRule:
    [swept] = opened.keeper.sweep(name, pace=FAST).rules
    return swept


def codes(opened: Keeping) -> list[str]:
    return [
        f"{one.code} {one.path.rpartition('.')[2]}" for one in opened.keeper.check_live() if one.code == "fused-rule"
    ]


def test_an_approved_plan_leaves_once_and_is_in_the_audit_trail(opened: Keeping) -> None:
    assert sweep(opened).outcome is Outcome.FUSED
    review = opened.keeper.review()
    assert [(one.name, one.step.due.rows if one.step.due else None) for one in review.rules] == [
        ("job.done", 30),
        ("job.failed", 30),
    ]
    assert all(one.step.oldest is not None and one.step.share == 30 / 62 for one in review.rules)
    first, second = opened.keeper.approve(review)
    assert first.plan != second.plan
    assert opened.keeper.approvals() == [first, second]
    swept = sweep(opened)
    assert (swept.outcome, swept.rows) == (Outcome.DONE, 30)
    assert opened.keeper.approvals() == [second]
    *approved, taken = opened.trail()
    assert (taken.inputs["plan"], taken.kind) == (first.plan, "prune")
    assert [(one.kind, one.inputs["rule"], one.inputs["rows"], one.rows) for one in approved] == [
        ("approve", "done", 30, 0),
        ("approve", "failed", 30, 0),
    ]
    jobs(opened.database, *[(n, "done", ago(60)) for n in range(100, 160)], create=False)
    opened.database.execute("DELETE FROM job WHERE state <> 'done'")
    assert sweep(opened).outcome is Outcome.FUSED, "an approval is for one completed sweep"


def test_rows_that_become_due_after_the_review_do_not_leave_by_it(opened: Keeping) -> None:
    jobs(opened.database, *[(n, "done", ago(7.1)) for n in range(100, 110)], create=False)
    review = opened.keeper.review("job.done")
    opened.keeper.approve(replace(review, made_at=review.made_at - timedelta(hours=12)))
    swept = sweep(opened)
    assert (swept.outcome, swept.rows) == (Outcome.DONE, 30)
    assert opened.database.query("SELECT count(*) FROM job WHERE state = 'done'") == [(10,)]


def test_a_plan_by_which_more_is_due_now_is_not_the_one_that_was_approved(opened: Keeping) -> None:
    opened.keeper.approve(opened.keeper.review("job.done"))
    jobs(opened.database, (100, "done", ago(60)), create=False)
    swept = sweep(opened)
    assert (swept.outcome, swept.rows) == (Outcome.FUSED, 0)
    assert (
        "has 30 rows, and more are due by it now: review and approve it with `wane approve job.done`" in swept.message
    )
    assert codes(opened) == ["fused-rule done"], "the approval is in force, and the rule is stopped all the same"


def test_a_budget_spreads_an_approved_plan_over_several_sweeps(opened: Keeping) -> None:
    opened.keeper.approve(opened.keeper.review("job.done"))
    opened.database.execute("DELETE FROM job WHERE state <> 'done'")  # Nine tenths are due also after a first sweep.
    taken = []
    for _ in range(4):
        [swept] = opened.keeper.sweep("job.done", pace=FAST, budget=Budget(rows=9)).rules
        taken.append((swept.outcome, swept.rows))
    assert taken == [(Outcome.BUDGET, 9), (Outcome.BUDGET, 9), (Outcome.BUDGET, 9), (Outcome.DONE, 3)]
    assert opened.keeper.approvals() == []


def test_an_approval_ends_when_it_expires_is_revoked_or_the_contract_changes(opened: Keeping) -> None:
    keeper, own = opened.keeper, opened.keeper.store.dialect.own_table("fuse")
    keeper.approve(keeper.review("job.done"))
    other = replace(keeper.contract, tables=(replace(TWO, rules=(rule("done", when=["done"]),)),))
    with keeping(opened.database, *other.tables, sweep=keeper.contract.sweep) as changed:
        assert changed.keeper.approvals() == []
        assert sweep(changed).outcome is Outcome.FUSED
    [revoked] = keeper.revoke()
    assert sweep(opened).outcome is Outcome.FUSED
    assert [(one.kind, one.inputs["plan"]) for one in opened.trail()][-1] == ("revoke", revoked.plan)
    keeper.approve(keeper.review("job.done"), expires_after=timedelta(seconds=1))
    past = keeper.store.dialect.encode_time(keeper.store.now() - timedelta(minutes=1))
    opened.database.execute(f"UPDATE {own} SET expires_at = '{past}'")
    assert keeper.approvals() == []
    assert sweep(opened).outcome is Outcome.FUSED


def test_a_rule_that_is_stopped_is_no_green_light(opened: Keeping) -> None:
    assert codes(opened) == []
    sweep(opened)
    assert codes(opened) == ["fused-rule done"]
    [finding] = [one for one in opened.keeper.health().findings if one.code == "fused-rule"]
    assert finding.fix == "review and approve it: `wane approve job.done`"
    assert (
        "30 of 62 rows are due (48.4%), and the first sweep of a rule may take 40% of a table without approval"
        in finding.message
    )
    opened.keeper.approve(opened.keeper.review())
    assert codes(opened) == []
    sweep(opened)
    assert codes(opened) == []
    assert opened.database.query(f"SELECT rule FROM {opened.keeper.store.dialect.own_table('fuse')}") == [("failed",)]


def test_an_attended_sweep_ends_the_alarm_too(opened: Keeping) -> None:
    sweep(opened)
    opened.keeper.sweep("job.done", approve=["job"], pace=FAST)
    assert codes(opened) == []


def test_what_cannot_be_counted_is_listed_and_not_approved(opened: Keeping) -> None:
    large = f"INSERT INTO job (id, state, at_ms) SELECT n + 1000, 'done', {ago(60)} FROM {numbers(50_000)}"
    opened.database.execute(large)
    review = opened.keeper.review("job.done", seconds=0.0)
    [one] = review.rules
    assert (one.plan, opened.keeper.approve(review)) == (None, [])
    assert "did not finish in 0 seconds" in one.reason


def test_an_approval_of_another_review_or_for_ever_is_refused(opened: Keeping) -> None:
    review = opened.keeper.review("job.done")
    for wrong in (replace(review, contract="0" * 16), replace(review, database="another")):
        with pytest.raises(PlanError, match="another contract or another database"):
            opened.keeper.approve(wrong)
    for length in (timedelta(0), timedelta(days=91), timedelta(days=-1)):
        with pytest.raises(WrongArgument, match="an approval may not last"):
            opened.keeper.approve(review, expires_after=length)
    with pytest.raises(UnknownRule, match="has no rule 'dome'"):
        opened.keeper.review("job.dome")
    assert (opened.keeper.approvals(), opened.trail()) == ([], [])


def test_a_review_is_empty_where_the_fuse_stops_nothing(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))
    with keeping(database) as opened:
        review = opened.keeper.review()
        assert isinstance(review, FuseReview)
        assert (review.rules, opened.keeper.approve(review), opened.keeper.revoke()) == ((), [], [])
