"""A large table without an index by time is walked by its key: the same rows leave, in bounded slices, over sweeps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

import wane._db.sqlite.transaction
import wane._prune.batches
from prune.keeping import (
    EXPIRES,
    KEEP_WEEK,
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
)
from servers import Database, SqliteDatabase
from wane._contract.model import Mark, Orphans, Table, WhileNull
from wane._contract.settings import Budget
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, Sweeper, SweptRule
from wane._rules import access

PACE = Pace(target_seconds=1.0, duty=1.0, first_batch=7, least_batch=7, most_batch=7)
JOB = """
CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text NOT NULL, at_ms bigint, tenant text, resolved_ms bigint,
  parent_id integer, expires_ms bigint)
"""
RULES: dict[str, Table] = {
    "age": table("job", rule("r", when=()), state=None),
    "expiry": table("job", rule("r", EXPIRES, when=()), state=None),
    "states": table("job", rule("r", when=["done", "failed"])),
    "column guard": table("job", rule("r", unless=[WhileNull("resolved_ms")])),
    "guard": table("job", rule("r", when=["done", "failed"], unless=[referenced_by("note.job_id")])),
    "followers": table("job", rule("r", followers=[follower("note.job_id")])),
    "nested followers": table("job", rule("r", followers=[follower("note.job_id", follower("word.note_id"))])),
    "orphans": table("job", rule("r", Orphans(KEEP_WEEK.time, KEEP_WEEK.keep, "parent_id"))),
    "mark": table("job", rule("r", then=Mark("cleaned"))),
}


def fill(database: Database) -> None:
    """Insert thirty jobs, of which most are old, in another order than that of their keys; a third has notes and
    words."""
    database.execute(JOB)
    states = ("done", "failed", "queued")
    rows = [
        (n, states[n % 3], ago((n * 11) % 30), "t", n % 4 or None, n % 5 or None, ago((n * 7) % 30 - 10))
        for n in range(30)
    ]
    database.executemany("INSERT INTO job VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    notes(database, *((n, n - n % 3, "x") for n in range(30)))
    database.execute("CREATE TABLE word (id integer NOT NULL PRIMARY KEY, note_id integer)")
    database.execute("INSERT INTO word SELECT id, id FROM note")
    database.execute("CREATE INDEX word_note ON word (note_id)")


def sweep(opened: Keeping, pace: Pace = PACE) -> SweptRule:
    opened.keeper.enable()
    [swept] = Sweeper(opened.keeper.store, opened.keeper.contract, pace=pace, unattended=False).sweep().rules
    return swept


def cursors(opened: Keeping) -> list[tuple[str]]:
    own = opened.keeper.store.dialect.own_table("walk")
    return [(str(key),) for (key,) in opened.database.query(f"SELECT last_key FROM {own}")]


def contents(database: Database) -> list[Sequence[object]]:
    tables = ("job", "note", "word")
    return [row for name in tables for row in database.query(f"SELECT * FROM {name} ORDER BY id")]


@contextmanager
def large(monkeypatch: pytest.MonkeyPatch, rows: int = 10) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(access, "LARGE", rows)
        yield


@contextmanager
def ticking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a second pass whenever SQLite checks the time limit of a batch: every 5,000 steps."""
    ticks = count()
    with monkeypatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: next(ticks), sleep=time.sleep)
        patch.setattr(wane._db.sqlite.transaction, "time", clock)
        patch.setattr(wane._prune.batches, "BATCH_SECONDS", 6.0)
        yield


