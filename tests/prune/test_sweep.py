"""Sweeps: batch after batch until nothing is due, within a budget, behind two gates, reported exactly in the trail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from covering import numbers
from prune.keeping import AT, DAY, Keeping, ago, follower, insert, jobs, keeping, notes, referenced_by, rule, table
from servers import Database, SqliteDatabase
from wane._contract.fingerprint import rule_fingerprint
from wane._contract.model import Age, Cap, Expiry, Mark, Rule, Table, Time, Unit
from wane._contract.settings import Budget
from wane._prune.pace import FAST, BatchCosts, Pace
from wane._prune.sweep import Outcome, Sweeper
from wane.errors import NotMigrated
from wane.events import BatchTaken, BudgetExhausted, Event, RuleFailed, RuleSwept

SMALL = Pace(target_seconds=0.05, duty=1.0, first_batch=10, least_batch=10, most_batch=10)
"""Batches of ten rows, without pauses."""


def fill(database: Database, rows: int = 45) -> None:
    jobs(database, *[(n, "done", ago(60 - n / 100)) for n in range(rows)], (9_999, "queued", ago(60)))


def batches(opened: Keeping) -> list[int]:
    return [sum(event.counts.values()) for event in opened.reported(BatchTaken)]


# --- To the end -----------------------------------------------------------------------------------------------------


def test_a_sweep_goes_on_until_nothing_is_due(database: Database) -> None:
    fill(database)
    with keeping(database) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=SMALL)
        [swept] = sweep.rules
        assert (swept.table, swept.rule, swept.action) == ("job", "old", "prune")
        assert (swept.outcome, swept.counts, swept.rows, swept.message) == (Outcome.DONE, {"job": 45}, 45, "")
        assert not sweep.failed
        assert opened.ids() == [9_999]
        assert batches(opened) == [10, 10, 10, 10, 5]


def guarded() -> Table:
    return table("job", rule(unless=[referenced_by("note.job_id")]))


def following() -> Table:
    return table("job", rule(followers=[follower("note.job_id")]))


@pytest.mark.parametrize(
    ("declared", "rows", "expected"),
    [
        (table(), 0, [0]),
        (table(), 25, [10, 10, 5]),
        (table(), 20, [10, 10, 0]),
        (guarded(), 25, [10, 10, 5]),
        (guarded(), 20, [10, 10, 0]),
        (following(), 25, [10, 10, 5]),
        (following(), 20, [10, 10, 0]),
        (table("job", rule(then=Mark("cleaned"))), 25, [10, 10, 5]),
        (table("job", rule("cap", Cap(AT, 4), when=["done"])), 29, [10, 10, 5]),
        # A batch that ends at the edge is known to be the last one.
        (table("job", rule("cap", Cap(AT, 4), when=["done"])), 24, [10, 10]),
    ],
    ids=lambda one: (
        f"{one.rules[0].name} {len(one.rules[0].guards)} {len(one.rules[0].followers)}"
        if isinstance(one, Table)
        else None
    ),
)
def test_every_store_makes_the_same_batches(
    database: Database, declared: Table, rows: int, expected: list[int]
) -> None:
    fill(database, rows)
    notes(database)
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        found = batches(opened)
        assert (swept.batches, opened.trail()[0].batches) == (len(found), len(found))
        if database.store == "postgres" and isinstance(declared.rules[0].bound, Cap) and found[-1] == 0:
            found.pop()  # A transaction of another database ended, so that the edge might be another one.
        assert found == expected
        assert swept.outcome is Outcome.DONE


def in_a_loop(database: Database) -> None:
    """Let a sweep without pauses repeat batches on SQLite, which it does where there is a write-ahead log."""
    if database.store == "sqlite":
        database.execute("PRAGMA journal_mode = wal")


@pytest.mark.parametrize("stay", [lambda n: n % 3 == 0, lambda n: n % 10 > 0, lambda n: 40 <= n < 260])
def test_everything_due_leaves_without_pauses_whatever_stays_in_between(
    database: Database, stay: Callable[[int], bool]
) -> None:
    in_a_loop(database)
    fill(database, 300)
    notes(database, *[(n, n, "x") for n in range(300) if stay(n)])
    with keeping(database, guarded()) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        left = [n for n in range(300) if stay(n)]
        assert (opened.ids(), swept.outcome) == ([*left, 9_999], Outcome.DONE)
        [entry] = opened.trail()
        assert (entry.rows, entry.batches) == (300 - len(left), swept.batches)
        # A batch may end among rows that stay; where most of them do, it goes on until it is full.
        assert max(batches(opened)) == 10
        assert swept.batches <= 3 + max(2 * entry.rows, 300 - len(left)) // 10


def test_texts_that_are_no_timestamps_stay_between_those_that_leave(sqlite_database: SqliteDatabase) -> None:
    in_a_loop(sqlite_database)
    sqlite_database.execute("CREATE TABLE item (id integer NOT NULL PRIMARY KEY, at text)")
    endings = ("12.000001+00:00", "12Z", "61.000001+00:00", "12.00000x+00:00", "12.000001+00:00\0", "12", b"12")
    day = "2024-05-{:02}T10:{:02}:"
    values: list[str | bytes] = []
    for n in range(140):
        start, ending = day.format(1 + n // 60, n % 60), endings[n % len(endings)]
        values.append(start + ending if isinstance(ending, str) else start.encode() + ending)
    insert(sqlite_database, "item", "id, at", *enumerate(values))
    with keeping(sqlite_database, table("item", Rule("old", Age(Time("at", Unit.ISO), DAY)), state=None)) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 40)
        assert opened.ids("item") == [n for n in range(140) if n % len(endings) > 1]


# --- One cutoff -----------------------------------------------------------------------------------------------------


def become_due(opened: Keeping, number: int, column: str, keep: timedelta) -> None:
    """Insert a row that is due by the clock, and was not when the sweep began."""
    at = round((opened.keeper.store.now() - keep).timestamp() * 1_000) + 2
    insert(opened.database, "job", f"id, state, {column}", (number, "done", at))
    while (opened.keeper.store.now() - keep).timestamp() * 1_000 <= at + 1:
        pass


@pytest.mark.parametrize("kind", ["age", "guarded", "followers", "mark", "expiry"])
def test_a_sweep_has_one_cutoff_however_long_it_takes(database: Database, kind: str) -> None:
    column, keep = ("resolved_ms", timedelta(0)) if kind == "expiry" else ("at_ms", timedelta(days=7))
    declared = {
        "age": table(),
        "guarded": guarded(),
        "followers": following(),
        "mark": table("job", rule(then=Mark("cleaned"))),
        "expiry": table("job", rule(bound=Expiry(Time("resolved_ms", Unit.MILLISECONDS)))),
    }[kind]
    jobs(database)
    insert(database, "job", f"id, state, {column}", *[(n, "done", ago(60 - n)) for n in range(25)])
    notes(database)

    def wait(event: Event) -> None:
        if isinstance(event, BatchTaken) and event.counts["job"]:
            become_due(opened, 100 + len(opened.reported(BatchTaken)), column, keep)

    with keeping(database, declared, listener=wait) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 25)
        assert set(opened.ids()) >= {101, 102, 103}, "rows that were not due when it began stay"
        [entry] = opened.trail()
        assert entry.cutoff is not None
        assert entry.cutoff.timestamp() * 1_000 <= min(
            at for (at,) in database.query(f"SELECT {column} FROM job WHERE id > 100")
        )
        assert opened.keeper.sweep(pace=SMALL, budget=Budget(rows=3)).rules[0].rows == 3


def test_a_later_attempt_of_a_run_has_the_cutoff_of_the_first(database: Database) -> None:
    fill(database, 15)
    with keeping(database) as opened:
        opened.keeper.enable()
        sweeper = Sweeper(opened.keeper.store, opened.keeper.contract, pace=SMALL, unattended=False)
        assert sweeper.sweep(run="window", budget=Budget(rows=10)).rules[0].rows == 10
        [first] = opened.trail()
        become_due(opened, 100, "at_ms", timedelta(days=7))
        assert sweeper.sweep(run="window").rules[0].rows == 5
        [entry] = opened.trail()
        assert (entry.rows, entry.cutoff, opened.ids()) == (15, first.cutoff, [100, 9_999])
        assert sweeper.sweep(run="next window").rules[0].rows == 1


def test_a_window_that_became_longer_holds_for_a_later_attempt_too(database: Database) -> None:
    jobs(database, (1, "done", ago(60)), (2, "done", ago(9)), (3, "done", ago(8)))
    with keeping(database) as opened:
        opened.keeper.enable()
        sweeper = Sweeper(opened.keeper.store, opened.keeper.contract, pace=SMALL, unattended=False)
        sweeper.sweep(run="window", budget=Budget(rows=1))
    with keeping(database, table("job", rule(bound=Age(AT, timedelta(days=30))))) as opened:
        sweeper = Sweeper(opened.keeper.store, opened.keeper.contract, pace=SMALL, unattended=False)
        assert sweeper.sweep(run="window").rules[0].rows == 0
        assert opened.ids() == [2, 3]


def test_the_trail_has_one_row_per_rule_that_is_the_sum_of_its_batches(database: Database) -> None:
    fill(database)
    notes(database, *[(n, n, "x") for n in range(20)])
    declared = table("job", rule(followers=[follower("note.job_id")]))
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=SMALL)
        [entry] = opened.trail()
        reported = opened.reported(BatchTaken)
    assert entry.counts == {"job": 45, "note": 20}
    assert entry.rows == 65
    assert entry.counts == {name: sum(event.counts.get(name, 0) for event in reported) for name in ("job", "note")}
    assert entry.batches == len(reported) == sweep.rules[0].batches
    assert (entry.kind, entry.table, entry.rule, entry.run) == ("prune", "job", "old", sweep.run)
    assert entry.actor == "tester"
    promise = rule_fingerprint(declared.rules[0])
    assert entry.inputs == {"rule": "old", "budget": 100_000, "sweep": True, "promise": promise}
    assert entry.cutoff is not None
    assert timedelta(0) <= entry.executed_at - entry.cutoff - timedelta(days=7) < timedelta(minutes=1)
    assert database.query(
        "SELECT row_count FROM wane_audit" if database.store == "sqlite" else "SELECT row_count FROM wane.audit"
    ) == [(65,)]


def test_a_sweep_with_nothing_due_is_reported_too(database: Database) -> None:
    jobs(database, (1, "done", ago(1)))
    with keeping(database) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=SMALL)
        assert (sweep.rules[0].outcome, sweep.rules[0].counts) == (Outcome.DONE, {"job": 0})
        [entry] = opened.trail()
        assert (entry.rows, entry.counts, entry.batches, entry.run) == (0, {"job": 0}, 1, sweep.run)


def test_every_rule_has_its_own_row_and_all_share_a_run(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "failed", ago(30)), (3, "lost", ago(1)))
    declared = table("job", *(rule(name, when=[name]) for name in ("done", "failed", "lost")))
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        runs = [opened.keeper.sweep(pace=SMALL).run for _ in range(2)]
        assert [(entry.rule, entry.rows, entry.run) for entry in opened.trail()] == [
            *((name, rows, runs[0]) for name, rows in (("done", 1), ("failed", 1), ("lost", 0))),
            *((name, 0, runs[1]) for name in ("done", "failed", "lost")),
        ]


def test_only_what_is_named_is_swept(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "failed", ago(30)))
    notes(database)
    database.execute("ALTER TABLE note ADD COLUMN at_ms bigint")
    insert(database, "note", "id, at_ms", (1, ago(30)))
    declared = (
        table("job", rule("done", when=["done"]), rule("failed", when=["failed"])),
        table("note", rule("old", when=()), state=None),
    )
    with keeping(database, *declared) as opened:
        opened.keeper.enable()
        assert [one.rule for one in opened.keeper.sweep("job.failed", pace=SMALL).rules] == ["failed"]
        assert (opened.ids(), opened.ids("note")) == ([1], [1])
        assert [one.table for one in opened.keeper.sweep("note", pace=SMALL).rules] == ["note"]
        assert (opened.ids(), opened.ids("note")) == ([1], [])


def test_rows_that_become_due_by_an_earlier_rule_leave_in_the_same_sweep(database: Database) -> None:
    jobs(database, (1, "done", ago(100)))
    declared = table(
        "job", rule("mark", then=Mark("cleaned")), rule("gone", Age(AT, timedelta(days=90)), when=["cleaned"])
    )
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        assert [one.rows for one in opened.keeper.sweep(pace=SMALL).rules] == [1, 1]
        assert opened.ids() == []


def test_events_come_after_the_commit_and_in_order(database: Database) -> None:
    fill(database, 25)
    seen: list[tuple[str, int]] = []

    def listen(event: Event) -> None:
        [(left,)] = database.query("SELECT count(*) FROM job WHERE state = 'done'")
        seen.append((type(event).__name__, left))

    with keeping(database, listener=listen) as opened:
        opened.keeper.enable()
        opened.keeper.sweep(pace=SMALL)
        reported = opened.reported(RuleSwept)
    taken = [left for name, left in seen if name == "BatchTaken"]
    assert taken[:3] == [15, 5, 0]
    assert seen[-1] == ("RuleSwept", 0)
    [swept] = reported
    assert (swept.scheduler, swept.table, swept.rule, swept.label) == ("tick", "job", "old", "job.old")
    assert (swept.action, swept.counts, swept.outcome) == ("prune", {"job": 25}, "done")


def test_the_label_of_rules_without_states_is_the_table(database: Database) -> None:
    jobs(database, (1, "x", ago(30)))
    with keeping(database, table("job", rule(when=()), state=None)) as opened:
        opened.keeper.enable()
        opened.keeper.sweep(pace=SMALL)
        assert {event.label for event in opened.events if isinstance(event, BatchTaken | RuleSwept)} == {"job"}


# --- Budgets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "spent", "rows"),
    [
        (Budget(rows=25), "rows", 25),
        (Budget(batches=2), "batches", 20),
        (Budget(rows=7), "rows", 7),
    ],
)
def test_a_budget_ends_a_sweep_and_is_reported(database: Database, budget: Budget, spent: str, rows: int) -> None:
    fill(database)
    with keeping(database) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=SMALL, budget=budget)
        [swept] = sweep.rules
        assert (swept.outcome, swept.rows) == (Outcome.BUDGET, rows)
        assert f"the budget of {spent} is spent" in swept.message
        assert not sweep.failed
        assert opened.reported(BudgetExhausted) == [BudgetExhausted("tick", "job", "old", "job.old", spent)]
        assert opened.ids() == [*range(rows, 45), 9_999]
        assert opened.trail()[0].rows == rows


def test_seconds_are_a_budget(database: Database) -> None:
    fill(database)
    with keeping(database) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL, budget=Budget(seconds=0)).rules
        assert (swept.outcome, swept.rows) == (Outcome.BUDGET, 10), "one batch, however long it took to come to it"
        assert [event.spent for event in opened.reported(BudgetExhausted)] == ["seconds"]
        assert [entry.rows for entry in opened.trail()] == [10]


def test_a_rule_has_its_own_budget_and_the_next_sweep_goes_on(database: Database) -> None:
    fill(database)
    with keeping(database, table("job", rule(budget=Budget(rows=30)))) as opened:
        opened.keeper.enable()
        assert [opened.keeper.sweep(pace=SMALL).rules[0].rows for _ in range(3)] == [30, 15, 0]


def test_followers_count_in_the_budget_of_rows(database: Database) -> None:
    fill(database, 10)
    notes(database, *[(n, n // 3, "x") for n in range(30)])
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL, budget=Budget(rows=21)).rules
        assert (swept.outcome, swept.counts) == (Outcome.BUDGET, {"job": 5, "note": 15})
        assert database.query("SELECT count(*), count(DISTINCT job_id) FROM note") == [(15, 5)]
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.outcome, swept.counts) == (Outcome.DONE, {"job": 5, "note": 15})


def test_a_row_with_more_followers_than_the_budget_loses_them_sweep_by_sweep(database: Database) -> None:
    fill(database, 2)
    notes(database, *[(n, 0, "x") for n in range(30)])
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        opened.keeper.enable()
        for _ in range(4):
            opened.keeper.sweep(pace=SMALL, budget=Budget(rows=10))
        assert (set(opened.ids()) & {0, 1}, opened.ids("note")) == (set(), [])


@pytest.mark.parametrize(
    ("declared", "budget"),
    [
        (table(), Budget(rows=20)),
        (table(), Budget(batches=2)),
        (table(), Budget(rows=20, batches=2)),
        (guarded(), Budget(rows=20)),
        (following(), Budget(batches=2)),
        (table("job", rule("cap", Cap(AT, 0), when=["done"])), Budget(rows=20)),
        (table("job", rule(then=Mark("cleaned"))), Budget(batches=2)),
    ],
)
def test_a_budget_that_is_just_enough_is_not_exhausted(database: Database, declared: Table, budget: Budget) -> None:
    fill(database, 20)
    notes(database)
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL, budget=budget).rules
        assert (swept.outcome, swept.message, swept.rows, swept.batches) == (Outcome.DONE, "", 20, 2)
        assert opened.reported(BudgetExhausted) == []


def test_seconds_that_were_just_enough_are_not_exhausted(database: Database) -> None:
    fill(database, 10)
    with keeping(database) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL, budget=Budget(seconds=0)).rules
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 10)
        assert opened.reported(BudgetExhausted) == []


# --- The gates ------------------------------------------------------------------------------------------------------


def test_sweeps_are_off_until_they_are_enabled(database: Database) -> None:
    fill(database, 5)
    with keeping(database) as opened:
        sweep = opened.keeper.sweep(pace=SMALL)
        [swept] = sweep.rules
        assert (swept.outcome, swept.rows, swept.batches) == (Outcome.OFF, 0, 0)
        assert swept.message == "the master flag retention.enabled is off: `wane enable` turns it on"
        assert not sweep.failed
        assert len(opened.ids()) == 6
        assert opened.trail() == []


def test_off_is_off_even_where_the_fuse_would_blow(database: Database) -> None:
    fill(database, 1_200)
    with keeping(database) as opened:
        sweep = opened.keeper.sweep(pace=SMALL)
        assert (sweep.rules[0].outcome, sweep.failed) == (Outcome.OFF, False)


def test_explicit_calls_need_no_gate(database: Database) -> None:
    fill(database, 5)
    with keeping(database) as opened:
        opened.keeper.disable()
        opened.keeper.disable("job")
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 5


def test_a_tables_own_flag_stops_only_its_sweeps(database: Database) -> None:
    fill(database, 5)
    notes(database)
    database.execute("ALTER TABLE note ADD COLUMN at_ms bigint")
    insert(database, "note", "id, at_ms", (1, ago(30)))
    with keeping(database, table(), table("note", rule(when=()), state=None)) as opened:
        assert opened.keeper.enable() == "retention.enabled"
        assert opened.keeper.disable("job") == "retention.job.enabled"
        first, second = opened.keeper.sweep(pace=SMALL).rules
        assert (first.outcome, second.outcome, second.rows) == (Outcome.OFF, Outcome.DONE, 1)
        assert "retention.job.enabled is off" in first.message
        opened.keeper.enable("job")
        assert opened.keeper.sweep("job", pace=SMALL).rules[0].rows == 5


def test_the_master_flag_is_above_the_tables(database: Database) -> None:
    fill(database, 5)
    with keeping(database) as opened:
        opened.keeper.enable("job")
        assert opened.keeper.sweep(pace=SMALL).rules[0].outcome is Outcome.OFF
        opened.keeper.enable()
        opened.keeper.disable()
        assert opened.keeper.sweep(pace=SMALL).rules[0].outcome is Outcome.OFF


@pytest.mark.parametrize("which", [None, "job"])
def test_a_gate_that_closes_stops_a_running_sweep_at_its_next_batch(database: Database, which: str | None) -> None:
    fill(database)
    with keeping(database) as other:

        def close(event: Event) -> None:
            if isinstance(event, BatchTaken) and any(event.counts.values()):
                other.keeper.disable(which)

        with keeping(database, listener=close) as opened:
            opened.keeper.enable()
            [swept] = opened.keeper.sweep(pace=SMALL).rules
            assert (swept.outcome, swept.rows, swept.batches) == (Outcome.OFF, 10, 1)
            assert opened.trail()[0].rows == 10
            assert len(opened.ids()) == 36


@pytest.mark.unmigrated
def test_without_its_own_tables_nothing_is_swept(database: Database) -> None:
    fill(database, 5)
    with keeping(database, migrate=False) as opened, pytest.raises(NotMigrated):
        opened.keeper.sweep(pace=SMALL)


# --- Stopping -------------------------------------------------------------------------------------------------------


def test_a_stop_is_received_between_two_batches(database: Database) -> None:
    fill(database)
    stop = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            stop.set()

    with keeping(database, listener=listen) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=SMALL, stop=stop)
        [swept] = sweep.rules
        assert (swept.outcome, swept.rows, swept.message) == (Outcome.STOPPED, 10, "stop requested")
        assert not sweep.failed
        assert opened.trail()[0].rows == 10


def test_after_a_stop_no_other_rule_begins(database: Database) -> None:
    """Not even with a count of what is due, which may take seconds for each."""
    jobs(database, (1, "done", ago(30)), (2, "failed", ago(30)))
    declared = table("job", rule("done", when=["done"]), rule("failed", when=["failed"]))
    stop = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            stop.set()

    with keeping(database, declared, listener=listen) as opened:
        opened.keeper.enable()
        first, second = opened.keeper.sweep(pace=SMALL, stop=stop).rules
        assert first.rows == 1
        assert (second.outcome, second.batches) == (Outcome.STOPPED, 0)
        assert opened.ids() == [2]


def test_a_pause_does_not_delay_a_stop(database: Database) -> None:
    fill(database)
    stop = threading.Event()
    slow = Pace(target_seconds=0.05, duty=0.0001, first_batch=10, least_batch=10, most_batch=10, most_pause_seconds=60)

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            threading.Timer(0.05, stop.set).start()

    with keeping(database, listener=listen) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=slow, stop=stop).rules
        assert (swept.outcome, swept.rows) == (Outcome.STOPPED, 10)
        assert swept.seconds < 30


# --- Failures -------------------------------------------------------------------------------------------------------


def test_a_rule_that_fails_does_not_fail_others(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "failed", ago(30)))
    declared = (
        table(
            "job",
            rule("done", when=["done"]),
            rule("wrong", Age(Time("nowhere"), DAY), when=["lost"]),
            rule("failed", when=["failed"]),
        ),
        table("missing"),
    )
    with keeping(database, *declared) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=SMALL)
        assert [one.outcome for one in sweep.rules] == [Outcome.DONE, Outcome.FAILED, Outcome.DONE, Outcome.FAILED]
        assert sweep.failed
        assert "job has no column 'nowhere'" in sweep.rules[1].message
        assert "the database has no table missing" in sweep.rules[3].message
        assert opened.ids() == []
        assert [(event.table, event.rule) for event in opened.reported(RuleFailed)] == [
            ("job", "wrong"),
            ("missing", "old"),
        ]
        assert [entry.rule for entry in opened.trail()] == ["done", "failed"]


def test_what_a_failing_rule_took_before_stays_reported(database: Database) -> None:
    """The third batch meets a row that a trigger refuses: two batches are committed, counted and reported."""
    fill(database)
    if database.store == "sqlite":
        database.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON job WHEN old.id = 25 BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    else:
        database.script("""
            CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN IF old.id = 25 THEN RAISE EXCEPTION 'no'; END IF; RETURN old; END $$;
            CREATE TRIGGER keep BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION keep();
        """)
    with keeping(database) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=SMALL)
        [swept] = sweep.rules
        assert (swept.outcome, swept.rows, swept.batches) == (Outcome.FAILED, 20, 2)
        assert opened.ids() == [*range(20, 45), 9_999]
        [entry] = opened.trail()
        assert (entry.rows, entry.batches) == (20, 2)


# --- The fuse -------------------------------------------------------------------------------------------------------


def test_the_first_sweep_of_a_rule_that_would_take_a_large_share_needs_approval(database: Database) -> None:
    fill(database, 1_000)
    jobs(database, *[(20_000 + n, "done", ago(1)) for n in range(500)], create=False)
    with keeping(database) as opened:
        opened.keeper.enable()
        sweep = opened.keeper.sweep(pace=FAST)
        [swept] = sweep.rules
        assert (swept.outcome, swept.rows) == (Outcome.FUSED, 0)
        assert sweep.failed
        assert "1,000 of 1,501 rows are due (66.6%), and the first sweep of a rule may take 50%" in swept.message
        assert "`wane approve job.old`" in swept.message
        assert opened.trail() == []
        assert opened.keeper.sweep(pace=FAST, approve=["job.old"]).rules[0].rows == 1_000


def test_a_later_sweep_may_take_more_but_not_nearly_all(database: Database) -> None:
    fill(database, 1_002)
    jobs(database, *[(20_000 + n, "done", ago(1)) for n in range(500)], create=False)
    with keeping(database) as opened:
        opened.keeper.enable()
        opened.keeper.prune("job", rule="old", limit=1)
        assert opened.keeper.sweep(pace=FAST).rules[0].outcome is Outcome.FUSED, "a prune by hand is no sweep"
        opened.keeper.sweep(pace=FAST, approve=["job.old"], budget=Budget(rows=1))
        assert opened.keeper.sweep(pace=FAST).rules[0].outcome is Outcome.DONE
    with keeping(database) as opened:
        database.execute("DELETE FROM job")
        jobs(database, *[(n, "done", ago(60)) for n in range(1_500)], create=False)
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert swept.outcome is Outcome.FUSED
        assert "a rule may take 90%" in swept.message


def test_a_sweep_that_found_nothing_is_not_the_first_one(database: Database) -> None:
    jobs(database)
    with keeping(database) as opened:
        opened.keeper.enable()
        assert opened.keeper.sweep(pace=FAST).rules[0].outcome is Outcome.DONE
        jobs(database, *[(n, "done", ago(60 if n < 1_000 else 1)) for n in range(1_500)], create=False)
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.rows) == (Outcome.FUSED, 0)
        assert "the first sweep of a rule may take 50%" in swept.message


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({"bound": Age(AT, timedelta(days=6))}, Outcome.FUSED),
        ({"when": ["done", "failed"]}, Outcome.FUSED),
        ({"budget": Budget(rows=5_000)}, Outcome.DONE),
    ],
)
def test_a_changed_rule_has_a_first_sweep(database: Database, changed: dict[str, Any], outcome: Outcome) -> None:
    fill(database, 10)
    with keeping(database) as opened:
        opened.keeper.enable()
        assert opened.keeper.sweep(pace=FAST).rules[0].rows == 10
    jobs(database, *[(n, "done", ago(60 if n < 1_000 else 1)) for n in range(1_500)], create=False)
    with keeping(database, table("job", rule("old", **{"when": ["done"], **changed}))) as opened:
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert swept.outcome is outcome, swept.message
        assert ("the first sweep of a changed rule may take 50%" in swept.message) == (outcome is Outcome.FUSED)


def test_an_approval_of_one_sweep_is_not_for_the_rest(database: Database) -> None:
    fill(database, 3_000)
    with keeping(database) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=FAST, approve=["job.old"], budget=Budget(rows=1_000)).rules
        assert (
            "the rest leaves with the next sweep, approved too if more than 90% of the table is due then"
            in swept.message
        )
        assert opened.keeper.sweep(pace=FAST).rules[0].outcome is Outcome.FUSED


def test_the_fuse_uses_no_estimate(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics are from before most of the table left: by them, not even a third of it is due."""
    monkeypatch.setattr("wane._db.counting._COUNTED_ROWS", 100)
    jobs(database)
    database.execute(f"INSERT INTO job (id, state, at_ms) SELECT n, 'done', {ago(1)} FROM {numbers(4_000)}")
    database.execute("ANALYZE")
    database.execute(f"UPDATE job SET at_ms = {ago(60)} WHERE id < 1200")
    database.execute("DELETE FROM job WHERE id > 1500")
    with keeping(database) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.rows) == (Outcome.FUSED, 0)
        assert "1,200 of 1,501 rows are due" in swept.message


