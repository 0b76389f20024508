"""Caps: the newest so many stay, of a table or of each scope; what leaves is the oldest that may."""

from __future__ import annotations

from typing import Any

import pytest

from prune.keeping import AT, ago, follower, insert, jobs, keeping, notes, referenced_by, rule, table
from prune.test_shown_statements import traced
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Cap, Table
from wane._db.postgres.transaction import PostgresTransaction
from wane._db.statement import Statement
from wane._prune import primitive
from wane._prune.pace import FAST, Pace
from wane._rules import scopes
from wane.errors import WrongArgument
from wane.events import BatchTaken, Event


def capped(most: int, *per: str, **more: object) -> Table:
    return table("job", rule("cap", Cap(AT, most, per), when=(), **more), state=None)  # type: ignore[arg-type]


def test_the_newest_stay(database: Database) -> None:
    jobs(database, *[(n, "x", ago(n)) for n in range(10)])
    with keeping(database, capped(4)) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).counts == {"job": 6}
        assert opened.ids() == [0, 1, 2, 3]
        assert opened.keeper.prune("job", rule="cap", limit=100).counts == {"job": 0}
        [first, second] = opened.trail()
        assert (first.kind, first.cutoff, first.inputs) == ("prune", None, {"rule": "cap", "limit": 100})
        assert second.rows == 0


@pytest.mark.parametrize("rows", [0, 3, 4, 5])
def test_a_cap_that_is_not_reached_takes_nothing(database: Database, rows: int) -> None:
    jobs(database, *[(n, "x", ago(n)) for n in range(rows)])
    with keeping(database, capped(4)) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == max(0, rows - 4)


def test_the_oldest_beyond_the_cap_leave_first(database: Database) -> None:
    jobs(database, *[(n, "x", ago(n)) for n in range(10)])
    with keeping(database, capped(4)) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=2).rows == 2
        assert opened.ids() == list(range(8))


def test_among_rows_of_one_timestamp_the_larger_keys_stay(database: Database) -> None:
    same = ago(3)
    jobs(database, *[(n, "x", same) for n in (5, 1, 4, 2, 3)])
    with keeping(database, capped(2)) as opened:
        opened.keeper.prune("job", rule="cap", limit=100)
        assert opened.ids() == [4, 5]


def test_rows_without_a_timestamp_have_no_rank_and_stay(database: Database) -> None:
    jobs(database, *[(n, "x", ago(n)) for n in range(5)], (10, "x", None), (11, "x", 17))
    with keeping(database, capped(2)) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 3
        assert opened.ids() == [0, 1, 10, 11]


def test_a_cap_counts_the_rows_of_its_own_states_only(database: Database) -> None:
    """Newer rows of another state do not count, so the newest four of the rule's own stay."""
    jobs(database, *[(n, "done", ago(20 + n)) for n in range(10)], *[(n, "live", ago(n)) for n in range(10, 16)])
    declared = table("job", rule("cap", Cap(AT, 4), when=["done"]), live=["live"])
    with keeping(database, declared) as opened:
        assert [step.due.rows for step in opened.keeper.plan().steps if step.due is not None] == [6]
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 6
        assert opened.ids() == [0, 1, 2, 3, *range(10, 16)]
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 0


def test_a_cap_of_several_states_counts_them_together(database: Database) -> None:
    states = ("done", "live", "failed")
    jobs(database, *[(n, states[n % 3], ago(n)) for n in range(12)])
    declared = table("job", rule("cap", Cap(AT, 3), when=["done", "failed"]), live=["live"])
    with keeping(database, declared) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=2).rows == 2
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 3
        assert opened.ids() == [0, 1, 2, 3, 4, 7, 10]


