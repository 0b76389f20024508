"""Settings of a session: the statements that need them share them, and nothing else ever meets them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from covering import role
from races.racing import Background
from servers import PostgresDatabase, SqliteDatabase
from wane._db import open_store
from wane._db.postgres.bounded import BoundedConnection
from wane._db.postgres.store import PostgresStore
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._db.url import resolve_url
from wane.errors import StoreError, Unreachable

PATH, ISOLATION = "SHOW search_path", "SHOW transaction_isolation"
SETTINGS = "SELECT current_setting('search_path'), current_setting('enable_seqscan')"


@pytest.fixture
def store(postgres_database: PostgresDatabase) -> Iterator[PostgresStore]:
    with open_store(resolve_url(postgres_database.url)) as opened:
        assert isinstance(opened, PostgresStore)
        yield opened


def often(store: PostgresStore, text: str = PATH) -> list[object]:
    return [store.run(text, {})[0][0] for _ in range(8)]


def own_settings(store: PostgresStore) -> tuple[str, str]:
    """Return the settings that the session itself has, whatever a transaction of Wane's would set."""
    [(path, by_sort)] = store._connection.execute(SETTINGS).fetchall()
    return path, by_sort


def test_frequent_statements_have_the_same_settings_as_the_first(store: PostgresStore) -> None:
    assert often(store) == ["pg_catalog, pg_temp"] * 8
    assert often(store, "SHOW enable_seqscan") == ["off"] * 8
    assert own_settings(store) == ("pg_catalog, pg_temp", "off"), "they have become the session's"
    store.now()
    assert own_settings(store) == ("pg_catalog, pg_temp", "off"), "the clock depends on none, and leaves them"


@pytest.mark.parametrize(
    "other", ["read", "transaction", "estimate", "migrate", "a statement that is refused, then a read"]
)
def test_anything_else_finds_the_settings_of_the_session_as_they_were(store: PostgresStore, other: str) -> None:
    often(store)
    if other == "transaction":
        with store.transaction() as transaction:
            assert transaction.execute("SHOW enable_seqscan", {}) == [("on",)]
    elif other == "estimate":
        assert store.planner.estimate(SERIES) == 1000
    elif other == "migrate":
        assert len(store.migrate()) > 1
    else:
        if other != "read":
            with pytest.raises(StoreError):
                store.run("SELECT 1 / (SELECT 0)", {})
        assert store.read(Statement("SHOW enable_seqscan", {}), 5) == [("on",)]
    assert own_settings(store) == ('"$user", public', "on")
    assert often(store)[-1] == "pg_catalog, pg_temp"


SERIES = Statement("SELECT n FROM pg_catalog.generate_series(1, 1000) AS n", {})


@pytest.mark.parametrize("other", ["estimate", "migrate"])
def test_a_second_thread_finds_the_settings_as_they_were_whatever_the_first_one_does(
    store: PostgresStore, other: str
) -> None:
    over, turns = threading.Event(), threading.Semaphore(0)

    def live() -> set[tuple[object, ...]]:
        found: set[tuple[object, ...]] = set()
        while not over.is_set():
            found.add(tuple(store.run(SETTINGS, {})[0]))
            [row] = store.read(Statement(SETTINGS, {}), 5)
            found.add(("read", *row))
            turns.release()
        return found

    beside = Background(live)
    for _ in range(20):
        assert turns.acquire(timeout=60)
        if other == "estimate":
            store.planner.estimate(SERIES)
        else:
            store.migrate()
    over.set()
    assert beside.result() == {("pg_catalog, pg_temp", "off"), ("read", "pg_catalog, pg_temp", "on")}
    store.now()
    assert own_settings(store) == ('"$user", public', "on")