def test_what_cannot_be_counted_in_time_counts_as_too_many(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs(database)
    database.execute(f"INSERT INTO job (id, state, at_ms) SELECT n, 'done', {ago(1)} FROM {numbers(50_000)}")
    database.execute("ANALYZE")
    database.execute(f"UPDATE job SET at_ms = {ago(60)}")
    monkeypatch.setattr("wane._prune.fuse.COUNT_SECONDS", 0.0)
    with keeping(database) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.rows, opened.trail()) == (Outcome.FUSED, 0, [])
        assert "counting the due rows did not finish in 0 seconds" in swept.message
        assert "`wane approve job.old`" in swept.message


def test_a_small_share_of_a_large_table_is_allowed_without_counting_all_of_it(database: Database) -> None:
    jobs(database)
    database.execute(f"INSERT INTO job (id, state, at_ms) SELECT n, 'done', {ago(1)} FROM {numbers(3_000)}")
    database.execute(f"UPDATE job SET at_ms = {ago(60)} WHERE id < 1500")
    with keeping(database) as opened:
        opened.keeper.enable()
        assert opened.keeper.sweep(pace=FAST).rules[0].rows == 1_500, "exactly the half that a first sweep may take"


def test_few_rows_are_never_too_many(database: Database) -> None:
    fill(database, 999)
    database.execute("DELETE FROM job WHERE state = 'queued'")
    with keeping(database) as opened:
        opened.keeper.enable()
        assert opened.keeper.sweep(pace=FAST).rules[0].rows == 999