@pytest.mark.parametrize("tenants", [("a", None, "b"), ("a", "A", "")])
def test_every_scope_counts_the_rows_of_the_rules_states_only(
    database: Database, tenants: tuple[str | None, ...]
) -> None:
    jobs(database)
    states = ("live", "done", "failed")
    rows = [
        (number * 20 + n, states[n % 3], ago(n), tenant) for number, tenant in enumerate(tenants) for n in range(12)
    ]
    insert(database, "job", "id, state, at_ms, tenant", *rows)
    for when, leave in ((["done"], 2), (["failed", "done"], 4)):
        declared = table("job", rule("cap", Cap(AT, 2, ("tenant",)), when=when), live=["live"])
        with keeping(database, declared) as opened:
            assert opened.keeper.prune("job", rule="cap", limit=2, scope={"tenant": tenants[0]}).rows == 2
            assert opened.keeper.prune("job", rule="cap", limit=100).rows == leave * 3 - 2
    assert left(database) == dict.fromkeys(tenants, 6)


def test_derived_inventory_may_evict_live_rows(database: Database) -> None:
    jobs(database, *[(n, "live", ago(n)) for n in range(6)])
    declared = table("job", rule("cap", Cap(AT, 4), when=["live"], derived=True), live=["live"])
    with keeping(database, declared) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 2
        assert opened.ids() == [0, 1, 2, 3]


def test_guards_save_rows_beyond_a_cap_and_they_keep_their_rank(database: Database) -> None:
    jobs(database, *[(n, "x", ago(n)) for n in range(6)])
    notes(database, (1, 4, "x"), (2, 1, "x"))
    with keeping(database, capped(3, unless=[referenced_by("note.job_id")])) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 2
        assert opened.ids() == [0, 1, 2, 4]


def test_followers_leave_with_rows_beyond_a_cap(database: Database) -> None:
    jobs(database, *[(n, "x", ago(n)) for n in range(4)])
    notes(database, *[(n, n, "x") for n in range(4)])
    with keeping(database, capped(2, followers=[follower("note.job_id")])) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).counts == {"job": 2, "note": 2}
        assert (opened.ids(), opened.ids("note")) == ([0, 1], [0, 1])


# --- Per scope ------------------------------------------------------------------------------------------------------


def scoped(database: Database, *tenants: str | None, rows: int = 5) -> None:
    jobs(database)
    insert(
        database,
        "job",
        "id, state, at_ms, tenant",
        *[(number * 10 + n, "x", ago(n), tenant) for number, tenant in enumerate(tenants) for n in range(rows)],
    )


def left(database: Database) -> dict[str | None, int]:
    return dict(database.query("SELECT tenant, count(*) FROM job GROUP BY tenant"))


def test_every_scope_keeps_its_newest_and_null_is_a_scope(database: Database) -> None:
    scoped(database, "a", "b", None, "", "A")
    database.execute("DELETE FROM job WHERE tenant = 'b' AND id > 11")
    with keeping(database, capped(2, "tenant")) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).counts == {"job": 12}
        assert left(database) == {"a": 2, "b": 2, None: 2, "": 2, "A": 2}
        assert opened.ids() == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]


def test_a_limit_holds_over_all_scopes(database: Database) -> None:
    scoped(database, "a", "b", "c")
    with keeping(database, capped(2, "tenant")) as opened:
        assert [opened.keeper.prune("job", rule="cap", limit=4).rows for _ in range(4)] == [4, 4, 1, 0]
        assert left(database) == {"a": 2, "b": 2, "c": 2}


def test_one_scope_can_be_pruned_by_itself(database: Database) -> None:
    scoped(database, "a", "b", None)
    with keeping(database, capped(2, "tenant")) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=2, scope={"tenant": "b"}).rows == 2
        assert left(database) == {"a": 5, "b": 3, None: 5}
        assert opened.keeper.prune("job", rule="cap", limit=9, scope={"tenant": None}).rows == 3
        assert opened.keeper.prune("job", rule="cap", limit=9, scope={"tenant": "nobody"}).rows == 0
        assert [entry.inputs["scope"] for entry in opened.trail()] == [
            {"tenant": "b"},
            {"tenant": None},
            {"tenant": "nobody"},
        ]
        with pytest.raises(WrongArgument, match="counts per tenant"):
            opened.keeper.prune("job", rule="cap", limit=9, scope={"owner": "b"})
        with pytest.raises(WrongArgument, match="counts per tenant"):
            opened.keeper.prune("job", rule="cap", limit=9, scope={})


