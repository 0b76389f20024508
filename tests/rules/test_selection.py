"""Binding a contract to a database: everything that does not fit is a finding, and such a rule is never turned into a
statement."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from conformance.due_rows import bind, bound_rule, one_rule, opened, refusals
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.conditions import equal_to
from wane._contract.duration import FOREVER
from wane._contract.model import (
    Age,
    Cap,
    Contract,
    Excuse,
    ExcuseKind,
    Expiry,
    Follower,
    Orphans,
    Reference,
    ReferencedBy,
    Rule,
    State,
    Table,
    Time,
    Unit,
    WhileNotNull,
    WhileNull,
)
from wane._contract.names import TableName
from wane._contract.settings import StoreSettings
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Severity
from wane._rules.rows import rows_of
from wane._rules.selection import BoundComparison, bind_contract

WEEK = timedelta(days=7)
MS = Time("happened", Unit.MILLISECONDS)
AGE = Age(MS, WEEK)

TABLES = """
CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text, happened bigint, tenant text, parent integer);
CREATE TABLE child (id integer NOT NULL PRIMARY KEY, job_id integer, tenant text);
CREATE TABLE bare (id integer, happened bigint);
"""


@pytest.fixture
def tables(database: Database) -> Database:
    database.script(TABLES)
    return database


def reported(database: Database, *declared: Table) -> list[tuple[str, str, str, str]]:
    """Return each refusal as (path, code, message, fix)."""
    findings = refusals(database, *declared)
    assert all(finding.severity is Severity.ERROR and finding.table for finding in findings)
    return [(finding.path, finding.code, finding.message, finding.fix) for finding in findings]


def with_rule(rule: Rule, name: str = "job") -> Table:
    return Table(TableName(name), "a test", (rule,))


def referenced(table: str, columns: tuple[str, ...], to: tuple[str, ...] = ()) -> Table:
    guard = ReferencedBy(Reference(TableName.parse(table), columns, to))
    return one_rule("job", AGE, unless=[guard])


# --- What fits ------------------------------------------------------------------------------------------------------


def test_a_rule_that_fits_is_bound_with_everything_it_names(tables: Database) -> None:
    tables.execute("CREATE UNIQUE INDEX one_of_each_tenant ON job (tenant)")
    rule = Rule(
        "old",
        Cap(MS, 5, ("tenant",)),
        ("done",),
        (WhileNull("parent"), WhileNotNull("tenant"), ReferencedBy(Reference(TableName("child"), ("job_id",)))),
        (Follower(Reference(TableName("child"), ("tenant",), ("tenant",)), (("id", equal_to(1)),)),),
    )
    with opened(tables) as store:
        selection = bound_rule(store, Table(TableName("job"), "a test", (rule,), state="state", live=("running",)))
    assert selection.label == "job.old"
    assert [column.name for column in selection.key] == ["id"]
    assert (selection.time, selection.time_column.name) == (MS, "happened")
    assert selection.state is not None
    assert selection.state.name == "state"
    assert [column.name for column in selection.per] == ["tenant"]
    assert [column.name for column in selection.saved_while_null] == ["parent"]
    assert [column.name for column in selection.saved_while_not_null] == ["tenant"]
    [guard] = selection.guards
    assert (guard.table.name, guard.columns[0].name, guard.to[0].name) == ("child", "job_id", "id")
    [follower] = selection.followers
    assert (follower.reference.columns[0].name, follower.reference.to[0].name) == ("tenant", "tenant")
    [where] = follower.where
    assert (where.column.name, where.comparisons) == ("id", (BoundComparison("=", (1,)),))


@pytest.mark.parametrize(
    ("more", "enforced"),
    [
        ("", True),
        ("CREATE TABLE descendant (FOREIGN KEY (job_id) REFERENCES job (id)) INHERITS (tag)", True),
        ("CREATE TABLE descendant () INHERITS (tag)", False),
        ("ALTER TABLE tag ALTER CONSTRAINT tag_job_id_fkey DEFERRABLE", False),
    ],
)
def test_a_reference_is_enforced_if_every_table_with_its_rows_has_a_key_that_locks(
    postgres_database: PostgresDatabase, more: str, enforced: bool
) -> None:
    postgres_database.script(TABLES + "CREATE TABLE tag (id integer, job_id integer REFERENCES job (id));" + more)
    with opened(postgres_database) as store:
        [guard] = bound_rule(store, referenced("tag", ("job_id",))).guards
    assert guard.enforced is enforced


def test_rules_that_keep_forever_are_not_bound(tables: Database) -> None:
    with opened(tables) as store:
        assert bind(store, with_rule(Rule("kept", FOREVER), "no such table")) == ([], [])


def test_one_bad_rule_does_not_stop_the_others(tables: Database) -> None:
    with opened(tables) as store:
        selections, findings = bind(store, one_rule("nowhere", AGE), one_rule("job", AGE))
    assert [selection.label for selection in selections] == ["job.rule"]
    assert [finding.code for finding in findings] == ["missing-table"]


def test_two_rules_with_the_same_mistake_report_it_once(tables: Database) -> None:
    table = Table(TableName("nowhere"), "a test", (Rule("one", AGE), Rule("two", AGE)))
    assert [code for _, code, _, _ in reported(tables, table)] == ["missing-table"]


def test_a_finding_names_the_file_of_the_contract(tables: Database) -> None:
    with opened(tables) as store:
        contract = Contract(Path("wane.toml"), (one_rule("nowhere", AGE),))
        _, [finding] = bind_contract(contract, store.reflect(), store.types)
    assert str(finding) == (
        "wane.toml table.nowhere: the database has no table nowhere\n  fix: create it, or remove it here"
    )


# --- Tables ---------------------------------------------------------------------------------------------------------


def test_a_missing_table_is_reported_with_a_near_name(tables: Database) -> None:
    assert reported(tables, one_rule("jobs", AGE)) == [
        ("table.jobs", "missing-table", "the database has no table jobs", "did you mean 'job'?")
    ]
    [(_, code, message, _)] = reported(tables, one_rule("job", AGE, schema="elsewhere"))
    assert (code, message) == ("missing-table", "the database has no table elsewhere.job")


def test_names_of_tables_are_exact(tables: Database) -> None:
    assert [code for _, code, _, _ in reported(tables, one_rule("JOB", AGE))] == ["missing-table"]
    assert [
        code for _, code, _, _ in reported(tables, one_rule("job", Age(Time("Happened", Unit.MILLISECONDS), WEEK)))
    ] == ["missing-column"]


def test_a_view_is_no_table(tables: Database) -> None:
    tables.execute("CREATE VIEW shown AS SELECT * FROM job")
    assert reported(tables, one_rule("shown", AGE)) == [
        ("table.shown", "not-a-table", "shown is a view, and a table is expected", "")
    ]
    assert reported(tables, referenced("shown", ("parent",))) == [
        ("table.job.rule.rule.unless", "not-a-table", "shown is a view, and a table is expected", "")
    ]


def test_a_virtual_table_is_no_table(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.execute("CREATE VIRTUAL TABLE search USING fts5(words)")
    assert reported(sqlite_database, one_rule("search", AGE)) == [
        ("table.search", "not-a-table", "search is a virtual table, and a table is expected", "")
    ]


def test_materialized_views_foreign_tables_and_partitions_are_no_tables(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""
        CREATE TABLE event (id integer, happened bigint, PRIMARY KEY (id, happened)) PARTITION BY RANGE (happened);
        CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (1);
        CREATE MATERIALIZED VIEW summary AS SELECT * FROM event;
        CREATE FOREIGN DATA WRAPPER dummy;
        CREATE SERVER far FOREIGN DATA WRAPPER dummy;
        CREATE FOREIGN TABLE remote (id integer, happened bigint) SERVER far;
    """)
    assert reported(postgres_database, *(one_rule(name, AGE) for name in ("summary", "remote", "event_1"))) == [
        ("table.summary", "not-a-table", "summary is a materialized view, and a table is expected", ""),
        ("table.remote", "not-a-table", "remote is a foreign table, and a table is expected", ""),
        ("table.event_1", "not-a-table", "event_1 is a partition", "name its parent, public.event"),
    ]
    with opened(postgres_database) as store:
        assert bound_rule(store, one_rule("event", AGE)).table.name == "event"