def test_frequent_statements_are_transactions_like_all_others(postgres_database: PostgresDatabase) -> None:
    [(name,)] = postgres_database.query("SELECT current_database()")
    postgres_database.script(
        f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable';"
        f"ALTER DATABASE {name} SET default_transaction_read_only = on; CREATE TABLE t (n int)"
    )
    with open_store(resolve_url(postgres_database.url)) as store:
        assert isinstance(store, PostgresStore)
        assert often(store, ISOLATION) == ["read committed"] * 8
        for _ in range(8):
            store.run("INSERT INTO public.t VALUES (1)", {})
    with open_store(resolve_url(postgres_database.url), read_only=True) as store:
        assert isinstance(store, PostgresStore)
        often(store)
        with pytest.raises(StoreError, match="read-only"):
            store.run("INSERT INTO public.t VALUES (1)", {})
    assert postgres_database.query("SELECT count(*) FROM t") == [(8,)]


def test_frequent_statements_are_prepared_once(store: PostgresStore) -> None:
    for number in range(8):
        assert store.run("SELECT %(n)s::int + 1", {"n": number}) == [(number + 1,)]
    [(prepared,)] = store._connection.execute(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%::int + 1'"
    ).fetchall()
    assert prepared == 1


def test_values_of_frequent_statements_come_back_as_those_of_the_first(store: PostgresStore) -> None:
    values: dict[str, object] = {
        "text": "ünï'\\ code",
        "empty": "",
        "none": None,
        "small": -3,
        "middle": 70_000,
        "large": 2**62,
        "huge": 2**70,
        "real": 0.1,
        "yes": True,
        "list": ["a", None],
    }
    types = ("text", "text", "text", "int2", "int4", "int8", "numeric", "float8", "boolean", "text[]")
    text = "SELECT " + ", ".join(f"%({name})s::{kind}" for name, kind in zip(values, types, strict=True))
    for left_out in ((), ("huge", "yes", "list")):
        chosen = {name: None if name in left_out else value for name, value in values.items()}
        found = [store.run(text, chosen) for _ in range(8)]
        assert found == [[tuple(chosen.values())]] * 8
    assert [store.run("SELECT pg_typeof(%(n)s)::text", {"n": n})[0][0] for n in (1, 10**6, 10**12, 0.5)] == [
        "smallint",
        "integer",
        "bigint",
        "double precision",
    ]
    with pytest.raises(StoreError, match="NUL"):
        store.run("SELECT %(n)s::text", {"n": "a\0b"})
    assert often(store) == ["pg_catalog, pg_temp"] * 8


STYLED = "SELECT timestamptz '2024-01-02 03:04:05+00', timestamp '2024-01-02 03:04:05', date '2024-01-02', interval '1 day 2 hours'"


@pytest.mark.parametrize(
    "style",
    ["datestyle = 'SQL, DMY'", "datestyle = 'German'", "datestyle = 'Postgres'", "intervalstyle = 'iso_8601'"],
)
def test_times_are_read_whatever_the_style_of_the_database_is(postgres_database: PostgresDatabase, style: str) -> None:
    """The style of Wane's transactions ends with them, which may be before the driver reads a result."""
    [(name,)] = postgres_database.query("SELECT quote_ident(current_database())")
    postgres_database.execute(f"ALTER DATABASE {name} SET {style}")
    at = datetime(2024, 1, 2, 3, 4, 5)
    known = [(at.replace(tzinfo=UTC), at, at.date(), timedelta(days=1, hours=2))]
    with open_store(resolve_url(postgres_database.url)) as store:
        assert isinstance(store, PostgresStore)
        assert store.now().tzinfo is not None
        assert store.read(Statement(STYLED, {}), 5.0) == known
        assert store.run(STYLED, {}) == known
        with store.snapshot() as transaction:
            assert transaction.execute(STYLED, {}) == known


def test_a_frequent_statement_is_repeated_after_a_rollback(store: PostgresStore) -> None:
    often(store)
    with pytest.raises(ZeroDivisionError), store.transaction():
        raise ZeroDivisionError
    assert often(store) == ["pg_catalog, pg_temp"] * 8, "the driver discards prepared statements with a rollback"


