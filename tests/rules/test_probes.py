"""Probes for monitoring: bounded whatever the table holds, right in every encoding, and failing unbounded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from covering import loaded, numbers
from servers import Database, SqliteDatabase
from wane._contract.model import Contract
from wane._db import Store, open_store
from wane._db.row_numbers import row_numbers
from wane._db.statement import NOW as AT_RUN
from wane._db.statement import When
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._rules.probes import UNREAD, Probe, Probes, gather
from wane._rules.reads import held_tables, read_probes
from wane._rules.rows import rows_of
from wane._rules.selection import Selection, bind_contract
from wane.observe._binding import bind_tables
from wane.observe._prepared import PreparedProbes

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOURS = (-30, -24.5, -24, -23.5, -20, 5)
"""When rows were written: two of them are more than a day old, three become due within the next five hours."""


def text(hours: float, shape: str) -> str:
    return (NOW + timedelta(hours=hours)).strftime(shape)


ENCODINGS: dict[str, tuple[str, str, Callable[[float], Any]]] = {
    "s": ("bigint", '{ column = "at", unit = "s" }', lambda h: int((NOW + timedelta(hours=h)).timestamp())),
    "ms": ("bigint", '{ column = "at", unit = "ms" }', lambda h: int((NOW + timedelta(hours=h)).timestamp() * 1e3)),
    "us": ("bigint", '{ column = "at", unit = "us" }', lambda h: int((NOW + timedelta(hours=h)).timestamp() * 1e6)),
    "float": ("double precision", '{ column = "at", unit = "s" }', lambda h: (NOW + timedelta(hours=h)).timestamp()),
    "iso": ("text", '{ column = "at", unit = "iso" }', lambda h: text(h, "%Y-%m-%dT%H:%M:%SZ")),
    "text": ("text", '{ column = "at", unit = "text" }', lambda h: text(h, "%Y-%m-%d %H:%M:%S+00:00")),
    "wall": ("text", '{ column = "at", unit = "iso", zone = "UTC" }', lambda h: text(h, "%Y-%m-%dT%H:%M:%S")),
}


def contract(time: str) -> Contract:
    return loaded(
        f"""