def test_approval_is_for_the_rule_that_it_names(database: Database) -> None:
    jobs(database, *[(n, ("done", "failed")[n % 2], ago(60)) for n in range(4_000)])
    declared = table("job", rule("done", when=["done"]), rule("failed", when=["failed"]))
    with keeping(database, declared) as opened:
        opened.keeper.enable()
        database.execute("DELETE FROM job WHERE state = 'failed' AND id > 2200")
        first, second = opened.keeper.sweep(pace=FAST, approve=["job.failed"]).rules
        assert (first.outcome, second.rows) == (Outcome.FUSED, 1_100)


def test_marks_need_no_approval(database: Database) -> None:
    fill(database, 1_500)
    with keeping(database, table("job", rule(then=Mark("cleaned")))) as opened:
        opened.keeper.enable()
        assert opened.keeper.sweep(pace=FAST).rules[0].rows == 1_500


def test_an_attended_sweep_has_no_fuse(database: Database) -> None:
    fill(database, 1_500)
    with keeping(database) as opened:
        opened.keeper.enable()
        sweeper = Sweeper(opened.keeper.store, opened.keeper.contract, pace=FAST, unattended=False)
        assert sweeper.sweep().rules[0].rows == 1_500


# --- The pace -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "seconds", "expected"),
    [
        (500, 0.005, 500),
        (500, 0.0025, 1_000),
        (500, 0.000_001, 1_000),
        (500, 0.0, 1_000),
        (500, 0.01, 250),
        (500, 60.0, 250),
        (60, 60.0, 50),
        (50, 60.0, 50),
        (15_000, 0.001, 20_000),
        (20_000, 0.001, 20_000),
        (1_000, 0.004, 1_250),
    ],
)
def test_a_batch_grows_and_shrinks_towards_the_target_within_its_bounds(
    batch: int, seconds: float, expected: int
) -> None:
    assert Pace().next_batch(batch, seconds) == expected


