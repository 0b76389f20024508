"""What `why` says of every row is what the next sweep then does with it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prune.keeping import AT, KEEP_WEEK, ago, follower, insert, keeping, referenced_by, rule, table
from servers import Database
from wane._contract.model import Cap, Expiry, Time, Unit, WhileNotNull, WhileNull
from wane._contract.settings import Budget, SweepSettings
from wane._why.model import RowVerdict

EXAMPLES_VARIABLE = "WANE_EXAMPLES"
SCHEMA = """
CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text, at_ms bigint, resolved_ms bigint, owner text);
CREATE TABLE reply (id integer NOT NULL PRIMARY KEY, job_id integer);
CREATE INDEX reply_job ON reply (job_id);
CREATE TABLE part (id integer NOT NULL PRIMARY KEY, job_id integer, kind text, at_ms bigint);
CREATE INDEX part_job ON part (job_id);
CREATE TABLE token (id integer NOT NULL PRIMARY KEY, expires_ms bigint);
CREATE TABLE seen (id integer NOT NULL PRIMARY KEY, tenant text, at_ms bigint)
"""
TABLES = ("job", "token", "seen")
TIMES = st.sampled_from([None, 5, ago(400), ago(9), ago(8), ago(6), ago(1), ago(-3)])
JOB = st.tuples(
    st.sampled_from(["queued", "done", "failed", "odd"]),
    TIMES,
    st.sampled_from([None, 1]),
    st.sampled_from([None, "x"]),
    st.booleans(),  # a reply refers to it
    st.sampled_from([None, "open", "shut"]),  # a part follows it
    st.sampled_from(["", "", "", "row", "part"]),  # what is held
)
EXAMPLE = st.fixed_dictionaries(
    {
        "jobs": st.lists(JOB, min_size=3, max_size=8),
        "tokens": st.lists(TIMES, max_size=3),
        "seen": st.lists(st.tuples(st.sampled_from([None, "a", "b"]), TIMES), max_size=6),
        "budget": st.sampled_from([2, 1_000]),
        "held": st.sampled_from(["", "", "token"]),
        "off": st.sampled_from(["", "", "job", "master"]),
        "fuse": st.sampled_from([2, 1_000]),
    }
)


def fill(database: Database, drawn: dict[str, Any]) -> list[tuple[str, int]]:
    """Insert the rows; return what to hold."""
    held = []
    for number, (state, at, resolved, owner, replied, part, hold) in enumerate(drawn["jobs"], 1):
        insert(database, "job", "id, state, at_ms, resolved_ms, owner", (number, state, at, resolved, owner))
        if replied:
            insert(database, "reply", "id, job_id", (number, number))
        if part is not None:
            insert(database, "part", "id, job_id, kind", (number, number, part))
        if hold == "row" or (hold == "part" and part is not None):
            held.append(("job" if hold == "row" else "part", number))
    insert(database, "token", "id, expires_ms", *enumerate(drawn["tokens"], 1))
    insert(database, "seen", "id, tenant, at_ms", *((n, *one) for n, one in enumerate(drawn["seen"], 1)))
    return held


def check(database: Database, examples: int) -> None:
    """Compare `why` with a sweep, for as many databases."""
    done = rule(
        "done",
        KEEP_WEEK,
        unless=[referenced_by("reply.job_id"), WhileNull("resolved_ms")],
        followers=[follower("part.job_id")],
    )
    part = table("part", rule("gone", KEEP_WEEK, when=["gone"]), state="kind", live=["open"])

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(EXAMPLE)
    def compare(drawn: dict[str, Any]) -> None:
        database.reset()
        database.script(SCHEMA)
        held = fill(database, drawn)
        failed = rule(
            "failed", KEEP_WEEK, when=["failed"], unless=[WhileNotNull("owner")], budget=Budget(drawn["budget"])
        )
        tables = (
            table("job", done, failed),
            table("token", rule("expired", Expiry(Time("expires_ms", Unit.MILLISECONDS)), when=()), state=None),
            table("seen", rule("cap", Cap(AT, 2, ("tenant",)), when=()), state=None),
            part,
        )
        with ExitStack() as stack:
            settings_of = SweepSettings(fuse_rows=drawn["fuse"], fuse=0.5, first_fuse=0.5)
            opened = stack.enter_context(keeping(database, *tables, sweep=settings_of))
            keeper = opened.keeper
            for name, number in held:
                keeper.hold(name, {"id": number}, reason="a test")
            if drawn["held"]:
                keeper.hold(drawn["held"], reason="a test")
            if drawn["off"] != "master":
                keeper.enable()
            if drawn["off"] == "job":
                keeper.disable("job")
            before = {name: opened.ids(name) for name in TABLES}
            stated = {(name, key): keeper.why(name, key) for name in TABLES for key in before[name]}
            keeper.sweep()
            for (name, key), why in stated.items():
                gone = key not in opened.ids(name)
                assert gone == (why.verdict is RowVerdict.DUE), why
            for name, key in stated:
                if key not in opened.ids(name):
                    assert keeper.why(name, key).verdict is RowVerdict.GONE

    compare()


@pytest.mark.timeout(0)
def test_why_states_what_the_next_sweep_does(database: Database) -> None:
    check(database, int(os.environ.get(EXAMPLES_VARIABLE, "10")))
