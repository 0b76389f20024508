"""The demonstration's database: the same every time, full of work, and no planted row is ever due.

What is due is worked out here a second time, in plain SQL, from nothing but the contract.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from servers import Database, SqliteDatabase
from wane._contract.duration import Forever
from wane._contract.load import load_contract
from wane._contract.model import (
    Age,
    Cap,
    Contract,
    Expiry,
    Follower,
    Guard,
    Orphans,
    ReferencedBy,
    Rule,
    Table,
    Time,
    Unit,
    WhileNull,
)
from wane._demo.seed import TRAPS, attached_path, seed
from wane.reference import names, schema_sql

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ENOUGH = 150_000
"""Rows that give every rule something to do, the cap on presence too."""


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    file = tmp_path / "wane.toml"
    file.write_text(f"include = {[f'reference:{name}' for name in names()]}\n")
    return load_contract(file)


def test_the_same_seed_makes_the_same_rows_and_another_seed_others(tmp_path: Path) -> None:
    prints = []
    for number, random_seed in enumerate((7, 7, 8)):
        path = tmp_path / f"{number}.db"
        seed(f"sqlite:///{path}", rows=2_000, now=NOW, random_seed=random_seed)
        prints.append(fingerprint(path) + fingerprint(attached_path(path)))
    assert prints[0] == prints[1]
    assert prints[0] != prints[2]


def fingerprint(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()
    finally:
        connection.close()


def test_every_table_is_filled_and_progress_is_reported(database: Database) -> None:
    reported: list[tuple[str, int, int]] = []
    counts = seed(database.url, rows=5_000, now=NOW, progress=lambda *step: reported.append(step))
    scripts = [sql for name in names() for sql in schema_sql(name, database.store).values()]
    tables = sum(len(re.findall(r"CREATE TABLE (?!wane_)", sql)) for sql in scripts)
    assert [done for _, done, _ in reported] == list(range(1, tables + 1))
    assert {total for _, _, total in reported} == {tables}
    assert [table for table, _, _ in reported] == list(counts)
    attach(database)
    for table, count in counts.items():
        assert database.query(f"SELECT count(*) FROM {table}") == [(count,)]
        assert count > 0
    assert 4_500 <= sum(counts.values()) <= 7_000


def test_both_stores_get_the_same_number_of_rows(database: Database, tmp_path: Path) -> None:
    expected = seed(f"sqlite:///{tmp_path / 'other.db'}", rows=3_000, now=NOW)
    assert seed(database.url, rows=3_000, now=NOW) == expected


@pytest.mark.unmigrated
def test_a_database_with_tables_is_unchanged(database: Database) -> None:
    database.execute("CREATE TABLE connections (id integer)")
    with pytest.raises(Exception, match="already exists"):
        seed(database.url, rows=1_000, now=NOW)
    tables = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
        "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    }
    assert database.query(tables[database.store]) == [("connections",)]


def test_no_reference_dangles(sqlite_database: SqliteDatabase) -> None:
    seed(sqlite_database.url, rows=5_000, now=NOW)
    attach(sqlite_database)
    assert sqlite_database.query("PRAGMA foreign_key_check") == []


def test_the_application_can_go_on_inserting(database: Database) -> None:
    seed(database.url, rows=1_000, now=NOW)
    [(last,)] = database.query("SELECT max(id) FROM outbox")
    database.execute("INSERT INTO outbox (tenant_id, topic, payload_json) VALUES ('acme', 'new', '{}')")
    assert database.query("SELECT id FROM outbox WHERE topic = 'new'") == [(last + 1,)]


def test_trap_names_are_unique() -> None:
    assert len({trap.name for trap in TRAPS}) == len(TRAPS)


def test_every_rule_has_work_and_no_planted_row_is_due(database: Database, contract: Contract) -> None:
    seed(database.url, rows=ENOUGH, now=NOW)
    attach(database)
    for trap in TRAPS:
        assert planted(database, trap.table, trap.predicate) == trap.rows, trap.name

    idle = [f"{table.name}.{rule.name}" for table, rule in contract.rules() if not due(database, table, rule, NOW)]
    assert idle == []

    for trap in TRAPS:
        assert leaving(database, contract, trap.table, trap.predicate, NOW) == 0, f"{trap.name} is due"
        later = NOW + (timedelta(minutes=30) if trap.lasting else SECOND)
        gone = leaving(database, contract, trap.table, trap.predicate, later)
        assert gone == (0 if trap.lasting else trap.rows), f"{trap.name} at {later}"


def planted(database: Database, table: str, predicate: str) -> int:
    [(count,)] = database.query(f"SELECT count(*) FROM {table} WHERE {predicate}")
    return int(count)


def due(database: Database, table: Table, rule: Rule, now: datetime, where: str = "true") -> int:
    sql = f"SELECT count(*) FROM {table.name} AS t WHERE {due_condition(database.store, table, rule, now)} AND {where}"
    [(count,)] = database.query(sql)
    return int(count)


def leaving(database: Database, contract: Contract, name: str, where: str, now: datetime) -> int:
    """Count how many of these rows are due themselves or follow a row that is."""
    count = sum(due(database, table, rule, now, where) for table, rule in contract.rules() if str(table.name) == name)
    for table, rule, follower in contract.followers():
        if str(follower.reference.table) == name:
            parents = (
                f"SELECT {key(table)} FROM {table.name} AS t WHERE {due_condition(database.store, table, rule, now)}"
            )
            sql = f"SELECT count(*) FROM {name} WHERE {where} AND {follows(follower)} AND {column(follower)} IN ({parents})"
            count += int(database.query(sql)[0][0])
    return count


def due_condition(store: str, table: Table, rule: Rule, now: datetime) -> str:
    """Return the rule in plain SQL about a row `t`."""
    bound = rule.bound
    assert not isinstance(bound, Forever)
    assert bound.time is not None
    time = f"t.{bound.time.column}"
    real = f"{time} > {literal(store, bound.time, datetime(1970, 1, 1, tzinfo=UTC))}"
    parts = [real, *(f"NOT {guard_condition(table, guard)}" for guard in rule.guards)]
    if rule.states:
        parts.append(f"t.{table.state} IN ({', '.join(map(quoted, rule.states))})")
    match bound:
        case Age(keep=keep) | Orphans(keep=keep):
            parts.append(f"{time} < {literal(store, bound.time, now - keep)}")
        case Expiry():
            parts.append(f"{time} <= {literal(store, bound.time, now)}")
        case Cap(most=most, per=[scope]):
            newer = f"(o.{bound.time.column}, o.instance_id) > ({time}, t.instance_id)"
            parts.append(f"(SELECT count(*) FROM {table.name} AS o WHERE o.{scope} = t.{scope} AND {newer}) >= {most}")
    if isinstance(bound, Orphans):
        parts.append(f"t.{bound.reference} IS NULL")
    return " AND ".join(parts)


def guard_condition(table: Table, guard: Guard) -> str:
    if isinstance(guard, ReferencedBy):
        [child] = guard.reference.columns
        return f"EXISTS (SELECT 1 FROM {guard.reference.table} AS c WHERE c.{child} = t.{key(table)})"
    assert isinstance(guard, WhileNull)
    return f"(t.{guard.column} IS NULL)"


def key(table: Table) -> str:
    return "inbox_id" if table.name.name == "channel_inbox" else "id"


def column(follower: Follower) -> str:
    [only] = follower.reference.columns
    return only


def follows(follower: Follower) -> str:
    return " AND ".join(["true", *(f"{name} = {quoted(one.constant)}" for name, one in follower.where)])


def quoted(value: object) -> str:
    return f"'{value}'"


def literal(store: str, time: Time, timestamp: datetime) -> Any:
    seconds = int(timestamp.timestamp())
    match time.unit:
        case Unit.SECONDS:
            return seconds
        case Unit.MILLISECONDS:
            return seconds * 1000
        case _:
            text = f"'{timestamp:%Y-%m-%d %H:%M:%S}{'' if store == 'sqlite' else '+00'}'"
            return text if store == "sqlite" else f"timestamptz {text}"


def attach(database: Database) -> None:
    if isinstance(database, SqliteDatabase):
        database.execute("ATTACH ? AS iu_core", (str(attached_path(database.path)),))
