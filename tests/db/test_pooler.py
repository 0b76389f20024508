"""Behind a connection pooler in transaction mode: every session that Wane used is as it was, and the application can go
on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from conftest import Clusters
from sampling import POOLED
from servers import PostgresDatabase, pooler_program
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper, open_keeper
from wane._partition.sql import partitions_of
from wane._prune.pace import Pace
from wane.errors import StoreError

pytestmark = pytest.mark.skipif(
    pooler_program() is None, reason="PgBouncer is not installed: `apt-get install pgbouncer`"
)

CONTRACT = """
[store]
url = "DATABASE_URL"
[scheduler]
nightly = { every = "1m" }
[table.jobs]
why = "a test"
scheduler = "nightly"
time = "at"
rule.old = { keep = "7d" }
"""


@pytest.fixture
def pooled(clusters: Clusters) -> Iterator[PostgresDatabase]:
    with clusters.database(POOLED) as database:
        database.script(
            "CREATE TABLE jobs (id int PRIMARY KEY, at timestamptz); CREATE INDEX ON jobs (at, id);"
            " INSERT INTO jobs SELECT g, now() - interval '30 days' FROM generate_series(1, 50) AS g"
        )
        yield database


@pytest.fixture
def keeper(pooled: PostgresDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    contract = tmp_path_factory.mktemp("contract") / "wane.toml"
    contract.write_text(CONTRACT)
    with open_store(resolve_url(pooled.url)) as store:
        store.migrate()
    with open_keeper(pooled.url, contract=contract) as keeper:
        yield keeper


def test_the_application_writes_after_every_command_that_reads(pooled: PostgresDatabase, keeper: Keeper) -> None:
    with closing(psycopg.connect(pooled.url, autocommit=True, prepare_threshold=None)) as application:
        reads: list[Callable[[], object]] = [keeper.plan, keeper.check, keeper.health, keeper.pressure]
        for number, read in enumerate(reads, start=1000):
            read()
            application.execute("INSERT INTO jobs VALUES (%s, now())", [number])
    assert pooled.query("SELECT count(*) FROM jobs WHERE id >= 1000") == [(4,)]


def test_rows_are_pruned_and_held(pooled: PostgresDatabase, keeper: Keeper) -> None:
    keeper.hold("jobs", key={"id": 1}, reason="court")
    assert keeper.prune("jobs", rule="old", limit=100).counts == {"jobs": 49}
    assert pooled.query("SELECT id FROM jobs") == [(1,)]


def test_a_sweep_leaves_nothing_in_a_session(pooled: PostgresDatabase, keeper: Keeper) -> None:
    keeper.enable()
    pace = Pace(target_seconds=1.0, duty=1.0, first_batch=10, least_batch=10, most_batch=10)
    [swept] = keeper.sweep("jobs", approve=["jobs.old"], pace=pace).rules
    assert (swept.rows, swept.batches) == (50, 6)
    assert pooled.query("SELECT count(*) FROM pg_proc WHERE proname LIKE 'wane_%'") == [(0,)]


def test_a_watch_polls_instead_of_listening(pooled: PostgresDatabase, keeper: Keeper) -> None:
    with closing(keeper.store.watch()) as watch:
        watch.wait(0.01)
        assert watch.read("SELECT 1", {}) == [(1,)]


def test_what_comes_often_is_not_prepared(pooled: PostgresDatabase, keeper: Keeper) -> None:
    queue = keeper.queue("mail")
    for _ in range(8):
        queue.enqueue("greet")
        assert queue.reserve() is not None
        keeper.pressure()
    assert pooled.query("SELECT count(*) FROM wane.message WHERE state = 'reserved'") == [(8,)]


def test_what_needs_a_session_is_refused(keeper: Keeper) -> None:
    with pytest.raises(StoreError, match="partitioning needs a session of its own") as refused:
        partitions_of(keeper.store)
    assert "the server itself" in refused.value.hint
