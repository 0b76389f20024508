"""Ages from several columns: the first that is not NULL, or the latest of them; a row without any stays."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from prune.keeping import WEEK, Keeping, ago, insert, keeping, rule, table
from servers import Database, PostgresDatabase
from wane._contract.model import Age, Expiry, Pick, Table, Time, Unit
from wane._db.counting import Count
from wane._prune.pace import Pace
from wane._sqlfunctions import install

JOB = "CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text NOT NULL, a bigint, b bigint, c bigint)"
SMALL = Pace(1.0, 1.0, 3, 3, 3)
ROWS: dict[int, tuple[float | None, float | None, float | None]] = {
    1: (30, None, None),
    2: (None, 29, None),
    3: (None, None, 28),
    4: (27, 1, None),
    5: (1, 26, None),
    6: (None, 25, 1),
    7: (None, None, None),
    8: (24, 23, 22),
    9: (1, None, None),
}
"""How many days old each column is."""
FIRST, LATEST = {1, 2, 3, 4, 6, 8}, {1, 2, 3, 8}


def time(pick: Pick) -> Time:
    return Time("a", Unit.MILLISECONDS, beside=("b", "c"), pick=pick)


def aged(pick: Pick, **more: Any) -> Table:
    return table("job", rule("old", Age(time(pick), WEEK), when=(), **more), state=None)


def fill(database: Database) -> None:
    database.execute(JOB)
    times = [[None if days is None else ago(days) for days in columns] for columns in ROWS.values()]
    insert(database, "job", "id, state, a, b, c", *((n, "done", *one) for n, one in zip(ROWS, times, strict=True)))


def left(opened: Keeping) -> set[int]:
    return set(ROWS) - set(opened.ids())


@pytest.mark.parametrize(("pick", "due"), [(Pick.FIRST, FIRST), (Pick.LATEST, LATEST)])
def test_rows_leave_by_the_column_that_counts(database: Database, pick: Pick, due: set[int]) -> None:
    fill(database)
    with keeping(database, aged(pick)) as opened:
        [step] = opened.keeper.plan().steps
        assert step.due == Count(len(due))
        assert isinstance(step.oldest, datetime)
        assert round(step.oldest.timestamp() * 1_000) == ago(30)
        assert opened.keeper.prune("job", rule="old", limit=2).rows == 2
        assert left(opened) == {1, 2}
        assert opened.keeper.prune("job", rule="old", limit=100).rows == len(due) - 2
        assert left(opened) == due
        assert [one.rows for one in opened.trail()] == [2, len(due) - 2]


@pytest.mark.parametrize(("pick", "due"), [(Pick.FIRST, FIRST), (Pick.LATEST, LATEST)])
def test_a_sweep_continues_behind_each_batch_in_every_column(database: Database, pick: Pick, due: set[int]) -> None:
    fill(database)
    with keeping(database, aged(pick)) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=SMALL).rules
        assert (swept.counts, left(opened)) == ({"job": len(due)}, due)


def test_a_value_that_is_no_time_keeps_its_row(database: Database) -> None:
    fill(database)
    database.execute("UPDATE job SET a = 17 WHERE id IN (1, 4)")  # Seconds, or a placeholder: not plausible.
    database.execute("UPDATE job SET b = 17 WHERE id = 8")
    with keeping(database, aged(Pick.LATEST)) as opened:
        opened.keeper.prune("job", rule="old", limit=100)
        assert left(opened) == {2, 3}
    with keeping(database, aged(Pick.FIRST)) as opened:
        opened.keeper.prune("job", rule="old", limit=100)
        assert left(opened) == {2, 3, 6, 8}


def test_an_expiry_may_be_prolonged_by_another_column(database: Database) -> None:
    fill(database)
    declared = table("job", rule("gone", Expiry(time(Pick.LATEST)), when=()), state=None)
    database.execute("UPDATE job SET b = ? WHERE id = 1", (ago(-1),))
    with keeping(database, declared) as opened:
        assert opened.keeper.consume("job", {"id": 1}) is not None
        assert opened.keeper.consume("job", {"id": 2}) is None
        opened.keeper.prune("job", rule="gone", limit=100)
        assert opened.ids() == [7]


@pytest.mark.parametrize(("pick", "due"), [(Pick.FIRST, FIRST), (Pick.LATEST, LATEST)])
def test_the_functions_in_the_database_take_the_same_rows(
    postgres_database: PostgresDatabase, pick: Pick, due: set[int]
) -> None:
    fill(postgres_database)
    with keeping(postgres_database, aged(pick)) as opened:
        assert install(opened.keeper).refused == ()
        [(found,)] = postgres_database.query("SELECT due FROM wane.v_queue_retention_pressure WHERE tbl = 'job'")
        assert found == len(due)
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'old', 2)")
        assert (answer["rows"], left(opened)) == (2, {1, 2})
        postgres_database.query("SELECT wane.prune('job', 'old', 100)")
        assert left(opened) == due


def test_pressure_and_health_count_what_is_due(database: Database) -> None:
    fill(database)
    with keeping(database, aged(Pick.LATEST)) as opened:
        [found] = [one for one in opened.keeper.pressure() if one.table == "job"]
        assert (found.due, found.oldest) == (Count(len(LATEST)), None)
        [job] = [one for one in opened.keeper.health().tables if one.pressure.table == "job"]
        assert isinstance(job.rules[0].oldest_due, datetime)
        assert round(job.rules[0].oldest_due.timestamp() * 1_000) == ago(30)