def test_tables_of_attached_databases_have_no_rules(sqlite_database: SqliteDatabase) -> None:
    other = SqliteDatabase(sqlite_database.path.parent / "other.db")
    other.script(TABLES)
    other.close()
    url = resolve_url(sqlite_database.url)
    with open_store(url, StoreSettings(attach=(("other", "other.db"),)), read_only=True) as store:
        selections, [finding] = bind(store, one_rule("job", AGE, schema="other"))
    assert selections == []
    assert finding.code == "refused-table"
    assert finding.message == (
        "other.job is in an attached database: one SQLite transaction over two files is not atomic, "
        "so only tables of the main database can have rules"
    )


# --- Columns --------------------------------------------------------------------------------------------------------

MISSING = [
    (one_rule("job", AGE, key=["ide"]), "key", "ide", "did you mean 'id'?"),
    (one_rule("job", AGE, when=["done"], state="stat"), "state", "stat", "did you mean 'state'?"),
    (one_rule("job", Expiry(Time("hapened"))), "rule.rule.time", "hapened", "did you mean 'happened'?"),
    (one_rule("job", Cap(MS, 1, ("tenants",))), "rule.rule.per", "tenants", "did you mean 'tenant'?"),
    (one_rule("job", Orphans(MS, WEEK, "parents")), "rule.rule.orphans", "parents", "did you mean 'parent'?"),
    (one_rule("job", AGE, unless=[WhileNull("parnt")]), "rule.rule.unless", "parnt", "did you mean 'parent'?"),
    (one_rule("job", AGE, unless=[WhileNotNull("parnt")]), "rule.rule.unless", "parnt", "did you mean 'parent'?"),
    (referenced("child", ("job_id",), ("idd",)), "rule.rule.unless", "idd", "did you mean 'id'?"),
]