def test_a_scope_needs_a_rule_that_counts_per_scope(database: Database) -> None:
    scoped(database, "a")
    with keeping(database, capped(2)) as opened, pytest.raises(WrongArgument, match="has no `per`"):
        opened.keeper.prune("job", rule="cap", limit=9, scope={"tenant": "a"})


def test_a_scope_may_have_several_columns(database: Database) -> None:
    jobs(database)
    insert(
        database,
        "job",
        "id, state, at_ms, tenant, parent_id",
        *[(n, "x", ago(n), "ab"[n % 2], [None, 1, 2][n % 3]) for n in range(18)],
    )
    with keeping(database, capped(1, "tenant", "parent_id")) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=2, scope={"parent_id": None, "tenant": "a"}).rows == 2
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 10
        assert opened.ids() == [0, 1, 2, 3, 4, 5]


def test_scopes_that_differ_by_case_are_two(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.execute(
        "CREATE TABLE job (id INTEGER PRIMARY KEY, at_ms INTEGER, tenant TEXT COLLATE NOCASE, state TEXT)"
    )
    rows = [(n, ago(n), "aA"[n % 2]) for n in range(6)]
    insert(sqlite_database, "job", "id, at_ms, tenant", *rows)
    with keeping(sqlite_database, capped(2, "tenant")) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100, scope={"tenant": "a"}).rows == 1
        assert opened.ids() == [0, 1, 2, 3, 5]
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 1
        assert opened.ids() == [0, 1, 2, 3]


def test_scopes_that_cannot_be_walked_count_the_rules_own_rows(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.execute(
        "CREATE TABLE job (id INTEGER PRIMARY KEY, at_ms INTEGER, tenant TEXT COLLATE NOCASE, state TEXT)"
    )
    rows = [(n, ago(n), "aA"[n % 2], "live" if n < 4 else "done") for n in range(10)]
    insert(sqlite_database, "job", "id, at_ms, tenant, state", *rows)
    declared = table("job", rule("cap", Cap(AT, 2, ("tenant",))), live=["live"])
    with keeping(sqlite_database, declared) as opened:
        assert [step.due.rows for step in opened.keeper.plan().steps if step.due is not None] == [2]
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 2
        assert opened.ids() == list(range(8))


def test_a_sweep_of_scopes_ends_when_all_are_under_their_cap(database: Database) -> None:
    scoped(database, *"abcdefgh")
    notes(database, *[(n, n, "x") for n in range(80)])
    with keeping(database, capped(2, "tenant", followers=[follower("note.job_id")])) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.counts) == ("done", {"job": 24, "note": 24})
        assert set(left(database).values()) == {2}


@pytest.mark.parametrize("limit", [3, 4, 5, 7])
def test_scopes_with_followers_that_do_not_fit_wait_for_the_next_call(database: Database, limit: int) -> None:
    """Each row brings two notes: a call whose limit is not a multiple of three has room left that nothing fits into."""
    scoped(database, *"abc", rows=4)
    notes(database, *[(n * 2 + k, n, "x") for n in range(30) for k in range(2)])
    with keeping(database, capped(2, "tenant", followers=[follower("note.job_id")])) as opened:
        taken = []
        while pruned := opened.keeper.prune("job", rule="cap", limit=limit).rows:
            taken.append(pruned)
        assert sum(taken) == 18
        assert max(taken) <= limit
        assert set(left(database).values()) == {2}


@pytest.mark.parametrize("size", [1, 4, 5, 7])
def test_a_sweep_goes_on_in_the_scope_where_the_batch_before_ended(database: Database, size: int) -> None:
    """Also where a row with its notes did not fit, and over scopes with a NULL in either column."""
    jobs(database)
    rows = [(n, "x", ago(n), [None, "a", "b"][n % 3], [None, 1, 2, 3][n % 4]) for n in range(84)]
    insert(database, "job", "id, state, at_ms, tenant, parent_id", *rows)
    notes(database, *[(n * 2 + k, n, "x") for n in range(0, 84, 5) for k in range(2)])
    pace = Pace(target_seconds=1.0, duty=1.0, first_batch=size, least_batch=size, most_batch=size)
    with keeping(database, capped(2, "tenant", "parent_id", followers=[follower("note.job_id")])) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=pace).rules
        assert (swept.outcome, swept.counts["job"]) == ("done", 60)
        assert opened.ids() == list(range(24))
        assert [found for (found,) in database.query("SELECT count(*) FROM note")] == [10]


