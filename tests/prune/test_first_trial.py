"""What a first trial tripped over: each of these must answer clearly and change nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from prune.keeping import EXPIRES, JOB, ago, follower, jobs, keeping, rule, table
from servers import Database, PostgresDatabase
from wane.errors import UnknownTable, WrongArgument, WrongArgumentType


@pytest.mark.parametrize("act", ["consume", "discard"])
def test_the_applications_own_acts_do_not_change_append_only_tables(database: Database, act: str) -> None:
    database.script(JOB.replace("parent_id integer", "parent_id integer, expires_ms bigint"))
    database.execute("INSERT INTO job (id, state, at_ms, expires_ms) VALUES (1, 'done', ?, ?)", [ago(30), ago(-1)])
    declared = table("job", rule("old", EXPIRES), append_only=True, scheduler=None)
    with keeping(database, declared) as opened:
        with pytest.raises(WrongArgument, match="job is append-only: only an explicit, audited prune deletes from it"):
            getattr(opened.keeper, act)("job", {"id": 1})
        assert opened.ids() == [1]


def test_a_cutoff_in_the_future_is_refused(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        now = opened.keeper.store.now()
        with pytest.raises(WrongArgument, match="older_than is in the future"):
            opened.keeper.prune("job", states=["done"], older_than=now + timedelta(hours=1), limit=10)
        assert opened.ids() == [1]
        # A caller's clock may be a little ahead.
        assert opened.keeper.prune("job", states=["done"], older_than=now + timedelta(seconds=5), limit=10).rows == 1


def test_a_text_of_approvals_is_refused(database: Database) -> None:
    jobs(database)
    with keeping(database) as opened, pytest.raises(WrongArgumentType, match="approve must be a list of rules"):
        opened.keeper.sweep(approve="job.old")


def test_a_follower_is_reported_with_whom_it_leaves(database: Database) -> None:
    jobs(database)
    database.script("CREATE TABLE note (id integer PRIMARY KEY, job_id integer)")
    follows = [follower("note.job_id")]
    declared = table("job", rule(followers=follows), rule("failed", when=("failed",), followers=follows))
    with (
        keeping(database, declared) as opened,
        pytest.raises(UnknownTable, match=r"its rows leave with those of job\.old, job\.failed\n  hint: name a table"),
    ):
        opened.keeper.prune("note", rule="old", limit=1)


def test_a_plan_carries_what_every_prune_would_refuse(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    database.script("CREATE TABLE note (id integer PRIMARY KEY, job_id integer REFERENCES job (id))")
    with keeping(database) as opened:
        plan = opened.keeper.plan()
        assert [finding.code for finding in plan.problems] == ["unguarded-reference"]
        assert [step.due.rows for step in plan.steps if step.due is not None] == [1]


def test_rows_left_because_others_have_locked_them_are_stated_to_be(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(30)), (2, "done", ago(20)))
    with keeping(postgres_database) as opened, postgres_database.connect() as other:
        with other.transaction():
            other.execute("SELECT 1 FROM job WHERE id = 1 FOR UPDATE")
            pruned = opened.keeper.prune("job", rule="old", limit=10)
        assert (pruned.counts, pruned.skipped_locked) == ({"job": 1}, True)
        assert opened.ids() == [1]
        assert opened.keeper.prune("job", rule="old", limit=10).skipped_locked is False
