"""A row whose time is in another column, another row or another table: what changes there while a batch runs counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from races.racing import NEW, OLD, SCHEDULER, audited, enabled_keeper, ids, ms
from races.test_recheck import overlap
from servers import PostgresDatabase
from wane._keeper import Keeper
from wane._sqlfunctions import install

pytestmark = pytest.mark.usefixtures("patient")


def prune(keeper: Keeper) -> int:
    return keeper.prune("jobs", rule="done", limit=10).counts["jobs"]


def prune_in_sql(keeper: Keeper) -> int:
    with keeper.store.transaction() as transaction:
        [(answer,)] = transaction.execute("SELECT wane.prune('jobs', 'done', 10)", {})
    return int(answer["counts"]["jobs"])


CHOSEN = (
    SCHEDULER
    + """
[table.jobs]
scheduler = "night"
why = "a test"
time = { %s = ["done_at", "cancelled_at"], unit = "ms" }
[table.jobs.rule.done]
keep = "7d"
"""
)


@pytest.mark.parametrize("pick", ["first", "latest"])
def test_a_row_that_gets_a_later_time_in_another_column_stays(
    postgres_database: PostgresDatabase, tmp_path: Path, pick: str
) -> None:
    postgres_database.execute("CREATE TABLE jobs (id bigint PRIMARY KEY, done_at bigint, cancelled_at bigint)")
    at = "NULL" if pick == "first" else str(ms(OLD))
    postgres_database.execute(f"INSERT INTO jobs SELECT n, {at}, {ms(OLD)} FROM generate_series(1, 4) AS n")
    column = "done_at" if pick == "first" else "cancelled_at"
    with enabled_keeper(postgres_database, tmp_path, CHOSEN % pick) as keeper:
        change = f"UPDATE jobs SET {column} = %s WHERE id = 2"
        assert overlap(postgres_database, keeper, change, (ms(NEW),), prune) == 3
        assert ids(postgres_database) == [2]
        assert audited(keeper) == 3


IN_CHILD = (
    SCHEDULER
    + """
[table.jobs]
scheduler = "night"
why = "a test"
time = { column = "at", unit = "ms", child = "events.job_id" }
[table.jobs.rule.done]
keep = "7d"
with = ["events.job_id"]
"""
)
IN_PARENT = (
    SCHEDULER
    + """
[table.jobs]
scheduler = "night"
why = "a test"
time = { column = "at", unit = "ms", parent = { table = "owners", columns = "owner" } }
[table.jobs.rule.done]
keep = "7d"
"""
)
CHANGES = {
    "arrives": "INSERT INTO events VALUES (9, 2, %s)",
    "gets a later time": "UPDATE events SET at = %s WHERE id = 2",
    "moves to the row": "UPDATE events SET job_id = 2, at = %s WHERE id = 8",
}


@pytest.mark.parametrize("taker", ["prune", "sql"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("key", ["REFERENCES jobs", "REFERENCES jobs ON DELETE CASCADE", ""])
def test_a_row_whose_child_gets_a_later_time_in_an_open_transaction_stays(
    postgres_database: PostgresDatabase, tmp_path: Path, key: str, change: str, taker: str
) -> None:
    postgres_database.script(
        f"""CREATE TABLE jobs (id bigint PRIMARY KEY);
        CREATE TABLE events (id bigint PRIMARY KEY, job_id bigint {key}, at bigint);
        CREATE INDEX events_job ON events (job_id);
        INSERT INTO jobs SELECT n FROM generate_series(1, 4) AS n;
        INSERT INTO jobs VALUES (8);
        INSERT INTO events SELECT n, n, {ms(OLD)} FROM generate_series(1, 4) AS n;
        INSERT INTO events VALUES (8, 8, {ms(NEW)}), (7, 8, {ms(NEW)});"""
    )
    with enabled_keeper(postgres_database, tmp_path, IN_CHILD) as keeper:
        take = prune
        if taker == "sql":
            install(keeper)
            take = prune_in_sql
        assert overlap(postgres_database, keeper, CHANGES[change], (ms(NEW),), take) == 3
        assert ids(postgres_database) == [2, 8]
        assert audited(keeper) == 3


@pytest.mark.parametrize("taker", ["prune", "sql"])
def test_a_row_whose_parent_gets_a_later_time_in_an_open_transaction_stays(
    postgres_database: PostgresDatabase, tmp_path: Path, taker: str
) -> None:
    postgres_database.script(
        f"""CREATE TABLE owners (id bigint PRIMARY KEY, at bigint);
        CREATE TABLE jobs (id bigint PRIMARY KEY, owner bigint REFERENCES owners);
        INSERT INTO owners SELECT n, {ms(OLD)} FROM generate_series(1, 2) AS n;
        INSERT INTO jobs SELECT n, n % 2 + 1 FROM generate_series(1, 4) AS n;"""
    )
    with enabled_keeper(postgres_database, tmp_path, IN_PARENT) as keeper:
        take = prune
        if taker == "sql":
            install(keeper)
            take = prune_in_sql
        change = "UPDATE owners SET at = %s WHERE id = 1"
        assert overlap(postgres_database, keeper, change, (ms(NEW),), take) == 2
        assert ids(postgres_database) == [2, 4]


OWN_WINDOW = (
    SCHEDULER
    + """
[table.jobs]
scheduler = "night"
why = "a test"
time = { column = "at", unit = "ms" }
[table.jobs.rule.done]
keep = "7d"
longer = { column = "days", unit = "d"%s }
"""
)


@pytest.mark.parametrize("taker", ["prune", "sql"])
@pytest.mark.parametrize("where", ["row", "queue"])
def test_a_row_whose_window_gets_longer_in_an_open_transaction_stays(
    postgres_database: PostgresDatabase, tmp_path: Path, where: str, taker: str
) -> None:
    postgres_database.script(
        f"""CREATE TABLE queues (id bigint PRIMARY KEY, days integer);
        CREATE TABLE jobs (id bigint PRIMARY KEY, at bigint, days integer, queue bigint);
        CREATE INDEX jobs_at ON jobs (at, id);
        INSERT INTO queues SELECT n, 1 FROM generate_series(1, 4) AS n;
        INSERT INTO jobs SELECT n, {ms(OLD)}, 1, n FROM generate_series(1, 4) AS n;"""
    )
    parent = ', parent = { table = "queues", columns = "queue" }' if where == "queue" else ""
    with enabled_keeper(postgres_database, tmp_path, OWN_WINDOW % parent) as keeper:
        take = prune
        if taker == "sql":
            install(keeper)
            take = prune_in_sql
        change = f"UPDATE {'queues' if where == 'queue' else 'jobs'} SET days = %s WHERE id = 2"
        assert overlap(postgres_database, keeper, change, (365,), take) == 3
        assert ids(postgres_database) == [2]