@pytest.mark.parametrize(
    ("table", "path", "name", "fix"), MISSING, ids=[f"{path} {name}" for _, path, name, _ in MISSING]
)
def test_a_missing_column_is_reported_where_it_is_named(
    tables: Database, table: Table, path: str, name: str, fix: str
) -> None:
    assert reported(tables, table) == [(f"table.job.{path}", "missing-column", f"job has no column {name!r}", fix)]


def test_a_column_unlike_any_other_is_reported_with_all_there_are(tables: Database) -> None:
    assert reported(tables, one_rule("job", Expiry(Time("xyz")))) == [
        (
            "table.job.rule.rule.time",
            "missing-column",
            "job has no column 'xyz'",
            "columns: id, state, happened, tenant, parent",
        )
    ]


def test_a_missing_state_does_not_hide_a_missing_time(tables: Database) -> None:
    found = reported(tables, one_rule("job", Expiry(Time("when")), when=["done"], state="status"))
    assert [(path, code) for path, code, _, _ in found] == [
        ("table.job.state", "missing-column"),
        ("table.job.rule.rule.time", "missing-column"),
    ]


# --- Keys -----------------------------------------------------------------------------------------------------------


def test_a_table_without_a_key_is_refused(tables: Database) -> None:
    assert reported(tables, one_rule("bare", AGE)) == [
        ("table.bare.key", "no-key", "bare has no primary key", "name the columns of a unique key: `key = […]`")
    ]


def test_a_key_that_is_not_unique_is_refused(tables: Database) -> None:
    tables.script("CREATE UNIQUE INDEX partly ON bare (id) WHERE happened > 0; CREATE INDEX all_ids ON bare (id)")
    tables.script("CREATE UNIQUE INDEX folded ON bare (abs(id)); CREATE UNIQUE INDEX pair ON bare (id, happened)")
    assert reported(tables, one_rule("bare", AGE, key=["id"])) == [
        ("table.bare.key", "no-key", "(id) is not unique in bare", "name columns with a unique index")
    ]
    with opened(tables) as store:
        assert [column.name for column in bound_rule(store, one_rule("bare", AGE, key=["happened", "id"])).key] == [
            "happened",
            "id",
        ]


def test_a_key_may_be_any_unique_one_and_more(tables: Database) -> None:
    tables.script("CREATE UNIQUE INDEX by_tenant ON job (tenant)")
    with opened(tables) as store:
        for key in (["tenant"], ["tenant", "happened"], ["id"]):
            assert [column.name for column in bound_rule(store, one_rule("job", AGE, key=key)).key] == key


# --- Types of times -------------------------------------------------------------------------------------------------