@pytest.mark.parametrize("name", RULES)
def test_the_same_rows_leave_by_key_as_by_time(database: Database, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fill(database)
    with keeping(database, RULES[name]) as opened:
        by_time = sweep(opened)
        left = contents(database)
    database.reset()
    fill(database)
    with keeping(database, RULES[name]) as opened, large(monkeypatch):
        by_key = sweep(opened)
        assert contents(database) == left
        assert (by_key.outcome, by_key.counts) == (Outcome.DONE, by_time.counts)
        assert by_key.rows > 0
        assert cursors(opened) == []
        assert [entry.counts for entry in opened.trail() if entry.run] == [by_key.counts]


def test_a_walk_goes_on_where_the_sweep_before_ended_and_comes_round(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(database, *((n, "done", ago(30 if n > 40 else 1)) for n in range(1, 61)))
    with keeping(database, table("job", rule(budget=Budget(batches=2)))) as opened, large(monkeypatch):
        swept = [sweep(opened) for _ in range(5)]
        assert [one.rows for one in swept] == [0, 0, 2, 14, 4], "fourteen rows are read each time, due or not"
        assert {one.outcome for one in swept} == {Outcome.BUDGET}
        insert(database, "job", "id, state, at_ms", (0, "done", ago(30)))
        assert [sweep(opened).rows for _ in range(4)] == [0, 0, 1, 0], (
            "a row before the cursor leaves with the next round"
        )
        assert opened.ids() == list(range(1, 41))


def test_one_sweep_comes_round_to_the_rows_before_its_cursor(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(database, *((n, "done", ago(1)) for n in range(1, 31)))
    with keeping(database, table("job", rule(budget=Budget(batches=2)))) as opened, large(monkeypatch):
        assert sweep(opened).outcome is Outcome.BUDGET
    insert(database, "job", "id, state, at_ms", (0, "done", ago(30)), (99, "done", ago(30)))
    with keeping(database, table("job", rule())) as opened, large(monkeypatch):
        swept = sweep(opened)
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 2)
        assert cursors(opened) == []


def test_a_walk_ends_though_rows_are_added_faster_than_it_reads_them(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(database, *((n, "done", ago(1)) for n in range(1, 31)))
    with keeping(database, table("job", rule(budget=Budget(batches=2)))) as opened, large(monkeypatch):
        assert sweep(opened).outcome is Outcome.BUDGET
        database.execute("UPDATE job SET at_ms = ? WHERE id = 1", (ago(30),))
        for first in (100, 200):
            insert(database, "job", "id, state, at_ms", *((n, "done", ago(1)) for n in range(first, first + 30)))
            sweep(opened)
        assert opened.ids()[0] == 2, "the walk came back to the first key"
        assert len(cursors(opened)) == 1, "and did not read what was added since it began"


def test_a_walk_without_an_end_gets_one(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs(database, *((n, "done", ago(1)) for n in range(1, 31)))
    with keeping(database, table("job", rule(budget=Budget(batches=2)))) as opened, large(monkeypatch):
        sweep(opened)
        own = opened.keeper.store.dialect.own_table("walk")
        database.execute(f"UPDATE {own} SET end_key = NULL")
        sweep(opened)
        assert [str(end) for (end,) in database.query(f"SELECT end_key FROM {own}")] in (["[30]"], ["['30']"])


def test_a_walk_takes_no_more_than_its_budget(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs(database, *((n, "done", ago(30)) for n in range(5)))
    with keeping(database, table("job", rule(budget=Budget(rows=3)))) as opened, large(monkeypatch, rows=1):
        swept = sweep(opened)
        assert (swept.outcome, opened.ids()) == (Outcome.BUDGET, [3, 4])
        assert sweep(opened).rows == 2


@pytest.mark.parametrize("key", ["tenant, number", "number, tenant"])
def test_a_walk_follows_keys_of_several_columns(database: Database, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    database.execute(
        "CREATE TABLE job (tenant text NOT NULL, number integer NOT NULL, state text, at_ms bigint,"
        f" PRIMARY KEY ({key}))"
    )
    rows = [(f"t{n % 3}", n // 3, "done", ago(n % 14 + 0.5)) for n in range(60)]
    insert(database, "job", "tenant, number, state, at_ms", *rows)
    with keeping(database) as opened, large(monkeypatch):
        sweep(opened)
    left = database.query("SELECT tenant, number FROM job ORDER BY number, tenant")
    assert left == [(tenant, number) for tenant, number, _, at in rows if at >= ago(7)]


def test_a_cursor_holds_blobs_and_is_void_for_another_key(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_database.execute("CREATE TABLE job (id blob NOT NULL PRIMARY KEY, n integer UNIQUE, state text, at_ms int)")
    insert(sqlite_database, "job", "id, n, state, at_ms", *((bytes([n]), 99 - n, "done", ago(30)) for n in range(40)))
    declared = table("job", rule(budget=Budget(batches=2)))
    with keeping(sqlite_database, declared) as opened, large(monkeypatch):
        sweep(opened)
        assert cursors(opened) == [('[{"hex": "0d"}]',)]
        sweep(opened)
        assert opened.ids()[0] == bytes([28])
    with keeping(sqlite_database, replace(declared, key=("n",))) as opened, large(monkeypatch):
        assert sweep(opened, replace(PACE, first_batch=20, most_batch=20)).rows == 12


def test_rows_with_many_followers_leave_over_several_batches(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(database, *((n, "done", ago(30)) for n in range(12)))
    notes(database, *((n, n % 2, "x") for n in range(40)))
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened, large(monkeypatch):
        swept = sweep(opened)
        assert swept.counts == {"job": 12, "note": 40}
        assert (opened.ids(), opened.ids("note")) == ([], [])


def test_a_call_by_hand_takes_the_oldest_of_a_large_table(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs(database, *((n, "done", ago(60 - n)) for n in range(30, 0, -1)))
    with keeping(database) as opened, large(monkeypatch):
        assert opened.keeper.prune("job", rule="old", limit=3).counts == {"job": 3}
        assert opened.ids()[0] == 4


def test_a_batch_that_takes_too_long_is_walked_by_key_instead(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(sqlite_database, *((n, "done" if n % 50 == 0 else "queued", ago(30)) for n in range(5_000)))
    sqlite_database.execute("CREATE INDEX job_at ON job (at_ms)")
    with keeping(sqlite_database) as opened, ticking(monkeypatch):
        swept = sweep(opened, replace(PACE, first_batch=50, most_batch=50, least_batch=50))
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 100), swept.message


def test_a_batch_that_never_finishes_fails_with_the_way_out(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(sqlite_database, *((n, "done", ago(30)) for n in range(100)))
    notes(sqlite_database, *((n, n + 1_000, "x") for n in range(20_000)))
    sqlite_database.execute("DROP INDEX note_job")
    declared = table("job", rule(unless=[referenced_by("note.job_id")]))
    with keeping(sqlite_database, declared) as opened, ticking(monkeypatch):
        swept = sweep(opened)
        assert swept.outcome is Outcome.FAILED
        assert swept.message == (
            "a batch of 7 rows did not finish in its time; nothing of it was taken\n"
            "  hint: `wane check --cover` prints the indexes that are missing"
        )
        assert len(opened.ids()) == 100
