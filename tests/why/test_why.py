"""`keeper.why`: what happens to one row, and what is known of one that is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

import wane
from prune.keeping import (
    AT,
    EXPIRES,
    KEEP_WEEK,
    WEEK,
    Keeping,
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
from wane._contract.model import Age, Cap, Excuse, ExcuseKind, Mark, Orphans, WhileNull
from wane._contract.settings import Budget, SweepSettings
from wane._why.model import RowVerdict, WhyRow
from wane.errors import UnknownTable, WrongArgument


def unmet(why: WhyRow, number: int = 0) -> list[str]:
    return [one.kind for one in why.rules[number].conditions if not one.met]


def test_a_due_row_names_its_rule_and_every_condition(database: Database) -> None:
    jobs(database, (1, "done", ago(8)), (2, "done", ago(3)))
    with keeping(database) as opened:
        opened.keeper.enable()
        why = opened.keeper.why("job", 1)
        assert (why.verdict, why.summary) == (RowVerdict.DUE, "old deletes it with the next sweep")
        [found] = why.rules
        assert [(one.kind, one.requires, one.met) for one in found.conditions] == [
            ("state", "state is 'done'", True),
            ("time", "at_ms is a timestamp as declared", True),
            ("bound", "at_ms is before the cutoff, 7d ago", True),
            ("hold", "neither it nor its table is held", True),
        ]
        assert found.conditions[0].values == {"state": "done"}
        assert found.time == timestamp(ago(8))
        assert found.due_at == timestamp(ago(1))
        assert found.cutoff == why.answered_at - WEEK
        opened.keeper.sweep()
        assert opened.ids() == [2]


def test_a_young_row_is_waiting_until_its_window_ends(database: Database) -> None:
    jobs(database, (2, "done", ago(3)))
    with keeping(database) as opened:
        why = opened.keeper.why("job", {"id": 2})
        assert (why.verdict, unmet(why)) == (RowVerdict.WAITING, ["bound"])
        assert why.rules[0].due_at == timestamp(ago(-4))
        assert why.summary.endswith("7d after its at_ms")
        assert why.key == {"id": 2}


def test_flags_block_a_due_row(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    with keeping(database) as opened:
        why = opened.keeper.why("job", 1)
        assert why.verdict is RowVerdict.BLOCKED
        [obstacle] = why.rules[0].obstacles
        assert (obstacle.kind, obstacle.fix) == ("flag", "`wane enable` turns it on")
        opened.keeper.enable()
        opened.keeper.disable("job")
        assert "wane enable job" in opened.keeper.why("job", 1).rules[0].obstacles[0].fix


@pytest.mark.parametrize(
    ("state", "stated"),
    [
        ("queued", "state = 'queued' is a live state: no rule takes such a row"),
        ("parked", "state = 'parked' is excused as inline: the application deletes it"),
        ("odd", "no rule is about rows with state = 'odd'"),
    ],
)
def test_a_state_without_a_rule_retains_a_row(database: Database, state: str, stated: str) -> None:
    jobs(database, (1, state, ago(8)))
    excused = (("parked", Excuse(ExcuseKind.INLINE, "the application deletes it")),)
    with keeping(database, replace(table(), excused=excused)) as opened:
        why = opened.keeper.why("job", 1)
        assert (why.verdict, why.summary) == (RowVerdict.RETAINED, stated)


@pytest.mark.parametrize("at", [None, 5])
def test_a_row_without_a_timestamp_is_retained(database: Database, at: int | None) -> None:
    jobs(database, (1, "done", at))
    with keeping(database) as opened:
        why = opened.keeper.why("job", 1)
        assert (why.verdict, unmet(why)) == (RowVerdict.RETAINED, ["time", "bound"])
        assert [one.met for one in why.rules[0].conditions if one.kind == "bound"] == [None]
        assert why.rules[0].due_at is None


def test_guards_and_followers_that_retain_a_row_are_counted(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    notes(database, (1, 1, "a"), (2, 1, "b"))
    guarded = rule(unless=[referenced_by("note.job_id"), WhileNull("resolved_ms")])
    with keeping(database, table("job", guarded)) as opened:
        why = opened.keeper.why("job", 1)
        assert (why.verdict, unmet(why)) == (RowVerdict.RETAINED, ["guard", "guard"])
        by_column, by_note = (one for one in why.rules[0].conditions if one.kind == "guard")
        assert (by_column.requires, by_column.values) == ("resolved_ms is not NULL", {"resolved_ms": None})
        assert (by_note.requires, by_note.retaining) == ("no row of note refers to it (job_id)", 2)
        assert "it requires: no row of note refers to it (job_id), and found 2 rows" in why.summary


def test_a_live_follower_retains_its_row(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    notes(database, (1, 1, "open"))
    note = table("note", rule(when=["shut"], bound=Orphans(AT, WEEK, "job_id")), state="kind", live=["open"])
    database.execute("ALTER TABLE note ADD at_ms bigint")
    with keeping(database, table("job", rule(followers=[follower("note.job_id")])), note) as opened:
        why = opened.keeper.why("job", 1)
        assert unmet(why) == ["follower"]
        assert why.rules[0].conditions[-3].requires == "no row of note that would leave with it is 'open'"


def test_holds_on_the_row_its_table_and_its_followers_are_named(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    notes(database, (7, 1, "a"))
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        opened.keeper.hold("note", {"id": 7}, reason="dispute")
        assert unmet(opened.keeper.why("job", 1)) == ["hold"]
        hold = opened.keeper.hold("job", {"id": 1}, reason="audit")
        why = opened.keeper.why("job", 1)
        assert [(one.id, one.reason) for one in why.holds] == [(hold.id, "audit")]
        assert [one.met for one in why.rules[0].conditions if one.kind == "hold"] == [False, False]


def test_a_cap_has_no_due_time(database: Database) -> None:
    jobs(database)
    insert(database, "job", "id, state, at_ms, tenant", *((n, "done", ago(9 - n), "a") for n in (1, 2, 3)))
    insert(database, "job", "id, state, at_ms, tenant", (4, "done", ago(20), "b"))
    for per in ((), ("tenant",)):
        with keeping(database, table("job", rule("cap", Cap(AT, 2, per), when=()), state=None)) as opened:
            opened.keeper.enable()
            verdicts = {key: opened.keeper.why("job", key).verdict for key in (1, 2, 3, 4)}
            assert verdicts[3] is RowVerdict.RETAINED
            assert verdicts[1] is RowVerdict.DUE
            assert verdicts[4] is (RowVerdict.RETAINED if per else RowVerdict.DUE)
            assert opened.keeper.why("job", 3).rules[0].due_at is None


def test_the_rule_that_comes_first_decides(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    marks = rule("marked", KEEP_WEEK, then=Mark("old"))
    later = rule("later", Age(AT, WEEK + timedelta(days=5)))
    with keeping(database, table("job", later, marks)) as opened:
        opened.keeper.enable()
        why = opened.keeper.why("job", 1)
        assert (why.verdict, why.summary) == (RowVerdict.DUE, "marked marks it 'old' with the next sweep")
        assert [one.verdict.value for one in why.rules] == ["waiting", "due"]


def test_an_append_only_table_is_not_swept(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    with keeping(database, table("job", append_only=True)) as opened:
        opened.keeper.enable()
        why = opened.keeper.why("job", 1)
        assert [one.kind for one in why.rules[0].obstacles] == ["append_only"]


def test_the_fuse_blocks_until_its_plan_is_approved(database: Database) -> None:
    jobs(database, *((n, "done", ago(8 + n)) for n in range(20)))
    with keeping(database, sweep=SweepSettings(fuse_rows=10)) as opened:
        opened.keeper.enable()
        why = opened.keeper.why("job", 1)
        assert [one.kind for one in why.rules[0].obstacles] == ["fuse"]
        assert "wane approve job.old" in why.rules[0].obstacles[0].fix
        opened.keeper.approve(opened.keeper.review())
        assert opened.keeper.why("job", 1).verdict is RowVerdict.DUE


def test_a_budget_that_ends_before_the_row_blocks_it(database: Database) -> None:
    jobs(database, *((n, "done", ago(20 - n)) for n in range(1, 6)))
    with keeping(database, table("job", rule(budget=Budget(rows=3)))) as opened:
        opened.keeper.enable()
        verdicts = [opened.keeper.why("job", n).verdict.value for n in range(1, 6)]
        assert verdicts == ["due", "due", "due", "blocked", "blocked"]
        opened.keeper.sweep()
        assert opened.ids() == [4, 5]


def test_a_rule_that_does_not_fit_names_the_finding(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    notes(database, (1, 1, "a"), foreign_key="job (id) ON DELETE CASCADE")
    with keeping(database) as opened:
        why = opened.keeper.why("job", 1)
        assert (why.verdict, why.rules[0].conditions) == (RowVerdict.BLOCKED, ())
        assert why.rules[0].obstacles[0].kind == "uncounted-cascade"


def test_a_row_that_is_gone_names_what_may_have_taken_it(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    with keeping(database) as opened:
        opened.keeper.enable()
        opened.keeper.sweep()
        why = opened.keeper.why("job", 1)
        assert (why.verdict, why.rules) == (RowVerdict.GONE, ())
        assert why.gone is not None
        assert [(one.rule, one.counts) for one in why.gone.departures] == [("old", {"job": 1})]
        assert why.gone.archived is None
        assert why.gone.unknown[0].startswith("which run took it: the audit trail records how many rows left")
        assert "whether it ever existed" in why.gone.unknown[-1]


@pytest.mark.unmigrated
def test_it_answers_without_wanes_own_tables(sqlite_database: Database) -> None:
    jobs(sqlite_database, (1, "done", ago(8)))
    with keeping(sqlite_database, migrate=False) as opened:
        why = opened.keeper.why("job", 1)
        assert [one.kind for one in why.rules[0].obstacles] == ["NotMigrated"]
        gone = opened.keeper.why("job", 9).gone
        assert gone is not None
        assert gone.unknown[0] == "what left: the database does not have Wane's own tables"


def test_keys_and_tables_are_checked(database: Database) -> None:
    jobs(database, (1, "done", ago(8)))
    with keeping(database) as opened:
        with pytest.raises(WrongArgument, match="the key of job is id, not number"):
            opened.keeper.why("job", {"number": 1})
        with pytest.raises(UnknownTable, match="the contract has no table 'jop'"):
            opened.keeper.why("jop", 1)


def test_a_key_that_its_column_cannot_hold_is_refused(postgres_database: Database) -> None:
    jobs(postgres_database, (1, "done", ago(8)))
    with keeping(postgres_database) as opened:
        for key in ("one", "99999999999999999999", "1; DROP TABLE job"):
            with pytest.raises(WrongArgument, match="no row of job can have id = "):
                opened.keeper.why("job", key)


def test_an_expiry_is_due_at_its_time(database: Database) -> None:
    database.execute("CREATE TABLE token (id text PRIMARY KEY, expires_ms bigint)")
    insert(database, "token", "id, expires_ms", ("it's", ago(1)), ("b", ago(-1)))
    with keeping(database, table("token", rule("expired", EXPIRES, when=()), state=None)) as opened:
        opened.keeper.enable()
        assert opened.keeper.why("token", "it's").verdict is RowVerdict.DUE
        assert opened.keeper.why("token", "b").rules[0].due_at == timestamp(ago(-1))


def test_it_is_awaited(sqlite_database: Database) -> None:
    jobs(sqlite_database, (1, "done", ago(8)))

    async def read(opened: Keeping) -> WhyRow:
        return await wane.AsyncKeeper(opened.keeper).why("job", 1)

    with keeping(sqlite_database) as opened:
        assert asyncio.run(read(opened)).verdict is RowVerdict.BLOCKED