NUMBERS, TEXTS = '"s", "ms" or "us"', '"iso", "text", "date" or none'
WRONG_TIMES = {
    "sqlite": [
        ("INTEGER", Time("x"), f"x is declared INTEGER and needs a unit of numbers: {NUMBERS}"),
        ("REAL", Time("x", Unit.ISO), f"x is declared REAL and needs a unit of numbers: {NUMBERS}"),
        ("DECIMAL(10)", Time("x", Unit.TEXT), f"x is declared DECIMAL(10) and needs a unit of numbers: {NUMBERS}"),
        ("TEXT", Time("x", Unit.SECONDS), f"x is declared TEXT and needs a unit of text: {TEXTS}"),
        ("VARCHAR(30)", Time("x", Unit.MILLISECONDS), f"x is declared VARCHAR(30) and needs a unit of text: {TEXTS}"),
        ("INTEGER", Time("x", Unit.DATE), f"x is declared INTEGER and needs a unit of numbers: {NUMBERS}"),
        ("BLOB", Time("x", Unit.ISO), "x is declared BLOB, which holds no timestamps"),
        ("BLOB", Time("x", Unit.SECONDS), "x is declared BLOB, which holds no timestamps"),
        (
            "TEXT",
            Time("x", zone="Europe/Vienna"),
            'SQLite writes CURRENT_TIMESTAMP in UTC: use unit = "text" for wall-clock times of Europe/Vienna',
        ),
    ],
    "postgres": [
        (
            "timestamp",
            Time("x"),
            'x is timestamp without time zone: its values shift with the session, so declare their zone, for example zone = "UTC"',
        ),
        ("timestamptz", Time("x", zone="UTC"), "x is timestamp with time zone, which knows its zone: remove `zone`"),
        (
            "timestamptz",
            Time("x", Unit.SECONDS),
            "x is timestamp with time zone, which does not hold a number of s since 1970",
        ),
        ("timestamptz", Time("x", Unit.ISO), 'x is timestamp with time zone, and unit = "iso" needs a text'),
        ("real", Time("x", Unit.SECONDS), "x is real, which does not hold a number of s since 1970"),
        ("smallint", Time("x", Unit.SECONDS), "x is smallint, which does not hold a number of s since 1970"),
        ("integer", Time("x", Unit.MILLISECONDS), "x is integer, which does not hold a number of ms since 1970"),
        ("integer", Time("x", Unit.MICROSECONDS), "x is integer, which does not hold a number of us since 1970"),
        ("text", Time("x", Unit.MILLISECONDS), "x is text, which does not hold a number of ms since 1970"),
        ("bigint", Time("x"), f"x is bigint and needs a unit: {NUMBERS}"),
        ("numeric(20,3)", Time("x"), f"x is numeric(20,3) and needs a unit: {NUMBERS}"),
        ("bigint", Time("x", Unit.TEXT), 'x is bigint, and unit = "text" needs a text'),
        ("text", Time("x"), 'x is text and needs a unit: "iso", "text" or "date"'),
        ("character(30)", Time("x", Unit.ISO), 'x is character(30), and unit = "iso" needs a text'),
        ("date", Time("x"), 'x is date and needs unit = "date": a row counts from the end of its day'),
        (
            "timestamptz",
            Time("x", Unit.DATE),
            'x is timestamp with time zone, and unit = "date" needs a date or a text',
        ),
        ("date", Time("x", Unit.ISO), 'x is date, and unit = "iso" needs a text'),
        ("time", Time("x"), "x is time without time zone, which is no timestamp"),
        ("interval", Time("x"), "x is interval, which is no timestamp"),
        ("jsonb", Time("x"), "x is jsonb, which is no timestamp"),
        ("timestamptz[]", Time("x"), "x is timestamp with time zone[], which is no timestamp"),
    ],
}


def test_a_time_that_its_column_cannot_hold_is_refused(database: Database) -> None:
    for number, (type_, time, message) in enumerate(WRONG_TIMES[database.store]):
        database.execute(f"CREATE TABLE item_{number} (id integer NOT NULL PRIMARY KEY, x {type_})")
        assert reported(database, one_rule(f"item_{number}", Expiry(time))) == [
            (f"table.item_{number}.rule.rule.time", "wrong-time-type", message, "")
        ]


