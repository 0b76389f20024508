"""A row whose time is in another column, another row or another table: what changes there while a batch runs counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from races.racing import NEW, OLD, SCHEDULER, audited, ids, kept, ms
from races.test_between_look_and_delete import overlap
from servers import PostgresDatabase
from wane._keeper import Keeper

pytestmark = pytest.mark.usefixtures("patient")


def prune(keeper: Keeper) -> int:
    return keeper.prune("jobs", rule="done", limit=10).counts["jobs"]


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
    with kept(postgres_database, tmp_path, CHOSEN % pick) as keeper:
        change = f"UPDATE jobs SET {column} = %s WHERE id = 2"
        assert overlap(postgres_database, keeper, change, (ms(NEW),), prune) == 3
        assert ids(postgres_database) == [2]
        assert audited(keeper) == 3
