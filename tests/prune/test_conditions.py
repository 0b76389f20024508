"""Conditions on other columns: a rule selects the rows that fulfil them, and every statement that takes rows says
so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

import wane
from prune.keeping import ago
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.conditions import disjoint, equal_to
from wane._contract.load import load_contract
from wane._keeper import Keeper
from wane._sqlfunctions import install
from wane.errors import BindError, WrongArgument

TABLE = """
CREATE TABLE job (
  id integer NOT NULL PRIMARY KEY, state text, at_ms bigint, queue varchar(20), tries integer, most_tries bigint,
  price {fraction}, urgent boolean
)
"""
CONTRACT = """
[store]
url = {url}
[scheduler]
s = {{ every = "5m" }}
[table.job]
scheduler = "s"
why = "a test"
time = {{ column = "at_ms", unit = "ms" }}
"""
STATES = CONTRACT + 'state = "state"\nlive = ["open"]\n'


def create(database: Database) -> None:
    database.execute(TABLE.format(fraction="REAL" if database.store == "sqlite" else "numeric(9, 2)"))


def add(database: Database, **columns: object) -> None:
    names = ", ".join(columns)
    database.execute(f"INSERT INTO job ({names}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values()))


def queued(database: Database, *queues: str | None, state: str = "done", days: float = 30) -> None:
    """Insert one old row for each queue, numbered from 1."""
    for number, queue in enumerate(queues, 1):
        add(database, id=number, state=state, at_ms=ago(days), queue=queue)


@contextmanager
def enabled_keeper(database: Database, folder: Path, rules: str, begin: str = CONTRACT) -> Iterator[Keeper]:
    path = folder / "wane.toml"
    path.write_text(begin.format(url=json.dumps(database.url)) + rules, encoding="utf-8")
    with wane.open(contract=path) as keeper:
        keeper.store.migrate()
        keeper.enable()
        yield keeper


def ids(database: Database) -> list[int]:
    return [one for (one,) in database.query("SELECT id FROM job ORDER BY id")]


@pytest.mark.parametrize(
    ("where", "stay"),
    [
        ('{ queue = "mail" }', [2, 3, 4, 5]),
        ('{ queue = ["mail", "sms"] }', [2, 4, 5]),
        ('{ queue = { not = "mail" } }', [1, 4]),
        ('{ queue = { not = ["mail", "sms"] } }', [1, 3, 4]),
        ('{ queue = { not = "mail", null = true } }', [1]),
        ("{ queue = { null = true } }", [1, 2, 3, 5]),
        ("{ queue = { null = false } }", [4]),
        ('{ queue = { "=" = "mail", null = true } }', [2, 3, 5]),
    ],
)
def test_a_condition_selects_rows_and_null_only_if_it_is_named(
    database: Database, tmp_path: Path, where: str, stay: list[int]
) -> None:
    create(database)
    queued(database, "mail", "MAIL", "sms", None, "")
    with enabled_keeper(database, tmp_path, f'rule.old = {{ keep = "7d", where = {where} }}\n') as keeper:
        [step] = keeper.plan().steps
        assert step.due is not None
        assert step.due.rows == 5 - len(stay)
        [swept] = keeper.sweep(approve=["job.old"]).rules
        assert swept.counts == {"job": 5 - len(stay)}
        assert ids(database) == stay


@pytest.mark.parametrize(
    ("where", "stay"),
    [
        ('{ tries = { column = "most_tries" } }', [2, 3, 4]),
        ('{ tries = { "<" = { column = "most_tries" } } }', [1, 3, 4]),
        ('{ tries = { not = { column = "most_tries" } } }', [1, 3, 4]),
        ('{ tries = { ">=" = 2, "<" = 3 } }', [1, 3, 4]),
        ('{ tries = { ">" = 2 }, queue = { null = true } }', [2, 3]),
        ("{ price = { '>=' = 1.5 } }", [2, 3, 4]),
        ("{ price = [1, 2.25] }", [1, 3, 4]),
        ("{ urgent = true }", [2, 3, 4]),
        ("{ urgent = { not = true } }", [1, 3, 4]),
    ],
)
def test_numbers_booleans_and_two_columns(database: Database, tmp_path: Path, where: str, stay: list[int]) -> None:
    create(database)
    for number, tries, most, price, urgent in (
        (1, 3, 3, 1.5, True),
        (2, 2, 3, 1.0, False),
        (3, None, 3, None, None),
        (4, 4, None, None, None),
    ):
        add(database, id=number, at_ms=ago(30), tries=tries, most_tries=most, price=price, urgent=urgent)
    with enabled_keeper(database, tmp_path, f'rule.old = {{ keep = "7d", where = {where} }}\n') as keeper:
        assert keeper.prune("job", rule="old", limit=10).rows == 4 - len(stay)
        assert ids(database) == stay


def test_each_queue_has_its_own_window(database: Database, tmp_path: Path) -> None:
    create(database)
    queued(database, "mail", "sms", "audit", None, days=10)
    rules = """
    rule.mail  = { keep = "7d", where = { queue = "mail" } }
    rule.audit = { keep = "forever", where = { queue = "audit" } }
    rule.other = { keep = "30d", where = { queue = { not = ["mail", "audit"], null = true } } }
    """
    with enabled_keeper(database, tmp_path, rules) as keeper:
        plan = keeper.plan()
        assert {step.rule: step.due.rows for step in plan.steps if step.due is not None} == {"mail": 1, "other": 0}
        [row] = keeper.pressure()
        assert row.due is not None
        assert row.due.rows == 1
        keeper.sweep(approve=["job.mail"])
        assert ids(database) == [2, 3, 4]


def test_every_other_state_is_none_that_is_named(database: Database, tmp_path: Path) -> None:
    create(database)
    states = ("open", "done", "failed", "odd", None, "gone", "ODD")
    for number, state in enumerate(states, 1):
        add(database, id=number, state=state, at_ms=ago(10), queue="mail")
    rules = """
    excused = { gone = { constant = "a test" } }
    rule.done  = { keep = "30d", when = ["done"] }
    rule.mail  = { keep = "1d", when = ["failed"], where = { queue = "sms" } }
    rule.other = { keep = "7d", when = "*" }
    """
    with enabled_keeper(database, tmp_path, rules, STATES) as keeper:
        keeper.sweep(approve=["job.other"])
        assert ids(database) == [1, 2, 3, 5, 6]
        add(database, id=9, state="new", at_ms=ago(10))
        assert keeper.prune("job", states=["new"], older_than=_now(keeper), limit=5).rows == 1
        with pytest.raises(WrongArgument, match="no rule of job prunes rows in the state 'gone'"):
            keeper.prune("job", states=["gone"], older_than=_now(keeper), limit=5)
        findings = {one.code for one in keeper.check()}
        assert "unlisted-state" in findings  # NULL: no rule selects it.


def _now(keeper: Keeper) -> datetime:
    return keeper.store.now()


def test_an_explicit_prune_takes_only_rows_that_the_condition_selects(database: Database, tmp_path: Path) -> None:
    create(database)
    queued(database, "mail", "sms", None)
    one = 'rule.old = { keep = "7d", when = ["done"], where = { queue = "mail" } }\n'
    with enabled_keeper(database, tmp_path, one, STATES) as keeper:
        assert keeper.prune("job", states=["done"], older_than=_now(keeper), limit=10).rows == 1
        assert ids(database) == [2, 3]
    two = one + 'rule.sms = { keep = "7d", when = ["done"], where = { queue = "sms" } }\n'
    with (
        enabled_keeper(database, tmp_path, two, STATES) as keeper,
        pytest.raises(WrongArgument, match=r"'old' and 'sms' of job select different rows \(`where`\)"),
    ):
        keeper.prune("job", states=["done"], older_than=_now(keeper), limit=10)


def test_a_cap_counts_only_rows_that_its_condition_selects(database: Database, tmp_path: Path) -> None:
    create(database)
    for number in range(10):
        add(database, id=number, at_ms=ago(number), queue="sms" if number < 4 else "mail", tries=number % 2)
    rules = 'rule.cap = { most = 2, per = "tries", where = { queue = "mail" } }\n'
    with enabled_keeper(database, tmp_path, rules) as keeper:
        assert keeper.prune("job", rule="cap", limit=10).rows == 2
        assert ids(database) == list(range(8))


def test_followers_have_the_same_conditions(database: Database, tmp_path: Path) -> None:
    create(database)
    queued(database, "mail")
    database.execute("CREATE TABLE note (id integer PRIMARY KEY, job_id integer, kind text)")
    database.executemany("INSERT INTO note VALUES (?, 1, ?)", [(1, "draft"), (2, "sent"), (3, None)])
    rules = """
    [table.job.rule.old]
    keep = "7d"
    with = [{ table = "note", columns = "job_id", where = { kind = { not = "sent" } } }]
    """
    with enabled_keeper(database, tmp_path, rules) as keeper:
        assert keeper.prune("job", rule="old", limit=10).counts == {"job": 1, "note": 1}
        assert database.query("SELECT id FROM note ORDER BY id") == [(2,), (3,)]


@pytest.mark.parametrize(
    ("where", "sqlite", "postgres"),
    [
        ("{ tries = 'x' }", "declared INTEGER, and 'x' is not a number", "is integer, and 'x' is not of that type"),
        ("{ queue = 5 }", "declared VARCHAR(20), and 5 is not a text", "varying(20), and 5 is not of that type"),
        ("{ queue = { '>' = 5 } }", "texts are equal or not", "only numbers are below or above a constant"),
        ("{ tries = 1.5 }", "", "is integer, and 1.5 is not of that type"),
        ("{ price = '5' }", "makes a number of '5': write it without quotes", "and '5' is not of that type"),
        ("{ queue = { column = 'tries' } }", "only two columns of numbers", "only two columns of numbers"),
        ("{ queue = { '<' = { column = 'state' } } }", "texts are equal or not", "only numbers are below or above"),
        ("{ tries = { column = 'price' } }", "", ""),
        ("{ nope = 1 }", "job has no column 'nope'", "job has no column 'nope'"),
    ],
)
def test_a_value_that_cannot_be_compared_is_a_finding(
    database: Database, tmp_path: Path, where: str, sqlite: str, postgres: str
) -> None:
    create(database)
    expected = sqlite if database.store == "sqlite" else postgres
    with enabled_keeper(database, tmp_path, f'rule.old = {{ keep = "7d", where = {where} }}\n') as keeper:
        found = [one for one in keeper.check_live() if one.code in ("wrong-value-type", "missing-column")]
        assert [one.path for one in found] == (["table.job.rule.old.where"] if expected else [])
        assert all(expected in one.message for one in found), found
        if expected:
            with pytest.raises(BindError):
                keeper.prune("job", rule="old", limit=1)


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("numeric", 'price = { ">=" = 1 }'),
        ("numeric", 'price = { ">" = { column = "tries" } }'),
        ("double precision", 'price = { ">=" = 1 }'),
        ("double precision", "price = { not = 1 }"),
    ],
    ids=["numeric", "two columns", "float", "not"],
)
def test_what_is_no_number_fulfils_no_comparison_on_postgresql(
    postgres_database: PostgresDatabase, tmp_path: Path, kind: str, where: str
) -> None:
    create(postgres_database)
    postgres_database.execute(f"ALTER TABLE job ALTER COLUMN price TYPE {kind}")
    for number, price in ((1, "NaN"), (2, "5")):
        add(postgres_database, id=number, at_ms=ago(30), price=price, tries=1)
    with enabled_keeper(postgres_database, tmp_path, f'rule.old = {{ keep = "7d", where = {{ {where} }} }}') as keeper:
        assert keeper.prune("job", rule="old", limit=10).rows == 1
        assert postgres_database.query("SELECT id FROM job") == [(1,)]


def test_values_of_another_type_fulfil_no_comparison_on_sqlite(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    """A column of SQLite holds any value, and a text is above every number."""
    create(sqlite_database)
    for number, tries in enumerate((9, "many", b"9", 9.5, "9"), 1):
        add(sqlite_database, id=number, at_ms=ago(30), tries=tries, most_tries=1)
    rules = """
    rule.many = { keep = "7d", where = { tries = { ">" = 5 } } }
    rule.not  = { keep = "7d", where = { tries = { not = 3 } } }
    rule.two  = { keep = "7d", where = { tries = { ">" = { column = "most_tries" } } } }
    """
    with enabled_keeper(sqlite_database, tmp_path, rules) as keeper:
        plan = keeper.plan()
        assert [step.due.rows for step in plan.steps if step.due is not None] == [3, 3, 3]
        assert keeper.prune("job", rule="not", limit=9).rows == 3
        assert ids(sqlite_database) == [2, 3]


def test_functions_in_the_database_have_the_same_conditions(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    create(postgres_database)
    queued(postgres_database, "mail", "sms", None, "x'); --")
    rules = """
    rule.other = { keep = "7d", when = "*", where = { queue = { not = ["mail", "x'); --"], null = true } } }
    rule.cap   = { most = 1, when = ["done"], where = { queue = ["mail", "x'); --"] } }
    """
    with enabled_keeper(postgres_database, tmp_path, rules, STATES) as keeper:
        postgres_database.execute("UPDATE job SET state = 'odd' WHERE id IN (2, 3)")
        assert install(keeper).refused == ()
        [(pressure,)] = postgres_database.query("SELECT due FROM wane.v_queue_retention_pressure WHERE tbl = 'job'")
        assert pressure == 3
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'other', 10)")
        assert answer["counts"] == {"job": 2}
        postgres_database.query("SELECT wane.prune('job', 'cap', 10)")
        assert ids(postgres_database) == [4]


def test_rows_move_to_another_schema_only_if_they_fulfil_the_condition(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    create(postgres_database)
    queued(postgres_database, "mail", "sms", None, days=400)
    rules = """
    rule.cold = { keep = "90d", then = "archive", where = { queue = "mail" } }
    [archive.job]
    keep = "forever"
    tier = "database"
    """
    with enabled_keeper(postgres_database, tmp_path, rules) as keeper:
        [swept] = keeper.sweep(approve=["job.cold"]).rules
        assert swept.counts == {"job": 1}
        assert ids(postgres_database) == [2, 3]


def test_rules_that_differ_by_their_condition_share_no_row(database: Database, tmp_path: Path) -> None:
    create(database)
    rules = """
    rule.mail = { keep = "7d", where = { queue = "mail" } }
    rule.rest = { keep = "7d", where = { queue = { not = "mail" } } }
    rule.low  = { keep = "7d", where = { tries = { "<" = 5 } } }
    rule.high = { keep = "7d", where = { tries = { ">=" = 5 } } }
    """
    with enabled_keeper(database, tmp_path, rules) as keeper:
        table = load_contract(keeper.contract.path or tmp_path).tables[0]
        mail, rest, low, high = table.rules
        assert not mail.may_share_rows(rest)
        assert not low.may_share_rows(high)
        assert mail.may_share_rows(low)
        assert not disjoint((("done", equal_to(True)),), (("done", equal_to(1)),))
        assert disjoint((("done", equal_to(True)),), (("done", equal_to(0)),))
        assert table.label(mail) == "job.mail"
