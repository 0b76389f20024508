"""Explicit calls: a cutoff of one's own, with the guards and followers that the contract gives those states, and
nothing that no rule lets go."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from prune.keeping import (
    AT,
    DAY,
    EXPIRES,
    KEEP_WEEK,
    WEEK,
    ago,
    follower,
    insert,
    jobs,
    keeping,
    notes,
    referenced_by,
    rule,
    table,
    timestamp,
)
from servers import Database
from wane._contract.duration import FOREVER
from wane._contract.model import (
    Action,
    Age,
    Follower,
    Mark,
    Orphans,
    Rule,
    Table,
    Time,
    ToArchive,
    ToColdTier,
    Unit,
    WhileNotNull,
    WhileNull,
)
from wane._prune.pace import FAST
from wane.errors import WrongArgument

NOW = datetime.now(UTC)


def test_an_explicit_cutoff_replaces_the_rules(database: Database) -> None:
    jobs(database, (1, "done", ago(3)), (2, "done", ago(1)), (3, "queued", ago(3)))
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 0
        assert opened.keeper.prune("job", states=["done"], older_than=timestamp(ago(2)), limit=10).rows == 1
        assert opened.ids() == [2, 3]


def test_only_the_named_states_go(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "failed", ago(30)), (3, "lost", ago(30)))
    with keeping(database, table("job", rule(when=["done", "failed", "lost"]))) as opened:
        assert opened.keeper.prune("job", states=("failed", "lost"), older_than=NOW, limit=10).rows == 2
        assert opened.ids() == [1]


def test_states_of_several_rules_apply_the_guards_of_all(database: Database) -> None:
    jobs(database, *[(n, "done" if n % 2 else "failed", ago(30)) for n in range(6)])
    database.execute("UPDATE job SET resolved_ms = 1 WHERE id > 1")
    notes(database, *[(n, n, "x") for n in range(6)])
    database.execute("CREATE TABLE reply (id integer NOT NULL PRIMARY KEY, job_id integer)")
    insert(database, "reply", "id, job_id", (1, 4), (2, 5))
    with_notes = [follower("note.job_id")]
    declared = table(
        "job",
        rule("done", KEEP_WEEK, when=["done"], unless=[WhileNull("resolved_ms")], followers=with_notes),
        rule("failed", Age(AT, DAY), when=["failed"], unless=[referenced_by("reply.job_id")], followers=with_notes),
    )
    with keeping(database, declared) as opened:
        pruned = opened.keeper.prune("job", states=["done", "failed"], older_than=NOW, limit=10)
        assert pruned.counts == {"job": 2, "note": 2}
        assert (opened.ids(), opened.ids("note")) == ([0, 1, 4, 5], [0, 1, 4, 5])
        assert pruned.rule is None


def two_rules_of_one_state(database: Database) -> list[Rule]:
    """Return two rules; rows 1 to 4 are done, old and without a parent: 1 is locked, 2 is unresolved, 3 is referred to,
    4 is free."""
    jobs(database, *[(n, "done", ago(30)) for n in range(1, 5)])
    database.execute("UPDATE job SET tenant = 'somebody' WHERE id = 1")
    database.execute("UPDATE job SET resolved_ms = 1 WHERE id <> 2")
    notes(database, (1, 3, "x"))
    return [
        rule("year", unless=[WhileNull("resolved_ms")]),
        rule("week", unless=[WhileNotNull("tenant"), referenced_by("note.job_id")]),
    ]


@pytest.mark.parametrize("turn", [1, -1], ids=["one order", "the other"])
@pytest.mark.parametrize("orphans", [False, True], ids=["by age", "orphans"])
def test_every_rule_of_a_state_guards_its_rows(database: Database, orphans: bool, turn: int) -> None:
    rules = two_rules_of_one_state(database)[::turn]
    if orphans:
        rules = [replace(one, bound=Orphans(AT, WEEK, "parent_id")) for one in rules]
    with keeping(database, table("job", *rules)) as opened:
        prune = opened.keeper.prune_orphans if orphans else opened.keeper.prune
        preview = opened.keeper.preview("job", states=["done"], older_than=NOW, orphans=orphans)
        assert preview.due is not None
        assert preview.due.rows == 1
        assert prune("job", states=["done"], older_than=NOW, limit=10).rows == 1
        assert opened.ids() == [1, 2, 3]


@pytest.mark.parametrize("turn", [1, -1], ids=["one order", "the other"])
@pytest.mark.parametrize("when", ["done", "failed"], ids=["one state", "two states"])
@pytest.mark.parametrize(
    "other", [[], [follower("note.job_id", where={"kind": "y"})]], ids=["no followers", "other followers"]
)
def test_rules_with_different_followers_need_a_call_each(
    database: Database, other: list[Follower], when: str, turn: int
) -> None:
    """A row that no rule for its state lets leave along stays."""
    jobs(database, (1, "done", ago(30)), (2, when, ago(30)))
    notes(database, (1, 1, "x"), (2, 2, "y"))
    rules = [rule("all", followers=[follower("note.job_id")]), rule("some", when=[when], followers=other)][::turn]
    states = list(dict.fromkeys(["done", when]))
    with keeping(database, table("job", *rules)) as opened:
        with pytest.raises(
            WrongArgument, match=r"of job let different rows leave along \(`with`\)\n  hint: prune by one"
        ):
            opened.keeper.prune("job", states=states, older_than=NOW, limit=10)
        assert (opened.ids(), opened.ids("note"), opened.trail()) == ([1, 2], [1, 2], [])
        assert opened.keeper.prune("job", rule="all", limit=10).rows > 0


@pytest.mark.parametrize("turn", [1, -1], ids=["one order", "the other"])
@pytest.mark.parametrize("then", [ToArchive(), ToColdTier("cold")], ids=["archive", "database"])
def test_rows_that_one_rule_archives_are_not_pruned_by_another(database: Database, then: Action, turn: int) -> None:
    jobs(database, (1, "done", ago(30)))
    rules = [rule("gone", Age(AT, timedelta(days=365))), rule("cold", then=then)][::turn]
    with keeping(database, table("job", *rules)) as opened:
        with pytest.raises(WrongArgument, match=r"job\.cold moves rows to the archive"):
            opened.keeper.prune("job", states=["done"], older_than=NOW, limit=10)
        assert opened.ids() == [1]


@pytest.mark.parametrize("turn", [1, -1], ids=["one order", "the other"])
def test_orphans_of_different_references_need_a_rule(database: Database, turn: int) -> None:
    jobs(database, (1, "done", ago(30)))
    rules = [rule(name, Orphans(AT, WEEK, name)) for name in ("parent_id", "tenant")][::turn]
    with keeping(database, table("job", *rules)) as opened:
        with pytest.raises(WrongArgument, match="age by different columns"):
            opened.keeper.prune_orphans("job", states=["done"], older_than=NOW, limit=10)
        assert opened.ids() == [1]


def test_states_that_age_by_different_columns_need_a_call_each(database: Database) -> None:
    jobs(database)
    declared = table(
        "job", rule("done"), rule("failed", Age(Time("resolved_ms", Unit.MILLISECONDS), DAY), when=["failed"])
    )
    with keeping(database, declared) as opened, pytest.raises(WrongArgument, match="age by different columns"):
        opened.keeper.prune("job", states=["done", "failed"], older_than=NOW, limit=10)


@pytest.mark.parametrize(
    ("states", "reported"),
    [
        (["queued"], "'queued' is a live state of job"),
        (["done", "queued"], "'queued' is a live state of job"),
        (["dine"], r"no rule of job prunes rows in the state 'dine' by age\n  hint: did you mean"),
        (["marked"], "no rule of job prunes rows in the state 'marked' by age"),
        (["leased"], "no rule of job prunes rows in the state 'leased' by age"),
        (["cold"], "job.cold moves rows to the archive"),
        (["kept"], "no rule of job prunes rows in the state 'kept' by age"),
        ([1], "no rule of job prunes rows in the state 1 by age"),
    ],
)
def test_what_no_rule_prunes_by_age_is_refused(database: Database, states: list[str], reported: str) -> None:
    jobs(database, *[(n, state, ago(300)) for n, state in enumerate(["done", "queued", "marked", "leased", "cold"])])
    database.execute("ALTER TABLE job ADD COLUMN expires_ms bigint")
    declared = table(
        "job",
        rule("done"),
        rule("marked", when=["marked"], then=Mark("done")),
        rule("leased", EXPIRES, when=["leased"]),
        rule("cold", when=["cold"], then=ToArchive()),
        rule("kept", FOREVER, when=["kept"]),
    )
    with keeping(database, declared) as opened:
        with pytest.raises(WrongArgument, match=reported):
            opened.keeper.prune("job", states=states, older_than=NOW, limit=10)
        assert opened.ids() == [0, 1, 2, 3, 4]
        assert opened.trail() == []


@pytest.mark.parametrize(
    ("name", "reported"), [("cold", "moves rows to the archive"), ("kept", "keeps its rows forever")]
)
def test_rules_that_do_not_prune_are_refused_by_name(database: Database, name: str, reported: str) -> None:
    jobs(database, (1, "cold", ago(30)), (2, "kept", ago(30)))
    declared = table("job", rule("cold", when=["cold"], then=ToArchive()), rule("kept", FOREVER, when=["kept"]))
    with keeping(database, declared) as opened:
        with pytest.raises(WrongArgument, match=reported):
            opened.keeper.prune("job", rule=name, limit=10)
        assert opened.ids() == [1, 2]


def test_a_table_without_states_needs_none(database: Database) -> None:
    jobs(database, (1, "x", ago(3)), (2, "y", ago(1)))
    with keeping(database, table("job", rule(when=()), state=None)) as opened:
        assert opened.keeper.prune("job", older_than=timestamp(ago(2)), limit=10).rows == 1
        assert opened.trail()[0].inputs == {"states": [], "older_than": timestamp(ago(2)).isoformat(), "limit": 10}


def test_a_table_with_states_prompts_for_them(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        with pytest.raises(
            WrongArgument, match=r"job has states: pass those that may leave\n  hint: states with rules: 'done'"
        ):
            opened.keeper.prune("job", older_than=NOW, limit=10)
        assert opened.ids() == [1]


def test_no_call_goes_under_a_floor(database: Database) -> None:
    jobs(database, (1, "done", ago(91)), (2, "done", ago(89)))
    declared = table("job", rule(bound=Age(AT, timedelta(days=100))))
    with keeping(database, declared, floors=[("job", timedelta(days=90))]) as opened:
        with pytest.raises(WrongArgument, match="under the floor of 90d"):
            opened.keeper.prune("job", states=["done"], older_than=timestamp(ago(88)), limit=10)
        assert opened.ids() == [1, 2]
        assert opened.keeper.prune("job", states=["done"], older_than=timestamp(ago(90.5)), limit=10).rows == 1
        assert opened.ids() == [2]


# --- Append-only ----------------------------------------------------------------------------------------------------


def append_only() -> Table:
    return table("job", rule(), append_only=True, scheduler=None)


def test_an_append_only_table_loses_rows_by_explicit_calls_only(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(20)))
    with keeping(database, append_only()) as opened:
        opened.keeper.enable()
        assert opened.keeper.sweep(pace=FAST).rules == ()
        assert opened.keeper.sweep("job", "job.old", pace=FAST).rules == ()
        assert opened.keeper.apply(opened.keeper.plan(), pace=FAST).rules == ()
        assert opened.ids() == [1, 2]
        assert opened.trail() == []
        assert opened.keeper.prune("job", states=["done"], older_than=timestamp(ago(25)), limit=10).rows == 1
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
        assert len(opened.trail()) == 2


# --- Orphans --------------------------------------------------------------------------------------------------------

ORPHANS = table("job", rule("orphans", Orphans(AT, WEEK, "parent_id"), when=()), state=None)


def with_parents(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)], (9, "done", ago(1)))
    database.execute("UPDATE job SET parent_id = id WHERE id IN (1, 2)")


def test_only_rows_without_a_parent_leave(database: Database) -> None:
    with_parents(database)
    with keeping(database, ORPHANS) as opened:
        pruned = opened.keeper.prune_orphans("job", older_than=timestamp(ago(25)), limit=1)
        assert (pruned.kind, pruned.counts, pruned.rule) == ("prune_orphans", {"job": 1}, None)
        assert opened.ids() == [1, 2, 3, 9]
        assert opened.keeper.prune_orphans("job", older_than=timestamp(ago(25)), limit=10).rows == 1
        assert opened.keeper.prune_orphans("job", older_than=NOW, limit=10).rows == 1
        assert opened.ids() == [1, 2]
        [first, *_] = opened.trail()
        assert (first.kind, first.rule, first.cutoff) == ("prune_orphans", None, timestamp(ago(25)))
        assert first.inputs == {"states": [], "older_than": timestamp(ago(25)).isoformat(), "limit": 1}
        assert len(opened.keeper.audit(kind="prune_orphans")) == 3


def test_orphans_leave_by_their_rule_too(database: Database) -> None:
    with_parents(database)
    with keeping(database, ORPHANS) as opened:
        assert opened.keeper.prune("job", rule="orphans", limit=10).rows == 2
        assert opened.ids() == [1, 2, 9]


def test_orphans_of_a_table_with_states_are_those_of_the_rules_states(database: Database) -> None:
    with_parents(database)
    database.execute("UPDATE job SET state = 'queued' WHERE id = 3")
    declared = table("job", rule("orphans", Orphans(AT, WEEK, "parent_id"), when=["done"]), rule())
    with keeping(database, declared) as opened:
        assert opened.keeper.prune_orphans("job", older_than=NOW, limit=10).rows == 2
        assert opened.ids() == [1, 2, 3]
        with pytest.raises(WrongArgument, match="live state"):
            opened.keeper.prune_orphans("job", states=["queued"], older_than=NOW, limit=10)
        assert opened.trail()[0].inputs["states"] == ["done"]


def test_a_table_without_a_rule_for_orphans_has_none(database: Database) -> None:
    with_parents(database)
    with keeping(database) as opened:
        with pytest.raises(WrongArgument, match="no rule of job prunes orphans by age"):
            opened.keeper.prune_orphans("job", older_than=NOW, limit=10)
        assert opened.ids() == [0, 1, 2, 3, 9]


def test_orphans_are_no_way_around_a_rule_by_age(database: Database) -> None:
    """A rule for orphans does not let rows with a parent go."""
    with_parents(database)
    with keeping(database, ORPHANS) as opened:
        with pytest.raises(WrongArgument, match="no rule of job prunes rows by age"):
            opened.keeper.prune("job", older_than=NOW, limit=10)
        assert opened.ids() == [0, 1, 2, 3, 9]