[scheduler]
tick = {{ every = "5m" }}
[table.event]
scheduler = "tick"
why = "A test."
time = {time}
[table.event.rule.old]
keep = "24h"
"""
    )


def one(store: Store, promised: Contract) -> Selection:
    [selection], findings = bind_contract(promised, store.reflect(), store.types)
    assert findings == []
    return selection


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_is_due_and_what_will_be_in_every_encoding(database: Database, encoding: str) -> None:
    kind, time, write = ENCODINGS[encoding]
    database.script(f"CREATE TABLE event (id integer PRIMARY KEY, at {kind})")
    database.executemany("INSERT INTO event VALUES (?, ?)", [(n, write(h)) for n, h in enumerate(HOURS)])
    database.execute("INSERT INTO event VALUES (99, NULL)")
    promised = contract(time)
    with open_store(resolve_url(database.url), read_only=True) as store:
        selection = one(store, promised)
        probes = Probes(rows_of(store))
        [table] = bind_tables(store, promised).tables
        assert table.time_range is not None
        assert table.time_range.small
        found = read_probes(
            store,
            [
                partial(probes.count, table=selection.table, most=100),
                partial(probes.count_due, selections=[selection], now=NOW, most=100),
                partial(probes.soon_due, selection=selection, now=NOW, within=timedelta(hours=5), most=100),
                partial(probes.soon_due, selection=selection, now=NOW, within=timedelta(hours=5), most=1),
                partial(probes.edge, time_range=table.time_range, most=100, newest=False),
                partial(probes.edge, time_range=table.time_range, most=100, newest=True),
                partial(probes.edge, time_range=table.time_range, most=3, newest=True),
                partial(probes.oldest_due, selection=selection, now=NOW),
            ],
            5.0,
            5.0,
        )
    assert found == [7, 2, 3, 2, write(-30), write(5), None, write(-30)]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_cached_probe_uses_the_time_of_its_call(database: Database, encoding: str) -> None:
    kind, time, write = ENCODINGS[encoding]
    database.script(f"CREATE TABLE event (id integer PRIMARY KEY, at {kind})")
    database.executemany("INSERT INTO event VALUES (?, ?)", [(n, write(h)) for n, h in enumerate(HOURS)])
    promised = contract(time)
    with open_store(resolve_url(database.url), read_only=True) as store:
        selection, prepared = one(store, promised), PreparedProbes(store.dialect)
        fresh, writes = Probes(rows_of(store)), Probes(prepared.rows, ())

        def requested(probes: Probes, now: When) -> list[Probe]:
            return [
                partial(probes.count_due, selections=[selection], now=now, most=100),
                partial(probes.oldest_due, selection=selection, now=now),
                partial(probes.soon_due, selection=selection, now=now, within=timedelta(hours=5), most=100),
            ]

        written = [prepared.probe(number, probe) for number, probe in enumerate(requested(writes, AT_RUN))]
        counts = set()
        # Not to the second: what stands behind the point decides too.
        for hours in (-7.0001, -0.5, 0, 0.0001, 0.5, 3.9999999, 4, 40.25):
            now = NOW + timedelta(hours=hours)
            expected = read_probes(store, requested(fresh, now), 5.0, 5.0)
            assert read_probes(store, written, 5.0, 5.0, prepared.values(now)) == expected
            counts.add(expected[0])
        assert len(counts) >= 5


def test_what_is_held_is_read_only_where_something_is_held(database: Database) -> None:
    database.script("CREATE TABLE event (id integer PRIMARY KEY, at bigint)")
    _, time, write = ENCODINGS["ms"]
    database.executemany("INSERT INTO event VALUES (?, ?)", [(n, write(h)) for n, h in enumerate(HOURS)])
    promised = contract(time)
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        keeper = Keeper(promised, store)
        selection = one(store, promised)

        def due() -> Any:
            probes = Probes(rows_of(store), held_tables(store, 5.0))
            return read_probes(store, [partial(probes.count_due, selections=[selection], now=NOW, most=100)], 5.0, 5.0)

        assert (held_tables(store, 5.0), due()) == (frozenset(), [2])
        hold = keeper.hold("event", {"id": 0}, reason="a test")
        assert (len(held_tables(store, 5.0) or ()), due()) == (1, [1])
        assert hold.id is not None
        keeper.release_hold(hold.id)
        assert (held_tables(store, 5.0), due()) == (frozenset(), [2])


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 12, 30])
def test_rows_are_counted_up_to_a_number_whichever_way(database: Database, rows: int) -> None:
    database.script("CREATE TABLE event (id integer PRIMARY KEY, at bigint)")
    database.executemany("INSERT INTO event VALUES (?, ?)", [(n, n) for n in range(rows)])
    with open_store(resolve_url(database.url), read_only=True) as store:
        probes, [table] = Probes(rows_of(store)), store.reflect().tables
        bounded, unbounded = read_probes(
            store,
            [partial(probes.count, table=table, most=10, without_children=without) for without in (False, True)],
            5.0,
            5.0,
        )
        assert bounded == min(rows, 11)
        # A table of a few pages may be counted to its end.
        assert unbounded in (min(rows, 11), rows)


def test_a_probe_that_fails_or_takes_too_long_does_not_fail_others(database: Database) -> None:
    with open_store(resolve_url(database.url), read_only=True) as store:
        slow = "SELECT count(*) FROM " + numbers(50_000_000) if store.kind == "sqlite" else "SELECT 1 FROM pg_sleep(9)"
        requested = ["SELECT 1", "SELECT nothing", slow, "SELECT NULL", "SELECT 2"]
        assert read_probes(store, [plainly(text) for text in requested], 0.2, 30.0) == [1, UNREAD, UNREAD, None, 2]
        assert read_probes(store, [plainly("SELECT 1")] * 60, 1.0, 30.0) == [1] * 60
        assert read_probes(store, [plainly("SELECT 1")], 1.0, 0.0) == [UNREAD]


def plainly(text: str) -> Probe:
    return lambda _: text


def test_every_probe_walks_an_index(database: Database) -> None:
    """Where there is one in the order of time, no probe reads the table from end to end or sorts it."""
    database.script(
        "CREATE TABLE job (id integer PRIMARY KEY, state text NOT NULL, at bigint);"
        "CREATE INDEX job_age ON job (state, at, id);"
        "CREATE TABLE note (id integer PRIMARY KEY, job_id integer);"
        "CREATE INDEX note_job ON note (job_id)"
    )
    database.execute(f"INSERT INTO job SELECT n, CASE n % 3 WHEN 0 THEN 'new' ELSE 'done' END, n FROM {numbers(5_000)}")
    database.execute(f"INSERT INTO note SELECT n, n FROM {numbers(5_000)}")
    database.execute("ANALYZE")
    promised = loaded(
        """
