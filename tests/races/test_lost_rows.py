"""A prune that loses its rows to another one goes on behind them: it takes its limit, or all that is due."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from races.racing import (
    CAPPED,
    FOLLOWED,
    GUARDED,
    JOBS,
    OLD,
    Background,
    audited,
    await_waiting,
    backend,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    ms,
)
from servers import PostgresDatabase
from wane._keeper import Keeper
from wane._sqlfunctions import install

CONTRACTS = {"plain": JOBS, "guarded": GUARDED, "followed": FOLLOWED}
SQL = "SELECT (wane.prune('jobs', 'done', {}) ->> 'rows')::int"


@pytest.fixture(params=list(CONTRACTS))
def contract(request: pytest.FixtureRequest, postgres_database: PostgresDatabase) -> str:
    """Return a contract with ten due jobs; those with followers have one each."""
    name: str = request.param
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 10)
    if name == "plain":
        postgres_database.execute("DROP TABLE notes")
    if name == "followed":
        postgres_database.executemany("INSERT INTO notes VALUES (?, ?)", [(n, n) for n in range(1, 11)])
    return CONTRACTS[name]


def limit_of(contract: str) -> int:
    """Return half of what is due, followers included."""
    return 10 if contract is FOLLOWED else 5


def own(keeper: Keeper, caller: psycopg.Connection, limit: int) -> tuple[int, Callable[[], int]]:
    return backend_of(keeper), lambda: keeper.prune("jobs", rule="done", limit=limit).rows


def inline(keeper: Keeper, caller: psycopg.Connection, limit: int) -> tuple[int, Callable[[], int]]:
    return backend(caller), lambda: keeper.prune("jobs", rule="done", limit=limit, connection=caller).rows


def in_sql(keeper: Keeper, caller: psycopg.Connection, limit: int) -> tuple[int, Callable[[], int]]:
    install(keeper)
    # As long as the test needs, also on a slow machine; the function's own setting would let it skip what is locked.
    for (name,) in caller.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = to_regnamespace('wane') AND proname LIKE 'sql_take%'"
    ).fetchall():
        caller.execute(f"ALTER FUNCTION {name} SET lock_timeout = '20s'".encode())
    caller.commit()

    def prune() -> int:
        [(rows,)] = caller.execute(SQL.format(limit).encode()).fetchall()
        return int(rows)

    return backend(caller), prune


WAYS = {"own": own, "inline": inline, "sql": in_sql}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("contract", "way"),
    # The function of a rule with guards waits for no row: it locks the referring table, and skips rows that are locked.
    [(name, way) for name in CONTRACTS for way in WAYS if (name, way) != ("guarded", "sql")],
    indirect=["contract"],
)
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_prune_that_lost_its_rows_takes_the_next_ones(
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    contract: str,
    way: str,
    outcome: str,
) -> None:
    limit = limit_of(contract)
    with (
        enabled_keeper(postgres_database, tmp_path, contract) as first,
        enabled_keeper(postgres_database, tmp_path, contract) as second,
        psycopg.connect(postgres_database.url) as winner,
        psycopg.connect(postgres_database.url) as caller,
    ):
        waiting, prune = WAYS[way](second, caller, limit)
        assert first.prune("jobs", rule="done", limit=limit, connection=winner).rows == limit
        pruning = Background(prune)
        await_waiting(postgres_database, waiting, backend(winner))
        getattr(winner, outcome)()
        assert pruning.result() == limit
        caller.commit()
        assert ids(postgres_database) == ([] if outcome == "commit" else [6, 7, 8, 9, 10])
        assert audited(first) == (10 if outcome == "commit" else 5)
        assert len(first.audit()) == (2 if outcome == "commit" else 1), "one audit row each"


@pytest.mark.usefixtures("patient")
def test_a_prune_that_lost_its_rows_and_finds_no_more_takes_none(
    postgres_database: PostgresDatabase, tmp_path: Path, contract: str
) -> None:
    with (
        enabled_keeper(postgres_database, tmp_path, contract) as first,
        enabled_keeper(postgres_database, tmp_path, contract) as second,
        psycopg.connect(postgres_database.url) as winner,
    ):
        first.prune("jobs", rule="done", limit=20, connection=winner)
        pruning = Background(lambda: second.prune("jobs", rule="done", limit=20).rows)
        await_waiting(postgres_database, backend_of(second), backend(winner))
        winner.commit()
        assert pruning.result() == 0
        assert [entry.counts["jobs"] for entry in first.audit()] == [0, 10]


def test_a_prune_goes_on_behind_rows_that_an_application_has_locked(
    postgres_database: PostgresDatabase, tmp_path: Path, contract: str
) -> None:
    application = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, contract) as keeper, application.transaction():
        application.execute("SELECT FROM jobs WHERE id <= 3 FOR UPDATE")
        pruned = keeper.prune("jobs", rule="done", limit=limit_of(contract))
        assert (pruned.counts["jobs"], pruned.skipped_locked) == (5, True)
        assert ids(postgres_database) == [1, 2, 3, 9, 10]
        install(keeper)
        [(rows,)] = postgres_database.query(SQL.format(limit_of(contract)))
        assert rows == (4 if contract is FOLLOWED else 2)
        assert ids(postgres_database) == [1, 2, 3]


@pytest.mark.usefixtures("patient")
def test_a_cap_that_lost_its_rows_takes_no_more_than_are_beyond_it(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.execute("CREATE TABLE beats (id bigint PRIMARY KEY, seen_at bigint NOT NULL)")
    postgres_database.executemany("INSERT INTO beats VALUES (?, ?)", [(n, ms(OLD) + n) for n in range(1, 59)])
    with (
        enabled_keeper(postgres_database, tmp_path, CAPPED) as first,
        enabled_keeper(postgres_database, tmp_path, CAPPED) as second,
        psycopg.connect(postgres_database.url) as winner,
        psycopg.connect(postgres_database.url) as caller,
    ):
        assert first.prune("beats", rule="cap", limit=5, connection=winner).rows == 5
        pruning = Background(lambda: second.prune("beats", rule="cap", limit=5, connection=caller).rows)
        await_waiting(postgres_database, backend(caller), backend(winner))
        winner.commit()
        assert pruning.result() == 3
        caller.commit()
        assert ids(postgres_database, "beats") == list(range(9, 59))