def test_a_domain_is_not_guessed_at(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE DOMAIN stamp AS timestamptz; CREATE TABLE item (id int PRIMARY KEY, x stamp)")
    [(_, code, message, _)] = reported(postgres_database, one_rule("item", Expiry(Time("x"))))
    assert (code, message) == ("wrong-time-type", "x is public.stamp, which is no timestamp")


# --- Types of states ------------------------------------------------------------------------------------------------

WRONG_STATES: dict[str, list[tuple[str, State, str]]] = {
    "sqlite": [
        ("TEXT", 1, "x is declared TEXT, and 1 is not a text"),
        ("VARCHAR(9)", True, "x is declared VARCHAR(9), and True is not a text"),
        ("INTEGER", "done", "x is declared INTEGER, and 'done' is not a number"),
        ("INTEGER", 2**63, "9223372036854775808 is larger than any number of SQLite"),
    ],
    "postgres": [
        ("text", 1, "x is text, and 1 is not of that type"),
        ("integer", "1", "x is integer, and '1' is not of that type"),
        ("integer", True, "x is integer, and True is not of that type"),
        ("boolean", 1, "x is boolean, and 1 is not of that type"),
        ("boolean", "true", "x is boolean, and 'true' is not of that type"),
        ("smallint", 32_768, "x is smallint, and 32768 is too large for it"),
        ("integer", -(2**31) - 1, "x is integer, and -2147483649 is too large for it"),
        ("bigint", 2**63, "x is bigint, and 9223372036854775808 is too large for it"),
        ("mood", "sad", "'sad' is not a label of public.mood: happy, angry"),
        ("mood", 1, "1 is not a label of public.mood: happy, angry"),
        ("jsonb", "done", "x is jsonb: only texts, whole numbers, booleans and enums are compared with values"),
        ("text[]", "done", "x is text[]: only texts, whole numbers, booleans and enums are compared with values"),
    ],
}


def test_a_state_that_its_column_cannot_hold_is_refused(database: Database) -> None:
    if database.store == "postgres":
        database.execute("CREATE TYPE mood AS ENUM ('happy', 'angry')")
    excuse = Excuse(ExcuseKind.INLINE, "a test")
    for number, (type_, state, message) in enumerate(WRONG_STATES[database.store]):
        name = f"item_{number}"
        database.execute(f"CREATE TABLE {name} (id integer NOT NULL PRIMARY KEY, x {type_}, happened bigint)")
        expected = [(f"table.{name}.state", "wrong-state-type", message, "")]
        rules = (Rule("rule", AGE, (state,)),)
        other = (Rule("rule", AGE),)
        assert reported(database, Table(TableName(name), "a test", rules, state="x")) == expected
        assert reported(database, Table(TableName(name), "a test", other, state="x", live=(state,))) == expected
        assert (
            reported(database, Table(TableName(name), "a test", other, state="x", excused=((state, excuse),)))
            == expected
        )


def test_the_largest_numbers_are_states(database: Database) -> None:
    database.execute("CREATE TABLE item (id integer NOT NULL PRIMARY KEY, state bigint, happened bigint)")
    with opened(database) as store:
        assert bound_rule(store, one_rule("item", AGE, when=[2**63 - 1, -(2**63)])).rule.states


# --- References -----------------------------------------------------------------------------------------------------


def test_a_reference_to_nothing_is_reported_where_it_is_named(tables: Database) -> None:
    assert reported(tables, referenced("childs", ("job_id",))) == [
        ("table.job.rule.rule.unless", "missing-table", "the database has no table childs", "did you mean 'child'?")
    ]
    assert reported(tables, referenced("child", ("jobid",))) == [
        ("table.job.rule.rule.unless", "missing-column", "child has no column 'jobid'", "did you mean 'job_id'?")
    ]
    follower = Follower(Reference(TableName("child"), ("job_id",)), (("tennant", equal_to("x")),))
    assert reported(tables, with_rule(Rule("rule", AGE, followers=(follower,)))) == [
        ("table.job.rule.rule.with", "missing-column", "child has no column 'tennant'", "did you mean 'tenant'?")
    ]


def test_a_reference_names_as_many_columns_as_it_points_at(tables: Database) -> None:
    fix = "name all columns of the reference: { table, columns, to }"
    assert reported(tables, referenced("child", ("job_id", "tenant"))) == [
        (
            "table.job.rule.rule.unless",
            "wrong-reference",
            "child.job_id,tenant has 2 columns, the key it points at 1: id",
            fix,
        )
    ]
    assert reported(tables, referenced("child", ("job_id",), ("id", "tenant"))) == [
        (
            "table.job.rule.rule.unless",
            "wrong-reference",
            "child.job_id has 1 columns, the key it points at 2: id, tenant",
            fix,
        )
    ]


def test_a_follower_of_a_table_without_a_key_states_what_it_points_at(tables: Database) -> None:
    inner = Follower(Reference(TableName("child"), ("job_id",)))
    outer = Follower(Reference(TableName("bare"), ("id",)), (), (inner,))
    [(path, code, message, _)] = reported(tables, with_rule(Rule("rule", AGE, followers=(outer,))))
    assert (path, code) == ("table.job.rule.rule.with", "wrong-reference")
    assert message.startswith("child.job_id has 1 columns, the key it points at 0")
    named = Follower(
        Reference(TableName("bare"), ("id",)), (), (Follower(Reference(TableName("child"), ("job_id",), ("id",))),)
    )
    tables.execute("CREATE UNIQUE INDEX bare_id ON bare (id)")
    with opened(tables) as store:
        assert bound_rule(store, with_rule(Rule("rule", AGE, followers=(named,)))).followers


def test_what_a_foreign_key_states_of_another_table_is_no_reference(tables: Database) -> None:
    tables.script(
        "CREATE TABLE step (id integer NOT NULL PRIMARY KEY, job_id integer REFERENCES job (id), before integer REFERENCES step (id));"
        " CREATE TABLE log (id integer NOT NULL PRIMARY KEY, step_id integer REFERENCES step (id));"
        " CREATE TABLE mail (job_id integer NOT NULL PRIMARY KEY REFERENCES job (id));"
        " CREATE TABLE bounce (id integer NOT NULL PRIMARY KEY, mail_id integer REFERENCES mail (job_id),"
        " job_id integer REFERENCES job (id))"
    )

    def followed(table: str, column: str, name: str = "job", to: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        follower = Follower(Reference(TableName(table), (column,), to))
        time = Expiry(Time("job_id", Unit.SECONDS)) if name == "mail" else AGE
        found = reported(tables, with_rule(Rule("rule", time, followers=(follower,)), name))
        return [(code, message) for _, code, message, _ in found]

    other = ("wrong-reference", "log.step_id refers to step by a foreign key, not to job")
    assert followed("log", "step_id") == [other], "log 7 belongs to step 7, whatever job 7 is"
    assert followed("step", "before") == [
        ("wrong-reference", "step.before refers to step by a foreign key, not to job")
    ]
    [(path, code, _, fix)] = reported(tables, referenced("log", ("step_id",)))
    assert (path, code) == ("table.job.rule.rule.unless", "wrong-reference")
    assert fix.startswith("name a column that refers to job, or let it follow step, inside its entry: `with`")
    assert followed("log", "step_id", to=("id",)) == [], "confirmed"
    assert followed("step", "job_id") == []
    assert followed("bounce", "mail_id") == [], "the key of mail is the job's"
    assert followed("bounce", "job_id", "mail") == [], "both hold keys of jobs"


def test_what_cannot_be_compared_is_no_reference(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(TABLES + "CREATE TABLE tag (job text, n numeric, u uuid);")
    for column, type_ in (("job", "text"), ("u", "uuid")):
        assert reported(postgres_database, referenced("tag", (column,))) == [
            (
                "table.job.rule.rule.unless",
                "wrong-reference",
                f"tag.{column}: {column} is {type_} and id is integer, which cannot be compared",
                "",
            )
        ]
    with opened(postgres_database) as store:
        assert bound_rule(store, referenced("tag", ("n",))).guards


COMPARED = {
    ("text", "text"): True,
    ("text", "varchar(9)"): True,
    ("text", "integer"): False,
    ("text", "real"): False,
    ("text", "numeric"): False,
    ("text", "decimal(9)"): False,
    ("text", "blob"): False,
    ("text", ""): False,
    ("text", "any"): False,
    ("blob", "blob"): True,
    ("blob", ""): True,
    ("blob", "text"): True,
    ("blob", "integer"): False,
    ("", "integer"): False,
    ("", "text"): True,
    ("integer", "bigint"): True,
    ("integer", "real"): True,
    ("integer", "text"): True,
    ("integer", "blob"): True,
    ("integer", ""): True,
    ("numeric", "text"): True,
    ("text COLLATE nocase", "text"): True,
    ("text", "text COLLATE nocase"): True,
    ("text COLLATE rtrim", "text COLLATE nocase"): True,
    ("any", "any"): True,
    ("any", "integer"): False,
}
"""Types of a parent's and a child's column on SQLite, and whether comparing them is what a foreign key does."""
VALUES = ["'1'", "'a '", "'01'", "1", "1.0", "'1.0'", "x'31'", "'a'", "'A'", "1e20", "'1e20'"]


@pytest.mark.parametrize(("key", "reference"), COMPARED, ids=str)
def test_sqlite_compares_a_reference_as_a_foreign_key_does_or_it_is_refused(
    sqlite_database: SqliteDatabase, key: str, reference: str
) -> None:
    """Which child refers to which parent: by SQLite's own foreign keys, and by the statement that Wane would run."""
    sqlite_database.script(
        f"CREATE TABLE job (id {key} PRIMARY KEY, happened integer);"
        f"CREATE TABLE child (n integer PRIMARY KEY, job_id {reference} REFERENCES job (id));"
    )
    declared = referenced("child", ("job_id",))
    if not COMPARED[key, reference]:
        [(path, code, message, _)] = reported(sqlite_database, declared)
        assert (path, code) == ("table.job.rule.rule.unless", "wrong-reference")
        assert "otherwise than a foreign key does" in message
        return
    with opened(sqlite_database) as store:
        [guard] = bound_rule(store, declared).guards
        joined = f"SELECT 1 FROM job AS t, child AS g WHERE {rows_of(store).refers(guard, 'g', 't')}"
        among = " AND ".join(rows_of(store).refers_among(guard, "g", "SELECT id FROM job"))
    connection = sqlite_database.connect()
    connection.execute("PRAGMA foreign_keys = OFF")
    for parent in VALUES:
        for child in VALUES:
            connection.execute("DELETE FROM child")
            connection.execute("DELETE FROM job")
            try:
                connection.execute(f"INSERT INTO job (id) VALUES ({parent})")
            except sqlite3.IntegrityError:
                continue  # A rowid is a whole number.
            connection.execute(f"INSERT INTO child (job_id) VALUES ({child})")
            by_key = not connection.execute("PRAGMA foreign_key_check").fetchall()
            for ours in (joined, f"SELECT 1 FROM child AS g WHERE {among}"):
                assert bool(connection.execute(ours).fetchall()) is by_key, (parent, child)


@pytest.mark.parametrize(
    ("key", "reference", "fits"),
    [
        ("bigint", "integer", True),
        ("bigint", "numeric", True),
        ("bigint", "double precision", False),
        ("numeric", "real", False),
        ("integer", "double precision", True),
        ("double precision", "bigint", True),
        ("text", "character varying(5)", True),
        ("text", "character(5)", True),
        ("character(5)", "text", False),
        ("character(5)", "character varying(5)", False),
        ("character(5)", "character(9)", True),
    ],
)
def test_postgres_compares_a_reference_as_a_foreign_key_does_or_it_is_refused(
    postgres_database: PostgresDatabase, key: str, reference: str, fits: bool
) -> None:
    postgres_database.script(
        f"CREATE TABLE job (id {key} PRIMARY KEY, happened bigint); CREATE TABLE child (job_id {reference})"
    )
    found = reported(postgres_database, referenced("child", ("job_id",)))
    assert [code for _, code, _, _ in found] == ([] if fits else ["wrong-reference"])


def test_a_fixed_value_of_a_follower_must_fit_its_column(tables: Database) -> None:
    follower = Follower(Reference(TableName("child"), ("job_id",)), (("job_id", equal_to("one")),))
    [(path, code, message, _)] = reported(tables, with_rule(Rule("rule", AGE, followers=(follower,))))
    assert (path, code) == ("table.job.rule.rule.with", "wrong-value-type")
    assert "'one' is not" in message