[scheduler]
tick = { every = "5m" }
[table.job]
scheduler = "tick"
why = "A test."
state = "state"
live = ["new"]
time = { column = "at", unit = "s" }
[table.job.rule.old]
when = ["done"]
keep = "24h"
unless = [{ referenced_by = "note.job_id" }]
[excused]
note = { inline = "yes" }
"""
    )
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        selection = one(store, promised)
        [table] = [one for one in bind_tables(store, promised).tables if one.selections]
        assert table.time_range is not None
        assert table.time_range.states == ("new", "done")
        probes = Probes(rows_of(store))
        if store.kind == "postgres":
            store.run("SELECT 1", {})  # As probes are planned: by index.
        for probe in (
            partial(probes.edge, time_range=table.time_range, most=100, newest=False),
            partial(probes.edge, time_range=table.time_range, most=100, newest=True),
            partial(probes.count_due, selections=[selection], now=NOW, most=100),
            partial(probes.oldest_due, selection=selection, now=NOW),
            partial(probes.soon_due, selection=selection, now=NOW, within=timedelta(hours=1), most=100),
            partial(
                probes.count_dangling, parent=selection.table, reference=selection.guards[0], most=100, follower=None
            ),
        ):
            written, p = gather(rows_of(store), [probe])
            plan = store.planner.explain(p.statement(written))
            assert "job_age" in plan or "note_job" in plan
            assert "Seq Scan on job" not in plan
            assert "Seq Scan on note" not in plan
            assert "SCAN t\n" not in f"{plan}\n"
            assert "SCAN n\n" not in f"{plan}\n"


@pytest.mark.parametrize(
    ("key", "rows", "expected"),
    [
        ("id INTEGER PRIMARY KEY", "SELECT n + 1000 FROM {}", (1000, 1049)),
        ("id INTEGER PRIMARY KEY", "SELECT n * 1000000000 FROM {}", None),
        ("id TEXT PRIMARY KEY", "SELECT 'k' || n FROM {}", (1, 50)),
        ("id TEXT PRIMARY KEY, rowid TEXT", "SELECT 'k' || n, 9 FROM {}", None),
        ("id INTEGER PRIMARY KEY", "SELECT n FROM {} WHERE n < 0", (1, 0)),
    ],
    ids=["numbers in turn", "random numbers", "texts", "a column called rowid", "empty"],
)
def test_sqlite_numbers_the_rows_of_a_table(
    sqlite_database: SqliteDatabase, key: str, rows: str, expected: tuple[int, int] | None
) -> None:
    sqlite_database.script(f"CREATE TABLE t ({key})")
    sqlite_database.execute(f"INSERT INTO t {rows.format(numbers(50))}")
    with open_store(resolve_url(sqlite_database.url), read_only=True) as store:
        [table] = store.reflect().tables
        assert row_numbers(store, table) == expected
        assert store.planner.estimate_rows(table) is None
        sqlite_database.execute("ANALYZE")
        [table] = store.reflect().tables
        assert store.planner.estimate_rows(table) == (None if expected == (1, 0) else 50)


def test_a_table_without_row_numbers_has_none(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("CREATE TABLE t (id TEXT PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES ('a')")
    with open_store(resolve_url(sqlite_database.url), read_only=True) as store:
        [table] = store.reflect().tables
        assert row_numbers(store, table) is None
