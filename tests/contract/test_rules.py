"""What a good contract comes to: the promises that other modules read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from contract.cases import GOOD, STATES, TABLE, read, reported
from wane._contract.conditions import equal_to
from wane._contract.duration import FOREVER
from wane._contract.model import (
    Age,
    Bound,
    Cap,
    Contract,
    Excuse,
    ExcuseKind,
    Expiry,
    Follower,
    Longer,
    Mark,
    Orphans,
    Pick,
    Prune,
    Reference,
    ReferencedBy,
    Rule,
    State,
    Table,
    Time,
    ToArchive,
    Unit,
    WhileNotNull,
    WhileNull,
    WindowUnit,
)
from wane._contract.names import TableName
from wane._contract.settings import Budget

DAY = timedelta(days=1)
AT = Time("at")


def _chosen(pick: Pick) -> Time:
    return Time("x", Unit.SECONDS, beside=("y",), pick=pick)


def contract(folder: Path, toml: str) -> Contract:
    reading = read(folder, wane=toml)
    assert reported(reading) == ""
    assert reading.contract is not None
    return reading.contract


def table(folder: Path, toml: str) -> Table:
    return contract(folder, toml).tables[0]


def rule(folder: Path, text: str) -> Rule:
    return table(folder, f"{TABLE}[table.t.rule.r]\n{text}\n").rules[0]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ('keep = "7d"', Age(AT, 7 * DAY)),
        ('keep = "forever"', FOREVER),
        ('keep = "7d"\ntime = { column = "x", unit = "ms" }', Age(Time("x", Unit.MILLISECONDS), 7 * DAY)),
        ('keep = "7d"\ntime = { column = "x", zone = "UTC" }', Age(Time("x", Unit.NATIVE, "UTC"), 7 * DAY)),
        ('keep = "1d"\norphans = "parent"', Orphans(AT, DAY, "parent")),
        ('expires = "e"', Expiry(Time("e"))),
        ('expires = { column = "e", unit = "s" }', Expiry(Time("e", Unit.SECONDS))),
        ('keep = "7d"\ntime = { first = ["x", "y"], unit = "s" }', Age(_chosen(Pick.FIRST), 7 * DAY)),
        ('expires = { latest = ["x", "y"], unit = "s" }', Expiry(_chosen(Pick.LATEST))),
        (
            'keep = "7d"\ntime = { column = "x", child = "c.t_id" }',
            Age(Time("x", child=Reference(TableName("c"), ("t_id",))), 7 * DAY),
        ),
        (
            'expires = { column = "x", parent = { table = "s.p", columns = ["p"], to = ["id"] } }',
            Expiry(Time("x", parent=Reference(TableName("p", "s"), ("p",), ("id",)))),
        ),
        (
            'keep = "7d"\nlonger = { column = "n", unit = "h" }',
            Age(AT, 7 * DAY, Longer("n", WindowUnit.HOURS)),
        ),
        (
            'keep = "7d"\norphans = "p"\nlonger = { column = "n", unit = "s", parent = { table = "q", columns = "q_id" } }',
            Orphans(AT, 7 * DAY, "p", longer=Longer("n", WindowUnit.SECONDS, Reference(TableName("q"), ("q_id",)))),
        ),
        ("most = 500", Cap(AT, 500)),
        ('most = 500\nby = "id"', Cap(None, 500, by="id")),
        ('most = 500\nby = "seq"\nper = "tenant"', Cap(None, 500, ("tenant",), "seq")),
        ('most = 500\nper = "tenant"', Cap(AT, 500, ("tenant",))),
        ('most = 500\nper = ["tenant", "kind"]', Cap(AT, 500, ("tenant", "kind"))),
    ],
)
def test_ways_to_bound_a_table(text: str, bound: Bound, tmp_path: Path) -> None:
    assert rule(tmp_path, text).bound == bound


def test_guards_and_followers(tmp_path: Path) -> None:
    found = rule(
        tmp_path,
        """
        keep = "7d"
        unless = [
            { referenced_by = "core.outbox.t_id" },
            { referenced_by = { table = "pairs", columns = ["a", "b"], to = ["x", "y"] } },
            { null = "resolved_at" },
            { not_null = "locked_by" },
        ]
        with = [
            "reads.t_id",
            { table = "jobs", columns = "t_id", where = { queue = "webhooks", tries = 1 }, with = ["logs.job_id"] },
            { table = "runs", columns = "t_id", live = "leave" },
            { table = "lost", columns = "t_id", live = "keep" },
        ]
        """,
    )
    assert found.guards == (
        ReferencedBy(Reference(TableName("outbox", "core"), ("t_id",))),
        ReferencedBy(Reference(TableName("pairs"), ("a", "b"), ("x", "y"))),
        WhileNull("resolved_at"),
        WhileNotNull("locked_by"),
    )
    assert found.followers == (
        Follower(Reference(TableName("reads"), ("t_id",))),
        Follower(
            Reference(TableName("jobs"), ("t_id",)),
            (("queue", equal_to("webhooks")), ("tries", equal_to(1))),
            (Follower(Reference(TableName("logs"), ("job_id",))),),
        ),
        Follower(Reference(TableName("runs"), ("t_id",)), live_leaves=True),
        Follower(Reference(TableName("lost"), ("t_id",))),
    )


def test_states_stages_and_excuses(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        STATES
        + """
        excused = { sent = { inline = "at once", rows = 5 } }
        [table.t.rule.cleaned]
        when = ["done"]
        keep = "30d"
        then = { mark = "cleaned" }
        [table.t.rule.gone]
        when = ["cleaned"]
        keep = "90d"
        """,
    )
    assert (found.state, found.live) == ("status", ("new",))
    assert found.excused == (("sent", Excuse(ExcuseKind.INLINE, "at once", 5)),)
    assert [(one.name, one.states, one.action) for one in found.rules] == [
        ("cleaned", ("done",), Mark("cleaned")),
        ("gone", ("cleaned",), Prune()),
    ]


@pytest.mark.parametrize(
    ("live", "when", "excused", "state"),
    [
        ("[1]", "[2]", '"-3"', -3),
        ("[]", "[2]", "3", 3),
        ("[true]", "[false]", None, None),
        ("[]", "[true]", "false", False),
        ('["1"]', '["2"]', "3", "3"),
    ],
)
def test_excused_states_are_of_the_type_of_the_others(
    live: str, when: str, excused: str | None, state: State | None, tmp_path: Path
) -> None:
    excuse = "" if excused is None else f'excused = {{ {excused} = {{ inline = "i" }} }}\n'
    toml = STATES.replace('["new"]', live) + excuse + f'[table.t.rule.r]\nkeep = "7d"\nwhen = {when}\n'
    found = [one for one, _ in table(tmp_path, toml).excused]
    assert found == ([] if state is None else [state])
    assert [type(one) for one in found] == ([] if state is None else [type(state)])


def test_a_derived_cap_may_evict_live_rows(tmp_path: Path) -> None:
    found = table(tmp_path, STATES + '[table.t.rule.r]\nmost = 5\nderived = true\nwhen = ["new", "done"]\n').rules[0]
    assert (found.derived, found.states) == (True, ("new", "done"))


def test_budgets_take_from_the_default_what_they_leave_out(tmp_path: Path) -> None:
    assert rule(tmp_path, 'keep = "7d"').budget == Budget()
    toml = GOOD + "budget = { rows = 5 }\n[budget]\nrows = 7\nseconds = 8\n"
    assert table(tmp_path, toml).rules[0].budget == Budget(rows=5, seconds=8)


def test_an_append_only_table_needs_no_scheduler_and_may_take_append_only_followers(tmp_path: Path) -> None:
    found = contract(
        tmp_path,
        """
        [table.t]
        append_only = true
        why = "w"
        time = "at"
        rule.r = { keep = "7d", with = ["u.t_id"] }
        [table.u]
        append_only = true
        why = "w"
        time = "at"
        rule.r = { keep = "7d", orphans = "t_id" }
        """,
    )
    assert [one.scheduler for one in found.tables] == [None, None]


def test_a_prune_with_a_guard_may_come_before_the_archive(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        TABLE
        + """
        rule.noise = { keep = "1d", unless = [{ not_null = "important" }] }
        rule.cold = { keep = "7d", then = "archive" }
        [archive]
        url = "a"
        t = { keep = "forever" }
        """,
    )
    assert [one.action for one in found.rules] == [Prune(), ToArchive()]


def test_names_of_any_characters(tmp_path: Path) -> None:
    found = contract(
        tmp_path,
        """
        [scheduler]
        "größe" = { every = "5m" }
        [table."a.b"]
        scheduler = "größe"
        why = "w"
        time = 'odd " column'
        rule.select = { keep = "7d" }
        [table.'"a.b"']
        scheduler = "größe"
        why = "w"
        time = "at"
        rule.r = { keep = "7d" }
        """,
    )
    assert [one.name for one in found.tables] == [TableName("b", "a"), TableName("a.b")]


def test_a_singleton_promises_one_row(tmp_path: Path) -> None:
    excuses = dict(contract(tmp_path, GOOD + '[excused]\na = { singleton = "s" }\nb = { constant = "c" }\n').excused)
    assert excuses[TableName("a")].rows == 1
    assert excuses[TableName("b")].rows is None
