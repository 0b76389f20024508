"""`plan -v` shows the statements that run: traced at the driver, text for text and in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from prune.keeping import (
    AT,
    EXPIRES,
    KEEP_WEEK,
    WEEK,
    Keeping,
    ago,
    follower,
    keeping,
    notes,
    reference,
    referenced_by,
    rule,
    table,
)
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.conditions import Comparison, Condition
from wane._contract.model import (
    Age,
    Cap,
    Longer,
    Mark,
    MissingParent,
    Orphans,
    Pick,
    Reference,
    Spare,
    Table,
    Time,
    ToColdTier,
    Unit,
    WhileNull,
    WindowUnit,
)
from wane._contract.names import TableName
from wane._db.postgres.bounded import BoundedConnection
from wane._db.sqlite.store import SqliteStore
from wane._keeper import Keeper
from wane._prune.pace import Pace
from wane._prune.plan import StepStatement
from wane._prune.sweep import Sweeper
from wane._rules import access
from wane._rules.rows import rows_of
from wane._rules.rule_statements import statements_of
from wane._rules.run_step import IF_LARGE
from wane._sqlfunctions import install

JOB = """
CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text NOT NULL, at_ms bigint, tenant text, resolved_ms bigint,
  parent_id integer, expires_ms bigint)
"""
CREATES = "CREATE OR REPLACE FUNCTION pg_temp."
USERS = ('."job"', '."note"', '."word"')
PACE = Pace(target_seconds=1.0, duty=1.0, first_batch=4, least_batch=4, most_batch=4)
NESTED = follower("note.job_id", follower("word.note_id"))
IN_NOTE = Time("id", Unit.SECONDS, child=reference("note.job_id"))
"""Its number is as good a time as any."""
OF_NOTE = Reference(TableName("word"), ("id",))
OF_WORD = MissingParent(("id",), TableName("word"), ("id",))
CONDITIONS = (
    ("parent_id", Condition((Comparison("<", column="resolved_ms"),), null=True)),
    ("tenant", Condition((Comparison("not", ("t9",)),))),
)
RULES: dict[str, Table] = {
    "age": table("job", rule("r", when=()), state=None),
    "expiry": table("job", rule("r", EXPIRES, when=()), state=None),
    "states": table("job", rule("r", when=["done", "failed"])),
    "column guard": table("job", rule("r", unless=[WhileNull("resolved_ms")])),
    "guard": table("job", rule("r", unless=[referenced_by("note.job_id")])),
    "followers": table("job", rule("r", followers=[follower("note.job_id")])),
    "nested followers": table("job", rule("r", followers=[NESTED])),
    "cap": table("job", rule("r", Cap(AT, 3), when=()), state=None),
    "first of two": table("job", rule("r", Age(replace(AT, beside=("resolved_ms",), pick=Pick.FIRST), WEEK))),
    "latest of two": table("job", rule("r", Age(replace(AT, beside=("expires_ms",), pick=Pick.LATEST), WEEK))),
    "child": table("job", rule("r", Age(IN_NOTE, WEEK), followers=[follower("note.job_id")])),
    "parent": table("job", rule("r", Age(Time("id", Unit.SECONDS, parent=OF_NOTE), WEEK))),
    "own window": table("job", rule("r", Age(AT, WEEK, Longer("resolved_ms", WindowUnit.DAYS)))),
    "window elsewhere": table("job", rule("r", Age(AT, WEEK, Longer("note_id", WindowUnit.DAYS, OF_NOTE)))),
    "cap by key": table("job", rule("r", Cap(None, 3, by="id"), when=()), state=None),
    "cap by key per scope": table("job", rule("r", Cap(None, 1, ("tenant",), "id"), when=()), state=None),
    "cap per scope": table("job", rule("r", Cap(AT, 1, ("tenant",)), when=()), state=None),
    "orphans": table("job", rule("r", Orphans(AT, KEEP_WEEK.keep, "parent_id"))),
    "missing parents": table("job", rule("r", Orphans(AT, KEEP_WEEK.keep, "id", OF_WORD))),
    "conditions": table("job", replace(rule("r", when=()), conditions=CONDITIONS, all_but=("queued",))),
    "spare": table("job", rule("r", spare=Spare(1, ("tenant",)))),
    "mark": table("job", rule("r", then=Mark("cleaned"))),
}


def fill(database: Database, key: str | None) -> None:
    database.execute(JOB)
    states = ("done", "failed", "queued")
    rows = [(n, states[n % 3], ago(60 - n), f"t{n % 2}", 1, None, ago(60 - n)) for n in range(30)]
    database.executemany("INSERT INTO job VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    notes(database, *((n, n, "x") for n in range(30)), foreign_key=key)
    owner = "" if key is None else "REFERENCES note (id)"
    database.execute(f"CREATE TABLE word (id integer NOT NULL PRIMARY KEY, note_id integer {owner})")
    database.execute("CREATE INDEX word_note ON word (note_id)")
    database.execute("INSERT INTO word SELECT id, id FROM note")


@contextmanager
def traced(keeper: Keeper, monkeypatch: pytest.MonkeyPatch, users: Sequence[str] = USERS) -> Iterator[list[str]]:
    """Collect every statement over users' tables that the driver is given."""
    ran: list[str] = []

    def listen(text: Any) -> None:
        text = text.decode() if isinstance(text, bytes) else str(text)
        if any(name in text for name in users):
            ran.append(re.sub(r'_\d{6}"', '_yyyymm"', text))

    execute: Callable[..., Any] = psycopg.Cursor.execute

    def recorded(this: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        listen(query)
        return execute(this, query, *arguments, **options)

    run_in_transaction = BoundedConnection.run_in_transaction

    def recorded_together(
        this: BoundedConnection,
        begin: str,
        settings: str,
        statements: Sequence[tuple[str, Mapping[str, object]]],
        *arguments: Any,
    ) -> Any:
        for text, _ in statements:
            listen(text.replace("%%", "%") if text.startswith(CREATES) else text)
        return run_in_transaction(this, begin, settings, statements, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", recorded)
        patch.setattr(BoundedConnection, "run_in_transaction", recorded_together)
        if isinstance(keeper.store, SqliteStore):
            keeper.store._connection.set_trace_callback(listen)
        yield ran


def sweep(opened: Keeping, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sweep in batches of a few rows, and return what ran once the rule was bound."""
    keeper = opened.keeper
    keeper.enable()
    sweeper = Sweeper(keeper.store, keeper.contract, pace=PACE, unattended=False)
    [declared] = keeper.contract.tables
    sweeper.bindings.selection(declared, declared.rules[0])
    with traced(keeper, monkeypatch) as ran:
        [swept] = sweeper.sweep().rules
    assert swept.batches > 1, swept
    return ran


def in_function(shown: str) -> str:
    """Return a pattern of a statement inside a function, which has variables and literals for the placeholders."""
    return r"(?:wane_\w+|'[^']*'|[0-9]+|ARRAY.*?])".join(map(re.escape, re.split(r"%\(\w+\)s", shown)))


def matches(shown: StepStatement, ran: str, database: Database) -> bool:
    """Compare texts; SQLite traces statements with the values in the place of the placeholders.

    A function that is created runs the statements in it.
    """
    if database.store == "sqlite":
        parts = re.split(r":[a-z_]\w*", shown.text)
        return re.fullmatch("(?s:.*?)".join(map(re.escape, parts)), ran) is not None
    if not ran.startswith(CREATES):
        return shown.text == ran
    return re.search(in_function(shown.text), ran) is not None


def check(opened: Keeping, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    [step] = opened.keeper.plan(explain=True).steps
    assert all("\n" in one.text or len(one.text) < 120 for one in step.statements)
    ran = sweep(opened, monkeypatch)
    order = []
    for text in ran:
        found = [n for n, one in enumerate(step.statements) if matches(one, text, opened.database)]
        assert found, text
        order += found if text.startswith(CREATES) else found[:1]
    first = list(dict.fromkeys(order))
    expected = {n for n, one in enumerate(step.statements) if not one.purpose.startswith("if ")}
    # Each runs after all that are shown before it; those that depend on what was found may first run in a later batch.
    for position, n in enumerate(first):
        assert {m for m in expected if m < n} <= set(first[:position]), [step.statements[n].purpose for n in order]
    # A batch may go on in a scope before or after another session is active.
    conditional = [n for n in first if n not in expected and " goes on " not in step.statements[n].purpose]
    assert conditional == sorted(conditional), [step.statements[n].purpose for n in order]
    assert expected <= set(order), [step.statements[n].purpose for n in expected - set(order)]
    return ran


@pytest.mark.parametrize(
    ("name", "key"),
    [*((name, None) for name in RULES), *((name, "job (id)") for name in ("guard", "followers", "nested followers"))],
)
def test_what_runs_is_what_is_shown(
    database: Database, name: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database, key)
    if name == "followers":
        database.execute("DROP TABLE word")
    elif name not in ("followers", "nested followers", "child", "parent", "window elsewhere"):
        database.execute("DELETE FROM word")
        database.execute("DELETE FROM note")
    with keeping(database, RULES[name]) as opened:
        check(opened, monkeypatch)


@pytest.mark.parametrize("name", ["states", "guard", "followers", "nested followers"])
def test_what_a_function_runs_is_what_is_shown(
    postgres_database: PostgresDatabase, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database, "job (id)")
    postgres_database.execute("CREATE INDEX job_due ON job (state, at_ms, id)")
    if name in ("followers", "guard", "states"):
        postgres_database.execute("DROP TABLE word")
    if name in ("guard", "states"):
        postgres_database.execute("DELETE FROM note")
    if name == "states":
        postgres_database.execute("DROP TABLE note")
    with keeping(postgres_database, RULES[name]) as opened:
        ran = check(opened, monkeypatch)
        assert sum(text.startswith(CREATES) for text in ran) == 1


@pytest.mark.parametrize("name", ["age", "states", "guard", "followers", "orphans", "mark"])
def test_what_walks_a_table_by_its_key_is_what_is_shown(
    database: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database, None)
    if name != "followers":
        database.execute("DELETE FROM note")
    database.execute("DROP TABLE word")
    with keeping(database, RULES[name]) as opened:
        [step] = opened.keeper.plan(explain=True).steps
        with monkeypatch.context() as patch:
            patch.setattr(access, "LARGE", 10)
            ran = sweep(opened, monkeypatch)
        found = [[one for one in step.statements if matches(one, text, database)] for text in ran]
        assert all(found), [text for text, shown in zip(ran, found, strict=True) if not shown]
        purposes = [one.purpose for shown in found for one in shown]
        walking = [one.purpose for one in step.statements if one.purpose.startswith(f"{IF_LARGE}: ")]
        assert set(walking) <= set(purposes)
        assert next(one for one in purposes if one in walking) == f"{IF_LARGE}: find where the walk ends"


FUNCTION = "CREATE FUNCTION wane.sql_take_"


@pytest.mark.parametrize("name", RULES)
def test_what_an_installed_function_runs_is_what_is_shown(
    postgres_database: PostgresDatabase, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database, None)
    with keeping(postgres_database, RULES[name]) as opened:
        [step] = opened.keeper.plan(explain=True).steps
        store, [declared] = opened.keeper.store, opened.keeper.contract.tables
        selection = opened.keeper.pruner.bindings.selection(declared, declared.rules[0])
        compiled = statements_of(rows_of(store), selection)
        with traced(opened.keeper, monkeypatch) as ran:
            install(opened.keeper)
    function = "\n".join(text.replace("%%", "%") for text in ran if text.startswith(FUNCTION))
    # A function also has a way to lock and to check again where the engine needs none.
    also = {one.text: "if need be" for one in (compiled.lock, compiled.recheck) if one is not None}
    texts = also | {one.text: one.purpose for one in step.statements}
    absent = []
    # The longest first: one may be a part of another.
    for text, purpose in sorted(texts.items(), key=lambda item: -len(item[0])):
        function, times = re.subn(in_function(text).removeprefix(r"SELECT\ "), "", function)
        if not times and not purpose.startswith(("if ", "in ")) and purpose != "find the next scopes":
            absent.append(purpose)
    assert absent == []
    assert not [line for line in function.splitlines() if any(table in line for table in USERS)]


@pytest.mark.parametrize("name", ["age", "followers"])
def test_what_runs_beside_holds_is_what_is_shown(
    database: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database, None)
    with keeping(database, RULES[name]) as opened:
        opened.keeper.hold("job", {"id": 0}, reason="a test")
        check(opened, monkeypatch)
        assert 0 in opened.ids()


def test_what_moves_rows_inside_the_database_is_what_is_shown(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_database, "job (id)")
    with keeping(postgres_database, table("job", rule("r", then=ToColdTier("archive"), followers=[NESTED]))) as opened:
        check(opened, monkeypatch)


@pytest.mark.parametrize("valid", [True, False])
def test_what_takes_rows_by_texts_of_times_is_what_is_shown(
    sqlite_database: SqliteDatabase, valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_database, None)
    sqlite_database.execute("ALTER TABLE job ADD done_at text")
    sqlite_database.execute("UPDATE job SET done_at = strftime('2020-01-%dT00:00:00Z', '2020-01-01', id || ' days')")
    if not valid:
        sqlite_database.execute("UPDATE job SET done_at = '2020-01-05T99:00:00Z' WHERE id = 3")
    declared = table("job", rule("r", Age(Time("done_at", Unit.ISO), WEEK), when=()), state=None)
    with keeping(sqlite_database, declared) as opened:
        check(opened, monkeypatch)


@pytest.mark.parametrize(
    "name", ["age", "expiry", "states", "column guard", "guard", "cap", "orphans", "conditions", "spare"]
)
def test_no_function_is_in_what_takes_a_batch_on_sqlite(sqlite_database: SqliteDatabase, name: str) -> None:
    """With one, even one that is never called, SQLite copies every page that the statement changes."""
    fill(sqlite_database, None)
    with keeping(sqlite_database, RULES[name]) as opened:
        [step] = opened.keeper.plan(explain=True).steps
        [take] = [one for one in step.statements if one.purpose == "take the batch"]
        store = opened.keeper.store
        assert isinstance(store, SqliteStore)
        program = store._connection.execute(f"EXPLAIN {take.text}", take.parameters).fetchall()
        assert [row for row in program if row[1] == "Delete"]
        assert not [row for row in program if "Function" in row[1]]