def test_a_batch_reads_its_scopes_only(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many scopes there are, a batch begins where the one before ended."""
    scoped(database, *(f"t{n:03}" for n in range(60)))
    pace = Pace(target_seconds=1.0, duty=1.0, first_batch=6, least_batch=6, most_batch=6)
    with keeping(database, capped(2, "tenant")) as opened:
        opened.keeper.enable()
        with traced(opened.keeper, monkeypatch) as ran:
            [swept] = opened.keeper.sweep(pace=pace).rules
    assert (swept.rows, swept.batches) == (180, 31)
    finding = [text for text in ran if text.lstrip().startswith("WITH RECURSIVE walk_")]
    assert swept.batches <= len(finding) <= 2 * swept.batches


def test_scopes_that_may_lose_nothing_do_not_hide_others(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """More scopes beyond their cap than one call reads, and only the last has a row that may leave."""
    for module in (primitive, scopes):
        monkeypatch.setattr(module, "MOST_SCOPES", 3)
    scoped(database, *"abcdef")
    database.execute("UPDATE job SET state = 'live'")
    database.execute("UPDATE job SET state = 'done' WHERE tenant = 'f'")
    declared = table("job", rule("cap", Cap(AT, 2, ("tenant",)), when=["done"]), live=["live"])
    with keeping(database, declared) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 3
        assert left(database) == {**dict.fromkeys("abcde", 5), "f": 2}
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.rows, swept.batches) == ("done", 0, 1)


# --- The edge, over several batches ---------------------------------------------------------------------------------


SMALL = Pace(target_seconds=1.0, duty=1.0, first_batch=4, least_batch=4, most_batch=4)


@pytest.mark.parametrize("through", ["another connection", "the same connection"])
@pytest.mark.parametrize("per", [(), ("tenant",)], ids=["table", "scope"])
def test_rows_that_others_delete_during_a_sweep_are_not_missing_from_the_cap(
    database: Database, per: tuple[str, ...], through: str
) -> None:
    """After the second batch the application deletes rows that would have stayed: as many older ones stay instead."""
    scoped(database, "a", rows=30)
    batches = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            batches.append(event)
            if len(batches) == 2 and through == "another connection":
                database.execute("DELETE FROM job WHERE id < 3")
            elif len(batches) == 2:
                with opened.keeper.store.transaction() as transaction:
                    # PostgreSQL's transactions find nothing by a bare name.
                    schema = "public." if transaction.kind == "postgres" else ""
                    transaction.execute(f"DELETE FROM {schema}job WHERE id < 3", {})

    with keeping(database, capped(5, *per), listener=listen) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.outcome, swept.rows) == ("done", 22)
        assert opened.ids() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("per", [(), ("tenant",)], ids=["table", "scope"])
def test_a_single_sweep_finds_the_edge_of_a_cap_once(
    sqlite_database: SqliteDatabase, per: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    scoped(sqlite_database, "a", rows=30)
    with keeping(sqlite_database, capped(5, *per)) as opened:
        opened.keeper.enable()
        with traced(opened.keeper, monkeypatch) as ran:
            [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.rows, swept.batches) == (25, 7 + bool(per))
        assert opened.ids() == [0, 1, 2, 3, 4]
    assert sum(text.startswith("WITH edge") for text in ran) == 1


def test_a_sweep_reads_the_edge_of_a_scope_with_the_scope(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by itself only if a transaction ended meanwhile: of any database, so not in every one of a hundred
    sweeps of one batch."""
    jobs(postgres_database)
    found: list[int] = []
    with keeping(postgres_database, capped(5, "tenant")) as opened:
        opened.keeper.enable()
        while 0 not in found and len(found) < 100:
            postgres_database.execute("DELETE FROM job")
            rows = [(n, "x", ago(n), "a") for n in range(7)]
            insert(postgres_database, "job", "id, state, at_ms, tenant", *rows)
            with traced(opened.keeper, monkeypatch) as ran:
                [swept] = opened.keeper.sweep(pace=SMALL).rules
            assert (swept.outcome, swept.rows) == ("done", 2)
            assert opened.ids() == [0, 1, 2, 3, 4]
            found.append(sum(text.startswith("WITH edge") for text in ran))
    assert 0 in found


def test_rows_that_others_delete_once_the_edge_of_a_scope_was_read_are_not_missing_from_the_cap(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    scoped(postgres_database, "a", rows=30)
    read = PostgresTransaction.read
    deleted: list[list[tuple[Any, ...]]] = []

    def read_and_delete(this: PostgresTransaction, statement: Statement) -> list[tuple[Any, ...]]:
        found = read(this, statement)
        if statement.text.startswith("WITH RECURSIVE walk") and not deleted:
            postgres_database.execute("DELETE FROM job WHERE id < 3")
            deleted.append(found)
        return found

    with keeping(postgres_database, capped(5, "tenant")) as opened:
        opened.keeper.enable()
        monkeypatch.setattr(PostgresTransaction, "read", read_and_delete)
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.outcome, swept.rows) == ("done", 22)
        assert opened.ids() == [3, 4, 5, 6, 7]
    [[(scope, *edge)]] = deleted
    assert (scope, len(edge)) == ("a", 3)


@pytest.mark.parametrize("per", [(), ("tenant",)], ids=["table", "scope"])
def test_a_batch_that_ends_at_the_edge_of_a_cap_is_the_last_one(database: Database, per: tuple[str, ...]) -> None:
    """Twelve rows are three full batches. Only the walk over scopes needs another one to find that none is left.

    So does PostgreSQL where a transaction of any of its databases ended meanwhile, so not in every one of ten sweeps.
    """
    jobs(database)
    batches = []
    with keeping(database, capped(5, *per)) as opened:
        opened.keeper.enable()
        for _ in range(10):
            database.execute("DELETE FROM job")
            insert(database, "job", "id, state, at_ms, tenant", *[(n, "x", ago(n), "a") for n in range(17)])
            [swept] = opened.keeper.sweep(pace=SMALL).rules
            assert (swept.outcome, swept.rows) == ("done", 12)
            assert opened.ids() == [0, 1, 2, 3, 4]
            batches.append(swept.batches)
    assert min(batches) == 3 + bool(per)


def test_planning_a_batch_beyond_a_cap_reads_nothing_that_earlier_ones_took(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's planner reads where an index begins, if a value that it knows is before its other values."""
    jobs(postgres_database)
    postgres_database.execute("CREATE INDEX job_age ON job (at_ms, id)")
    rows = [(n, "x", ago(100 - n / 1_000), "y" * 500) for n in range(20_000)]
    insert(postgres_database, "job", "id, state, at_ms, tenant", *rows)
    postgres_database.execute("ANALYZE job")
    pace = Pace(target_seconds=1.0, duty=1.0, first_batch=2_500, least_batch=2_500, most_batch=2_500)
    change, planned = PostgresTransaction.change, []

    def explained(this: PostgresTransaction, statement: Statement) -> int:
        if statement.text.startswith("DELETE"):
            explain = f"EXPLAIN (BUFFERS, SUMMARY, FORMAT JSON) {statement.text}"
            [(found,)] = this.execute(explain, statement.parameters)
            planned.append(found[0]["Planning"]["Shared Hit Blocks"])
        return change(this, statement)

    with keeping(postgres_database, capped(10_000)) as opened:
        opened.keeper.enable()
        monkeypatch.setattr(PostgresTransaction, "change", explained)
        [swept] = opened.keeper.sweep(pace=pace).rules
    # Where a transaction of another database ended meanwhile, another batch finds that none is left.
    assert (swept.rows, swept.batches - (swept.batches > 4)) == (10_000, 4)
    assert max(planned[1:]) < 50, planned