@pytest.mark.parametrize(
    ("batch", "seconds", "expected"),
    [(500, 0.001, 5_000), (500, 0.02, 2_500), (500, 0.4, 250), (50_000, 0.01, 100_000)],
)
def test_without_pauses_a_batch_soon_has_as_many_rows_as_fit_the_target(
    batch: int, seconds: float, expected: int
) -> None:
    assert FAST.next_batch(batch, seconds) == expected


@pytest.mark.parametrize(
    ("batch", "seconds", "fixed", "expected"),
    [
        (500, 0.005, 0.002, 500),
        (500, 0.011, 0.002, 250),  # 9 ms for its rows, 3 ms allowed: at most halved.
        (500, 0.030, 0.015, 500),  # A smaller batch would be little shorter.
        (500, 0.016, 0.015, 1_000),
        (500, 0.060, 0.015, 250),
    ],
)
def test_a_batch_does_not_shrink_where_that_does_not_shorten_it(
    batch: int, seconds: float, fixed: float, expected: int
) -> None:
    assert Pace().next_batch(batch, seconds, fixed) == expected


def test_what_a_batch_costs_whatever_its_size_is_learned_from_batches_of_different_sizes() -> None:
    costs = BatchCosts()
    assert costs.fixed_seconds(0.005) == 0
    for rows in (500, 500):
        costs.add(rows, 0.015 + rows * 0.000_01)
    assert costs.fixed_seconds(0.005) == 0  # One size says nothing about the other sizes.
    for rows in (250, 0, 300, 400):
        costs.add(rows, 0.015 + rows * 0.000_01)
    assert costs.fixed_seconds(0.005) == pytest.approx(0.015)
    costs.add(450, 2.0)  # It waited for something.
    assert costs.fixed_seconds(0.005) == pytest.approx(0.015, abs=0.001)


