"""With an index on (state, time, key) the oldest due rows are read off it: no scan of the table, no sort of all that is
due."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from conformance.due_rows import bound_rule, one_rule, opened
from servers import Database
from wane._contract.model import Age, Expiry, State, Table, Time, Unit
from wane._db.statement import Statement
from wane._db.store import Store
from wane._rules.queries import queries_of

ROWS = 8_000
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
NOW = datetime(2024, 7, 1, tzinfo=UTC)
STATES = ["queued", "running", "failed", "completed", "cancelled"]
ONE, SEVERAL = ["failed"], ["failed", "completed", "cancelled"]


class Kind:
    """A time column: its type on each store, the value of the nth row, and how the contract declares it."""

    def __init__(self, sqlite: str, postgres: str, time: Time) -> None:
        self.types = {"sqlite": sqlite, "postgres": postgres}
        self.time = time

    def value(self, number: int) -> object:
        timestamp = FIRST + timedelta(minutes=50 * number)
        if self.time.unit is Unit.MILLISECONDS:
            return int(timestamp.timestamp() * 1000)
        if self.time.unit is Unit.ISO:
            return timestamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self.time.unit is Unit.DATE:
            return timestamp.strftime("%Y-%m-%d")
        return timestamp.strftime("%Y-%m-%d %H:%M:%S")


KINDS = {
    "ms": Kind("INTEGER", "bigint", Time("happened", Unit.MILLISECONDS)),
    "iso": Kind("TEXT", "text", Time("happened", Unit.ISO)),
    "wall": Kind("TEXT", "text", Time("happened", Unit.TEXT, "Europe/Vienna")),
    "native": Kind("TEXT", "timestamptz", Time("happened")),
    "date": Kind("TEXT", "date", Time("happened", Unit.DATE)),
    "loose": Kind("TEXT COLLATE NOCASE", "varchar(40)", Time("happened", Unit.ISO)),
}
KEYS: dict[str, tuple[dict[str, str], Callable[[int], object]]] = {
    "number": ({"sqlite": "INTEGER NOT NULL PRIMARY KEY", "postgres": "bigint PRIMARY KEY"}, lambda n: n),
    "text": ({"sqlite": "TEXT PRIMARY KEY", "postgres": "text PRIMARY KEY"}, lambda n: f"key {n:08d}"),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=list(KEYS))
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def build(database: Database, kind: Kind, key: str, indexed: Sequence[str]) -> None:
    """Create a table of which about half is due, with the index that Wane itself proposes."""
    types, write = KEYS[key]
    state = {"sqlite": "TEXT COLLATE NOCASE", "postgres": "varchar(20)"}[database.store]
    database.execute(
        f"CREATE TABLE job (id {types[database.store]}, state {state}, happened {kind.types[database.store]}, payload text)"
    )
    rows = [(write(n), STATES[n % 5], kind.value(n), "x" * 50) for n in range(ROWS)]
    if database.store == "postgres":
        with database.connect().cursor().copy("COPY job FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        database.executemany("INSERT INTO job VALUES (?, ?, ?, ?)", rows)
    with opened(database) as store:
        table = store.reflect().find(None, "job")
        assert table is not None
        columns = [column for name in indexed if (column := table.column(name))]
        ddl = store.dialect.index_ddl(table, columns, table.column("happened"))
    database.execute(ddl.removesuffix(";"))
    database.execute("ANALYZE job")


def check_plan(store: Store, statement: Statement) -> None:
    plan = store.planner.explain(statement)
    lines = plan.splitlines()
    if store.kind == "sqlite":
        assert "SCAN t" not in plan, plan
        probes = [line for line in lines if "SEARCH t" in line]
        assert probes, plan
        assert all("INDEX job_" in line for line in probes), plan
        # A few rows of every state are merged at the end; what a state has due is never sorted.
        assert all(not line.startswith(" ") for line in lines if "USE TEMP B-TREE" in line), plan
    else:
        assert "Seq Scan on job" not in plan, plan
        assert "Bitmap" not in plan, plan
        scans = [
            number for number, line in enumerate(lines) if re.search("Index (Only )?Scan (Backward )?using job_", line)
        ]
        assert scans, plan
        for number in scans:
            # A sort that is incremental only orders ties; a full one reads all that is due first.
            above = lines[number - 1]
            assert "Limit" in above or ("Presorted Key" in above and "Incremental Sort" in lines[number - 3]), plan


def check_statements(database: Database, table: Table) -> None:
    with opened(database) as store:
        selection = bound_rule(store, table)
        check_plan(store, queries_of(store).keys_due(selection, NOW, 100))
        for newest in (False, True):
            check_plan(store, queries_of(store).edge_due(selection, NOW, newest=newest))


def test_one_state_and_several_are_read_off_the_index(database: Database, kind: Kind, key: str) -> None:
    build(database, kind, key, ["state", "happened", "id"])
    for states in (ONE, SEVERAL):
        check_statements(database, one_rule("job", Age(kind.time, timedelta(days=30)), when=states))
        check_statements(database, one_rule("job", Expiry(kind.time), when=states))


def test_rows_without_states_are_read_off_the_index(database: Database, kind: Kind, key: str) -> None:
    build(database, kind, key, ["happened", "id"])
    check_statements(database, one_rule("job", Age(kind.time, timedelta(days=30))))


@pytest.mark.parametrize("states", [[1], [1, 2]])
def test_states_of_other_types_are_read_off_the_index(database: Database, states: list[State]) -> None:
    database.execute("CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state smallint, happened bigint)")
    start = int(FIRST.timestamp() * 1000)
    rows = [(n, n % 5, start + n * 3_000_000) for n in range(ROWS // 2)]
    database.executemany("INSERT INTO job VALUES (?, ?, ?)", rows)
    database.script("CREATE INDEX job_due ON job (state, happened, id); ANALYZE job;")
    check_statements(
        database, one_rule("job", Age(Time("happened", Unit.MILLISECONDS), timedelta(days=30)), when=states)
    )