def test_only_so_many_statements_stay_prepared(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wane._db.postgres.bounded._MOST_PREPARED", 3)
    for number in range(12):
        assert store.run(f"SELECT {number}", {}) == [(number,)]
    [(many,)] = store.run("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'wane%%'", {})
    assert many == 3


def test_a_frequent_statement_is_prepared_anew_when_its_columns_get_other_types(
    store: PostgresStore, postgres_database: PostgresDatabase
) -> None:
    postgres_database.script("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    for kind, value in (("int", 1), ("text", "1"), ("bigint USING id::bigint", 1)):
        postgres_database.execute(f"ALTER TABLE t ALTER COLUMN id TYPE {kind}")
        assert [store.run("SELECT id FROM public.t", {}) for _ in range(5)] == [[(value,)]] * 5
    [(many,)] = store.run("SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT id FROM public.t'", {})
    assert many == 1


def test_a_connection_that_ends_inside_a_frequent_statement_or_has_an_answer_left_is_replaced(
    store: PostgresStore,
) -> None:
    often(store)
    with pytest.raises(Unreachable):
        store.run("SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid()), pg_catalog.pg_sleep(5)", {})
    assert often(store) == ["pg_catalog, pg_temp"] * 8
    before = store._connection
    before.pgconn.send_query(b"SELECT 1")
    while not before.has_news():
        pass
    assert often(store) == ["pg_catalog, pg_temp"] * 8
    assert before.closed


@pytest.mark.parametrize("setting", ["idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_connection_that_the_server_ends_because_of_a_pause_is_lost(store: PostgresStore, setting: str) -> None:
    """A host may be so busy that the process gets no turn. What another attempt may not meet is reported as such."""
    if not store.run("SELECT 1 FROM pg_catalog.pg_settings WHERE name = %(name)s", {"name": setting}):
        pytest.skip(f"this server has no {setting}")

    def pause() -> None:
        with store.transaction() as transaction:
            transaction.execute("SELECT pg_catalog.set_config(%(name)s, '50ms', true)", {"name": setting})
            time.sleep(0.5)
            transaction.execute("SELECT 1", {})

    with pytest.raises(Unreachable, match="terminating connection due to") as ended:
        pause()
    assert f"raise `{setting}` of the role" in str(ended.value.hint)
    assert store.run("SELECT 1", {}) == [(1,)], "the next call connects again"


def test_a_connection_that_cannot_be_set_up_is_closed(postgres_database: PostgresDatabase) -> None:
    function = "FUNCTION pg_catalog.pg_backend_pid()"
    with role(postgres_database, f"REVOKE EXECUTE ON {function} FROM PUBLIC") as url:
        try:
            with pytest.raises(StoreError, match="cannot be set up") as refused:
                open_store(resolve_url(url))
        finally:
            postgres_database.execute(f"GRANT EXECUTE ON {function} TO PUBLIC")
    used = [one.frame.f_locals.get("connection") for one in refused.traceback]
    assert [one.closed for one in used if isinstance(one, BoundedConnection)] == [True]


def test_repeated_transactions_leave_the_settings_of_the_connection_as_they_were(
    sqlite_database: SqliteDatabase,
) -> None:
    sqlite_database.execute("PRAGMA journal_mode = wal")
    names = ("wal_autocheckpoint", "temp_store")

    def settings(transaction: Transaction) -> list[int]:
        return [transaction.execute(f"PRAGMA {name}", {})[0][0] for name in names]

    with open_store(resolve_url(sqlite_database.url)) as store:
        assert isinstance(store, SqliteStore)
        with store.transaction() as transaction:
            usual = settings(transaction)
        left = [1, 2]
        repeated = store.repeat(lambda transaction: settings(transaction) if left and left.pop() else None)
        assert list(repeated) == [[10 * usual[0], 2]] * 2
        with store.transaction() as transaction:
            assert settings(transaction) == usual