def test_batches_that_are_faster_the_larger_they_are_have_a_fixed_cost_only() -> None:
    costs = BatchCosts()
    costs.add(100, 0.004)
    costs.add(200, 0.003)
    assert 0.003 <= costs.fixed_seconds(0.005) <= 0.004


def test_batches_of_one_size_that_miss_their_target_are_followed_by_a_larger_one() -> None:
    """A series of slow ones would otherwise leave a sweep with the smallest for good."""
    pace, costs, sizes = Pace().after_quiet(0.0), BatchCosts(), [50]
    for _ in range(40):
        seconds = 0.002 + sizes[-1] * 0.000_005
        costs.add(sizes[-1], seconds)
        sizes.append(pace.next_batch(sizes[-1], seconds, costs.fixed_seconds(pace.target_seconds)))
    assert sizes[:9] == [50] * 8 + [75]
    assert min(sizes[-9:]) == 400, "two milliseconds for whatever is fixed allow two for four hundred rows"
    for _ in range(8):
        costs.add(50, 0.001)
    assert costs.fixed_seconds(0.001) == 0, "one size that meets its target is right"


def test_a_pause_keeps_the_duty_and_has_a_bound() -> None:
    assert Pace(duty=0.1).pause_seconds(0.005) == pytest.approx(0.045)
    assert Pace(duty=0.1).pause_seconds(60.0) == 2.0
    assert FAST.pause_seconds(1.0) == 0


