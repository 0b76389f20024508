"""The newest rows of each scope stay, whatever their age: as many as the rule says, whatever deletes at the same
time."""

from __future__ import annotations

from pathlib import Path

import pytest

from prune.keeping import KEEP_WEEK, ago, insert, jobs, keeping, rule, table
from prune.test_conditions import STATES, add, create, enabled_keeper, ids
from servers import Database, PostgresDatabase
from wane._contract.model import Mark, Spare, Table
from wane._sqlfunctions import install
from wane.errors import WrongArgument


def sparing(newest: int, *per: str, **more: object) -> Table:
    return table("job", rule(bound=KEEP_WEEK, spare=Spare(newest, per), **more))  # type: ignore[arg-type]


def scoped(database: Database, *rows: tuple[int, float, str | None]) -> None:
    """Insert done rows as (id, days, tenant)."""
    jobs(database)
    insert(database, "job", "id, state, at_ms, tenant", *[(n, "done", ago(days), tenant) for n, days, tenant in rows])


def test_the_newest_of_each_scope_stay_and_null_is_a_scope(database: Database) -> None:
    rows = [(1, 30, "a"), (2, 20, "a"), (3, 1, "b"), (4, 40, "b"), (5, 50, None), (6, 60, None), (7, 70, "c")]
    scoped(database, *rows)
    with keeping(database, sparing(1, "tenant")) as opened:
        [step] = opened.keeper.plan().steps
        assert step.due is not None
        assert step.due.rows == 3
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(approve=["job.old"]).rules
        assert swept.counts == {"job": 3}
        assert opened.ids() == [2, 3, 5, 7]
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 0


def test_among_rows_of_one_time_those_with_the_larger_keys_stay(database: Database) -> None:
    scoped(database, *[(n, 30, "a") for n in (3, 1, 5, 2, 4)])
    with keeping(database, sparing(2, "tenant")) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 3
        assert opened.ids() == [4, 5]


def test_only_rows_of_the_rule_are_counted(database: Database) -> None:
    """A newer row of another state, or without a time, is not one that the rule spares."""
    scoped(database, (1, 30, "a"), (2, 20, "a"))
    insert(
        database,
        "job",
        "id, state, at_ms, tenant",
        (3, "queued", ago(1), "a"),
        (4, "done", None, "a"),
        (5, "failed", ago(1), "a"),
    )
    with keeping(database, sparing(1)) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
        assert opened.ids() == [2, 3, 4, 5]


@pytest.mark.parametrize("states", [["done"], ["done", "failed"]])
def test_marks_followers_and_small_batches_spare_the_same(database: Database, states: list[str]) -> None:
    scoped(database, *[(n, 30 + n, "ab"[n % 2]) for n in range(10)])
    declared = table(
        "job",
        rule(bound=KEEP_WEEK, when=states, spare=Spare(2, ("tenant",)), then=Mark("cleaned")),
        rule("gone", when=["cleaned"]),
    )
    with keeping(database, declared) as opened:
        assert [opened.keeper.prune("job", rule="old", limit=4).rows for _ in range(3)] == [4, 2, 0]
        assert database.query("SELECT id FROM job WHERE state = 'done' ORDER BY id") == [(0,), (1,), (2,), (3,)]


def test_an_explicit_prune_spares_too(database: Database) -> None:
    scoped(database, *[(n, 30 + n, "a") for n in range(4)])
    with keeping(database, sparing(1)) as opened:
        now = opened.keeper.store.now()
        assert opened.keeper.prune("job", states=["done"], older_than=now, limit=10).rows == 3
    two = table("job", rule(spare=Spare(1)), rule("other", spare=Spare(2)))
    with keeping(database, two) as opened, pytest.raises(WrongArgument, match="spare different rows"):
        opened.keeper.prune("job", states=["done"], older_than=now, limit=10)


AIRFLOW = """
rule.scheduled = { keep = "90d", when = "*", where = { queue = "scheduled" }, spare = { newest = 1, per = "tries" } }
rule.manual    = { keep = "90d", when = "*", where = { queue = { not = "scheduled", null = true } } }
"""


def test_the_last_scheduled_run_of_each_dag_stays(database: Database, tmp_path: Path) -> None:
    """As `airflow db clean` does: `tries` is the DAG here, `queue` the type of the run."""
    create(database)
    runs = [(1, 1, "scheduled"), (2, 1, "scheduled"), (3, 1, "manual"), (4, 2, "scheduled"), (5, 2, None)]
    for number, dag, kind in runs:
        add(database, id=number, state="failed", at_ms=ago(200 - number), tries=dag, queue=kind)
    with enabled_keeper(database, tmp_path, AIRFLOW, STATES) as keeper:
        codes = {one.code: one.fix for one in keeper.check()}
        assert "CREATE INDEX" in codes["no-spare-index"]
        keeper.sweep(approve=["job.scheduled", "job.manual"])
        assert ids(database) == [2, 4]


def test_functions_in_the_database_spare_the_same(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    create(postgres_database)
    for number in range(1, 9):
        add(postgres_database, id=number, state="x", at_ms=ago(200 - number), tries=number % 2, queue="scheduled")
    with enabled_keeper(postgres_database, tmp_path, AIRFLOW, STATES) as keeper:
        assert install(keeper).refused == ()
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'scheduled', 4)")
        assert answer["counts"] == {"job": 4}
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'scheduled', 100)")
        assert answer["counts"] == {"job": 2}
        assert ids(postgres_database) == [7, 8]


def test_rows_that_move_to_another_schema_leave_the_newest(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    create(postgres_database)
    for number in range(1, 6):
        add(postgres_database, id=number, at_ms=ago(200 - number), tries=number % 2)
    rules = """
    rule.cold = { keep = "90d", then = "archive", spare = { newest = 1, per = "tries" } }
    [archive.job]
    keep = "forever"
    tier = "database"
    """
    with enabled_keeper(postgres_database, tmp_path, rules) as keeper:
        [swept] = keeper.sweep(approve=["job.cold"]).rules
        assert swept.counts == {"job": 3}
        assert ids(postgres_database) == [4, 5]
