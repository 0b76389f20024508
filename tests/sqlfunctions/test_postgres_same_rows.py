"""For arbitrary rows, the SQL functions take exactly the rows that the engine takes, count the same and leave the same
trail."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import wane
from servers import PostgresDatabase
from sqlfunctions.tables import NAMES, RULES, SCHEMA, contract_file, fill
from wane import Keeper
from wane._contract.load import load_contract
from wane._contract.model import Time, ToArchive, Unit
from wane._db.schema import Column
from wane._db.timestamps import day_bound, fraction_bound, number_bound, text_bound, wall_bound
from wane._demo.seed import seed
from wane._rules.scopes import MOST_SCOPES
from wane._sqlfunctions import install
from wane._sqlfunctions.plpgsql import bounds
from wane.webhooks import WebhookRetention
from webhooks.hooks import T, delivery, event, prepare
from webhooks.hooks import contract as webhooks_contract

AUDIT = "SELECT kind, table_name, rule, inputs - 'pass', counts, row_count, batches FROM wane.audit ORDER BY id DESC LIMIT 1"


@pytest.fixture
def keeper(postgres_database: PostgresDatabase, tmp_path: Path) -> Iterator[Keeper]:
    postgres_database.script(SCHEMA)
    with wane.open(postgres_database.url, contract=contract_file(tmp_path)) as opened:
        opened.store.migrate()
        assert install(opened).refused == ()
        yield opened


class Undone:
    """What a call did, seen inside a transaction that is rolled back."""

    def __init__(self, database: PostgresDatabase, tables: tuple[str, ...]) -> None:
        self.connection = database.connect()
        self.tables = tables

    def by_engine(self, call: Any) -> tuple[Any, ...]:
        return self._undone(lambda: call(self.connection))

    def by_sql(self, text: str, *values: object) -> tuple[Any, ...]:
        return self._undone(lambda: self.connection.execute(text, values).fetchall()[0][0])

    def _undone(self, call: Any) -> tuple[Any, ...]:
        self.connection.execute("BEGIN")
        try:
            answer = call()
            left = [
                self.connection.execute(f"TABLE {name} ORDER BY 1, 2".replace("%", "%%"), []).fetchall()
                for name in self.tables
            ]
            trail = self.connection.execute(AUDIT).fetchone()
        finally:
            self.connection.execute("ROLLBACK")
        return answer, left, trail


@pytest.mark.parametrize("limit", [1, 7, 25, 1000])
@pytest.mark.parametrize("number", range(3))
def test_every_kind_of_rule_takes_what_the_engine_takes(
    keeper: Keeper, postgres_database: PostgresDatabase, number: int, limit: int
) -> None:
    fill(postgres_database, number)
    keeper.hold("job", {"id": 5}, reason="a dispute")
    keeper.hold("vote", {"id": 7}, reason="a recount")
    undone = Undone(postgres_database, NAMES)
    taken = 0
    for table, rule in RULES:
        pruned, left, trail = undone.by_engine(
            lambda connection, t=table, r=rule: keeper.prune(t, rule=r, limit=limit, connection=connection)
        )
        answer, left_by_sql, trail_by_sql = undone.by_sql("SELECT wane.prune(%s, %s, %s)", table, rule, limit)
        assert left_by_sql == left, f"{table}.{rule}"
        assert trail_by_sql == trail
        assert answer["counts"] == pruned.counts
        assert (answer["table"], answer["rule"], answer["kind"], answer["rows"]) == (
            table,
            rule,
            pruned.kind,
            pruned.rows,
        )
        assert (answer["cutoff"] is None) == (pruned.cutoff is None)
        taken += pruned.rows
        # The next rule sees what this one left.
        postgres_database.query("SELECT wane.prune(?, ?, ?)", (table, rule, limit))
    assert taken >= len(RULES)


@pytest.mark.parametrize("table", ["draft", "receipt"])
@pytest.mark.parametrize("days", [0, 0.5, 2, 5])
def test_orphans_leave_by_a_time_that_the_caller_gives(
    keeper: Keeper, postgres_database: PostgresDatabase, table: str, days: float
) -> None:
    fill(postgres_database, 4)
    timestamp = datetime.now(UTC) - timedelta(days=days)
    undone = Undone(postgres_database, NAMES)
    pruned, *engine = undone.by_engine(
        lambda c: keeper.prune_orphans(table, older_than=timestamp, limit=20, connection=c)
    )
    answer, *by_sql = undone.by_sql("SELECT wane.prune_orphans(%s, %s, 20)", table, timestamp)
    assert by_sql == engine
    assert answer["counts"] == pruned.counts
    assert answer["cutoff"] == timestamp.isoformat()
    assert pruned.rows > 0


def test_a_cap_per_scope_reads_beyond_many_scopes_that_may_not_leave(
    keeper: Keeper, postgres_database: PostgresDatabase
) -> None:
    """More scopes than one call reads are beyond their cap and held; one behind them is not."""
    rows = [(n, f"a{n // 5:05}", T + n) for n in range(5 * MOST_SCOPES)]
    last = [(10_000 + n, "z", T + n) for n in range(7)]
    postgres_database.executemany("INSERT INTO presence VALUES (?, ?, ?)", [*rows, *last])
    postgres_database.execute(
        "INSERT INTO wane.hold (table_name, key, reason, author, created_at)"
        " SELECT 'public.presence', jsonb_build_array(id::text)::text, 'x', 'x', now() FROM presence WHERE tenant <> 'z'"
    )
    undone = Undone(postgres_database, ("presence",))
    pruned, *engine = undone.by_engine(lambda c: keeper.prune("presence", rule="cap", limit=100, connection=c))
    answer, *by_sql = undone.by_sql("SELECT wane.prune('presence', 'cap', 100)")
    assert by_sql == engine
    assert answer["counts"] == pruned.counts == {"presence": 3}


def test_rows_behind_locked_ones_are_taken_as_the_engine_takes_them(
    keeper: Keeper, postgres_database: PostgresDatabase
) -> None:
    """Some of the oldest posts are locked by another: both go on behind them, and count followers alike."""
    old = datetime(2026, 1, 1)
    posts = [(n, old + timedelta(minutes=n), None) for n in range(40)]
    postgres_database.executemany("INSERT INTO post VALUES (?, ?, ?)", posts)
    postgres_database.executemany(
        "INSERT INTO comment VALUES (?, ?, 'web')", [(n, n % 40) for n in range(160) if n % 40 % 3 == 0]
    )
    other = postgres_database.connect()
    other.execute("BEGIN")
    other.execute("SELECT 1 FROM post WHERE id IN (0, 1, 2, 5, 8) FOR UPDATE")
    undone = Undone(postgres_database, NAMES)
    posts_taken = []
    for limit in (5, 12, 30, 1000):
        pruned, *engine = undone.by_engine(lambda c, n=limit: keeper.prune("post", rule="old", limit=n, connection=c))
        answer, *by_sql = undone.by_sql("SELECT wane.prune('post', 'old', %s)", limit)
        assert by_sql == engine, limit
        assert answer["counts"] == pruned.counts
        assert pruned.rows <= limit
        posts_taken.append(pruned.counts["post"])
    assert posts_taken[-1] == 35
    other.execute("ROLLBACK")


def test_a_row_with_more_followers_than_fit_loses_them_call_by_call(
    keeper: Keeper, postgres_database: PostgresDatabase
) -> None:
    old = datetime(2026, 1, 1)
    postgres_database.execute("INSERT INTO post VALUES (1, ?, NULL), (2, ?, NULL)", (old, old))
    postgres_database.executemany("INSERT INTO comment VALUES (?, 1, 'web')", [(n,) for n in range(25)])
    postgres_database.executemany("INSERT INTO vote VALUES (?, ?)", [(n, n % 25) for n in range(30)])
    undone = Undone(postgres_database, NAMES)
    steps = []
    while True:
        pruned, left, trail = undone.by_engine(lambda c: keeper.prune("post", rule="old", limit=10, connection=c))
        assert undone.by_sql("SELECT wane.prune('post', 'old', 10)")[1:] == (left, trail)
        [(answer,)] = postgres_database.query("SELECT wane.prune('post', 'old', 10)")
        assert answer["counts"] == pruned.counts
        steps.append(answer["rows"])
        if not answer["rows"]:
            break
    assert steps == [10, 10, 10, 10, 10, 7, 0]


def test_the_reference_contracts_take_what_the_engine_takes(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    seed(postgres_database.url, rows=4_000, now=datetime.now(UTC))
    path = tmp_path / "wane.toml"
    path.write_text(
        'include = ["reference:statestore", "reference:claims", "reference:webhooks", "reference:substrate"]', "utf-8"
    )
    contract = load_contract(path)
    names = tuple(
        f'"{schema}"."{name}"'
        for schema, name in postgres_database.query(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema', 'wane')"
        )
    )
    with wane.open(postgres_database.url, contract=contract) as keeper:
        keeper.store.migrate()
        assert install(keeper).refused == ()
        undone = Undone(postgres_database, names)
        for table, rule in contract.rules():
            if isinstance(rule.action, ToArchive):
                with pytest.raises(Exception, match="moves rows to the archive"):
                    undone.by_sql("SELECT wane.prune(%s, %s, 37)", str(table.name), rule.name)
                continue
            pruned, left, trail = undone.by_engine(
                lambda c, t=str(table.name), r=rule.name: keeper.prune(t, rule=r, limit=37, connection=c)
            )
            answer, *rest = undone.by_sql("SELECT wane.prune(%s, %s, 37)", str(table.name), rule.name)
            assert rest == [left, trail], f"{table.name}.{rule.name}"
            assert answer["counts"] == pruned.counts


EDGES = """
CREATE TABLE edge_{n} (id bigint PRIMARY KEY, parent bigint, at {type});
CREATE INDEX edge_{n}_age ON edge_{n} (parent, at{collate}, id);
"""
ENCODINGS = [
    ("bigint", 'unit = "s"'),
    ("integer", 'unit = "s"'),
    ("bigint", 'unit = "ms"'),
    ("bigint", 'unit = "us"'),
    ("double precision", 'unit = "s"'),
    ("numeric", 'unit = "ms"'),
    ("timestamptz", ""),
    ("timestamp", 'zone = "UTC"'),
    ("text", 'unit = "iso"'),
    ("text", 'unit = "iso", zone = "UTC"'),
    ("text", 'unit = "text"'),
    ("varchar(40)", 'unit = "text", zone = "Etc/UTC"'),
    ("date", 'unit = "date"'),
    ("text", 'unit = "date", zone = "UTC"'),
]


def test_every_encoding_has_the_same_edges(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    contract = []
    for n, (kind, time) in enumerate(ENCODINGS):
        collate = ' COLLATE "C"' if kind in ("text", "varchar(40)") else ""
        postgres_database.script(EDGES.format(n=n, type=kind, collate=collate))
        contract.append(
            f'[table.edge_{n}]\nwhy = "edges"\ntime = {{ column = "at"{", " + time if time else ""} }}\n'
            f'[table.edge_{n}.rule.orphans]\norphans = "parent"\nkeep = "1d"\n'
        )
        cut = cut_of(time)
        values = [written(cut + timedelta(microseconds=step), kind, time) for step in STEPS]
        rows = [(i, None, value) for i, value in enumerate(dict.fromkeys(values))]
        postgres_database.executemany(f"INSERT INTO edge_{n} VALUES (?, ?, ?)", [*rows, (99, 1, values[0])])
    tables = tuple(f"edge_{n}" for n in range(len(ENCODINGS)))
    with wane.open(postgres_database.url, contract=contract_file(tmp_path, "\n".join(contract))) as keeper:
        keeper.store.migrate()
        assert install(keeper).refused == ()
        undone = Undone(postgres_database, tables)
        for n, encoding in enumerate(ENCODINGS):
            found = set()
            for step in STEPS:
                timestamp = cut_of(encoding[1]) + timedelta(microseconds=step)
                pruned, left, trail = undone.by_engine(
                    lambda c, m=timestamp, t=f"edge_{n}": keeper.prune_orphans(t, older_than=m, limit=100, connection=c)
                )
                answer, *rest = undone.by_sql("SELECT wane.prune_orphans(%s, %s, 100)", f"edge_{n}", timestamp)
                assert rest == [left, trail], f"{encoding} at {timestamp}"
                assert answer["counts"] == pruned.counts
                found.add(pruned.rows)
            assert len(found) >= 3, encoding


def cut_of(time: str) -> datetime:
    """Return the end of a day for days, else a time in the middle of a second."""
    cut = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
    return cut.replace(hour=0, minute=0, second=0, microsecond=0) if '"date"' in time else cut


STEPS = [
    -2 * 86_400_000_000,
    -86_400_000_001,
    -86_400_000_000,
    -1_000_001,
    -1_000_000,
    -250_001,
    -250_000,
    -1_001,
    -1,
    0,
    1,
    999,
    1_000,
    749_999,
    750_000,
    1_000_000,
]


def written(timestamp: datetime, kind: str, time: str) -> object:
    micros = (timestamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    size = {'"s"': 1_000_000, '"ms"': 1_000, '"us"': 1}.get(time.removeprefix("unit = ").split(",")[0])
    if size is not None:
        return micros // size if kind in ("bigint", "integer") else micros / size
    if '"date"' in time:
        return timestamp.date().isoformat()
    if kind == "timestamptz":
        return timestamp
    if kind == "timestamp":
        return timestamp.replace(tzinfo=None)
    between = "T" if '"iso"' in time else " "
    return timestamp.replace(tzinfo=None).isoformat(between, "microseconds") + ("" if "zone" in time else "Z")


TIMESTAMPS = st.datetimes(datetime(1971, 1, 1), datetime(2199, 1, 1), timezones=st.just(UTC))


@given(timestamp=TIMESTAMPS, inclusive=st.booleans())
@example(timestamp=datetime(2026, 1, 1, tzinfo=UTC), inclusive=True)
@example(timestamp=datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC), inclusive=False)
def test_bounds_in_sql_are_the_bounds_of_the_engine(clusters: Any, timestamp: datetime, inclusive: bool) -> None:
    connection = clusters["postgres"]._admin
    connection.execute("SET timezone = 'Asia/Kathmandu'")

    def value(kind: str, time: Time, name: str = "cutoff") -> Any:
        type_, text = bounds(Column("at", kind, True), time, inclusive=inclusive)[name]
        text = re.sub("wane_at", "%(timestamp)s::timestamptz", text)
        [(found,)] = connection.execute(f"SELECT ({text})::{type_}", {"timestamp": timestamp}).fetchall()
        return found

    for unit in (Unit.SECONDS, Unit.MILLISECONDS, Unit.MICROSECONDS):
        assert value("bigint", Time("at", unit)) == number_bound(timestamp, unit, inclusive=inclusive)
        assert value("numeric", Time("at", unit)) == fraction_bound(timestamp, unit)
    assert value("timestamp with time zone", Time("at")) == timestamp
    native = Time("at", Unit.NATIVE, "UTC")
    assert value("timestamp without time zone", native) == wall_bound(timestamp, "UTC", inclusive=inclusive)
    day = day_bound(timestamp, None, inclusive=inclusive)
    assert value("date", Time("at", Unit.DATE)) == day
    assert value("text", Time("at", Unit.DATE, "UTC")) == day.isoformat()
    for unit in (Unit.ISO, Unit.TEXT):
        for zone in (None, "UTC"):
            time = Time("at", unit, zone)
            bound = text_bound(timestamp, time, inclusive=inclusive)
            assert value("text", time) == bound.exact
            assert value("text", time, "cutoff_second") == bound.second
            assert value("text", time, "cutoff_next_second") == bound.next_second


def test_the_webhook_names_do_what_the_typed_surface_does(postgres_database: PostgresDatabase) -> None:
    database = postgres_database
    prepare(database)
    for number in range(1, 30):
        status = ("handled", "ignored", "failed", "dead", "received")[number % 5]
        event(
            database,
            number,
            status,
            T - number,
            attempts=number % 3,
            deliveries=number % 4,
            jobs=["knocker.events", "emails"],
        )
        delivery(database, T - number)
    tables = ("knocker_events", "knocker_attempts", "knocker_deliveries", "_honker_live")
    with WebhookRetention.open(database.url, contract=webhooks_contract()) as webhooks:
        assert install(webhooks.keeper).refused == ()
        undone = Undone(database, tables)
        for statuses in (["handled"], ["ignored"], ["ignored", "handled"], ["handled", "handled", "ignored"]):
            for older_than, limit in ((T, 100), (T - 10, 100), (T, 3), (T - 10.5, 2)):
                result, *engine = undone.by_engine(
                    lambda c, s=statuses, o=older_than, n=limit: webhooks.prune_events(
                        statuses=s, older_than=o, limit=n, connection=c
                    )
                )
                answer, *by_sql = undone.by_sql(
                    "SELECT wane.knocker_prune_events(%s, %s, %s)", json.dumps(statuses), older_than, limit
                )
                assert by_sql == engine
                assert answer == {name: getattr(result, name) for name in result.__slots__}
        result, *engine = undone.by_engine(
            lambda c: webhooks.prune_events(older_than=T, limit=100, queue="emails", connection=c)
        )
        answer, *by_sql = undone.by_sql("SELECT wane.knocker_prune_events(NULL, %s, 100, 'emails')", T)
        assert by_sql == engine
        assert answer["live_jobs_pruned"] == result.live_jobs_pruned > 0
        result, *engine = undone.by_engine(
            lambda c: webhooks.prune_orphan_deliveries(older_than=T - 5, limit=9, connection=c)
        )
        answer, *by_sql = undone.by_sql("SELECT wane.knocker_prune_orphan_deliveries(%s, %s)", T - 5, 9)
        assert by_sql == engine
        assert answer == {"deliveries_pruned": result.deliveries_pruned} == {"deliveries_pruned": 9}