def test_batches_of_a_sweep_adapt_within_their_bounds(database: Database) -> None:
    fill(database, 3_000)
    pace = Pace(target_seconds=10.0, duty=1.0, first_batch=20, least_batch=5, most_batch=200)
    with keeping(database) as opened:
        opened.keeper.enable()
        opened.keeper.sweep(pace=pace, approve=["job.old"])
        sizes = batches(opened)
        assert sizes[:5] == [20, 40, 80, 160, 200]
        assert max(sizes) == 200
        assert all(event.next_batch <= 200 for event in opened.reported(BatchTaken))
    refilled = [(n, "done", ago(60)) for n in range(300)]
    jobs(database, *refilled, create=False)
    with keeping(database) as opened:
        hurried = Pace(target_seconds=0.000_000_1, duty=1.0, first_batch=80, least_batch=10, most_batch=200)
        opened.keeper.sweep(pace=hurried)
        sizes = batches(opened)
        assert sizes[:2] == [80, 40]  # From here on it depends on what a batch costs whatever its size.
        assert all(10 <= size <= 200 for size in sizes[:-1])


# --- Caps and followers ---------------------------------------------------------------------------------------------


def test_a_cap_is_swept_in_batches(database: Database) -> None:
    fill(database)
    with keeping(database, table("job", rule("cap", Cap(AT, 5), when=["done"]))) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        # The live row takes a place and stays.
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 40)
        assert opened.ids() == [40, 41, 42, 43, 44, 9_999]


def test_rows_with_more_followers_than_a_batch_are_swept_to_the_end(database: Database) -> None:
    fill(database, 4)
    notes(database, *[(n, n % 2, "x") for n in range(60)], *[(100 + n, 9_999, "x") for n in range(5)])
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.outcome, swept.counts) == (Outcome.DONE, {"job": 4, "note": 60})
        assert max(batches(opened)) <= 10
        assert (opened.ids(), opened.ids("note")) == ([9_999], list(range(100, 105)))


def test_two_sweeps_of_one_rule_leave_every_row_counted_once(database: Database) -> None:
    fill(database, 400)
    together = threading.Barrier(2)
    found: list[Any] = []

    def sweep(opened: Keeping) -> None:
        together.wait(30)
        found.extend(opened.keeper.sweep(pace=SMALL).rules)

    with keeping(database) as one, keeping(database) as other:
        one.keeper.enable()
        threads = [threading.Thread(target=sweep, args=(opened,)) for opened in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [swept.outcome for swept in found] == [Outcome.DONE, Outcome.DONE]
        assert sum(swept.rows for swept in found) == 400
        assert sum(entry.rows for entry in one.trail()) == 400
        assert one.ids() == [9_999]
