"""Settings of a PostgreSQL session: frequent statements share them, and nothing else ever meets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers import PostgresDatabase
from wane._db import open_store
from wane._db.postgres.store import PostgresStore
from wane._db.statement import Statement
from wane._db.url import resolve_url
from wane.errors import StoreError

PATH, ISOLATION = "SHOW search_path", "SHOW transaction_isolation"


@pytest.fixture
def store(postgres_database: PostgresDatabase) -> Iterator[PostgresStore]:
    with open_store(resolve_url(postgres_database.url)) as opened:
        assert isinstance(opened, PostgresStore)
        yield opened


def often(store: PostgresStore, text: str = PATH) -> list[object]:
    return [store.run(text, {})[0][0] for _ in range(8)]


def own_settings(store: PostgresStore) -> tuple[str, str]:
    """The settings that the session itself has, whatever a transaction of Wane's would set."""
    [(path, by_sort)] = store._connection.execute(
        "SELECT current_setting('search_path'), current_setting('enable_seqscan')"
    ).fetchall()
    return path, by_sort


def test_frequent_statements_have_the_same_settings_as_the_first(store: PostgresStore) -> None:
    assert often(store) == ["pg_catalog, pg_temp"] * 8
    assert often(store, "SHOW enable_seqscan") == ["off"] * 8
    assert own_settings(store) == ("pg_catalog, pg_temp", "off"), "they have become the session's"


@pytest.mark.parametrize("other", ["read", "transaction", "now", "a statement that is refused, then a read"])
def test_anything_else_finds_the_settings_of_the_session_as_they_were(store: PostgresStore, other: str) -> None:
    often(store)
    if other == "transaction":
        with store.transaction() as transaction:
            assert transaction.execute("SHOW enable_seqscan", {}) == [("on",)]
    elif other == "now":
        store.now()
    else:
        if other != "read":
            with pytest.raises(StoreError):
                store.run("SELECT 1 / (SELECT 0)", {})
        assert store.read(Statement("SHOW enable_seqscan", {}), 5) == [("on",)]
    assert own_settings(store) == ('"$user", public', "on")
    assert often(store)[-1] == "pg_catalog, pg_temp"


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
