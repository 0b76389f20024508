"""No batch reads or sorts the whole backlog: with the proposed index each statement walks to what it takes, and no
further."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from prune.keeping import AT, Keeping, ago, follower, keeping, referenced_by, rule, table
from servers import Database, PostgresDatabase
from wane._contract.model import Age, Cap, Mark, Pick, Table, WhileNull
from wane._db.statement import Statement
from wane._prune.binding import Bindings
from wane._rules.dependencies_postgres import read_stamps
from wane._rules.queries import queries_of
from wane._rules.rows import rows_of
from wane._rules.rule_statements import statements_of
from wane._rules.selection import Selection

ROWS = 20_000
BATCH = 20
TOUCHED = 1_500
"""Far fewer rows than the table has, and than are due."""
OLD = Age(AT, timedelta(days=1))
STATES = ["done", "failed", "lost", "queued"]


@contextmanager
def large(database: Database, *tables: Table) -> Iterator[Keeping]:
    """Yield 20,000 jobs, nearly all of them due, each with a note, and the indexes that a check proposes."""
    database.execute(
        "CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text NOT NULL, at_ms bigint, tenant text,"
        " resolved_ms bigint, payload text)"
    )
    database.execute("CREATE TABLE note (id integer NOT NULL PRIMARY KEY, job_id integer, kind text, payload text)")
    first = ago(60)
    jobs = [(n, STATES[n % 4], first + n * 200_000, f"t{n % 5}", 1, "x" * 40) for n in range(ROWS)]
    notes = [(n, n, "x", "y" * 40) for n in range(ROWS)]
    if database.store == "postgres":
        for name, rows in (("job", jobs), ("note", notes)):
            with database.connect().cursor().copy(f"COPY {name} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
    else:
        database.executemany("INSERT INTO job VALUES (?, ?, ?, ?, ?, ?)", jobs)
        database.executemany("INSERT INTO note VALUES (?, ?, ?, ?)", notes)
    database.execute("CREATE INDEX job_due ON job (state, at_ms, id)")
    database.execute("CREATE INDEX job_time ON job (at_ms, id)")
    database.execute("CREATE INDEX note_job ON note (job_id)")
    database.execute("ANALYZE")
    with keeping(database, *tables) as opened:
        yield opened


def selection(opened: Keeping, name: str = "old") -> Selection:
    declared = opened.keeper.contract.tables[0]
    return Bindings(opened.keeper.store, opened.keeper.contract).selection(declared, declared.rule(name))


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for inner in tree.get("Plans", []):
        yield from nodes(inner)


def check(opened: Keeping, statement: Statement) -> None:
    """Run the statement, then undo it, and return what it read."""
    store, database = opened.keeper.store, opened.database
    if database.store == "sqlite":
        plan = store.planner.explain(statement)
        lines = [line.strip() for line in plan.splitlines()]
        scans = [line for line in lines if re.match(r"SCAN (t|n|g|f\d|d|job|note)\b", line)]
        assert scans == [], plan
        for line in lines:
            # One state after the other is read in order; what is sorted is what they found together, or a handful of
            # keys.
            assert line not in ("USE TEMP B-TREE FOR ORDER BY", "USE TEMP B-TREE FOR RIGHT PART OF ORDER BY") or any(
                "CO-ROUTINE" in other or "VIRTUAL TABLE" in other or "LIST SUBQUERY" in other or "COMPOUND" in other
                for other in lines
            ), plan
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        connection = database.connect()
        connection.execute("BEGIN")
        connection.set_progress_handler(count, 100)
        connection.execute(statement.text, statement.parameters).fetchall()
        connection.execute("ROLLBACK")
        # A whole scan of the table alone would be 20,000 rows of several steps each.
        assert steps * 100 < 40 * TOUCHED, (steps, plan)
        return
    connection = database.connect()
    connection.execute("BEGIN")
    text = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
    [([answer],)] = connection.execute(text.encode(), statement.parameters).fetchall()
    connection.execute("ROLLBACK")
    for node in nodes(answer["Plan"]):
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
        read = (node["Actual Rows"] + removed) * node["Actual Loops"]
        assert read <= TOUCHED, (node["Node Type"], read, store.planner.explain(statement))


def now() -> datetime:
    return datetime.now(UTC)


class Filled:
    """The statements of a rule, filled."""

    def __init__(self, opened: Keeping, bound: Selection, at: datetime) -> None:
        self.rule = statements_of(rows_of(opened.keeper.store), bound)
        self.bound, self.at = bound, at

    def __call__(self, statement: Statement | None, **values: Any) -> Statement:
        assert statement is not None
        return self.rule.fill(statement, self.bound, self.at, **{"limit": BATCH, "follower_limit": BATCH} | values)


def check_by_keys(opened: Keeping, *, recheck: bool = True) -> list[tuple[object, ...]]:
    """Require a batch that is taken by the keys of its candidates; return these."""
    filled = Filled(opened, selection(opened), now())
    candidates = filled(filled.rule.candidates)
    check(opened, candidates)
    with opened.keeper.store.transaction() as transaction:
        keys = [row[:1] for row in transaction.execute(candidates.text, candidates.parameters)]
    for statement in [filled.rule.recheck] * recheck + [filled.rule.take]:
        check(opened, filled(statement, keys=keys))
    return keys


def check_ranges(opened: Keeping, floor: tuple[object, ...] | None = None, rule: str = "old") -> None:
    """Require batches by their position: two or three of them, each behind the one before, with the same texts."""
    bound = selection(opened, rule)
    filled = Filled(opened, bound, now())
    edge = None
    if filled.rule.edge is not None and opened.database.store == "sqlite":
        check(opened, filled(filled.rule.edge))
        [edge] = opened.keeper.store.read(filled(filled.rule.edge), 10)
    for _ in range(2):
        if opened.database.store == "sqlite":
            find = filled(filled.rule.batch_end, floor=floor, edge=edge)
            check(opened, find)
            assert "USE TEMP B-TREE" not in opened.keeper.store.planner.explain(find)
            [end] = opened.keeper.store.read(find, 10)
            check(opened, filled(filled.rule.take_range, floor=floor, end=end, edge=edge))
        else:
            take = filled(filled.rule.take_range, floor=floor)
            check(opened, take)
            with opened.keeper.store.transaction() as transaction:
                [(count, found, *last)] = transaction.read(take)
            end = tuple(last)
            assert count == found == BATCH
        floor = end


STATE_CHOICES = pytest.mark.parametrize("when", [["done"], ["done", "failed", "lost"]], ids=["one state", "several"])


@STATE_CHOICES
def test_rows_without_guards_are_taken_by_range(database: Database, when: list[str]) -> None:
    with large(database, table("job", rule("old", OLD, when=when))) as opened:
        check_ranges(opened)


def test_the_last_batch_does_not_walk_beyond_what_is_due(database: Database) -> None:
    """Half of the rows are not due yet; what ends the batch stands right behind those that are."""
    week = Age(AT, timedelta(days=37))
    with large(database, table("job", rule("old", week, when=["done"]))) as opened:
        while opened.keeper.prune("job", rule="old", limit=1_000).rows:
            pass
        assert len(opened.ids()) > ROWS // 2
        database.execute("DROP INDEX job_time")
        database.execute("ANALYZE")
        filled = Filled(opened, selection(opened), now())
        check(opened, filled(filled.rule.take_range))


def test_rows_in_front_whose_time_means_nothing_are_not_walked(database: Database) -> None:
    with large(database, table("job", rule("old", OLD, when=["done"]))) as opened:
        database.execute("UPDATE job SET at_ms = 0 WHERE id < 16000")
        # Their old versions are gone, or a bitmap of the index would count them as read.
        database.execute("VACUUM ANALYZE job" if database.store == "postgres" else "ANALYZE")
        check_ranges(opened)


def test_rows_without_states_are_taken_by_range(database: Database) -> None:
    with large(database, table("job", rule("old", OLD, when=()), state=None)) as opened:
        check_ranges(opened)


GUARDED = {
    "column": [WhileNull("resolved_ms")],
    "none": [],
}


@STATE_CHOICES
@pytest.mark.parametrize("guard", ["none", "column"])
def test_rows_with_followers_are_selected_and_taken_by_their_keys(
    database: Database, when: list[str], guard: str
) -> None:
    unless = GUARDED[guard]
    declared = table("job", rule("old", OLD, when=when, unless=unless, followers=[follower("note.job_id")]))
    with large(database, declared) as opened:
        filled = Filled(opened, selection(opened), now())
        compiled = filled.rule
        candidates = filled(compiled.candidates)
        check(opened, candidates)
        with opened.keeper.store.transaction() as transaction:
            found = transaction.execute(candidates.text, candidates.parameters)
        assert len(found) == BATCH
        keys = [row[:1] for row in found]
        check(opened, filled(compiled.candidates, floor=found[-1][1:]))
        check(opened, filled(compiled.recheck, keys=keys))
        [notes] = compiled.followers
        check(opened, filled(notes.take, keys=keys))
        check(opened, filled(notes.remaining, keys=keys))
        check(opened, filled(notes.some, keys=keys[:1]))
        if database.store == "sqlite":
            database.execute("DELETE FROM note")
        check(opened, filled(compiled.take, keys=keys))


def test_followers_with_followers_are_locked_and_taken_by_their_keys(database: Database) -> None:
    nested = follower("note.job_id", follower("word.note_id"))
    with large(database, table("job", rule("old", OLD, when=["done"], followers=[nested]))) as opened:
        database.execute("CREATE TABLE word (id integer NOT NULL PRIMARY KEY, note_id integer REFERENCES note (id))")
        database.execute("CREATE INDEX word_note ON word (note_id)")
        database.execute("INSERT INTO word SELECT id, id FROM note WHERE id % 2 = 0")
        database.execute("ANALYZE")
        bound = selection(opened)
        filled = Filled(opened, bound, now())
        keys = [row[:1] for row in opened.keeper.store.read(filled(filled.rule.candidates), 10)]
        [notes] = (one for one in filled.rule.followers if one.childless)
        some = filled(notes.some, keys=keys[:1])
        check(opened, some)
        with opened.keeper.store.transaction() as transaction:
            found = transaction.execute(some.text, some.parameters)
        assert found
        check(opened, filled(notes.childless, keys=found))
        if database.store == "postgres":
            check(opened, filled(notes.lock, keys=keys))
            check(opened, read_stamps(bound))


@STATE_CHOICES
def test_guarded_rows_probe_what_saves_them(database: Database, when: list[str]) -> None:
    """Every job but each fifth is free; the walk passes the saved ones and ends after a batch."""
    with large(database, table("job", rule("old", OLD, when=when, unless=[referenced_by("note.job_id")]))) as opened:
        database.execute("DELETE FROM note WHERE id % 5 <> 0")
        database.execute("ANALYZE")
        if database.store == "sqlite":
            check_ranges(opened)
        check_by_keys(opened)


def test_holds_cost_no_walk(database: Database) -> None:
    with large(database, table("job", rule("old", OLD, when=["done"], followers=[follower("note.job_id")]))) as opened:
        for number in range(0, 40, 4):
            opened.keeper.hold("job", {"id": number}, reason="a test")
            opened.keeper.hold("note", {"id": number}, reason="a test")
        database.execute("ANALYZE")
        keys = check_by_keys(opened)
        assert keys[0] == ((40,) if database.store == "sqlite" else ("40",))


def test_marks_are_taken_by_their_keys(database: Database) -> None:
    with large(database, table("job", rule("old", OLD, when=["done"], then=Mark("cleaned")))) as opened:
        check_by_keys(opened, recheck=False)


def test_a_cap_walks_the_rows_it_allows_and_a_batch(database: Database) -> None:
    """What stays is counted off the index once; what is beyond is not."""
    declared = table("job", rule("cap", Cap(AT, 500), when=["done"]), live=["queued"])
    with large(database, declared) as opened:
        check_ranges(opened, rule="cap")


@pytest.mark.parametrize("name", ["consume", "discard"])
def test_a_single_row_is_found_by_its_key(database: Database, name: str) -> None:
    with large(database, table("job", rule("old", OLD, when=["done"]))) as opened:
        bound, queries = selection(opened), queries_of(opened.keeper.store)
        database.execute("DELETE FROM note WHERE job_id = 7")
        check(opened, queries.remove(bound, {"id": 7}, now() if name == "consume" else None))


def test_a_batch_does_not_repeat_its_walk_over_saved_rows_in_front_of_it(database: Database) -> None:
    with large(
        database, table("job", rule("old", OLD, when=["done"], unless=[referenced_by("note.job_id")]))
    ) as opened:
        bound, store, at = selection(opened), opened.keeper.store, now()
        unguarded = Filled(opened, replace(bound, guards=()), at)
        *_, (_, *floor) = store.read(unguarded(unguarded.rule.candidates, limit=4_000), 10)
        database.execute("DELETE FROM note WHERE job_id > 16200")
        database.execute("ANALYZE")
        filled = Filled(opened, bound, at)
        check(opened, filled(filled.rule.candidates, floor=floor))
        if database.store == "sqlite":
            check_ranges(opened, tuple(floor))


@pytest.mark.parametrize("pick", [Pick.FIRST, Pick.LATEST])
def test_rows_whose_time_is_in_one_of_two_columns_are_found_along_both_indexes(database: Database, pick: Pick) -> None:
    time = replace(AT, beside=("resolved_ms",), pick=pick)
    with large(database, table("job", rule("old", Age(time, timedelta(days=1)), when=["done"]))) as opened:
        database.execute("UPDATE job SET resolved_ms = at_ms + 5")
        database.execute("UPDATE job SET at_ms = NULL WHERE id % 8 = 0")
        partial = "(state, resolved_ms, id) WHERE at_ms IS NULL"
        whole = "(state, at_ms, resolved_ms, id)"
        database.execute(f"CREATE INDEX job_resolved ON job {whole if database.store == 'sqlite' else partial}")
        database.execute("ANALYZE")
        filled = Filled(opened, selection(opened), now())
        found: list[Any] = []
        for _ in range(2):
            candidates = filled(filled.rule.candidates, floor=found[-1][1:] if found else None)
            check(opened, candidates)
            found = opened.keeper.store.read(candidates, 10)
            assert len(found) == BATCH
        check(opened, filled(filled.rule.take, keys=[row[:1] for row in found]))


def test_a_cap_by_key_walks_the_rows_it_allows_and_a_batch(postgres_database: PostgresDatabase) -> None:
    """SQLite's table is in the order of its key, so that what it calls a scan of the table ends after its room."""
    with large(postgres_database, table("job", rule("cap", Cap(None, 500, by="id"), when=()), state=None)) as opened:
        check_ranges(opened, rule="cap")
